"""Matched groups ablated in both models: a copy breaks alike, random heads do not, and drops are those of plain forwards."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lens_heads.compare import match_heads
from lens_heads.evidence.validation import MatchValidation, validate_match
from lens_heads.heads.controls import Controls
from lens_heads.heads.head import Head
from lens_heads.heads.matching import HeadMatch
from lens_heads.heads.scores import HeadScores
from lens_heads.model.hooks import has_hooks
from lens_heads.stats import crossed_interval
from lens_heads.trials.encoded import EncodedTrial
from tests.compare.permuted import TEXTS, permuted
from tests.conftest import random_trial, tiny

TASKS = {
    name: [random_trial(10 * i + j, n=16 + 4 * i) for j in range(5)] for i, name in enumerate(("one", "two", "three"))
}
GROUPS: Any = {"first": ["L0H0", "L1H2"], "second": ["L2H1"]}


@cache
def matched() -> tuple[HeadMatch, Any]:
    copy, _ = permuted("llama-gqa")
    match = match_heads(tiny("llama-gqa"), copy, texts=TEXTS, resamples=2, permutations=1, progress=False)
    return match, copy


@cache
def validation() -> MatchValidation:
    match, copy = matched()
    few = Controls("random_like", draws=5)
    return validate_match(
        match, tiny("llama-gqa"), copy, TASKS, groups=GROUPS, controls=few, progress=False, kind="zero"
    )


@torch.no_grad()
def drop_by_hooks(model: Any, trial: EncodedTrial, heads: list[Head]) -> float:
    """Mean gold log-probability lost when z of the heads is zero in one full forward."""

    def zero(z: torch.Tensor, hook: Any, head: int) -> torch.Tensor:
        z.reshape(*z.shape[:2], 4, -1)[:, :, head] = 0
        return z

    zeros = [(f"blocks.{head.layer}.attn.hook_z", partial(zero, head=head.head)) for head in heads]
    tokens = torch.cat([trial.tokens, trial.answer_tokens])[None]
    found = []
    for hooks in ([], zeros):
        logits = model.run_with_hooks(tokens, fwd_hooks=hooks)[0, len(trial) - 1 : -1]
        found.append(float(logits.log_softmax(-1).gather(-1, trial.answer_tokens[:, None]).mean()))
    return found[0] - found[1]


@pytest.mark.slow
def test_drops_are_those_of_full_forwards_with_hooks() -> None:
    match, copy = matched()
    table = validation().per_trial.set_index(["method", "task", "set", "draw", "trial"])["drop"]
    for group, heads in GROUPS.items():
        mine = [Head.parse(head) for head in heads]
        for trial in TASKS["two"]:
            assert table[group, "two", "a", 0, trial.id] == pytest.approx(
                drop_by_hooks(tiny("llama-gqa"), trial, mine), abs=1e-4
            )
            assert table[group, "two", "matched", 0, trial.id] == pytest.approx(
                drop_by_hooks(copy, trial, match.matched(mine)), abs=1e-4
            )
    assert not has_hooks(copy)


@pytest.mark.slow
def test_the_partners_in_a_copy_break_the_same_tasks_and_random_heads_do_not() -> None:
    frame = validation().frame.set_index(["method", "task", "set"])
    for group in GROUPS:
        for task in TASKS:
            mine, theirs = frame.loc[(group, task, "a")], frame.loc[(group, task, "matched")]
            np.testing.assert_allclose(
                mine[["drop", "low", "high"]].astype(float), theirs[["drop", "low", "high"]].astype(float), atol=1e-4
            )
            assert (mine["draws"], frame.loc[(group, task, "random"), "draws"], mine["trials"]) == (1, 5, 5)
            assert mine["low"] < mine["drop"] < mine["high"]
    correlation = validation().correlation.set_index("method")
    assert correlation.index.tolist() == ["first", "second", "all groups"]
    assert correlation["cells"].tolist() == [3, 3, 6]
    assert correlation["matched"].tolist() == pytest.approx([1, 1, 1], abs=1e-3)
    assert correlation.loc["all groups", "random"] < 0.9, "some draws of so few heads are the partners themselves"
    assert "correlate at 1.00 with partners ablated" in repr(validation())


def test_intervals_are_over_draws_and_groups_of_trials() -> None:
    found = validation()
    part = found.per_trial.query("method == 'first' and task == 'two' and set == 'random'")
    drops = torch.tensor(part.pivot(index="draw", columns="trial", values="drop").to_numpy().copy())
    assert drops.shape == (5, 5)
    row = found.frame.set_index(["method", "task", "set"]).loc[("first", "two", "random")]
    assert row[["drop", "low", "high"]].tolist() == pytest.approx(crossed_interval(drops))
    pairs = {trial.id: f"needle {i // 2}" for i, trial in enumerate(TASKS["two"])}
    told = replace(found, per_trial=found.per_trial.assign(group=found.per_trial["trial"].map(pairs).fillna("")))
    row = told.frame.set_index(["method", "task", "set"]).loc[("first", "two", "random")]
    assert np.isnan([row["low"], row["high"]]).all(), "three groups have no interval"
    other = told.frame.set_index(["method", "task", "set"]).loc[("first", "one", "random")]
    assert other["low"] < other["drop"] < other["high"]


def test_trials_keep_their_groups() -> None:
    match, copy = matched()
    tasks = {"one": [replace(trial, group=(f"n{i % 2}", "company")) for i, trial in enumerate(TASKS["one"])]}
    found = validate_match(
        match,
        tiny("llama-gqa"),
        copy,
        tasks,
        groups={"all": ["L0H0"]},
        controls=Controls("random_like", 1),
        progress=False,
        kind="zero",
    )
    columns = found.per_trial.drop_duplicates("trial").set_index("trial")[["group", "group_2"]]
    assert columns.to_dict("index") == {
        trial.id: {"group": trial.group[0], "group_2": "company"} for trial in tasks["one"]
    }
    assert set(found.per_trial["method"]) == {"all"}, "the groups of heads"


def test_the_correlation_is_pearson_over_tasks_and_its_range_that_of_the_draws() -> None:
    drops = validation().per_trial.groupby(["method", "set", "draw", "task"])["drop"].mean()
    mine = drops["first", "a", 0]
    random = [np.corrcoef(mine, drops["first", "random", draw])[0, 1] for draw in range(5)]
    row = validation().correlation.set_index("method").loc["first"]
    assert row[["random", "random_low", "random_high"]].tolist() == pytest.approx(
        [np.mean(random), min(random), max(random)]
    )


def test_random_heads_are_as_deep_as_the_partners() -> None:
    match, _ = matched()
    table = validation().per_trial
    for group, heads in GROUPS.items():
        partners = match.matched(heads)
        drawn = table[(table["method"] == group) & (table["set"] == "random")].groupby("draw")["heads"].first()
        for names in drawn:
            found = [Head.parse(name) for name in names.split(",")]
            assert sorted(head.layer for head in found) == sorted(head.layer for head in partners)  # 3 bins, 3 layers.
        assert drawn.nunique() > 1


def test_scores_name_their_top_heads_and_must_come_from_other_trials() -> None:
    match, copy = matched()
    values = torch.arange(12.0).reshape(3, 4)
    tasks = {"one": TASKS["one"][:2]}
    options: Any = {"controls": Controls("random_like", 1), "progress": False}
    fresh = HeadScores("locos", values, values[None], ("elsewhere",))
    found = validate_match(
        match, tiny("llama-gqa"), copy, tasks, groups={"g": fresh}, k=2, **{"kind": "zero", **options}
    )
    assert set(found.per_trial.loc[found.per_trial["set"] == "a", "heads"]) == {"L2H3,L2H2"}
    assert np.isnan(found.correlation["matched"]).all(), "one task has no correlation"
    used = HeadScores("locos", values, values[None], (TASKS["one"][0].id,))
    with pytest.raises(ValueError, match="ranking 'g' was made on 1 of the trials"):
        validate_match(match, tiny("llama-gqa"), copy, tasks, groups={"g": used}, **{"kind": "zero", **options})


def test_the_figure_has_a_bar_per_cell() -> None:
    figure = validation().plot()
    frame = validation().frame
    for bar, which in zip(figure.data, ("a", "matched", "random"), strict=True):
        np.testing.assert_allclose(bar.y, frame.loc[frame["set"] == which, "drop"])


def test_bad_input_is_refused_before_anything_runs() -> None:
    match, copy = matched()
    model, ran = tiny("llama-gqa"), []
    handle = model.original_model.register_forward_pre_hook(lambda *_: ran.append(1))
    other = HeadScores("locos", torch.ones(2, 2), torch.ones(1, 2, 2), ("t",))
    for options, message in (
        ({"trials_a": {}}, r"tasks of a are \[\], those of b \[\]"),
        ({"trials_b": {"one": TASKS["one"]}}, r"those of b \['one'\]\. Use the same names"),
        ({"groups": {}}, "groups is empty"),
        ({"controls": "random"}, "unknown control 'random': here they are random_like"),
        ({"groups": {"g": []}}, "group 'g' has no head with a partner"),
        ({"groups": {"g": ["L9H0"]}}, "head L9H0 does not exist"),
        ({"groups": {"g": other}}, "group 'g' has scores of 2 layers x 2 heads, model a 3 x 4"),
        ({"kind": "mean"}, "needs a reference"),
    ):
        given: dict[str, Any] = {"trials_a": TASKS, "groups": GROUPS, "progress": False} | options
        with pytest.raises(ValueError, match=message):
            validate_match(match, model, copy, **{"kind": "zero", **given})
    handle.remove()
    assert not ran


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    found = validation()
    again = MatchValidation.load(found.save(tmp_path / "match"))
    pd.testing.assert_frame_equal(again.frame, found.frame)
    pd.testing.assert_frame_equal(again.correlation, found.correlation)
    assert again.meta == found.meta
    (tmp_path / "match" / "validation.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"validation\.json is missing\. .* written by MatchValidation\.save"):
        MatchValidation.load(tmp_path / "match")
