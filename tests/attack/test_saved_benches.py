"""Damaged tables of methods: the same table, or one error of ours that names the file, the field and what to do."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import lens_heads as lh
from lens_heads.heads.conditions import with_key
from lens_heads.runs.tables import read_table, write_table
from lens_heads.studies.ranking_methods.stored_cells import stored_meta
from tests.attack.held import refused

STORED = Path(__file__).parents[2] / "benchmarks" / "results" / "methods"
SOUND = STORED / "gemma-3-270m" / "ioi"


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    shutil.copytree(SOUND, tmp_path / "m" / "ioi")
    return tmp_path / "m" / "ioi"


def test_a_sound_bench_is_read_whole(cell: Path) -> None:
    found = lh.Bench.load(cell.parents[1]).cell()
    text = json.loads((SOUND / "cell.json").read_text())
    assert (found.model, found.task, found.k, found.left_out) == (text["model"], text["task"], text["k"], {})
    pd.testing.assert_frame_equal(found.about, pd.DataFrame(text["about"]))
    for name in ("curve", "other", "kept"):
        one = getattr(found, name)
        stored = with_key(read_table(SOUND / f"{name}.parquet"))
        pd.testing.assert_frame_equal(one.per_trial, stored.rename(columns={"value": "logprob"}))
        assert stored_meta(one) == text["meta"][name]


def put(*path: Any, value: Any) -> Callable[[Any], Any]:
    """A change that sets what is at the end of the path."""

    def change(text: Any) -> Any:
        at = text
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = value
        return text

    return change


def drop(*path: Any) -> Callable[[Any], Any]:
    def change(text: Any) -> Any:
        at = text
        for name in path[:-1]:
            at = at[name]
        del at[path[-1]]
        return text

    return change


TEXTS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("a list", lambda text: [], "the content is []: expected an object"),
    ("a number", lambda text: 5, "the content is 5"),
    ("no k", drop("k"), "k is missing: expected a whole number of at least 1"),
    ("k a list", put("k", value=[]), "k is []: expected a whole number"),
    ("k true", put("k", value=True), "k is True"),
    ("k half", put("k", value=2.5), "k is 2.5"),
    ("k not measured", put("k", value=3), "k is 3: expected one of meta.curve.ks, [1, 2, 5, 10]"),
    ("meta null", put("meta", value=None), "meta is None: expected an object"),
    ("no curve", drop("meta", "curve"), "meta.curve is missing"),
    ("meta of the curve a text", put("meta", "curve", value="x"), "meta.curve is 'x': expected an object"),
    ("ks a number", put("meta", "curve", "ks", value=5), "meta.curve.ks is 5"),
    ("ks with 0_1", put("meta", "curve", "ks", value=["0_1"]), "meta.curve.ks is ['0_1']"),
    ("ks twice", put("meta", "curve", "ks", value=[1, 1, 2, 5, 10]), "meta.curve.ks is [1, 1, 2, 5, 10]"),
    ("ks not measured", put("meta", "curve", "ks", value=[1, 5, 99]), "no row of any random k=99"),
    ("about 5", put("about", value=5), "about is 5: expected a list of objects"),
    ("about empty", put("about", value=[]), "about is []"),
    ("about of texts", put("about", value=["locos"]), "about[0] is 'locos': expected an object"),
    ("a method without a name", put("about", 0, "method", value=""), "about[0].method is ''"),
    (
        "a method twice",
        put("about", 1, "method", value="locos"),
        "about[1].method is 'locos': expected a name of its own",
    ),
    (
        "a method called as the control",
        put("about", 0, "method", value="random heads"),
        "about[0].method is 'random heads'",
    ),
    ("a method that did not run", put("about", 0, "method", value="mine"), "no row of mine top k=1"),
    ("passes a text", put("about", 0, "passes", value="1"), "about[0].passes is '1': expected a finite number"),
    ("passes null", put("about", 0, "passes", value=None), "about[0].passes is None"),
    ("seconds negative", put("about", 0, "seconds", value=-1), "about[0].seconds is -1"),
    (
        "stability above 1",
        put("about", 0, "stability", value=1.5),
        "about[0].stability is 1.5: expected a number from 0 to 1",
    ),
    ("no chance", drop("about", 0, "chance"), "about[0].chance is missing"),
    ("task null", put("task", value=None), "task is None: expected a text"),
    (
        "a foreign task",
        put("task", value="capitals"),
        "meta.curve.task is 'ioi': expected 'capitals', the task of this cell",
    ),
    ("a foreign task of the curve", put("meta", "curve", "task", value="mine"), "meta.curve.task is 'mine'"),
    (
        "a foreign other task",
        put("meta", "other", "task", value="ioi"),
        "task is 'arithmetic': expected 'ioi' in every row",
    ),
    ("weights of two models", put("meta", "other", "weights", value="x"), "meta.other.weights is 'x'"),
    ("model a number", put("model", value=7), "model is 7"),
    ("left out a list", put("left_out", value=[]), "left_out is []"),
    ("left out without a reason", put("left_out", value={"css": 3}), "left_out.css is 3: expected a text"),
    ("shape of one", put("meta", "kept", "shape", value=[18]), "meta.kept.shape is [18]"),
    ("shape of texts", put("meta", "kept", "shape", value=["18", 4]), "meta.kept.shape is ['18', 4]"),
    ("shape of another model", put("meta", "kept", "shape", value=[30, 9]), "no row of all heads given k=270"),
    ("shares of texts", put("meta", "kept", "shares", value=[["a", 1]]), "meta.kept.shares is"),
    ("shares descending", put("meta", "kept", "shares", value=[[0.5, 36], [0.2, 14]]), "meta.kept.shares is"),
    ("no metric", drop("meta", "kept", "metric"), "meta.kept.metric is missing"),
]


@pytest.mark.parametrize(("change", "says"), [line[1:] for line in TEXTS], ids=[line[0] for line in TEXTS])
def test_a_damaged_cell(cell: Path, change: Callable[[Any], Any], says: str) -> None:
    text = change(copy.deepcopy(json.loads((SOUND / "cell.json").read_text())))
    (cell / "cell.json").write_text(json.dumps(text))
    error = refused(lambda: lh.Bench.load(cell.parents[1]), says)
    assert str(cell) in error
    assert "again" in error


def at_row(column: str, value: Any, row: int = 7) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        changed = table[column].astype(object)
        changed.iloc[row] = value
        return table.assign(**{column: changed.infer_objects()})

    return change


def first_twice(table: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([table, table.iloc[:1]], ignore_index=True)


TABLES: list[tuple[str, str, Callable[[pd.DataFrame], pd.DataFrame], str]] = [
    ("infinite faithfulness", "kept", at_row("value", math.inf), "value in row 7 is inf: expected a finite number"),
    ("faithfulness NaN", "kept", at_row("value", math.nan), "value in row 7 is nan"),
    ("faithfulness of texts", "kept", lambda table: table.assign(value="x"), "value in row 0 is 'x'"),
    ("all heads as none", "kept", lambda table: table.assign(value=1.0), "there is nothing to take shares of"),
    ("infinite damage", "curve", at_row("logprob", -math.inf), "logprob in row 7 is -inf: expected a finite number"),
    ("damage missing", "curve", at_row("logprob", math.nan), "logprob in row 7 is nan"),
    ("an infinite choice", "curve", at_row("choice", math.inf), "choice in row 7 is inf"),
    ("damage elsewhere infinite", "other", at_row("logprob", math.inf), "logprob in row 7 is inf"),
    ("another task's row", "curve", at_row("task", "mine"), "task is 'mine': expected 'ioi' in every row"),
    ("no method", "curve", lambda table: table.drop(columns="method"), "no column 'method'"),
    ("k of texts", "curve", lambda table: table.assign(k="1"), "k in row 0 is '1': expected a whole number from 0 on"),
    ("k negative", "kept", at_row("k", -1), "k in row 7 is -1"),
    ("draw half", "curve", at_row("draw", 0.5), "expected a whole number from 0 on"),
    ("a trial without an id", "kept", at_row("trial", None), "trial in row 7 is"),
    ("a row twice", "curve", first_twice, "is there twice (method none, set none, k 0, draw 0"),
    ("a kept row twice", "kept", first_twice, "is there twice"),
    ("no rows", "curve", lambda table: table.iloc[:0], "task is 'none'"),
    ("a method's rows gone", "kept", lambda table: table[table["method"] != "dla"], "no row of dla top k="),
]


@pytest.mark.parametrize(("name", "change", "says"), [line[1:] for line in TABLES], ids=[line[0] for line in TABLES])
def test_a_damaged_table_of_a_cell(
    cell: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame], says: str
) -> None:
    file = cell / f"{name}.parquet"
    write_table(file, change(with_key(read_table(file))))
    error = refused(lambda: lh.Bench.load(cell.parents[1]), says)
    assert str(file) in error
    assert "again" in error


PLANTED: list[tuple[str, Callable[[pd.DataFrame], pd.DataFrame], str]] = [
    ("infinite", at_row("auroc", math.inf), "auroc in row 7 is inf"),
    ("above 1", at_row("precision", 2.0), "precision lies outside 0 to 1"),
    ("twice", first_twice, "is there twice (method locos, seed 0)"),
    ("no column", lambda table: table.drop(columns="average_precision"), "no column 'average_precision'"),
    ("a method null", at_row("method", None), "method in row 7 is"),
]


@pytest.mark.parametrize(("change", "says"), [line[1:] for line in PLANTED], ids=[line[0] for line in PLANTED])
def test_damaged_planted_models(cell: Path, change: Callable[[pd.DataFrame], pd.DataFrame], says: str) -> None:
    file = cell.parents[1] / "planted.parquet"
    write_table(file, read_table(STORED / "planted.parquet"))
    assert len(lh.Bench.load(cell.parents[1]).planted) > 100
    write_table(file, change(read_table(file)))
    refused(lambda: lh.Bench.load(cell.parents[1]), says)


def test_two_cells_of_one_task(cell: Path) -> None:
    shutil.copytree(cell, cell.parent / "copy")
    refused(lambda: lh.Bench.load(cell.parents[1]), "task is 'ioi' of model 'gemma-3-270m', as in")
