"""The exact direction closes on the logit, and a tuned lens does what its formula says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import lens_heads as lh
from lens_heads.model.directions import TunedLens
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import hooked
from lens_heads.trials.encoded import EncodedTrial
from tests import reference, zoo
from tests.conftest import random_trial

ROW, TOKEN = 23, 100
"""The row of the last prompt token, and an answer token it need not produce."""


def one_token_trial() -> EncodedTrial:
    base = random_trial(seed=5)
    return EncodedTrial(base.tokens, base.needle, "x", torch.tensor([TOKEN]), "one")


def contributions(model: Any, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """What each part writes into the residual stream at ROW, by hook name."""
    seen: dict[str, torch.Tensor] = {}
    names = ["hook_embed"]
    names += ["hook_pos_embed"] if model.cfg.positional_embedding_type == "standard" else []
    names += [f"blocks.{layer}.{part}" for layer in range(zoo.LAYERS) for part in ("hook_attn_out", "hook_mlp_out")]
    hooks = [(name, lambda x, hook, n=name: seen.__setitem__(n, x[0, ROW].detach())) for name in names]
    with torch.no_grad(), hooked(model, hooks):
        model(tokens[None])
    return seen


def logit_before_any_cap(arch: str, tokens: torch.Tensor) -> float:
    hf, seen = zoo.hf_model(arch), []
    hf.lm_head.register_forward_hook(lambda module, args, out: seen.append(out))
    with torch.no_grad():
        hf(tokens[None])
    return float(seen[0][0, ROW, TOKEN])


def bias_share(model: Any, p: reference.Plain, layer: int) -> float:
    """A layer's attention output bias, read in the direction the heads' writes are read in."""
    bias = getattr(model.blocks[layer].attn, "b_O", None)
    return 0.0 if bias is None else float(bias.detach() @ p.direction(layer, ROW, TOKEN, exact=True))


def test_all_contributions_sum_to_the_logit(arch: str, model: Any) -> None:
    trial = one_token_trial()
    p = reference.Plain(zoo.hf_model(arch), trial.tokens)
    dla = lh.score_heads(model, [trial], ["dla"], teacher_forced=True, direction="exact", progress=False)["dla"].values
    parts = contributions(model, trial.tokens)
    u = p._through(p.final_norm, p.resid[ROW], p.W_U[:, TOKEN])
    read = {name: float(written @ u) for name, written in parts.items()}
    for layer in range(zoo.LAYERS):
        closed = float(dla[layer].sum()) + bias_share(model, p, layer)
        assert closed == pytest.approx(read[f"blocks.{layer}.hook_attn_out"], rel=1e-3, abs=1e-4)
    total = float(dla.sum()) + sum(bias_share(model, p, layer) for layer in range(zoo.LAYERS))
    total += sum(value for name, value in read.items() if not name.endswith("hook_attn_out"))
    final_bias = getattr(p.final_norm, "bias", None)
    total += 0.0 if final_bias is None else float(final_bias.detach() @ p.W_U[:, TOKEN])
    logit = logit_before_any_cap(arch, trial.tokens)
    assert abs(logit) > 0.05  # Closing on nothing would prove nothing.
    assert total == pytest.approx(logit, rel=1e-3, abs=1e-4)
    # The raw direction does not close.
    raw = lh.score_heads(model, [trial], ["dla"], teacher_forced=True, progress=False)["dla"].values
    assert float(raw.sum()) != pytest.approx(float(dla.sum()), rel=1e-2)


def test_exact_reads_the_logit_before_gemmas_cap() -> None:
    """The sum above is of the uncapped logit: the capped one differs by far more than the tolerance."""
    tokens = one_token_trial().tokens
    with torch.no_grad():
        capped = float(zoo.hf_model("gemma2")(tokens[None]).logits[0, ROW, TOKEN])
    before = logit_before_any_cap("gemma2", tokens)
    assert capped == pytest.approx(5 * torch.tensor(before / 5).tanh().item(), abs=1e-5)
    assert abs(capped - before) > 0.01 * abs(before)


def random_lens(path: Path, scale: float = 0.3) -> tuple[Path, torch.Tensor, torch.Tensor]:
    """A lens file counted as the tuned-lens package does, and the (A, b) that each layer's writes must meet.

    Translator i reads what enters block i: writes of layer l meet translator l + 1, those of the last layer none.
    """
    generator = torch.Generator().manual_seed(9)
    A = scale * torch.randn(zoo.LAYERS, zoo.D_MODEL, zoo.D_MODEL, generator=generator)
    b = scale * torch.randn(zoo.LAYERS, zoo.D_MODEL, generator=generator)
    tensors = {}
    for layer in range(zoo.LAYERS):
        tensors |= {f"{layer}.weight": A[layer], f"{layer}.bias": b[layer]}
    save_file(tensors, path)
    none = torch.zeros(1)
    return path, torch.cat([A[1:], none.expand(1, *A.shape[1:])]), torch.cat([b[1:], none.expand(1, b.shape[1])])


def test_a_tuned_lens_is_the_plain_computation(arch: str, model: Any, trial: EncodedTrial, tmp_path: Path) -> None:
    file, A, b = random_lens(tmp_path / "lens.safetensors")
    scores = lh.score_heads(model, [trial], ["locos", "dla"], teacher_forced=True, direction=file, progress=False)
    steps = trial.answer_tokens.tolist()
    p = reference.Plain(zoo.hf_model(arch), torch.cat([trial.tokens, trial.answer_tokens[:-1]]))
    for method, found in scores.items():
        expected = reference.score(method, p, len(trial), trial.needle, steps, [0, 1, 2], lens=(A, b))  # type: ignore[arg-type]
        torch.testing.assert_close(found.values, expected, atol=2e-4, rtol=2e-4)
        assert str(found.settings["direction"]).startswith(f"{file.name} (")


def test_the_bias_counts_once_a_head_and_where_the_head_looks(arch: str, model: Any, tmp_path: Path) -> None:
    """Its part of `dla` is u . b whatever the prompt's length, and that of `locos` follows attention: heads of a layer differ."""
    file, A, b = random_lens(tmp_path / "lens.safetensors")
    without = tmp_path / "without.safetensors"
    save_file({f"{layer + 1}.weight": A[layer].contiguous() for layer in range(zoo.LAYERS - 1)}, without)
    options: dict[str, Any] = {"teacher_forced": True, "progress": False}
    methods = ["locos", "dla", "attention_spatial"]
    for trial in (random_trial(), random_trial(n=96)):
        one = lh.score_heads(model, [trial], methods, direction=file, **options)
        two = lh.score_heads(model, [trial], methods, direction=without, **options)
        constant = (model.W_U.detach()[:, trial.answer_tokens].T @ b.T).mean(0)  # [layer]
        assert constant.abs().max() > 0.05
        gained = one["dla"].values - two["dla"].values
        torch.testing.assert_close(gained, constant[:, None].expand(-1, 4), atol=1e-3, rtol=1e-3)
    step = EncodedTrial(trial.tokens, trial.needle, "x", trial.answer_tokens[:1], "one")
    one, two = (lh.score_heads(model, [step], methods, direction=lens, **options) for lens in (file, without))
    u = model.W_U.detach()[:, step.answer_tokens[0]]
    gained = one["locos"].values - two["locos"].values
    torch.testing.assert_close(gained, (b @ u)[:, None] * one["attention_spatial"].values, atol=2e-4, rtol=1e-3)
    assert gained.std(-1).max() > 1e-3


def test_an_identity_lens_is_the_raw_direction(gqa: Any, trial: EncodedTrial, tmp_path: Path) -> None:
    random_lens(tmp_path / "lens.safetensors", scale=0.0)
    options: dict[str, Any] = {"teacher_forced": True, "progress": False}
    raw = lh.score_heads(gqa, [trial], direction="raw", **options)
    lens = lh.score_heads(gqa, [trial], direction=tmp_path, **options)  # The folder that holds the file.
    for method in raw:
        assert torch.equal(raw[method].values, lens[method].values)


def test_the_last_layer_is_read_without_a_translator(gqa: Any, trial: EncodedTrial, tmp_path: Path) -> None:
    file, _, _ = random_lens(tmp_path / "lens.safetensors")
    options: dict[str, Any] = {"teacher_forced": True, "progress": False}
    raw = lh.score_heads(gqa, [trial], ["locos"], **options)["locos"].values
    lens = lh.score_heads(gqa, [trial], ["locos"], direction=file, **options)["locos"].values
    assert torch.equal(raw[-1], lens[-1])
    assert not torch.isclose(raw[:-1], lens[:-1], rtol=0.01).any()


def test_what_is_no_lens_is_refused_by_name(gqa: Any, tmp_path: Path) -> None:
    shape, d = head_geometry(gqa), zoo.D_MODEL
    with pytest.raises(ValueError, match=r"params\.pt is not a safetensors file.*weights_only=True"):
        TunedLens.load(tmp_path / "params.pt", shape)
    with pytest.raises(FileNotFoundError, match=r"no tuned lens at .*none\.safetensors"):
        TunedLens.load(tmp_path / "none.safetensors", shape)
    with pytest.raises(ValueError, match="not a safetensors file"):
        TunedLens.load(tmp_path, shape)  # A folder without one.
    file = tmp_path / "lens.safetensors"
    save_file({"0.weight": torch.zeros(d, d), "2.weight": torch.zeros(d, d)}, file)
    with pytest.raises(
        ValueError, match=r"lens\.safetensors: translator 1\.weight is missing; llama-gqa needs \[32, 32\]"
    ):
        TunedLens.load(file, shape)
    save_file({f"{layer}.weight": torch.zeros(d, d + 1) for layer in range(3)}, file)
    with pytest.raises(ValueError, match=r"translator 1\.weight is of shape \(32, 33\)"):
        TunedLens.load(file, shape)
    save_file({f"{layer}.weight": torch.zeros(d, d) for layer in range(3)} | {"1.bias": torch.zeros(d - 1)}, file)
    with pytest.raises(ValueError, match=r"translator 1\.weight.*bias of shape \(31,\)"):
        TunedLens.load(file, shape)


def test_a_misspelt_direction_is_refused_before_any_work(gqa: Any, trial: EncodedTrial) -> None:
    with pytest.raises(ValueError, match="exakt"):
        lh.score_heads(gqa, [trial], teacher_forced=True, direction="exakt", progress=False)
