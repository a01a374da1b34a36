"""ablation_curve with its defaults: means of the trials that chose the heads, and the verdict from one run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import lens_heads as lh
from lens_heads.evidence.curve import BESIDE, JUDGED
from lens_heads.heads.conditions import NO_NEEDLE
from tests import planted

QUIET: dict[str, Any] = {"generate": False, "progress": False}


@pytest.fixture(scope="module")
def model() -> Any:
    return planted.model()


@pytest.fixture(scope="module")
def scores(model: Any) -> lh.HeadScores:
    return lh.score_heads(model, planted.trials(3), "locos", teacher_forced=True, progress=False)["locos"]


def evaluated(n: int = 6) -> list[Any]:
    return planted.trials(3 + n)[3:]


@pytest.mark.slow
def test_the_reference_is_that_of_the_trials_that_chose_the_heads(model: Any, scores: lh.HeadScores) -> None:
    means = lh.mean_activations(model, planted.trials(3), progress=False)
    options: dict[str, Any] = {"ks": (1, 2), "controls": lh.Controls(draws=2), **QUIET}
    found = lh.ablation_curve(model, evaluated(), scores, **options)
    given = lh.ablation_curve(model, evaluated(), scores, reference=means, **options)
    pd.testing.assert_frame_equal(found.per_trial, given.per_trial)
    assert found.meta == given.meta


def test_scores_of_a_file_know_their_trials_no_longer(model: Any, scores: lh.HeadScores, tmp_path: Path) -> None:
    stored = lh.HeadScores.load(scores.save(tmp_path / "scores.json"))
    assert stored.made_on == scores.made_on
    with pytest.raises(
        ValueError, match=r"kind='mean' needs a reference, and locos no longer .* reference=lh.mean_act"
    ):
        lh.ablation_curve(model, evaluated(), stored, ks=1, **QUIET)
    assert lh.ablation_curve(model, evaluated(2), stored, ks=1, kind="zero", controls=(), **QUIET).rankings == ["locos"]


@pytest.mark.slow
def test_a_verdict_comes_with_one_run(model: Any, scores: lh.HeadScores) -> None:
    curve = lh.ablation_curve(model, evaluated(), scores, ks=1, verdict=2, **QUIET)
    assert sorted({one.k for one in curve.conditions() if one.set == "top"}) == [1, 2]
    assert [str(one) for one in curve.verdicts] == [str(one) for one in lh.verdicts.judge(curve, k=2)]
    assert curve.verdicts[0].question == "locos's top 2 heads break main"
    assert {"random", "random_like", NO_NEEDLE} <= {one.set for one in curve.conditions()}
    assert curve.meta["draws"] == JUDGED.draws != BESIDE.draws


@pytest.mark.slow
def test_a_verdict_without_needles_is_on_the_cost(model: Any, scores: lh.HeadScores) -> None:
    bare = [replace(trial, needle=None) for trial in evaluated()]
    few = lh.Controls(("random", "random_like"), draws=3)
    assert lh.ablation_curve(model, bare, scores, ks=1, verdict=1, controls=few, **QUIET).verdicts[0].question == (
        "locos's top 1 heads cost main more than random heads"
    )
    curve = lh.ablation_curve(model, bare[:2], scores, ks=1, verdict=1, **QUIET)
    assert NO_NEEDLE not in {one.set for one in curve.conditions()}


def test_trials_that_select_give_no_verdict(model: Any, scores: lh.HeadScores) -> None:
    with pytest.raises(ValueError, match="verdict= and selecting=True"):
        lh.ablation_curve(model, planted.trials(3), scores, ks=1, verdict=1, selecting=True, **QUIET)
    for wrong in (0, True, 10**6):
        with pytest.raises((ValueError, TypeError), match="verdict="):
            lh.ablation_curve(model, evaluated(2), scores, ks=1, verdict=wrong, **QUIET)


def test_a_verdict_without_random_heads_is_refused_before_anything_runs(model: Any, scores: lh.HeadScores) -> None:
    for controls in ((), ("bottom",)):
        with pytest.raises(ValueError, match="a verdict needs random heads: leave controls= out, or add 'random'"):
            lh.ablation_curve(model, evaluated(), scores, ks=1, verdict=1, controls=controls, **QUIET)


def test_a_curve_is_stored_before_it_is_judged(
    model: Any, scores: lh.HeadScores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any, **options: Any) -> None:
        raise RuntimeError("no verdict")

    monkeypatch.setattr("lens_heads.evidence.curve.judge", fails)
    few = lh.Controls("random", draws=2)
    with pytest.raises(RuntimeError, match="no verdict"):
        lh.ablation_curve(model, evaluated(2), scores, ks=1, verdict=1, controls=few, out=tmp_path / "run", **QUIET)
    assert lh.AblationCurve.load(tmp_path / "run").rankings == ["locos"]
