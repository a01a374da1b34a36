"""What an analysis finds in a control: a random lead is called harmful at its level, permuted labels have no writer."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import lens_heads as lh
from lens_heads import stats
from lens_heads.heads.sets import every_head
from lens_heads.sanity.answers import permuted_answers
from lens_heads.sanity.rankings import random_ranking
from tests import planted

K = 2


@pytest.fixture(scope="module")
def damage() -> dict[frozenset[lh.Head], np.ndarray]:
    """The answer's log-probability per trial, for each of the 28 pairs of heads, ablated."""
    model, trials = planted.model(), planted.trials()
    found = {}
    for pair in combinations(every_head(planted.LAYERS, planted.HEADS), K):
        with lh.ablate(model, pair, kind="zero"):
            values = lh.evaluate(model, trials, generate=False, progress=False, batch_size=8).metrics["logprob"]
        found[frozenset(pair)] = values.double().numpy()
    return found


@pytest.mark.slow
def test_a_random_lead_is_harmful_no_more_often_than_its_level(damage: dict[frozenset[lh.Head], np.ndarray]) -> None:
    """2,000 random leads, each against 40 random sets; the heads that do it are still told from them."""
    model = planted.model()
    like = random_ranking(model)
    sets = [frozenset(random_ranking(like, seed=seed).top(K)) for seed in range(4000)]
    assert len(set(sets)) == 28
    rng = np.random.default_rng(0)
    draws = [[damage[sets[2000 + at]] for at in rng.choice(2000, 40, replace=False)] for _ in range(2000)]
    p = np.array([stats.rank_p(damage[lead], np.stack(drawn)).p for lead, drawn in zip(sets, draws, strict=False)])
    for level in (0.05, 0.2, 0.5):
        assert (p <= level).mean() <= level
    assert (p <= 0.5).mean() > 0.4, "and not because nothing ever is"
    writers = damage[frozenset({planted.COPIER, planted.WRITER})]
    assert np.mean([stats.rank_p(writers, np.stack(drawn)).p for drawn in draws[:100]]) < 0.1


def test_no_head_writes_a_permuted_label() -> None:
    model, trials = planted.model(), planted.trials()
    true, permuted = (
        lh.score_heads(model, given, ["locos"], teacher_forced=True, progress=False)["locos"]
        for given in (trials, permuted_answers(trials))
    )
    for head in (planted.COPIER, planted.WRITER):
        assert true[head] == pytest.approx(planted.STRENGTH[head], abs=0.1)
    assert permuted.values.abs().max() < 0.1
