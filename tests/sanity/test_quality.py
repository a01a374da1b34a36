"""Quality over seeds: perfect, upside-down and random rankings of planted models, by hand and with intervals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lens_heads as lh
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import every_head
from lens_heads.sanity.planted import Planted
from lens_heads.sanity.quality import planted_quality

SMALL = {"layers": 3, "heads": 4, "backups": 0}


def scored(truth: Planted, value: object) -> HeadScores:
    values = torch.tensor([float(value(head)) for head in every_head(3, 4)]).reshape(1, 3, 4)  # type: ignore[operator]
    return HeadScores.from_trials("mine", values, ["one"])


@pytest.mark.slow
def test_the_truth_is_perfect_and_its_opposite_as_bad_as_can_be() -> None:
    best = planted_quality(lambda one: scored(one, lambda head: head in one.matters), seeds=5, **SMALL)
    assert best["metric"].tolist() == ["auroc", "average_precision", "precision"]
    assert (best[["value", "low", "high"]] == 1).all(axis=None)
    assert (best["seeds"] == 5).all()
    worst = planted_quality(lambda one: scored(one, lambda head: head not in one.matters), seeds=5, **SMALL)
    assert worst.set_index("metric").loc[["auroc", "precision"], "value"].tolist() == [0, 0]


@pytest.mark.slow
def test_random_numbers_get_chance_within_the_interval() -> None:
    rng = np.random.default_rng(0)
    found = planted_quality(lambda one: scored(one, lambda head: rng.normal()), seeds=20, **SMALL).set_index("metric")
    assert found.loc["auroc", "chance"] == 0.5
    for metric in ("auroc", "precision"):
        assert found.loc[metric, "low"] < found.loc[metric, "chance"] < found.loc[metric, "high"]
    share = len(lh.planted_model(**SMALL).matters) / 12
    assert found.loc["precision", "chance"] == pytest.approx(share)


@pytest.mark.slow
def test_it_is_the_mean_of_each_models_quality() -> None:
    def rank(one: Planted) -> HeadScores:
        return lh.score_heads(one.model, one.trials(4), ["locos"], teacher_forced=True, progress=False)["locos"]

    seeds, roles = (3, 5), ("copier", "writer")
    found = planted_quality(rank, seeds=seeds, roles=roles, **SMALL).set_index("metric")["value"]
    models = [lh.planted_model(seed=seed, **SMALL) for seed in seeds]
    each = [one.quality(rank(one), truth=one.of(*roles)) for one in models]
    for metric, value in found.items():
        assert value == pytest.approx(np.mean([one[str(metric)] for one in each]))
    assert np.isnan(planted_quality(rank, seeds=seeds, roles=roles, **SMALL)["low"]).all(), (
        "too few models for an interval"
    )


def test_no_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="there are no seeds"):
        planted_quality(lambda one: scored(one, lambda head: 0), seeds=[])
    with pytest.raises(ValueError, match="seeds=0"):
        planted_quality(lambda one: scored(one, lambda head: 0), seeds=0)
