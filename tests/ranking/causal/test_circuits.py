"""Circuits: stages are path patching normalised by the gap, and a planted induction circuit is traced to both its heads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads import compare
from lens_heads.heads.circuit import Circuit, Stage
from lens_heads.trials.pairs import TokenPair
from tests.conftest import random_trial
from tests.pairs import trial_of
from tests.planted_tokens import INDUCTION, PREVIOUS, induction_model
from tests.ranking.causal.test_patching import random_pair


def right_pairs(model: Any, n: int) -> list[lh.EncodedTrial]:
    """Random pairs of which the clean side has the higher log-probability."""
    made = []
    for seed in range(n):
        pair = random_pair(seed)
        (record,) = lh.patch_heads(model, [trial_of(pair)], progress=False).meta["trials"]
        swapped = TokenPair(pair.corrupt, pair.clean, pair.answer, pair.id)
        made.append(trial_of(pair if record["clean"] > record["corrupt"] else swapped))
    return made


@pytest.mark.slow
def test_stages_are_path_patching_over_the_gap(arch: str, model: Any) -> None:
    pairs = right_pairs(model, 2)
    found = lh.ranking.trace_circuit(model, pairs, components=("q", "v"), share=0.2, progress=False)
    records = lh.patch_heads(model, pairs, progress=False).meta["trials"]
    gap = sum(record["clean"] - record["corrupt"] for record in records) / 2
    assert found.gap == pytest.approx(gap, abs=1e-4)
    receivers: Any = "logits"
    for stage, component in zip(found.stages, ("q", "q", "v"), strict=False):
        expected = lh.path_patch(model, pairs, None, receivers, component=component, progress=False).values / gap
        torch.testing.assert_close(stage.scores.values, expected, atol=1e-4, rtol=1e-3)
        best = stage.scores.values.abs().flatten().topk(2).indices.tolist()
        reached = [at for at in best if expected.abs().flatten()[at] > 1e-6]
        assert sorted(4 * head.layer + head.head for head in stage.heads) == sorted(reached)
        receivers = list(stage.heads)
    assert len(found.frame) == sum(len(stage.heads) for stage in found.stages)
    assert set(found.heads) == {head for stage in found.stages for head in stage.heads}


def planted_pairs(n: int = 4) -> list[lh.EncodedTrial]:
    """A block comes again up to a token; in the corrupt run another stands at the first occurrence of that token.

    So only what PREVIOUS notes at the token after it differs, which is the key that INDUCTION looks for.
    """
    made = []
    for seed in range(n):
        block = 20 + torch.randperm(100, generator=torch.Generator().manual_seed(seed))[:12]
        asked, other = 4 + seed, torch.tensor([150 + seed])
        clean = torch.cat([torch.tensor([1]), block, block[:asked], block[asked : asked + 1]])
        corrupt = clean.clone()
        corrupt[asked] = other
        end = len(clean)
        made.append(trial_of(TokenPair(clean, corrupt, (end - 1, end), f"planted-{seed}")))
    return made


@pytest.mark.slow
def test_a_planted_circuit_is_traced_from_the_logits_to_the_head_before() -> None:
    model = induction_model(writes=1.0)
    found = lh.ranking.trace_circuit(model, planted_pairs(), components=("k",), share=0.25, progress=False)
    assert found.stages[0].heads == (INDUCTION,)
    assert found.stages[0].scores[INDUCTION] == pytest.approx(1, abs=0.05)
    letters = found.plot().data[0].text
    assert letters[INDUCTION.layer][INDUCTION.head] == "1"
    assert letters[PREVIOUS.layer][PREVIOUS.head] == "2"
    assert found.stages[1].heads == (PREVIOUS,)
    assert found.stages[1].scores[PREVIOUS] > 0.5
    blind = lh.ranking.trace_circuit(model, planted_pairs(), components=("v", "v"), share=0.25, progress=False)
    assert blind.heads == [INDUCTION]  # Nothing reaches it by its values, so that the trace ends.


def test_pairs_without_a_gap_are_refused_before_anything_is_patched(gqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = random_pair()
    same = trial_of(TokenPair(pair.clean, pair.clean, pair.answer, "same"))
    monkeypatch.setattr("lens_heads.ranking.causal.circuits.path_patch", None)
    with pytest.raises(ValueError, match="the clean runs exceed the corrupt ones by 0"):
        lh.ranking.trace_circuit(gqa, [same], progress=False)
    (right,) = right_pairs(gqa, 1)
    wrong = replace(right, tokens=right.corrupt, corrupt=right.tokens, id="wrong")
    with pytest.raises(ValueError, match=r"the clean runs exceed the corrupt ones by -\d"):
        lh.ranking.trace_circuit(gqa, [wrong], progress=False)
    with pytest.raises(ValueError, match="share=2"):
        lh.ranking.trace_circuit(gqa, [trial_of(pair)], share=2)
    with pytest.raises(ValueError, match="has no counterfactual"):
        lh.ranking.trace_circuit(gqa, random_trial(), corruption="counterfactual")


def test_stages_continue_from_their_folders(gqa: Any, tmp_path: Any) -> None:
    one, again = (
        lh.ranking.trace_circuit(gqa, right_pairs(gqa, 1), out=tmp_path / "run", progress=False) for _ in range(2)
    )
    assert one.heads == again.heads
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"stage-0", "stage-1"}


def circuit(heads: list[str], shape: tuple[int, int] = (3, 4)) -> Circuit:
    scores = lh.HeadScores.from_trials("path_patch", torch.rand(2, *shape), ["a", "b"])
    listed = tuple(lh.Head.parse(head) for head in heads)
    return Circuit((Stage("to the logits", (), scores, listed),), 1.0, shape, {})


def test_shared_heads_stand_beside_chance() -> None:
    circuits = {"ioi": circuit(["L2H0", "L1H1", "L0H3"]), "objects": circuit(["L1H1", "L2H0"])}
    (row,) = compare.circuit_reuse(circuits).to_dict("records")
    assert row["shared"] == "L2H0, L1H1"
    assert (row["overlap"], row["share_of_a"], row["share_of_b"]) == (2, pytest.approx(2 / 3), 1)
    assert row["expected_overlap"] == pytest.approx(3 * 2 / 12)
    assert row["layer_matched_overlap"] == pytest.approx(1 / 4 + 1 / 4)
    assert row["p_value"] == pytest.approx(3 / 66)
    with pytest.raises(ValueError, match="circuits of models of different shapes"):
        compare.circuit_reuse({"a": circuit(["L0H0"]), "b": circuit(["L0H0"], (2, 2))})
    with pytest.raises(ValueError, match="at least two"):
        compare.circuit_reuse({"a": circuit(["L0H0"])})
    assert "to the logits" in repr(circuits["ioi"])
