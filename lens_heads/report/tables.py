"""Tables for the terminal, one function per kind of result."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.verdicts import Verdict
from lens_heads.heads.conditions import NO_NEEDLE
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Head
from lens_heads.heads.ranks import ranks_nothing
from lens_heads.heads.scores import HeadScores
from lens_heads.inspection.cards import THRESHOLDS, HeadCards
from lens_heads.model.check import CheckReport
from lens_heads.runs.showing import visible

NOTHING = "–"
"""Replaces what does not exist: the interval of a single trial, a test that does not apply."""


def show(table: Table | str) -> None:
    """Print a table, or a line of text, to the terminal."""
    Console(emoji=False).print(table)


def plain(text: object) -> str:
    """A text from anywhere for a table's cell or title: markup is not interpreted, control characters are escapes."""
    return escape(visible(text))


def top_heads(scores: Mapping[str, HeadScores], k: int = 5, title: str = "Top heads") -> Table:
    """One row per method: its k best heads with 95 % intervals, the number of heads significantly above zero, reliability.

    `k` is limited to the number of heads, and is at least 1.
    """
    k = max(1, min([k, *(len(found.flat) for found in scores.values())]))
    table = Table(
        "method", "trials", f"top {k} heads: score [95 % interval]", "above 0", "reliability", title=plain(title)
    )
    for name, found in scores.items():
        intervals = _intervals(found, ".3g")
        best = [f"{head} {found[head]:.3g} {intervals[head]}" for head in found.ranking()[:k]]
        best = ["none: all heads score the same"] if ranks_nothing(found) else best
        above = NOTHING if found.untested() else f"{int(found.significant().sum())} of {len(found.flat)}"
        reliability = found.reliability()
        agreed = NOTHING if math.isnan(reliability) else f"{reliability:.2f}"
        table.add_row(plain(name), str(len(found.trial_ids)), "  ".join(best), above, agreed)
    return table


def _interval(bounds: Sequence[float], trials: int, form: str) -> str:
    low, high = bounds
    return f"[{low:{form}}, {high:{form}}]" if trials > 1 and not math.isnan(low) else NOTHING


def _intervals(scores: HeadScores, form: str) -> dict[Head, str]:
    bounds, trials = torch.stack(scores.interval()[1:], -1).tolist(), len(scores.trial_ids)
    return {head: _interval(bounds[head.layer][head.head], trials, form) for head in scores.ranking()}


def ranking(scores: HeadScores, top: int, bottom: int) -> Table:
    """The `top` best and `bottom` worst heads; numbers below 0 or beyond the number of heads are limited.

    The interval of a localized head is over masks, given that the head was chosen; its stability is shown next to it.
    """
    fitted = {Head.parse(row["head"], unit=scores.unit): row for row in scores.fit.get("heads", ())}
    columns = "rank", "head", "score", *(("95 % over masks", "stability") if fitted else ("95 % interval",))
    title = f"{scores.method}: {scores.n_layers} layers x {scores.n_heads} heads, {_trials(len(scores.trial_ids))}"
    table = Table(*(Column(column, justify="right") for column in columns), title=plain(title))
    intervals, ranked = _intervals(scores, ".4g"), list(enumerate(scores.ranking(), 1))
    top, bottom = max(top, 0 if bottom > 0 else 1), max(bottom, 0)
    for rank, head in dict.fromkeys([*ranked[:top], *ranked[max(0, len(ranked) - bottom) :]]):
        more = _fitted(fitted.get(head)) if fitted else (intervals[head],)
        table.add_row(str(rank), str(head), f"{scores[head]:.4g}", *more)
    return table


def _fitted(row: Mapping[str, Any] | None) -> tuple[str, str]:
    """Interval over masks and stability of a head that a regression chose; dashes for other heads."""
    if row is None or row["low"] is None or row["high"] is None:
        return NOTHING, NOTHING if row is None else f"{row['stability']:.2f}"
    return f"[{row['low']:.4g}, {row['high']:.4g}]", f"{row['stability']:.2f}"


def curve(found: AblationCurve, metric: str | None = None, task: str | None = None, title: str | None = None) -> Table:
    """One metric of one task: rows are rankings and controls, columns are k, cells are value [95 % interval].

    Named sets of heads, which have a single k each, are omitted. A dash stands where nothing was measured.
    """
    task = task or found.main_task
    metric = metric or ("rougeL" if "rougeL" in found.metrics else found.metrics[0])
    frame = found.frame[(found.frame["task"] == task) & (found.frame["metric"] == metric)]
    frame = frame[frame["set"] != "given"]
    ks = sorted(k for k in frame["k"].unique() if k)
    base = frame[frame["k"] == 0].iloc[0]
    about = f"{task}: {metric} with k heads ablated; unablated {_cell(base)}, {_trials(int(base['trials']))}"
    bare = frame[frame["set"] == NO_NEEDLE]
    about += "" if bare.empty else f"; without the needle {_cell(bare.iloc[0])}"
    table = Table("heads", *(Column(f"k = {k}", justify="right") for k in ks), title=plain(title or about))
    for method, set_ in dict.fromkeys(zip(frame["method"], frame["set"], strict=True)):
        if set_ in ("none", NO_NEEDLE):
            continue
        rows = frame[(frame["method"] == method) & (frame["set"] == set_)].set_index("k")
        name = {"top": method, "random": "random"}.get(set_, f"{method}, {set_}")
        cells = (_cell(rows.loc[k]) if k in rows.index else NOTHING for k in ks)
        table.add_row(plain(name), *cells, style=None if set_ == "top" else "dim")
    return table


def _trials(n: int) -> str:
    return f"{n} trial{'s' * (n != 1)}"


def _cell(row: Any) -> str:
    """Value and interval of one row of a curve's frame."""
    return f"{row['value']:.3f} {_interval((row['low'], row['high']), int(row['trials']), '.3f')}"


def verdicts(found: Sequence[Verdict], title: str = "Verdicts") -> Table:
    """One row per verdict: the question, the answer, and why."""
    table = Table("question", "verdict", "because", "trials", "would tell", title=plain(title))
    for one in found:
        more = one.more.removeprefix("; about ").removesuffix(" would tell") or NOTHING
        table.add_row(*map(plain, (one.question, one.word, one.because, one.trials, more)))
    return table


def claims(found: pd.DataFrame, title: str) -> Table:
    """A paper's claims: one row per claim, with the paper's number, this model's, and the interval that decides."""
    table = Table("claim", "paper", "here", "judged by [95 % interval]", "verdict", title=plain(title))
    for row in found.to_dict("records"):
        bounds = "" if math.isnan(row["low"]) else f" [{row['low']:.2f}, {row['high']:.2f}]"
        judged = NOTHING if math.isnan(row["value"]) else f"{row['value']:.2f}{bounds}"
        cells = (row["claim"], row["paper"], row["found"], f"{judged}: {row['holds_if']}", row["verdict"])
        table.add_row(*map(plain, cells))
    return table


def registered(found: pd.DataFrame, title: str) -> Table:
    """A study's claims as they were written down before it ran: one row each."""
    table = Table("claim", "estimand", "metric", "k", "n", "holds if", title=plain(title))
    for row in found.to_dict("records"):
        table.add_row(*(plain(row[name]) for name in ("claim", "estimand", "metric", "k", "n", "holds_if")))
    return table


def planned(found: pd.DataFrame, title: str) -> Table:
    """What a study would cost: passes and minutes by model and stage, and in all."""
    table = Table(
        "model", "stage", *(Column(name, justify="right") for name in ("passes", "minutes")), title=plain(title)
    )
    whole = {"model": "", "stage": "all", "passes": found["passes"].sum(), "minutes": found["minutes"].sum()}
    for row in [*found.to_dict("records"), whole]:
        table.add_row(plain(row["model"]), plain(row["stage"]), f"{row['passes']:.0f}", f"{row['minutes']:.1f}")
    return table


def methods(rows: pd.DataFrame) -> Table:
    """The ranking methods."""
    table = Table(title="Ranking methods")
    table.add_column("method", no_wrap=True)
    table.add_column("family", no_wrap=True)
    for name in ("needs", "when it misleads"):
        table.add_column(name)
    for row in rows.to_dict("records"):
        table.add_row(*(plain(row[name]) for name in ("method", "family", "needs", "fails")))
    return table


def bench(rows: pd.DataFrame) -> Table:
    """What every method costs, the damage that its top k heads do, its area over log k, and the area under faithfulness."""
    first = rows.iloc[0]
    names = ("passes", f"k={first['k']}", "area", "faithful")
    columns = (Column(name, justify="right", no_wrap=True) for name in names)
    title = f"{first['model']}: {first['task']}"
    table = Table(Column("method", no_wrap=True), *columns, title=plain(title))
    for row in rows.sort_values("area", ascending=False).to_dict("records"):
        numbers = [f"{row['passes']:.1f}", _value(row["damage"]), _within(row, "area"), _value(row["cpr_log"])]
        table.add_row(plain(row["method"]), *numbers)
    return table


def _value(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.2f}"


def _within(row: Mapping[Hashable, Any], name: str) -> str:
    """A value with its bounds, if it has some."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return _value(row[name]) + ("" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]")


def cards(found: HeadCards, heads: Sequence[str] | None = None, most: int = 3) -> Table:
    """One row per head that has a kind, the clearest of each kind first; or the named heads. The scores that say most, first."""
    table = Table("head", "kind", "scores nearest to a kind's threshold", "promotes", title=plain(found.model))
    chosen = pd.concat([found.of(kind) for kind in found.kinds if kind] or [found.frame[:0]])
    if heads is not None:
        chosen = found.frame[found.frame["head"].isin([str(Head.parse(head)) for head in heads])]
    for row in chosen.to_dict("records"):
        near = sorted(THRESHOLDS, key=lambda kind, row=row: -row[kind] / THRESHOLDS[kind])[:most]
        scored = ", ".join(f"{kind.replace('_', ' ')} {row[kind]:.2f}" for kind in near)
        kind = str(row["kind"]).replace("_", " ") or NOTHING
        table.add_row(str(row["head"]), kind, scored, plain(row["promotes"]))
    return table


def why(frame: pd.DataFrame, title: str) -> Table:
    """One row per head of a `Why`: numbers with two decimals, the tokens as they are."""
    table = Table(*frame.columns, title=plain(title))
    for row in frame.to_dict("records"):
        table.add_row(*(_value(value) if isinstance(value, float) else plain(value) for value in row.values()))
    return table


def checks(report: CheckReport) -> Table:
    """One row per check."""
    title = f"{report.model}: {_shape(report.shape)}"
    table = Table("holds", "check", "error", "tolerance", "note", title=plain(title))
    for check in report.checks:
        holds = "yes" if check.passed else "[bold red]NO[/]"
        table.add_row(holds, plain(check.name), f"{check.error:.1e}", f"{check.tolerance:.0e}", plain(check.note))
    return table


def _shape(shape: HeadGeometry) -> str:
    """How many layers and heads there are, and in what layers differ."""
    having = [shape.layers[layer] for layer in shape.attending]

    def each(name: str) -> str:
        return " or ".join(dict.fromkeys(str(getattr(layer, name)) for layer in having))

    some = "" if len(having) == shape.n_layers else f" in {len(having)} of them"
    linear = "".join(f"; {kind} in layers {', '.join(map(str, at))}" for kind, at in shape.linear.items())
    heads = f"{each('n_heads')} heads ({each('n_kv_heads')} kv){some}"
    return f"{shape.n_layers} layers, {heads}, d_head {each('d_head')}{linear}"
