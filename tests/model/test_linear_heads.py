"""Heads of linear attention and Mamba-2 against plain transformers: their weights close, and what reads writes runs on them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from einops import einsum
from torch import Tensor
from transformers import DynamicCache

import lens_heads as lh
from lens_heads.model import copies
from lens_heads.model.forward import Cache, advance
from lens_heads.model.geometry import head_geometry, output_weights
from lens_heads.model.hooks import has_hooks, hooked, recording
from lens_heads.model.identity import fingerprint
from lens_heads.model.recurrence import Recurrence
from lens_heads.ranking.one_pass.definition import PHI, Scorer
from lens_heads.sanity.planted_weights import byte_tokenizer
from tests import witnesses
from tests.conftest import random_trial

KINDS = {
    "qwen3_next": ("linear_attn", "norm", "out_proj"),
    "qwen3_5": ("linear_attn", "norm", "out_proj"),
    "olmo_hybrid": ("linear_attn", "o_norm", "o_proj"),
    "granite4": ("mamba", "norm", "out_proj"),
}
"""By family: where in a layer the mixer is, and in that the norm after the heads, and the projection that they write through."""
LAYER = 2


@cache
def shown(name: str) -> Any:
    """The family's tiny model, from its folder, with its linear heads."""
    with tempfile.TemporaryDirectory() as folder:
        byte_tokenizer(folder)
        witnesses.plain(name).save_pretrained(folder)
        model = lh.load_model(folder, linear_heads=True)
    model.cfg.model_name = name
    return model


def mixer(name: str, layer: int = LAYER) -> Any:
    return getattr(witnesses.plain(name).model.layers[layer], KINDS[name][0])


@contextmanager
def before(module: Any, edit: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Inside, a module of the plain model is given `edit(x)` for its first argument."""

    def hook(module: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        new = edit(args[0])
        return None if new is None else (new, *args[1:])

    handle = module.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize("replaces", [True, False])
def test_weights_are_those_of_the_recurrence(replaces: bool) -> None:
    """A plain loop over the states, with matrices as the formula has them."""
    torch.manual_seed(0)
    length, rows, e, d = 9, 4, 5, 3
    q, k, v = torch.randn(2, 3, length, e), torch.randn(2, 3, length, e) / e**0.5, torch.randn(2, 3, length, d)
    b, log_a = torch.rand(2, 3, length), -torch.rand(2, 3, length)
    skip = None if replaces else torch.randn(3)
    weights = Recurrence(q, k, v, b, log_a, replaces, skip).weights(rows)
    assert not weights.triu(length - rows + 1).any()
    for at in [(x, y) for x in range(2) for y in range(3)]:
        S = torch.zeros(e, d)
        for t in range(length):
            kept = torch.eye(e) - b[at][t] * torch.outer(k[at][t], k[at][t]) if replaces else torch.eye(e)
            S = log_a[at][t].exp() * kept @ S + b[at][t] * torch.outer(k[at][t], v[at][t])
            o = S.T @ q[at][t] + (0 if skip is None else skip[at[1]] * v[at][t])
            if t >= length - rows:
                torch.testing.assert_close(weights[at][t - length + rows] @ v[at], o, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", KINDS)
def test_what_a_head_reads_is_the_weighted_sum_of_values(name: str) -> None:
    """o of transformers' own recurrence, in whole texts and over a cache that was filled in pieces."""
    model, tokens, held = shown(name), random_trial(3, n=26).tokens[None], []
    with before(getattr(mixer(name), KINDS[name][1]), held.append), torch.no_grad():
        witnesses.logits(name, tokens[0])
    shape = head_geometry(model).layers[LAYER]
    o = held[0].reshape(26, shape.n_heads, shape.d_head)
    for pieces in ([26], [13, 8, 1, 1, 3]):
        store = Cache(model, 1)
        with recording(model, [f"blocks.{LAYER}.attn.hook_pattern"]) as seen, torch.no_grad():
            for piece in tokens.split(pieces, 1):
                advance(model, piece, store)
        weights = seen[f"blocks.{LAYER}.attn.hook_pattern"][-1][0]
        read = einsum(weights, store.values(LAYER)[0], "head row key, head key e -> row head e")
        assert weights.min() < 0
        size = float(o.abs().max())
        torch.testing.assert_close(read, o[-pieces[-1] :], atol=2e-5 * size, rtol=1e-3)


@pytest.mark.parametrize("name", KINDS)
def test_zeroed_linear_heads_are_zeroed_in_plain_transformers(name: str) -> None:
    model, trial = shown(name), random_trial(5, n=30)
    shape = head_geometry(model)
    width, heads = shape.layers[LAYER].d_head, [1, 3]

    def zero(z: Tensor) -> Tensor:
        by_head = z.clone().unflatten(-1, (-1, width))
        by_head[..., heads, :] = 0
        return by_head.flatten(-2)

    whole = torch.cat([trial.tokens, trial.answer_tokens])
    with before(getattr(mixer(name), KINDS[name][2]), zero):
        expected = witnesses.logits(name, whole).log_softmax(-1)
    wanted = expected[len(trial.tokens) - 1 : -1].gather(-1, trial.answer_tokens[:, None]).mean()
    with lh.ablate(model, [(LAYER, head) for head in heads], kind="zero"):
        found = lh.evaluate(model, trial, generate=False, progress=False).mean("logprob")
    assert found == pytest.approx(float(wanted), abs=2e-4)
    assert not has_hooks(model)


@pytest.mark.parametrize("name", KINDS)
def test_contributions_of_positions_sum_to_the_write(name: str) -> None:
    """phi over all positions is z W_O u of the plain model; dla is its mean over the answer."""
    model, trial = shown(name), random_trial(7, n=30)
    held: list[Tensor] = []
    with before(getattr(mixer(name), KINDS[name][2]), held.append):
        witnesses.logits(name, torch.cat([trial.tokens, trial.answer_tokens]))
    shape = head_geometry(model)
    n = shape.layers[LAYER].n_heads
    rows = slice(len(trial.tokens) - 1, len(trial.tokens) - 1 + len(trial.answer_tokens))
    z, u = held[0][0].unflatten(-1, (n, -1))[rows], model.W_U.detach()[:, trial.answer_tokens]
    writes = einsum(z, output_weights(model, LAYER), u, "row head e, head e d, d row -> head row")
    size = float(writes.abs().max())
    total = Scorer("total", lambda view: view.phi.sum(-1).mean(-1), "answer", reads=frozenset(PHI))
    scores = lh.score_heads(model, trial, ["dla", "locos", total], teacher_forced=True, progress=False)
    for name in ("dla", "total"):
        torch.testing.assert_close(scores[name].values[LAYER, :n], writes.mean(-1), atol=1e-4 * size, rtol=1e-3)
    assert torch.equal(scores["locos"].values.isnan(), shape.holes)
    look = lh.look(model, trial, direction="raw")
    phi = look.phi[look.places([(LAYER, head) for head in range(n)])].float().sum(-1)
    torch.testing.assert_close(phi, writes, atol=1e-2 * size, rtol=1e-2)  # It keeps float16.


@pytest.mark.parametrize("name", KINDS)
def test_edited_weights_move_what_the_layer_writes(name: str) -> None:
    """All weights of a head at 0: its z is that of an o of 0, which the gated norm leaves at 0."""
    model, tokens = shown(name), random_trial(8, n=20).tokens[None]

    def cut(weights: Tensor, hook: Any) -> Tensor:
        weights = weights.clone()
        weights[:, 1] = 0
        return weights

    names = [f"blocks.{LAYER}.attn.{hook}" for hook in ("hook_z", "hook_out")]
    with torch.no_grad(), recording(model, names) as plain:
        model(tokens)
    with (
        torch.no_grad(),
        hooked(model, [(f"blocks.{LAYER}.attn.hook_pattern", cut)]),
        recording(model, names) as edited,
    ):
        model(tokens)
    heads = head_geometry(model)
    z, z_ = (heads.by_head(seen[names[0]][0], LAYER) for seen in (plain, edited))
    assert not z_[:, :, 1].any()
    if name != "granite4":  # Its norm is over all heads.
        torch.testing.assert_close(z_[:, :, 2], z[:, :, 2])
    assert (plain[names[1]][0] - edited[names[1]][0]).abs().max() > 1e-3


@pytest.mark.parametrize("name", KINDS)
def test_weights_over_a_cache_of_transformers_are_refused(name: str) -> None:
    """It keeps the states alone, so that the weights of earlier tokens would be missing without a word."""
    model, tokens = shown(name), random_trial(8, n=20).tokens[None]
    store = DynamicCache(config=model.original_model.config)
    with torch.no_grad(), recording(model, [f"blocks.{LAYER}.attn.hook_pattern"]) as seen:
        model(tokens[:, :12], past_key_values=store, use_cache=True)
        with pytest.raises(ValueError, match="the cache holds earlier tokens as a state alone"):
            model(tokens[:, 12:], past_key_values=store, use_cache=True)
    assert [one.shape[-1] for one in seen[f"blocks.{LAYER}.attn.hook_pattern"]] == [12]
    assert not has_hooks(model)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_everything_that_reads_writes_runs_and_the_rest_is_refused(name: str) -> None:
    model = shown(name)
    shape = head_geometry(model)
    assert shape.softmax == (1, 3)
    assert list(shape.linear.values()) == [[0, 2]]
    trials, test = ([random_trial(seed, n=60) for seed in range(first, first + 6)] for first in (0, 20))
    means = lh.mean_activations(model, [random_trial(seed, n=60) for seed in range(50, 53)], progress=False)
    found = dict(lh.score_heads(model, trials, ["dla", "locos", "locos_exact"], teacher_forced=True, progress=False))
    found["patching"] = lh.patch_heads(model, trials[:2], progress=False)
    found["attribution"] = lh.attribution_patch(model, trials[:2], positions="answer", progress=False)
    found["ablation"] = lh.attribute_ablation(model, trials[:2], kind="zero", progress=False)
    found["path"] = lh.path_patch(model, trials[:2], None, "logits", corruption="swap", progress=False)
    found["knockout"] = lh.knockout_heads(model, trials[:2], kind="zero", progress=False)
    found["greedy"] = lh.localize_heads(model, trials, method="greedy", k=1, kind="zero", progress=False)
    for one in found.values():
        assert torch.equal(one.values.isnan(), shape.holes), one.method
        assert len(one.ranking()) == shape.size
    curve = lh.ablation_curve(
        model, test, {"dla": found["dla"]}, ks=[1, 2], kind="mean", reference=means, generate=False, progress=False
    )
    for row in curve.per_trial.itertuples():
        shape.check_heads([head for head in row.heads.split(",") if head])
    refused: dict[str, Callable[[], Any]] = {
        "attention_mass": lambda: lh.score_heads(model, trials, "attention_mass", progress=False),
        "uniform": lambda: lh.knockout_heads(model, trials[:2], kind="uniform", progress=False),
        "query_zero": lambda: lh.knockout_heads(model, trials[:2], kind="query_zero", progress=False),
        "match": lambda: lh.match_heads(
            model,
            witnesses.bridged("granite"),
            texts=["one two three four five", "six seven eight nine ten"],
            progress=False,
        ),
    }
    for call in refused.values():
        with pytest.raises(ValueError, match=r"linear heads in layers 0, 2 \(.*load the model without linear_heads"):
            call()


@pytest.mark.parametrize("name", KINDS)
def test_batches_with_padding_score_as_single_prompts(name: str) -> None:
    model = shown(name)
    trials = [random_trial(seed, n=n) for seed, n in ((1, 18), (2, 40), (3, 29))]
    both, single = (
        lh.score_heads(model, trials, "locos", teacher_forced=True, batch_size=size, progress=False)["locos"]
        for size in (3, 1)
    )
    torch.testing.assert_close(both.per_trial, single.per_trial, atol=1e-4, rtol=1e-3, equal_nan=True)


def test_they_are_pruned_in_place_alone(tmp_path: Path) -> None:
    model, tokens = shown("qwen3_next"), random_trial(3, n=12).tokens[None]
    written = lh.prune(model, "L0H1", tmp_path / "zeroed", how="zero").path
    with torch.no_grad(), lh.ablate(model, "L0H1", kind="zero"):
        expected = model(tokens)
    torch.testing.assert_close(lh.load_model(written)(tokens).detach(), expected)
    with pytest.raises(ValueError, match="layers of qwen3_next differ in their heads: use how='zero'"):
        lh.prune(model, "L0H1", tmp_path / "removed", how="remove")


def test_a_copy_shows_them_too() -> None:
    model = shown("qwen3_next")
    made = copies.unpacked(copies.packed(model), "cpu")
    assert head_geometry(made).linear == head_geometry(model).linear
    assert fingerprint(made) == fingerprint(model)  # Before it has run.
    tokens = random_trial(3, n=12).tokens[None]
    with torch.no_grad():
        assert torch.equal(made(tokens), model(tokens))


@pytest.mark.parametrize(
    ("name", "said"), [("granite", "Granite"), ("lfm2", "Lfm2"), ("jamba", "Jamba"), ("falcon_h1", "FalconH1")]
)
def test_a_model_without_any_is_refused(name: str, said: str, tmp_path: Path) -> None:
    byte_tokenizer(str(tmp_path))
    witnesses.plain(name).save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match=f"{said}ForCausalLM has no layer of linear heads .*load it without linear_heads"
    ):
        lh.load_model(tmp_path, linear_heads=True)
