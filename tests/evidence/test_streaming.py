"""A cache in which few heads keep everything: the numbers of kind "streaming", less memory, and the table of rankings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.evidence.streaming import _conditions, streaming_cache
from lens_heads.heads.geometry import LayerGeometry
from lens_heads.heads.head import Head
from lens_heads.heads.sets import every_head
from lens_heads.model.decoding import greedy
from lens_heads.model.forward import Cache, advance, prefill
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks, hooked
from tests import planted, zoo
from tests.conftest import random_trial, tiny

QUIET: dict[str, Any] = {"progress": False}
SUPPORTED = [name for name in zoo.ARCHITECTURES if name != "gemma2"]
"""Gemma 2 caps its attention scores, which sdpa cannot."""


def kept_of(model: Any) -> list[Head]:
    """Every other kv head."""
    shape = head_geometry(model)
    return every_head(shape.n_layers, shape.n_kv_heads)[::2]


def streamed_heads(model: Any) -> list[Head]:
    shape = head_geometry(model)
    others = [
        (head.layer, head.head) for head in every_head(shape.n_layers, shape.n_kv_heads) if head not in kept_of(model)
    ]
    return lh.units.query_heads(others, shape.group)


@pytest.mark.parametrize("arch", SUPPORTED)
@torch.no_grad()
def test_logits_are_those_of_kind_streaming(arch: str) -> None:
    model, tokens = tiny(arch), random_trial(n=30).tokens[None]
    with lh.ablate(model, streamed_heads(model), kind="streaming", sink=2, recent=5):
        expected = model(tokens)
    with streaming_cache(model, kept_of(model), sink=2, recent=5) as cache:
        prefill(model, tokens[:, :17], cache, chunk=7)
        parts = [advance(model, tokens[:, 17:22], cache, logits=5)]
        parts += [advance(model, tokens[:, i : i + 1], cache) for i in range(22, 30)]
    torch.testing.assert_close(torch.cat(parts, 1), expected[:, 17:], atol=1e-4, rtol=1e-4)
    assert len(cache) == 30
    assert not has_hooks(model)


@torch.no_grad()
def test_the_cache_is_really_smaller(gqa: Any) -> None:
    tokens, shape = random_trial(n=200).tokens[None], head_geometry(gqa)
    plain = Cache(gqa, 1)
    prefill(gqa, tokens, plain)
    one = 2 * 4 * shape.d_head
    sizes = {}
    for kept in (every_head(3, 2), kept_of(gqa), []):
        with streaming_cache(gqa, kept, sink=2, recent=10) as cache:
            prefill(gqa, tokens, cache, chunk=64)
        sizes[len(kept)] = cache.bytes
    assert sizes[6] == plain.row_bytes == 6 * 200 * one
    assert sizes[3] == 3 * (200 + 2 + 9) * one  # Of the last ten, the next row is one.
    assert sizes[0] == 6 * (2 + 9) * one


@torch.no_grad()
def test_windows_bound_what_any_head_keeps() -> None:
    model, tokens = tiny("gemma3"), random_trial(n=60).tokens[None]
    with streaming_cache(model, every_head(3, 1), sink=2, recent=10) as cache:
        prefill(model, tokens, cache)
    assert cache.bytes == 2 * 4 * 16 * (60 + 2 * (zoo.WINDOW - 1))


@torch.no_grad()
def test_decoding_and_branches(gqa: Any) -> None:
    """Greedy decoding equals that of the ablated model; a branch goes on without the other noticing."""
    trial = random_trial(n=40)
    with lh.ablate(gqa, streamed_heads(gqa), kind="streaming", sink=1, recent=6):
        cache: Any = Cache(gqa, 1)
        prefill(gqa, trial.tokens[None, :-1], cache)
        expected = greedy(gqa, trial.tokens[None, -1:], cache, None, 6)
    with streaming_cache(gqa, kept_of(gqa), sink=1, recent=6) as cache:
        prefill(gqa, trial.tokens[None, :-1], cache)
        before, other = cache.bytes, cache.branch()
        assert greedy(gqa, trial.tokens[None, -1:], cache, None, 6) == expected
    assert (other.bytes, len(other)) == (before, 39)
    with other.attending(gqa):
        assert greedy(gqa, trial.tokens[None, -1:], other, None, 6) == expected


def ranking(model: Any, n: int = 8) -> Any:
    """A ranking of trials of its own, as its ids say: planted models have few needles, which all trials share."""
    found = lh.score_heads(model, planted.trials(n), ["locos"], teacher_forced=True, **QUIET)["locos"]
    return replace(found, trial_ids=tuple(f"own-{i}" for i in range(n)), made_on=())


@pytest.mark.slow
def test_the_table_of_a_planted_ranking() -> None:
    """The heads that answer must keep the context; random ones lose it."""
    model = planted.model()
    scores = {"locos": ranking(model)}
    how: dict[str, Any] = {
        "shares": (0.25,),
        "sink": 1,
        "recent": 6,
        "controls": lh.Controls("random", 8),
        "max_new_tokens": 2,
    }
    found = lh.streaming(model, planted.trials(8, seed=3), scores, **how, **QUIET)
    frame = found.frame.set_index("method")
    assert frame.loc["locos", "logprob"] == pytest.approx(frame.loc["whole", "logprob"], abs=0.2)
    assert frame.loc["none", "logprob"] < frame.loc["whole", "logprob"] - 1
    assert frame.loc["locos", "beyond_random_low"] > 0
    assert frame.loc["whole", "kept"] == 1
    assert 0.25 < frame.loc["locos", "kept"] < 0.5
    right = found.of("correct").set_index("method")["correct"]
    assert right["locos"] == right["whole"] > right["none"]
    assert [each.name for each in found.plot("correct").data] == ["whole cache", "LOCOS", "random"]
    with pytest.raises(ValueError, match="metric='rouge': use 'logprob' or 'correct' or 'bytes'"):
        found.of("rouge")
    rows = found.per_trial
    assert len(rows) == 8 * (2 + 1 + 8)
    with lh.ablate(
        model,
        [head for head in every_head(2, 4) if head not in scores["locos"].top(2)],
        kind="streaming",
        sink=1,
        recent=6,
    ):
        expected = lh.evaluate(model, planted.trials(8, seed=3), max_new_tokens=2, **QUIET)
    got = rows[rows["method"] == "locos"].set_index("trial")["logprob"]
    torch.testing.assert_close(
        torch.tensor(got.loc[list(expected.trial_ids)].to_numpy()).float(),
        expected.metrics["logprob"],
        atol=1e-4,
        rtol=1e-4,
    )


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_a_share_keeps_the_heads_that_its_threshold_opens(share: float) -> None:
    """Also where gates tie: streaming, thresholds and pruning agree on which of them go."""
    shape = replace(head_geometry(tiny("llama-gqa")), layers=(LayerGeometry(4, 2, 8),) * 9)
    values = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.5, 1.0]).repeat(3).reshape(1, 9, 2)
    gates = lh.HeadScores.from_trials("duo_gate", values, ["training"], unit="kv_head")
    kept = _conditions(shape, {"gates": gates}, [share], lh.Controls("random", 1))
    assert kept["gates", share, 0] == lh.heads.open_gates(gates, threshold=lh.heads.gate_threshold(gates, share=share))
    assert len(kept["random", share, 0]) == len(kept["gates", share, 0])
    gone = set(lh.deploy.lowest_groups(gates, shape, k=1))
    for layer in range(9):
        last = [head for head in gates.ranking() if head.layer == layer][-1]
        assert {head.head // 2 for head in gone if head.layer == layer} == {last.head}


def test_a_stored_table_goes_on(tmp_path: Any) -> None:
    model = planted.model()
    scores = {"locos": ranking(model, 4)}
    how: dict[str, Any] = {
        "shares": (0.5,),
        "controls": lh.Controls("random", 2),
        "recent": 6,
        "max_new_tokens": 1,
        "out": tmp_path / "run",
        **QUIET,
    }
    one, two = (lh.streaming(model, planted.trials(4, seed=3), scores, **how) for _ in range(2))
    assert one.per_trial.equals(two.per_trial)


def test_bad_input(gqa: Any) -> None:
    with (
        pytest.raises(ValueError, match=r"kv head L0H2 does not exist: .* kv heads 0-1; units\.to_kv_heads"),
        streaming_cache(gqa, ["L0H2"]),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"cannot decode with a streaming cache.* without capped scores"),
        streaming_cache(tiny("gemma2"), []),
    ):
        pass
    look = [("blocks.0.attn.hook_pattern", lambda x, hook: None)]
    with hooked(gqa, look), pytest.raises(ValueError, match="hooks inside its attention"), streaming_cache(gqa, []):
        pass
    model = planted.model()
    scores = lh.score_heads(model, planted.trials(2), ["locos"], teacher_forced=True, **QUIET)
    with pytest.raises(ValueError, match="ranking 'locos' was made on 2 of the trials"):
        lh.streaming(model, planted.trials(2), scores, **QUIET)
    with pytest.raises(ValueError, match="shares=2: must lie strictly between 0 and 1"):
        lh.streaming(model, planted.trials(2, seed=4), {"locos": ranking(model)}, shares=[2], **QUIET)
    with pytest.raises(ValueError, match="ranking 'random': rows of that name stand beside every ranking"):
        lh.streaming(model, planted.trials(2, seed=4), {"random": ranking(model)}, **QUIET)
    with pytest.raises(ValueError, match="made on other weights"):
        lh.streaming(gqa, [random_trial(9)], {"locos": ranking(model)}, **QUIET)
