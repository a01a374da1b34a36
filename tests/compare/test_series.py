"""Series of checkpoints: steps and ends follow `compare_checkpoints`, with chance levels."""

from __future__ import annotations

import pytest
import torch

import lens_heads as lh
from lens_heads import compare

MEANS = {
    "base": [[4.0, 3.0, 2.0, 0.0], [0.0, 0.5, 0.0, 1.0]],
    "middle": [[4.0, 3.0, 0.1, 2.5], [0.0, 0.5, 0.0, 1.0]],
    "end": [[4.0, 0.2, 0.1, 3.5], [0.0, 3.0, 0.0, 1.0]],
}


def scores(name: str, seed: int) -> lh.HeadScores:
    around = torch.randn(30, 2, 4, generator=torch.Generator().manual_seed(seed)) * 0.1
    per_trial = torch.tensor(MEANS[name]) + around - around.mean(0)
    return lh.HeadScores.from_trials("eap_ig", per_trial, [f"t{i}" for i in range(30)])


def test_heads_that_emerge_stay_or_are_lost() -> None:
    found = compare.checkpoint_series({name: scores(name, i) for i, name in enumerate(MEANS)}, k=3)
    assert sorted(found.of("emergent")) == ["L0H3", "L1H1"]
    assert sorted(found.of("lost")) == ["L0H1", "L0H2"]
    assert found.of("kept") == ["L0H0"]
    steps = found.steps.set_index(["before", "after"])
    assert list(steps.index) == [("base", "middle"), ("middle", "end"), ("base", "end")]
    assert steps.loc[("base", "middle"), "emergent"] == "L0H3"
    assert steps.loc[("middle", "end"), "shared"] == 2
    assert steps.loc[("base", "end"), "expected"] == pytest.approx(9 / 8)
    expected = compare.head_overlaps({"a": scores("base", 0).top(3), "b": scores("end", 2).top(3)}, shape=(2, 4))
    assert steps.loc[("base", "end"), "p"] == pytest.approx(expected["p_value"][0])
    assert list(found.heads.columns) == ["head", "base", "middle", "end", "rank_first", "rank_last", "status"]
    row = found.heads.set_index("head").loc["L0H3"]
    assert row["middle"] == pytest.approx(2.5, abs=1e-5)
    letters = [[letter or " " for letter in row] for row in found.plot().data[0].text]
    assert letters == [["K", "L", "L", "E"], [" ", "E", " ", " "]]
    with pytest.raises(ValueError, match="status='new': use one of emergent"):
        found.of("new")


def test_two_checkpoints_are_one_step_and_one_is_none() -> None:
    found = compare.checkpoint_series({"base": scores("base", 0), "end": scores("end", 1)}, k=3)
    assert len(found.steps) == 1
    with pytest.raises(ValueError, match="1 checkpoint: a series needs at least two"):
        compare.checkpoint_series({"base": scores("base", 0)})
