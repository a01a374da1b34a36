"""localize_heads finds the heads planted to write the answer, by every method, and says what it did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lens_heads as lh
from lens_heads.heads import units
from lens_heads.heads.conditions import Condition
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.masks.lasso import REGRESSIONS
from lens_heads.ranking.masks.localize import DESIGNED, localize, localize_heads
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.ranking.masks.sparse_fit import fit
from tests import planted
from tests.conftest import random_trial
from tests.planted import COPIER, SUPPRESSOR, WRITER
from tests.ranking.masks.runs import FOUND, OTHERS, by_loop, different, measured, model, passes

pytestmark = pytest.mark.filterwarnings("ignore:.*masks repeat another:UserWarning")

MASKS: dict[str, Any] = {"n_masks": 80, "sparsity": 0.3}
WRITERS = [COPIER, WRITER]


def turned(scores: HeadScores) -> HeadScores:
    """The same numbers read the other way round, as the authors' script prints them."""
    return replace(scores, order=(), best="highest")


def check(scores: HeadScores) -> None:
    assert scores.top(2) == WRITERS
    assert scores[COPIER] < scores[WRITER] < -1
    assert not set(turned(scores).top(2)) & set(WRITERS), "the other sign finds other heads"


@pytest.mark.slow
@pytest.mark.parametrize("method", [*DESIGNED, "one_shot"])
def test_the_planted_writers_come_first(method: str) -> None:
    scores = localize(measured(), method=method, **MASKS)
    check(scores)
    assert scores.method == method
    if method != "one_shot":  # Alone, the suppressor has nothing left to suppress.
        assert turned(scores).top(1) == scores.bottom(1) == [SUPPRESSOR]
        assert scores[SUPPRESSOR] > 0


@pytest.mark.slow
@pytest.mark.parametrize("estimator", REGRESSIONS)
def test_so_they_do_by_every_regression(estimator: str) -> None:
    scores = localize(measured(), method="css", estimator=estimator, **MASKS)
    check(scores)
    assert scores.fit["estimator"] == estimator


@pytest.mark.slow
@pytest.mark.parametrize("method", [*DESIGNED, "one_shot"])
def test_in_bfloat16_they_come_first_too(method: str) -> None:
    check(localize(measured(torch.bfloat16), method=method, **MASKS))


@pytest.mark.slow
def test_in_bfloat16_heads_cost_what_they_cost_in_float32() -> None:
    half, full = (localize(measured(dtype), method="greedy", k=2) for dtype in (torch.bfloat16, torch.float32))
    assert half.top(2) == full.top(2) == WRITERS
    for head in WRITERS:
        assert half[head] == pytest.approx(full[head], rel=0.02)
        assert half[head] != full[head], "which is not the model in float32"


@pytest.mark.slow
def test_greedy_adds_them_first_and_ranks_in_that_order() -> None:
    scores = localize(measured(), method="greedy", k=2)
    assert scores.top(2) == WRITERS
    assert scores.meta["chosen"] == 2
    everyone = [Head(layer, head) for layer in range(2) for head in range(4)]
    left = [head for head in everyone if head not in WRITERS]
    costs = by_loop(model(), FOUND, [[COPIER, head] for head in left]).mean(1)
    assert scores.top(8)[2:] == [left[at] for at in np.argsort(costs, kind="stable")], (
        "by what each cost when it was tried last"
    )
    assert scores[WRITER] < scores[COPIER] < 0, "the second costs more, on top of the first"
    assert not set(turned(scores).top(2)) & set(WRITERS)


@pytest.mark.slow
def test_the_trials_that_chose_the_heads_do_not_test_them() -> None:
    scores = localize(measured(), method="css", **MASKS)
    assert all(side.isnan().all() for side in scores.interval()[1:])
    assert np.isnan(scores.reliability())
    for test in (scores.p_values, scores.significant):
        with pytest.raises(ValueError, match="css chose its heads on these trials: test them on others"):
            test()
    alone = localize(
        MaskedMetric(model(), planted.trials(6, length=30), progress=False), method="one_shot"
    )  # It chose none.
    assert not alone.interval().low.isnan().any()
    assert not alone.selected


@pytest.mark.slow
def test_values_are_the_least_squares_coefficients_of_every_trial() -> None:
    """Written once more from the definition: the heads the lasso chose, and an intercept."""
    scores = localize(measured(), method="csl", n_masks=60, sparsity=0.3, seed=3)
    masks = different("layer_balanced", 60, 0.3, seed=3)
    response, flat = measured()(masks), masks.reshape(len(masks), -1)
    support = (scores.values != 0).flatten().numpy()
    assert 2 <= support.sum() < 8
    design = np.column_stack([np.ones(len(masks)), flat[:, support]])
    expected = np.linalg.lstsq(design, response, rcond=None)[0][1:]
    np.testing.assert_allclose(scores.per_trial.flatten(1)[:, support].numpy(), expected.T, atol=1e-4)
    assert (scores.per_trial.flatten(1)[:, ~support] == 0).all()
    np.testing.assert_allclose(scores.values.numpy(), scores.per_trial.numpy().mean(0), atol=1e-6)
    assert scores.trial_ids == tuple(trial.id for trial in FOUND)


@pytest.mark.slow
def test_heads_that_were_not_chosen_rank_by_the_plain_difference() -> None:
    scores = localize(measured(), method="css", **MASKS)
    masks = different("stratified", **MASKS)
    mean = measured()(masks).mean(1)
    left = [head for head in scores.ranking() if scores[head] == 0]
    gap = [mean[masks[:, h.layer, h.head]].mean() - mean[~masks[:, h.layer, h.head]].mean() for h in left]
    assert len(left) >= 3
    assert gap == sorted(gap)
    assert left != sorted(left), "which is not the order of layer and head"
    assert not scores.ties(4)


@pytest.mark.slow
def test_what_was_done_is_said() -> None:
    scores = localize(measured(), method="css", seed=1, **MASKS)
    masks = different("stratified", **MASKS, seed=1)
    base = lh.evaluate(model(), FOUND, generate=False, progress=False).mean("logprob")
    assert scores.base == pytest.approx(base, abs=1e-5)
    assert scores.evaluations == len(masks) + 1
    assert scores.meta["n_masks"] == len(masks)
    assert (scores.best, scores.settings["metric"], scores.meta["n_trials"]) == ("lowest", "logprob", 4)
    assert (scores.meta["design"], scores.meta["sparsity"], scores.meta["seed"]) == ("stratified", 0.3, 1)
    told, result = scores.fit, fit(masks, measured()(masks), seed=1)
    for name in ("alpha", "intercept", "r2", "held_out_r2"):
        assert told[name] == pytest.approx(getattr(result, name))
    assert told["heads"][0]["head"] == str(COPIER)
    for row in told["heads"]:
        at = (head := Head.parse(row["head"])).layer, head.head
        assert row["coefficient"] == pytest.approx(scores[head], abs=1e-5)
        for name in ("low", "high", "stability"):
            assert row[name] == pytest.approx(getattr(result, name)[at])
    assert [row["coefficient"] for row in told["heads"]] == sorted(row["coefficient"] for row in told["heads"])
    assert localize(measured(), method="one_shot").evaluations == 8 + 1
    assert localize(measured(), method="greedy", k=3).evaluations == 1 + 8 + 7 + 6


@pytest.mark.slow
def test_the_seed_decides() -> None:
    first, again, other = (localize(measured(), method="csb", seed=seed, **MASKS) for seed in (5, 5, 6))
    assert (first.per_trial == again.per_trial).all()
    assert first.ranking() == again.ranking()
    assert (first.values != other.values).any()


@pytest.mark.slow
def test_patience_stops_when_the_first_heads_have_settled() -> None:
    whole = localize(measured(), method="csb", n_masks=200, sparsity=0.3, k=2)
    early = localize(measured(), method="csb", n_masks=200, sparsity=0.3, k=2, patience=1)
    later = localize(measured(), method="csb", n_masks=200, sparsity=0.3, k=2, patience=2)
    assert (early.meta["n_masks"], later.meta["n_masks"]) == (50, 75)
    assert whole.meta["n_masks"] > 100
    assert early.top(2) == later.top(2) == whole.top(2) == WRITERS
    never = localize(measured(), method="csb", n_masks=200, sparsity=0.3, k=8, patience=1)
    assert never.meta["n_masks"] == whole.meta["n_masks"], "eight heads that all hurt are never found"


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_a_run_is_kept_and_its_scores_load_with_their_ranking(tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_masks": 30, "sparsity": 0.3, "progress": False, "out": tmp_path}
    scores = localize_heads(model(), FOUND, method="css", **{"kind": "zero", **options})
    loaded = HeadScores.load(tmp_path / "css.json")
    assert loaded.ranking() == scores.ranking()
    assert loaded.top(2) == WRITERS
    assert (loaded.per_trial == scores.per_trial).all()
    assert (loaded.method, loaded.fit) == ("css", scores.fit)
    with passes(model()) as seen:
        again = localize_heads(model(), FOUND, method="css", **{"kind": "zero", **options})
        kept = MaskedMetric(model(), FOUND, out=tmp_path, progress=False)
        localize(kept, method="css", n_masks=30, sparsity=0.3, estimator="bic")
    assert not seen
    assert (again.per_trial == scores.per_trial).all()
    assert HeadScores.load(tmp_path / "css.json").fit["estimator"] == "bic", "the newest"
    assert not has_hooks(model())


@pytest.mark.slow
def test_the_heads_are_judged_on_trials_they_were_not_found_on() -> None:
    scores = localize(measured(), method="css", **MASKS)
    options: dict[str, Any] = {"ks": (2,), "kind": "zero", "generate": False, "progress": False, "controls": ["random"]}
    with pytest.raises(ValueError, match=r"ranking 'css' was made on 4 of the trials.*planted-0"):
        lh.ablation_curve(model(), FOUND, scores, **options)
    with pytest.raises(ValueError, match="was made on 4 of the trials, needles"):
        lh.ablation_curve(model(), [replace(trial, id=f"again {trial.id}") for trial in FOUND], scores, **options)
    curve = lh.ablation_curve(model(), OTHERS, scores, **options)
    lost = curve.values(Condition.random(2), "logprob") - curve.values(Condition.top("css", 2), "logprob")
    assert (lost > 3).all()


@pytest.mark.slow
def test_kv_groups_are_scored_as_kv_heads_and_ablated_as_query_heads(gqa: Any) -> None:
    mine, other = [random_trial(i) for i in range(2)], random_trial(7)
    scores = localize_heads(gqa, mine, method="one_shot", unit="kv_head", progress=False, kind="zero")
    assert (scores.unit, scores.n_layers, scores.n_heads) == ("kv_head", 3, 2)
    groups = [[(layer, 2 * kv), (layer, 2 * kv + 1)] for layer in range(3) for kv in range(2)]
    whole, *ablated = by_loop(gqa, mine, [[], *groups])
    expected = np.stack(ablated).T.reshape(2, 3, 2) - whole[:, None, None]
    np.testing.assert_allclose(scores.per_trial.numpy(), expected, atol=5e-5)
    queries = units.to_query_heads(scores, head_geometry(gqa).group)
    best = scores.top(1)[0]
    assert set(queries.top(2)) == {Head(best.layer, 2 * best.head), Head(best.layer, 2 * best.head + 1)}
    options: dict[str, Any] = {"ks": (2,), "kind": "zero", "controls": (), "generate": False, "progress": False}
    curve = lh.ablation_curve(gqa, [other], queries, **options)
    value = curve.values(Condition.top("one_shot", 2), "logprob").to_numpy()
    np.testing.assert_allclose(value, by_loop(gqa, [other], [queries.top(2)])[0], atol=5e-5)
