"""Intervals of a matrix's statistics: coverage, parity with tables built by hand, right answers, and what has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lens_heads.evidence.transfer_cells import NONE, RANDOM, STATISTICS
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.stats import crossed_interval, mean_interval, sum_interval
from tests.evidence.matrices import counted, planted

TASKS = ("a", "b", "c", "d", "e")
HARM, CHANCE = 1.0, 0.4


def nats(rng: np.random.Generator, items: int = 12, draws: int = 5, ks: tuple[int, ...] = (4,)) -> TransferMatrix:
    """Every source costs a mean of one nat, random heads 0.4; draws, items and both together vary."""
    by_draw, parts = 0.3 * rng.normal(size=(len(ks), draws)), []
    for target in TASKS:
        base = rng.normal(size=items)
        cells = {(NONE, 0, 0): base}
        for place, k in enumerate(ks):
            weak = 0.5 * rng.normal(size=items)
            for source in TASKS:
                cells[source, 0, k] = base - HARM - weak + 0.3 * rng.normal(size=items)
            for draw in range(draws):
                luck = by_draw[place, draw] + 0.2 * rng.normal()
                cells[RANDOM, draw, k] = base - CHANCE - weak / 2 + luck + 0.3 * rng.normal(size=items)
        at = pd.MultiIndex.from_tuples([(*cell, f"i{i:02}") for cell in cells for i in range(items)])
        frame = at.to_frame(index=False, name=["method", "draw", "k", "trial"])
        parts.append(frame.assign(target=target, logprob=np.concatenate([*cells.values()])))
    return TransferMatrix(per_trial=pd.concat(parts, ignore_index=True), metric="logprob")


def wide(m: TransferMatrix, target: str, metric: str) -> Any:
    """A function of (source, k, draw) that gives the metric of every item, in the order of their ids."""
    table = m.per_trial
    assert table is not None
    rows = table[table["task"] == target].set_index(["method", "k", "draw", "trial"])[metric].sort_index()

    def cell(source: str, k: int, draw: int = 0) -> np.ndarray:
        return rows.loc[source, k, draw].to_numpy(dtype=float)

    return cell


@pytest.mark.slow
def test_intervals_cover_for_few_items_and_few_draws() -> None:
    """Five targets, twelve items, five draws. Every k is a study of its own, with new items' effects and new random heads."""
    m, shares = nats(np.random.default_rng(1), ks=tuple(range(1, 501))), {}
    for name, truth in (("fragility", HARM), ("beyond_random", HARM - CHANCE)):
        _, low, high = m.interval(name, n=200)
        shares[name] = ((low <= truth) & (truth <= high)).to_numpy().mean()
        over = m.over_tasks(name, n=200)
        shares[f"mean {name}"] = ((over["low"] <= truth) & (truth <= over["high"])).mean()
    assert all(0.93 <= share <= 0.985 for share in shares.values()), shares


def test_one_target_is_a_table_of_draws_by_items() -> None:
    m = nats(np.random.default_rng(0), ks=(2, 4))
    for k, target in ((2, "a"), (4, "c")):
        cell = wide(m, target, "logprob")
        base, mine = cell(NONE, 0), np.mean([cell(source, k) for source in TASKS], axis=0)
        random = np.stack([cell(RANDOM, k, draw) for draw in range(5)])
        others = np.mean([cell(source, k) for source in TASKS if source != target], axis=0)
        for name, options, table in (
            ("fragility", {}, (base - mine)[None]),
            ("fragility", {"diagonal": False}, (base - others)[None]),
            ("random", {}, base - random),
            ("beyond_random", {}, random - mine),
        ):
            value, low, high = crossed_interval(torch.from_numpy(table))
            found = m.interval(name, **options)
            assert m.statistic(name, **options).loc[k, target] == pytest.approx(value)
            assert [end.loc[k, target] for end in found] == pytest.approx([value, low, high])


def test_several_targets_are_a_sum_of_independent_means() -> None:
    m = nats(np.random.default_rng(2))
    lost = {t: wide(m, t, "logprob")(NONE, 0) - wide(m, t, "logprob")("b", 4) for t in TASKS}
    tables = [torch.from_numpy(lost[t][None] / 4) for t in TASKS if t != "b"]
    _, low, high = m.interval("disruptivity")
    assert [low.loc[4, "b"], high.loc[4, "b"]] == pytest.approx(sum_interval(tables, [None] * 4)[1:])
    signed = [torch.from_numpy(lost[t][None] * (1.0 if t == "b" else -0.25)) for t in TASKS]
    _, low, high = m.interval("specificity")
    assert [low.loc[4, "b"], high.loc[4, "b"]] == pytest.approx(sum_interval(signed, [None] * 5)[1:])


def test_the_mean_over_tasks_shares_the_draws_of_random_heads() -> None:
    m = nats(np.random.default_rng(3))
    tables = []
    for target in TASKS:
        cell = wide(m, target, "logprob")
        random = np.stack([cell(RANDOM, 4, draw) for draw in range(5)])
        tables.append(torch.from_numpy(random - np.mean([cell(s, 4) for s in TASKS], axis=0)) / 5)
    found = m.over_tasks("beyond_random").loc[4]
    assert found[["value", "low", "high"]].tolist() == pytest.approx(list(sum_interval(tables, [None] * 5)))
    assert found["value"] == pytest.approx(m.beyond_random().loc[4].mean())


def test_items_of_one_group_count_together() -> None:
    m = nats(np.random.default_rng(4))
    table = m.per_trial
    assert table is not None
    pairs = "g" + (table["trial"].str[1:].astype(int) // 2).astype(str)
    grouped = TransferMatrix(per_trial=table.assign(group=pairs, group_2=""), metric="logprob")
    cell = wide(m, "a", "logprob")
    lost = cell(NONE, 0) - np.mean([cell(source, 4) for source in TASKS], axis=0)
    _, low, high = grouped.interval("fragility")
    labels = [f"g{i // 2}" for i in range(12)]
    expected = mean_interval(torch.from_numpy(lost), groups=labels)
    assert [low.loc[4, "a"], high.loc[4, "a"]] == pytest.approx([float(end) for end in expected[1:]], abs=1e-6)
    few = TransferMatrix(per_trial=table.assign(group=pairs.where(table["task"] != "b", "one")), metric="logprob")
    _, low, high = few.interval("fragility")
    assert low.isna().loc[4].to_dict() == {task: task == "b" for task in TASKS}
    assert few.interval("disruptivity").low.isna().loc[4].to_dict() == {task: task != "b" for task in TASKS}
    assert np.isnan(few.over_tasks("fragility").loc[4, "low"])


def test_a_relative_drop_is_a_ratio() -> None:
    """Exact for drops in proportion to the base, and as wide as resampling the ratio says."""
    m = nats(np.random.default_rng(5), items=40)
    table = m.per_trial
    assert table is not None
    positive = TransferMatrix(per_trial=table.assign(p=np.exp(table["logprob"] / 4)), metric="p")
    _, low, high = positive.interval("fragility", relative=True)
    value = positive.fragility(relative=True)
    samples = positive.resampled("fragility", n=4000, relative=True)[:, 0]
    np.testing.assert_allclose(((high - low) / 2).loc[4], 2.02 * samples.std(0) * np.sqrt(40 / 39), rtol=0.12)
    assert ((low < value) & (value < high)).all(axis=None)
    base = table[table["method"] == NONE].set_index(["task", "trial"])["logprob"].rename("base")
    joined = table.join(base, on=["task", "trial"])
    share = joined["method"].map({NONE: 1.0, RANDOM: 0.9}).fillna(0.75)
    exact = TransferMatrix(per_trial=joined.assign(p=np.exp(joined["base"]) * share), metric="p")
    for name, expected in (("fragility", 0.25), ("beyond_random", 0.15), ("disruptivity", 0.25), ("specificity", 0)):
        for end in exact.interval(name, relative=True)[1:]:
            np.testing.assert_allclose(end, expected, atol=1e-9)


def test_a_relative_drop_has_no_bounds_where_the_base_may_be_zero() -> None:
    m = planted(3, dict.fromkeys(TASKS, 0.2), items=12)
    table = m.per_trial
    assert table is not None
    rare = (table["task"] == "b") & (table["method"] == NONE)
    low = TransferMatrix(per_trial=table.assign(correct=table["correct"].where(~rare, table["trial"] == "i003")))
    found = low.interval("fragility", relative=True)
    assert np.isfinite(low.fragility(relative=True)).all(axis=None)
    assert all(end["b"].isna().all() and end.drop(columns="b").notna().all(axis=None) for end in found[1:])
    assert all(end.notna().all(axis=None) for end in low.interval("fragility")[1:])
    dead = TransferMatrix(per_trial=table.assign(correct=table["correct"].where(table["task"] != "b", 0.0)))
    over = dead.over_tasks("fragility", relative=True)
    np.testing.assert_allclose(over["value"], dead.fragility(relative=True).drop(columns="b").mean(axis=1))
    assert over.notna().all(axis=None), "a task without a relative drop is omitted"


def test_right_answers_that_never_change_are_not_certain() -> None:
    """Twelve items that stay right: two more, one lost and one gained, give t(13) * sqrt(2 / 13 / 14)."""
    m = planted(3, dict.fromkeys(TASKS, 0.2), items=12, draws=6)
    table = m.per_trial
    assert table is not None
    still = TransferMatrix(per_trial=table.assign(correct=1.0))
    reach = 2.160368656 * np.sqrt(2 / 13 / 14)
    for name in ("fragility", "random", "beyond_random"):
        _, low, high = still.interval(name)
        np.testing.assert_allclose(-low, reach, rtol=1e-6)
        np.testing.assert_allclose(high, reach, rtol=1e-6)
    _, low, high = still.interval("disruptivity")
    assert (high < reach * 0.6).all(axis=None), "four targets tell more than one"
    assert (low < 0).all(axis=None)


@pytest.mark.slow
def test_intervals_of_right_answers_cover() -> None:
    rng, held = np.random.default_rng(6), []
    for _ in range(120):
        p, q = 0.8, 0.7  # Independent answers of one source and its only target.
        rows = [(NONE, 0, 0, rng.random(20) < p), ("a", 0, 4, rng.random(20) < q), (RANDOM, 0, 4, rng.random(20) < p)]
        parts = [
            pd.DataFrame(
                {"method": s, "task": "a", "k": k, "draw": d, "trial": range(20), "correct": hits.astype(float)}
            )
            for s, d, k, hits in rows
        ]
        _, low, high = TransferMatrix(per_trial=pd.concat(parts)).interval("fragility", n=200)
        held.append(low.loc[4, "a"] <= p - q <= high.loc[4, "a"])
    assert np.mean(held) >= 0.93


@pytest.mark.parametrize("name", STATISTICS)
def test_counts_have_percentiles_of_binomials(name: str) -> None:
    m = counted(planted(7, {"a": 0.5, "b": 0.0, "c": 0.25}, items=60))
    _, low, high = m.interval(name, n=500, seed=3)
    samples = m.resampled(name, n=500, seed=3)
    np.testing.assert_allclose(low, np.quantile(samples, 0.025, axis=0))
    np.testing.assert_allclose(high, np.quantile(samples, 0.975, axis=0))
    over = m.over_tasks(name, level=0.9, n=500, seed=3)
    np.testing.assert_allclose(over["low"], np.quantile(samples.mean(-1), 0.05, axis=0))
    np.testing.assert_allclose(over["value"], m.statistic(name).mean(axis=1))


def test_pairing_makes_intervals_narrower_than_counts_can() -> None:
    m = planted(7, {"a": 0.5, "b": 0.0, "c": 0.25, "d": 0.1}, items=200)
    widths = [np.mean(high - low) for _, low, high in (m.interval("specificity"), counted(m).interval("specificity"))]
    assert widths[0] < 0.9 * widths[1]


def test_there_is_no_interval_below_five_items() -> None:
    m = planted(7, {"a": 0.5, "b": 0.0}, items=4)
    for matrix in (m, counted(m)):
        for end in matrix.interval("fragility")[1:]:
            assert end.isna().all(axis=None)
        assert matrix.over_tasks("fragility")[["low", "high"]].isna().all(axis=None)
        assert matrix.over_tasks("fragility")["value"].notna().all()
    five = planted(7, {"a": 0.5, "b": 0.0}, items=5)
    assert all(end.notna().all(axis=None) for end in five.interval("fragility")[1:])


def test_a_level_and_a_statistic_are_checked() -> None:
    m = planted(7, {"a": 0.5, "b": 0.0}, items=6)
    with pytest.raises(ValueError, match="level=95: must lie strictly"):
        m.over_tasks("fragility", level=95)
    with pytest.raises(ValueError, match="unknown statistic 'harm'"):
        m.over_tasks("harm")
    narrow, whole = (np.subtract(*m.interval("fragility", level=level)[:0:-1]) for level in (0.5, 0.95))
    assert (narrow < whole).all(axis=None)
