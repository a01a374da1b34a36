"""search judges every setting by ablating its heads on other trials, and runs no mask twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lens_heads.heads.controls import Controls
from lens_heads.heads.head import Head
from lens_heads.heads.sets import every_head
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.ranking.masks.search import Search, _damage, search
from lens_heads.stats import crossed_interval
from tests.planted import COPIER, WRITER
from tests.ranking.masks.runs import FOUND, OTHERS, by_loop, different, model, passes

pytestmark = pytest.mark.filterwarnings("ignore:.*(masks repeat another|are ablated in none).*:UserWarning")

SETTINGS: dict[str, Any] = {
    "methods": ("css", "csl"),
    "sparsities": (0.15, 0.4),
    "n_masks": (24, 8),
    "k": 3,
    "controls": Controls("random", 3),
    "progress": False,
}


@pytest.fixture(scope="module")
def found() -> Search:
    return search(model(), FOUND, held_out=OTHERS, **SETTINGS, kind="zero")


def heads_of(row: Any) -> list[Head]:
    return [Head.parse(name) for name in row["heads"].split(", ")]


@pytest.mark.slow
def test_every_setting_is_tried_in_order(found: Search) -> None:
    tried = found.frame[found.frame["method"] != "random"]
    settings = [(m, s, n) for m in ("css", "csl") for s in (0.15, 0.4) for n in (8, 24)]
    assert list(zip(tried["method"], tried["sparsity"], tried["n_masks"], strict=True)) == settings
    assert [(s.method, s.meta["sparsity"]) for s in found.scores] == [(m, s) for m, s, _ in settings]
    assert tried["evaluations"].tolist() == [scores.evaluations for scores in found.scores]
    designs = {"css": "stratified", "csl": "layer_balanced"}
    assert tried["evaluations"].tolist() == [len(different(designs[m], n, s)) + 1 for m, s, n in settings]


@pytest.mark.slow
def test_damage_is_that_of_ablating_the_heads_on_the_held_out_trials(found: Search) -> None:
    base = by_loop(model(), OTHERS, [[]])[0]
    tried = found.frame[found.frame["method"] != "random"]
    for row, scores in zip(tried.to_dict("records"), found.scores, strict=True):
        assert heads_of(row) == scores.top(3)
        damage = base - by_loop(model(), OTHERS, [scores.top(3)])[0]
        assert row["damage"] == pytest.approx(damage.mean(), abs=5e-5)
        assert np.isnan([row["low"], row["high"]]).all(), "no interval below five trials"
        told = scores.fit["held_out_r2"]
        assert (np.isnan(row["held_out_r2"]) and told is None) or row["held_out_r2"] == told
    assert tried["damage"].nunique() > 1, "settings that all do the same leave nothing to choose"


@pytest.mark.slow
def test_the_best_hurts_most(found: Search) -> None:
    tried = found.frame[found.frame["method"] != "random"]
    at = int(tried["damage"].argmax())
    assert found.best is found.scores[at]
    assert set(found.best.top(3)) >= {COPIER, WRITER}
    row = tried.iloc[at]
    assert repr(found).startswith(
        f"Search(best of 8: {row['method']}, sparsity {row['sparsity']:g}, {row['n_masks']:.0f} masks; damage "
    )


@pytest.mark.slow
def test_the_last_row_are_as_many_random_heads(found: Search) -> None:
    (row,) = found.frame[found.frame["method"] == "random"].to_dict("records")
    assert row["heads"] == "3 draws"
    assert found.frame.iloc[-1]["method"] == "random"
    assert row["damage"] < found.frame["damage"].max() - 3


@pytest.mark.slow
@pytest.mark.parametrize("groups", [[f"needle {i}" for i in range(8)], [f"needle {i // 2}" for i in range(8)]])
def test_the_interval_of_damage_is_over_draws_and_groups_of_trials(groups: list[str]) -> None:
    trials = [replace(trial, group=group) for trial, group in zip([*FOUND, *OTHERS], groups, strict=True)]
    sets = [[COPIER], [WRITER], [Head(1, 0)], [Head(0, 0)], [Head(0, 2)]]
    row = _damage(MaskedMetric(model(), trials, progress=False), sets)
    base, *now = by_loop(model(), trials, [[], *sets])
    expected = crossed_interval(torch.from_numpy(base - np.stack(now)), groups=groups)
    assert [row["damage"], row["low"], row["high"]] == pytest.approx(list(expected), abs=1e-3, nan_ok=True)
    assert np.isnan(row["low"]) == (len(set(groups)) < 5)


@pytest.mark.slow
def test_random_heads_are_any_heads() -> None:
    """Without those that some setting took they would be heads that nobody needs."""
    one = {**SETTINGS, "methods": "css", "sparsities": 0.4, "n_masks": 40, "k": 1, "controls": Controls("random", 400)}
    (best, row) = search(model(), FOUND, held_out=OTHERS, **one, kind="zero").frame.to_dict("records")
    assert best["heads"] == str(COPIER)
    everyone = every_head(2, 4)
    base, *alone = by_loop(model(), OTHERS, [[], *([head] for head in everyone)])
    damage = (base - np.stack(alone)).mean(1)
    without_best = np.delete(damage, everyone.index(COPIER)).mean()
    spread = damage.std() / np.sqrt(400)
    assert abs(damage.mean() - without_best) > 6 * spread, "the two would not be told apart"
    assert row["damage"] == pytest.approx(damage.mean(), abs=3 * spread)


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_masks_are_shared_between_settings_and_with_later_runs(tmp_path: Path, found: Search) -> None:
    few = {**SETTINGS, "sparsities": (0.4,), "controls": ()}
    first = search(model(), FOUND, held_out=OTHERS, out=tmp_path, **few, kind="zero")
    same = found.frame[(found.frame["sparsity"] == 0.4)].reset_index(drop=True)
    pd.testing.assert_frame_equal(first.frame, same, check_dtype=False)
    assert len(first.scores) == len(first.frame) == 4, "no row of random heads where none are drawn"
    asked = {mask.tobytes() for design in ("stratified", "layer_balanced") for mask in different(design, 24, 0.4)}
    assert len(list((tmp_path / "fit" / "trials").iterdir())) == len(asked) + 1
    with passes(model()) as seen:
        again = search(model(), FOUND, held_out=OTHERS, out=tmp_path, **few, kind="zero")
        cost = len(seen)
        search(model(), FOUND, held_out=OTHERS, out=tmp_path, **{**few, "methods": "css", "n_masks": [40]}, kind="zero")
    pd.testing.assert_frame_equal(again.frame, first.frame)
    assert cost == 0
    assert len(seen) > 0, "masks that no run had yet"


def test_bad_choices_are_refused_before_anything_is_run() -> None:
    twins = [replace(trial, id=f"again {trial.id}") for trial in FOUND]
    bad: list[tuple[dict[str, Any], str]] = [
        ({"held_out": FOUND}, r"was made on 4 of the trials.*planted-0"),
        ({"held_out": [*OTHERS, twins[0]]}, "was made on 1 of the trials, needles"),
        ({"methods": ("css", "greedy")}, "method 'greedy' draws no masks: use css, csb"),
        ({"methods": ()}, "there are no settings to try"),
        ({"n_masks": ()}, "there are no settings to try"),
        ({"sparsities": (0.1,)}, r"sparsity=0\.1 of 8 heads is less than one head"),
        ({"metric": "loss"}, "metric 'loss' is not measured"),
        ({"k": 0}, "k=0: must be a positive integer"),
        ({"k": 9}, "k=9: the model has only 8 heads"),
        ({"sparsities": (0.3, 1.5)}, "sparsity=1.5: must lie strictly between 0 and 1"),
        ({"n_masks": 3}, "n_masks=3: must be an integer of at least 5"),
        ({"controls": "bottom"}, "unknown control 'bottom': here they are random"),
        ({"controls": Controls("random", trials=2)}, "controls.trials=2: random heads run on all trials here"),
        (
            {"controls": Controls("random", of="nonsense")},
            "controls.of='nonsense': there are no rankings to choose from here",
        ),
    ]
    with passes(model()) as seen:
        for choice, message in bad:
            with pytest.raises(ValueError, match=message):
                search(model(), **{**SETTINGS, "trials": FOUND, "held_out": OTHERS, **choice}, kind="zero")
    assert not seen
