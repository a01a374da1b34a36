"""A ranking that knows nothing: uniform over orders, tied to the model, and taken by every function that takes scores."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lens_heads as lh
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.model.identity import identify
from lens_heads.runs.identity import ModelIdentity
from lens_heads.sanity.rankings import random_ranking
from tests import planted
from tests.conftest import tiny


def scores(layers: int, heads: int, **about: Any) -> HeadScores:
    return HeadScores("any", torch.zeros(layers, heads), torch.zeros(1, layers, heads), ("t",), **about)


@pytest.mark.slow
def test_every_order_is_equally_likely() -> None:
    """Three heads, six orders, 1,200 seeds; 99.9 % of chi-square with five degrees is 20.5."""
    drawn = [tuple(random_ranking(scores(3, 1), seed=seed).ranking()) for seed in range(1200)]
    counts = [drawn.count(order) for order in permutations([Head(0, 0), Head(1, 0), Head(2, 0)])]
    assert sum(counts) == 1200
    assert sum((count - 200) ** 2 for count in counts) / 200 < 20.5


def test_no_layer_is_preferred() -> None:
    """Means of layers over 400 seeds, each of 4 of 24 heads: half, with a standard error of about .0066."""
    means = torch.stack([random_ranking(scores(6, 4), seed=seed).values.mean(1) for seed in range(400)]).mean(0)
    torch.testing.assert_close(means, torch.full((6,), 25 / 48), atol=0.03, rtol=0)


def test_scores_fall_in_equal_steps_without_ties() -> None:
    found = random_ranking(scores(3, 4), seed=5)
    assert found.method == "random lead"
    assert sorted(found.values.flatten().tolist()) == pytest.approx([i / 12 for i in range(1, 13)])
    assert found[found.top(1)[0]] == 1
    assert sorted(found.ranking()) == [Head(layer, head) for layer in range(3) for head in range(4)]
    assert found.ties(5) == []
    assert found.trial_ids == ("random lead seed 5",)
    assert all(bound.isnan().all() for bound in found.interval()[1:])
    with pytest.raises(ValueError, match="random lead cannot be negative"):
        found.p_values()


def test_shape_unit_and_identity_are_the_models(tmp_path: Path) -> None:
    model = tiny("llama-gqa")
    found = random_ranking(model, seed=2)
    assert found.values.shape == (3, 4)
    assert found.model == identify(model)
    owner = ModelIdentity("m", "abc", "torch.float32")
    like = random_ranking(scores(3, 4, unit="kv_head", model=owner, best="lowest", order=("L2H1",)), seed=2)
    assert (like.unit, like.model, like.best, like.order) == ("kv_head", owner, "highest", ())
    assert torch.equal(like.values, found.values)
    again = HeadScores.load(found.save(tmp_path / "random.json"))
    assert again.ranking() == found.ranking()
    assert again.model == found.model


def test_seeds() -> None:
    one, again, other = (random_ranking(scores(6, 4), seed=seed).ranking() for seed in (1, np.int64(1), 2))
    assert one == again
    assert one != other


def test_it_leads_a_curve_like_any_method() -> None:
    model, trials = planted.model(), planted.trials(4)
    lead = random_ranking(model, seed=3)
    curve = lh.ablation_curve(model, {"planted": trials}, {"random lead": lead}, ks=(2,), kind="zero", progress=False)
    assert list(curve.rankings) == ["random lead"]
    other = replace(lead, model=ModelIdentity("m", "abc", lead.model.dtype))
    with pytest.raises(ValueError, match="'random lead' was made on other weights"):
        lh.ablation_curve(model, {"planted": trials}, {"random lead": other}, ks=(2,), kind="zero", progress=False)


def test_bad_input() -> None:
    for seed in (-1, 0.5, "1", None, True):
        with pytest.raises(ValueError, match="seed="):
            random_ranking(scores(2, 2), seed=seed)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is not a TransformerLens model"):
        random_ranking(torch.zeros(2, 2))  # type: ignore[arg-type]
