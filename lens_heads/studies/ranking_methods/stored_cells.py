"""Stored cells of a bench: reading them, with everything checked that was written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from lens_heads.evidence.curve_results import AblationCurve, check_table
from lens_heads.evidence.faithfulness_results import ALL, FaithfulnessCurve
from lens_heads.heads.conditions import Condition, with_key
from lens_heads.runs.fields import Fields, check_columns
from lens_heads.runs.reading import read_json
from lens_heads.runs.tables import read_table
from lens_heads.sanity.quality import QUALITIES
from lens_heads.studies.finding import plain

if TYPE_CHECKING:
    pass


CELL = "cell.json"
REMEDY = "delete its folder and run lens-heads bench again with the same --out, or save the Bench again"


def read_cell(folder: Path, metric: str, reserved: str) -> dict[str, Any]:
    """The fields of the `Cell` in a folder. `metric`: what trials of the other task have; `reserved`: what no method is called.

    FileNotFoundError for a folder without it. ValueError naming the file and field or row for anything that is damaged, of
    another task or model, lacks a method, or is not finite.
    """
    file = folder / CELL
    if not file.exists():
        raise FileNotFoundError(f"{file} is missing: {folder} holds no finished table of methods")
    read = Fields(file, read_json(file), REMEDY)
    model, task, k = read.text("model"), read.text("task"), read.whole("k", 1)
    about = _about(read, reserved)
    metas = read.inside("meta")
    own = read.text("metric") if "metric" in read.found else metric  # Older files have one alone.
    curve, other = (_curve(folder, metas.inside(name), name, one) for name, one in (("curve", own), ("other", metric)))
    kept = _kept(folder, metas.inside("kept")) if "kept" in metas.found else None
    _check_task(metas.inside("curve"), folder / "curve.parquet", curve, task)
    _check_task(metas.inside("other"), folder / "other.parquet", other, metas.inside("other").text("task"))
    parts = [metas.inside(name) for name in ("curve", "other", *["kept"] * (kept is not None))]
    for part in parts[1:]:
        if part.text("weights") != parts[0].text("weights"):
            raise part.wrong("weights", part.text("weights"), f"{parts[0].text('weights')}, as of meta.curve")
    ks = _numbers(metas.inside("curve"), "ks")
    if k not in ks:
        raise read.wrong("k", k, f"one of meta.curve.ks, {ks}")
    methods = list(about["method"])
    for name, one, sizes in (("curve", curve, ks), ("other", other, [k])):
        wanted = [Condition.none(), *(Condition.random(size) for size in sizes)]
        wanted += [Condition.top(method, size) for method in methods for size in sizes]
        _check_conditions(folder / f"{name}.parquet", one.per_trial, wanted)
    if kept is not None:
        between = [size for _, size in kept.shares if 0 < size < kept.total]
        wanted = [Condition.none(), Condition.given(ALL, kept.total), *map(Condition.random, between)]
        wanted += [Condition.top(method, size) for method in methods for size in between]
        file = folder / "kept.parquet"
        _check_conditions(file, kept.per_trial, wanted)
        ends = kept.per_trial["set"].isin([Condition.none().set, Condition.given(ALL, kept.total).set])
        try:  # Of the two ends alone: all conditions are slow to take apart.
            replace(kept, per_trial=kept.per_trial[ends]).checked()
        except ValueError as error:
            raise ValueError(f"{file}: value {error}; {REMEDY}") from None
    left_out = read.inside("left_out")
    parts = {"model": model, "task": task, "k": k, "about": about, "curve": curve, "other": other, "kept": kept}
    able = read.found.get("does")
    if not isinstance(able, bool | None):
        raise read.wrong("does", able, "true, false or null")
    ability = read.text("ability") if able is not None else ""
    parts |= {"metric": own, "ability": ability, "does": able}
    return parts | {"left_out": {name: left_out.text(name) for name in left_out.found}}


def read_planted(file: Path) -> pd.DataFrame:
    """How well every method finds planted heads, a row per method and model; qualities are shares, or NaN where there is none."""
    table = read_table(file)
    check_columns(file, table, ["method"], ["seed"], gaps=QUALITIES, key=["method", "seed"], remedy=REMEDY)
    for name in QUALITIES:
        if not table[name].dropna().between(0, 1).all():
            raise ValueError(f"{file}: {name} lies outside 0 to 1; {REMEDY}")
    return table


def _about(read: Fields, reserved: str) -> pd.DataFrame:
    rows = [
        {"method": one.text("method"), "family": one.text("family")}
        | {name: one.number(name) for name in ("passes", "seconds")}
        | {"stability": one.number("stability", 1, gap=True), "chance": one.number("chance", 1)}
        for one in read.each("about")
    ]
    for i, row in enumerate(rows):
        if row["method"] in (reserved, *(earlier["method"] for earlier in rows[:i])):
            raise read.wrong(f"about[{i}].method", row["method"], "a name of its own")
    return pd.DataFrame(rows)


def _numbers(meta: Fields, name: str) -> list[int]:
    wanted = "a list of whole numbers from 1 on, ascending"
    found = meta.listed(name, wanted)
    if any(type(k) is not int or k < 1 for k in found) or found != sorted(set(found)):
        raise meta.wrong(name, found, wanted)
    return found


def _curve(folder: Path, meta: Fields, name: str, metric: str) -> AblationCurve:
    file = folder / f"{name}.parquet"
    table = with_key(read_table(file))
    check_columns(file, table, numbers=[metric], remedy=REMEDY)
    check_table(file, table, REMEDY)
    return AblationCurve(table, meta.found)


KEPT = ("metric", "mlps", "shape", "shares", "d_model", "size")
"""What a stored curve of kept heads is of, beside its settings."""


def stored_meta(curve: AblationCurve | FaithfulnessCurve) -> dict[str, Any]:
    """What is written of a curve beside its table."""
    found = dict(curve.meta)
    if isinstance(curve, FaithfulnessCurve):
        found |= {field: getattr(curve, field) for field in KEPT}
        if (
            curve.total == curve.shape[0] * curve.shape[1]
        ):  # As many in each layer: nothing that the shape does not say.
            del found["size"]
    return plain(found)


def _kept(folder: Path, meta: Fields) -> FaithfulnessCurve:
    file, sizes = folder / "kept.parquet", meta.listed("shape", "[layers, heads]")
    if len(sizes) != 2 or any(type(size) is not int or size < 1 for size in sizes):
        raise meta.wrong("shape", sizes, "[layers, heads]")
    for name in ("metric", "mlps"):
        meta.text(name)
    most = sizes[0] * sizes[1]
    total = (
        meta.whole("size", 1) if "size" in meta.found else most
    )  # Older files are of models with as many in each layer.
    if total > most:
        raise meta.wrong("size", total, f"at most {most}, the places of meta.kept.shape")
    wanted = "pairs of a share of all heads and a number of them, both ascending"
    shares = meta.listed("shares", wanted)
    if not all(_is_share(one, total) for one in shares) or any(
        one[0] >= after[0] or one[1] > after[1] for one, after in pairwise(shares)
    ):
        raise meta.wrong("shares", shares, wanted)
    table = with_key(read_table(file))
    texts, key = ("method", "set", "heads", "trial"), ("method", "set", "k", "draw", "trial")
    check_columns(
        file,
        table,
        texts,
        ("k", "draw"),
        ["value" if "value" in table else meta.text("metric")],
        key=key,
        remedy=REMEDY,
    )
    layers, heads = sizes
    metric, mlps, d_model = (meta.found.get(name) for name in ("metric", "mlps", "d_model"))
    settings = {name: value for name, value in meta.found.items() if name not in KEPT}
    return FaithfulnessCurve(table, {}, metric, mlps, (layers, heads), shares, d_model or 0, settings, total)


def _is_share(one: Any, total: int) -> bool:
    fits = isinstance(one, list) and len(one) == 2 and type(one[0]) in (int, float) and type(one[1]) is int
    return fits and 0 < one[0] <= 1 and 0 <= one[1] <= total


def _check_task(meta: Fields, file: Path, curve: AblationCurve, task: str) -> None:
    """ValueError for a curve, or a row of it, of another task."""
    if meta.text("task") != task:
        raise meta.wrong("task", meta.text("task"), f"{task!r}, the task of this cell")
    foreign = [one for one in curve.tasks if one != task]
    if foreign or not curve.tasks:
        raise ValueError(f"{file}: task is {(foreign or ['none'])[0]!r}: expected {task!r} in every row; {REMEDY}")


def _check_conditions(file: Path, table: pd.DataFrame, wanted: Sequence[Condition]) -> None:
    """ValueError for a condition that no row has."""
    there: Iterable[tuple[Any, ...]] = table[["method", "set", "k"]].drop_duplicates().itertuples(index=False)
    known = {(str(method), str(kind), int(k)) for method, kind, k in there}
    lacking = next((one for one in wanted if (one.method, one.set, one.k) not in known), None)
    if lacking is not None:
        raise ValueError(f"{file}: no row of {lacking}: expected every method of {CELL} at every k; {REMEDY}")
