"""Linear probes of heads: they read what a planted head holds, on trials they were not fitted to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.preprocessing import StandardScaler

import lens_heads as lh
from lens_heads.interventions.activations import trial_activations
from lens_heads.ranking.one_pass import linear_probes as probing
from tests import planted
from tests.conftest import random_trial

QUIET: dict[str, Any] = {"progress": False}


@pytest.mark.slow
def test_what_planted_heads_hold() -> None:
    """Half of the answers against the others: only heads that read the answer or its clue can tell."""
    model, trials = planted.model(), planted.trials(24)
    labels = [trial.answer < "E" for trial in trials]
    found = lh.probe_heads(model, trials, labels=labels, folds=2, null_draws=19, **QUIET)
    readers = {planted.COPIER, planted.WRITER, planted.DECOY, planted.SUPPRESSOR}
    assert {head for head in readers if found[head] == 1} == readers
    assert found.meta["chance"] == 0.5
    significant = found.significant()
    assert all(significant[head.layer, head.head] for head in readers)
    assert not found.selected
    others = [head for head in found.ranking() if head not in readers]
    assert max(found[head] for head in others) < 0.9


@pytest.mark.slow
def test_one_head_against_the_steps_by_hand(gqa: Any) -> None:
    trials = [random_trial(seed, 15 + seed % 4) for seed in range(24)]
    trials = [replace(trial, group=f"g{i // 2}") for i, trial in enumerate(trials)]
    labels = [i // 2 % 2 for i in range(24)]
    found = lh.probe_heads(gqa, trials, labels=labels, folds=3, seed=4, **QUIET)
    z = np.stack([trial_activations(gqa, trial).z[1, -1, 2].numpy() for trial in trials])
    y, groups = np.array(labels), np.array([i // 2 for i in range(24)])
    expected = np.full(24, 0.5)
    for fitted, held in StratifiedGroupKFold(3, shuffle=True, random_state=4).split(z, y, groups):
        assert set(groups[fitted]).isdisjoint(groups[held])
        scaler = StandardScaler().fit(z[fitted])
        probe = LogisticRegression(C=0.1, max_iter=200).fit(scaler.transform(z[fitted]), y[fitted])
        expected[held] = probe.predict(scaler.transform(z[held])) == y[held]
    torch.testing.assert_close(found.per_trial[:, 1, 2], torch.from_numpy(expected).float())


def test_trials_that_share_a_group_of_either_kind_stay_together() -> None:
    groups = ["", "", ("a", "x"), ("b", "x"), ("b", "y"), "c", "c"]
    trials = [replace(random_trial(i), group=group) for i, group in enumerate(groups)]
    found = probing._groups(trials).tolist()
    assert found[2] == found[3] == found[4]
    assert found[5] == found[6]
    assert len(set(found)) == 4


def test_a_stored_probe_goes_on(gqa: Any, tmp_path: Any) -> None:
    trials, labels = [random_trial(seed) for seed in range(6)], ["a", "b"] * 3
    one, two = (lh.probe_heads(gqa, trials, labels=labels, folds=2, out=tmp_path / "run", **QUIET) for _ in range(2))
    assert torch.equal(one.per_trial, two.per_trial)


@pytest.mark.parametrize(
    ("labels", "how", "message"),
    [
        ([0, 1, 0], {}, "there are 3 labels for 4 trials"),
        ([1, 1, 1, 1], {}, "all labels are 1: a probe needs two kinds"),
        (["a", "a", "a", "b"], {"folds": 2}, "label 'b' has 1 trials, fewer than folds=2"),
        ([0, 1, 0, 1], {"folds": 1}, "folds=1"),
    ],
)
def test_bad_labels(gqa: Any, labels: Any, how: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lh.probe_heads(gqa, [random_trial(seed) for seed in range(4)], labels=labels, **how, **QUIET)
