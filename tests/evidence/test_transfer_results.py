"""TransferMatrix: numbers worked by hand, parity with plain loops, intervals over items, and what is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_heads.evidence.transfer_cells import STATISTICS
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.runs.tables import write_table
from tests.evidence.matrices import counted, planted, row, worked

WEAK = {"a": 0.5, "b": 0.0, "c": 0.25, "d": 0.1}


def accuracy(matrix: TransferMatrix, source: str, target: str, k: int, draw: int = 0, metric: str = "correct") -> float:
    """A cell, straight from the table."""
    t = matrix._table
    rows = t[(t["method"] == source) & (t["task"] == target) & (t["k"] == k) & (t["draw"] == draw)]
    return (
        float(rows[metric].mean())
        if matrix.per_trial is not None
        else float(rows["matches"].sum() / rows["attempts"].sum())
    )


def looped(matrix: TransferMatrix, name: str, diagonal: bool | None = None, relative: bool = False) -> pd.DataFrame:
    """A statistic as written in its formula, cell by cell."""

    def drop(source: str, target: str, k: int, draw: int = 0) -> float:
        base = accuracy(matrix, "none", target, 0)
        lost = base - accuracy(matrix, source, target, k, draw)
        return lost if not relative else lost / base if base else float("nan")

    def one(task: str, k: int) -> float:
        others = [t for t in matrix.targets if t != task]
        if name == "fragility":
            return float(np.mean([drop(s, task, k) for s in matrix.sources if diagonal is not False or s != task]))
        if name == "disruptivity":
            return float(np.mean([drop(task, t, k) for t in (matrix.targets if diagonal else others)]))
        if name == "specificity":
            return drop(task, task, k) - float(np.mean([drop(task, t, k) for t in others]))
        chance = float(np.mean([drop("random", task, k, draw) for draw in range(matrix.draws)]))
        whole = [drop(s, task, k) for s in matrix.sources if diagonal is not False or s != task]
        return chance if name == "random" else float(np.mean(whole)) - chance

    tasks = matrix.sources if STATISTICS[name][0] == "sources" else matrix.targets
    return pd.DataFrame([[one(task, k) for task in tasks] for k in matrix.ks], list(matrix.ks), list(tasks))


# The numbers


def test_numbers_worked_by_hand() -> None:
    m = worked()
    assert (m.sources, m.targets, m.ks, m.draws) == (("a", "b"), ("a", "b", "c"), (8,), 2)
    assert m.drop().loc[8].to_numpy().tolist() == [[1, 0, 0.5], [0.5, 0.5, 0]]
    assert m.drop(relative=True).loc[8].to_numpy().tolist() == [[1, 0, 0.5], [0.5, 1, 0]]
    assert m.fragility().loc[8].to_dict() == {"a": 0.75, "b": 0.25, "c": 0.25}
    assert m.fragility(diagonal=False).loc[8].to_dict() == {"a": 0.5, "b": 0, "c": 0.25}
    assert m.fragility(relative=True).loc[8].to_dict() == {"a": 0.75, "b": 0.5, "c": 0.25}
    assert m.disruptivity().loc[8].to_dict() == {"a": 0.25, "b": 0.25}
    assert m.disruptivity(diagonal=True).loc[8].to_dict() == {"a": 0.5, "b": pytest.approx(1 / 3)}
    assert m.specificity().loc[8].to_dict() == {"a": 0.75, "b": 0.25}
    assert m.beyond_random().loc[8].to_dict() == {"a": 0.5, "b": 0, "c": 0.25}
    chance = m.random().set_index("target")
    assert chance.loc["a"].to_dict() == {"k": 8, "drop": 0.25, "lowest": 0, "highest": 0.5, "draws": 2}
    assert chance.loc["b"].to_dict() == {"k": 8, "drop": 0.25, "lowest": 0, "highest": 0.5, "draws": 2}
    assert chance.loc["c"].to_dict() == {"k": 8, "drop": 0, "lowest": 0, "highest": 0, "draws": 2}


@pytest.mark.slow
@pytest.mark.parametrize("matrix", [planted(3, WEAK), counted(planted(3, WEAK))], ids=["items", "counts"])
@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_is_its_formula(matrix: TransferMatrix, name: str) -> None:
    for relative in (False, True):
        expected = looped(matrix, name, relative=relative)
        found = matrix.statistic(name, relative=relative)
        pd.testing.assert_frame_equal(found, expected, check_names=False)
        for diagonal in (False, True) if "diagonal" in STATISTICS[name][1] else ():
            expected = looped(matrix, name, diagonal, relative)
            found = matrix.statistic(name, relative=relative, diagonal=diagonal)
            pd.testing.assert_frame_equal(found, expected, check_names=False)
            named = getattr(matrix, name)(diagonal=diagonal, relative=relative)
            pd.testing.assert_frame_equal(named, expected, check_names=False)


def test_a_wrong_formula_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parity test can fail: disruptivity with the diagonal in by default is not the formula."""
    from lens_heads.evidence.transfer_cells import Cells

    right = Cells.disruptivity
    monkeypatch.setattr(Cells, "disruptivity", lambda self, relative=False: right(self, True, relative))
    m = planted(3, WEAK)
    with pytest.raises(AssertionError):
        pd.testing.assert_frame_equal(m.statistic("disruptivity"), looped(m, "disruptivity"), check_names=False)


def test_the_frame_has_a_row_per_cell() -> None:
    for m in (planted(1, WEAK), counted(planted(1, WEAK))):
        table = m.frame
        assert len(table) == 4 * (1 + 4 * 3 + 2 * 3)
        assert (table["trials"] == 40).all()
        for r in table.sample(20, random_state=0).to_dict("records"):
            assert r["value"] == pytest.approx(accuracy(m, r["method"], r["task"], r["k"], r["draw"]))


def test_a_target_without_a_source_of_its_own_counts_as_a_target() -> None:
    m = worked()
    assert list(m.fragility().columns) == ["a", "b", "c"]
    assert list(m.disruptivity().columns) == list(m.specificity().columns) == ["a", "b"]


def test_a_relative_drop_without_a_baseline_is_nan() -> None:
    table = worked().per_trial
    assert table is not None
    dead = table.assign(correct=np.where(table["task"] == "b", 0.0, table["correct"]))
    m = TransferMatrix(per_trial=dead)
    assert np.isnan(m.fragility(relative=True).loc[8, "b"])
    assert m.fragility(relative=True).loc[8, "a"] == 0.75
    e = m.disruptivity(relative=True).loc[8]
    assert np.isnan(e["a"]), "a disrupts b, which has nothing to lose"
    assert e["b"] == 0.25, "of its own target b nothing is needed"


def test_another_metric_is_a_replacement() -> None:
    table = worked().per_trial
    assert table is not None
    m = TransferMatrix(per_trial=table.assign(logprob=-2.0 - table["correct"]))
    other = replace(m, metric="logprob")
    assert other.fragility().loc[8, "a"] == -0.75
    with pytest.raises(ValueError, match="relative=True requires a non-negative metric"):
        other.fragility(relative=True)


# Resampling


def test_the_bootstrap_resamples_items_the_same_for_all_cells_of_a_target() -> None:
    """Of target a, item 0 alone resists source b: fragility is 0.5, 0.75 or 1 as it is drawn 2, 1 or 0 times in two."""
    samples = worked().resampled("fragility", n=4000)[:, 0]
    assert set(np.unique(samples[:, 0])) == {0.5, 0.75, 1.0}
    share = [float((samples[:, 0] == value).mean()) for value in (0.5, 0.75, 1.0)]
    assert share == pytest.approx([0.25, 0.5, 0.25], abs=0.04)
    assert abs(np.corrcoef(samples[:, 0], samples[:, 1])[0, 1]) < 0.06, "targets are resampled on their own"


def test_counts_are_resampled_as_binomials() -> None:
    m = counted(planted(2, WEAK, items=50))
    samples = m.resampled("fragility", n=20_000)[:, 0, 0]
    p = [accuracy(m, source, "a", 4) for source in WEAK]
    base = accuracy(m, "none", "a", 0)
    variance = base * (1 - base) / 50 + sum(q * (1 - q) for q in p) / 50 / 16
    assert samples.var() == pytest.approx(variance, rel=0.05)
    assert samples.mean() == pytest.approx(base - np.mean(p), abs=0.003)


def test_groups_of_items_are_resampled_and_halved_whole() -> None:
    m = planted(4, WEAK, items=12)
    table = m.per_trial
    assert table is not None
    grouped = TransferMatrix(per_trial=table.assign(group="g" + (table["trial"].str[1:].astype(int) // 4).astype(str)))
    of_a = {item: table[(table["trial"] == item) & (table["task"] == "a")] for item in m.items("a") or ()}

    def whole(items: list[str]) -> float:
        rows = pd.concat([of_a[item] for item in items])
        base = rows.loc[rows["method"] == "none", "correct"].mean()
        return float(base - rows.loc[rows["method"].isin(WEAK) & (rows["k"] == 4), "correct"].mean())

    names = list(of_a)
    groups = [names[0:4], names[4:8], names[8:12]]
    draws = [[*x, *y, *z] for x, y, z in itertools.product(groups, repeat=3)]
    samples = grouped.resampled("fragility", n=400)[:, 0, 0]
    assert {round(float(x), 9) for x in samples} == {round(whole(drawn), 9) for drawn in draws}
    assert samples.var() > m.resampled("fragility", n=400)[:, 0, 0].var() * 0.2
    first, second = grouped.halves("fragility", n=30)
    expected = {(round(whole(g), 9), round(whole([n for n in names if n not in g]), 9)) for g in groups}
    assert {
        (round(float(x), 9), round(float(y), 9)) for x, y in zip(first[:, 0, 0], second[:, 0, 0], strict=True)
    } == expected


@pytest.mark.parametrize(
    "matrix", [planted(3, WEAK, items=7), counted(planted(3, WEAK, items=7))], ids=["items", "counts"]
)
def test_halves_share_no_item_and_make_up_the_whole(matrix: TransferMatrix) -> None:
    """Three and four of seven items: weighted by their number they give the whole."""
    first, second = matrix.halves("fragility", n=50)
    whole = np.broadcast_to(matrix.fragility().to_numpy(), first.shape)
    np.testing.assert_allclose((3 * first + 4 * second) / 7, whole, atol=1e-12)
    assert np.std(first, axis=0).max() > 0.01


def test_draws_of_random_heads_are_resampled_too() -> None:
    """The two draws of b differ, its items under them do too: with items alone 0 would need both draws right."""
    samples = worked().resampled("random", n=2000)[:, 0]
    assert samples[:, 2].max() == 0
    assert set(np.unique(samples[:, 1])) == {0.0, 0.25, 0.5, 1.0}


def test_equal_items_and_seed_give_equal_resamples_in_any_matrix() -> None:
    m = planted(3, WEAK)
    table = m.per_trial
    assert table is not None
    first = m.resampled("fragility", n=20, seed=3)
    again = TransferMatrix(per_trial=table.sample(frac=1, random_state=0))
    order = [again.targets.index(target) for target in m.targets]
    np.testing.assert_allclose(again.resampled("fragility", n=20, seed=3)[:, :, order], first, atol=1e-12)
    assert again.items("a") == m.items("a")
    assert not np.allclose(m.resampled("fragility", n=20, seed=4), first)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.permutations(list(WEAK)))
def test_the_order_of_rows_is_no_matter(seed: int, order: list[str]) -> None:
    m = planted(1, WEAK, items=6)
    table = m.per_trial
    assert table is not None
    shuffled = TransferMatrix(per_trial=table.sample(frac=1, random_state=seed))
    for name in STATISTICS:
        found = shuffled.statistic(name)[order].sort_index()
        pd.testing.assert_frame_equal(found, m.statistic(name)[order], check_names=False)


# Files and views


@pytest.mark.parametrize("matrix", [worked(), counted(worked())], ids=["items", "counts"])
def test_saved_and_loaded_is_the_same(matrix: TransferMatrix, tmp_path: Path) -> None:
    found = TransferMatrix.load(matrix.save(tmp_path / "m"))
    pd.testing.assert_frame_equal(found._table, matrix._table)
    assert (found.metric, found.meta, found.per_trial is None) == (
        "correct",
        {"model": "worked"},
        matrix.per_trial is None,
    )
    if matrix.per_trial is not None:  # What older versions wrote.
        older = matrix.per_trial.rename(columns={"method": "source", "task": "target", "trial": "item"})
        write_table(tmp_path / "older" / "per_item.parquet", older)
        (tmp_path / "older" / "transfer.json").write_text((tmp_path / "m" / "transfer.json").read_text())
        pd.testing.assert_frame_equal(TransferMatrix.load(tmp_path / "older")._table, matrix._table)
    for name in ("transfer.json", "per_trial.parquet" if matrix.per_trial is not None else "counts.parquet"):
        (tmp_path / "m" / name).unlink()
        with pytest.raises(FileNotFoundError, match=r"is missing\. .* written by TransferMatrix\.save"):
            TransferMatrix.load(tmp_path / "m")


def test_it_says_what_it_is() -> None:
    assert repr(worked()) == "TransferMatrix(2 sources x 3 targets, k = [8], 6 items, correct, 2 random draws)"
    assert "0.750" in worked()._repr_html_()


# What is refused


def without(**cell: Any) -> pd.DataFrame:
    table = worked().per_trial
    assert table is not None
    keep = np.ones(len(table), dtype=bool)
    for column, value in cell.items():
        keep &= (table[column] == value).to_numpy()
    return table[~keep]


def extra(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.concat([worked().per_trial, pd.DataFrame(list(rows))], ignore_index=True)


RAGGED = {
    "a cell": (without(method="a", task="b"), "no cell for source 'a', draw 0, target 'b', k=8"),
    "no baseline": (without(method="none", task="c"), "no cell for source 'none', draw 0, target 'c', k=0"),
    "a draw": (without(method="random", draw=1, task="a"), "no cell for source 'random', draw 1, target 'a', k=8"),
    "an item": (without(method="b", task="c", trial="i1"), r"item 'i1' is missing from \{'method': 'b'"),
    "a k": (extra(row("a", "a", 16, "i0", 1)), "no cell for source 'b', draw 0, target 'a', k=16"),
    "twice": (
        extra(row("a", "a", 8, "i0", 1)),
        r"repeats the cell or trial \{'task': 'a', 'method': 'a', .*'trial': 'i0'",
    ),
    "nan": (extra(row("a", "a", 8, "i9", np.nan)), r"1 rows contain NaN, first \{'task': 'a'"),
    "unknown source": (extra(row("z", "a", 8, "i0", 1)), "source 'z' is not among the targets a, b, c"),
    "ablation of none": (
        extra(row("none", "a", 8, "i0", 1)),
        "method='none', k=8: k must be 0 for method='none'",
    ),
    "no source": (without(method="a").query("method != 'b'"), "the table has no source but"),
    "no column": (worked().per_trial.drop(columns="trial"), r"the table has no column trial\. It has \['method'"),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("case", RAGGED.values(), ids=RAGGED.keys())
def test_tables_that_are_no_matrix_are_refused(case: Any) -> None:
    table, message = case
    with pytest.raises(ValueError, match=message):
        TransferMatrix(per_trial=table)


@pytest.mark.parametrize(
    ("attempts", "matches", "message"),
    [
        (3, 1, "3 attempts, but 2 without ablation"),
        (2, 3, "3.0 matches of 2 attempts. Matches must be an integer"),
        (2, -1, "-1.0 matches of 2 attempts. Matches must be an integer"),
        (2, 0.5, "0.5 matches of 2 attempts. Matches must be an integer"),
    ],
)
def test_counts_that_cannot_be_are_refused(attempts: float, matches: float, message: str) -> None:
    table = counted(worked())._table.astype({"matches": float})
    at = table.index[(table["method"] == "b") & (table["task"] == "a")]
    table.loc[at, "attempts"], table.loc[at, "matches"] = attempts, matches
    with pytest.raises(ValueError, match=rf"target 'a', \{{'method': 'b', 'draw': 0, 'k': 8\}}: {message}"):
        TransferMatrix(counts=table)


def test_one_table_is_needed() -> None:
    for tables in ({}, {"per_trial": worked().per_trial, "counts": counted(worked()).counts}):
        with pytest.raises(ValueError, match="requires exactly one of per_trial and counts"):
            TransferMatrix(**tables)


def test_unknown_statistics_and_options_are_refused() -> None:
    m = worked()
    with pytest.raises(ValueError, match=r"unknown statistic 'harm'\. Choose from fragility, disruptivity"):
        m.interval("harm")
    with pytest.raises(ValueError, match=r"specificity has no option 'diagonal'\. It takes relative"):
        m.interval("specificity", diagonal=True)
    with pytest.raises(ValueError, match="level=95: must lie strictly between 0 and 1"):
        m.interval("fragility", level=95)
    alone = TransferMatrix(per_trial=without(method="random"))
    for call in (alone.random, alone.beyond_random):
        with pytest.raises(ValueError, match="requires random heads, which were not ablated"):
            call()


def test_one_item_has_no_halves() -> None:
    table = worked().per_trial
    assert table is not None
    m = TransferMatrix(per_trial=table[(table["task"] != "b") | (table["trial"] == "i0")])
    assert m.fragility().loc[8, "b"] == 0.5
    with pytest.raises(ValueError, match="target 'b' has only one item"):
        m.halves("fragility")
    with pytest.raises(ValueError, match="target 'a' has only one item, or group of items, so it has no spread"):
        TransferMatrix(per_trial=table.assign(group="company")).halves("fragility")
