"""Tables for the terminal, each from one result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from lens_heads.ablation.curves import AblationCurve
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.model.check import CheckReport

NOTHING = "–"
"""Stands where there is nothing to say: an interval of one trial, a test that does not apply."""


def show(table: Table) -> None:
    """Print a table to the terminal."""
    Console().print(table)


def top_heads(scores: Mapping[str, HeadScores], k: int = 5, title: str = "Top heads") -> Table:
    """Methods side by side: the k best heads with 95 % intervals, heads significantly above zero, and reliability.

    `k` is cut to the heads there are, and is at least 1.
    """
    k = max(1, min([k, *(found.values.numel() for found in scores.values())]))
    table = Table(title=title)
    for column in ("method", "trials", f"top {k} heads: score [95 % interval]", "above 0", "reliability"):
        table.add_column(column)
    for name, found in scores.items():
        intervals = _intervals(found, ".3g")
        best = [f"{head} {found[head]:.3g} {intervals[head]}" for head in found.top(k)]
        above = f"{int(found.significant().sum())} of {found.values.numel()}" if _is_signed(found) else NOTHING
        reliability = found.reliability()
        agreed = NOTHING if math.isnan(reliability) else f"{reliability:.2f}"
        table.add_row(name, str(len(found.trial_ids)), "  ".join(best), above, agreed)
    return table


def _is_signed(scores: HeadScores) -> bool:
    """Whether scores can be negative; where they cannot, no sign-flip test tells which heads are above zero."""
    return scores.signed and not scores.selected


def _interval(low: float, high: float, trials: int, form: str) -> str:
    return f"[{low:{form}}, {high:{form}}]" if trials > 1 and not math.isnan(low) else NOTHING


def _intervals(scores: HeadScores, form: str) -> dict[Head, str]:
    (low, high), trials = scores.interval(), len(scores.trial_ids)
    return {
        h: _interval(float(low[h.layer, h.head]), float(high[h.layer, h.head]), trials, form) for h in scores.ranking()
    }


def ranking(scores: HeadScores, top: int, bottom: int) -> Table:
    """The best (and worst) heads of one score file; numbers beyond the heads there are, or below 0, are cut.

    Of localized heads the interval is over masks (given that the head was chosen), and their stability stands beside it.
    """
    table = Table(
        title=f"{scores.method}: {scores.n_layers} layers x {scores.n_heads} heads, {_trials(len(scores.trial_ids))}"
    )
    fitted = {Head.parse(row["head"]): row for row in scores.meta.get("fit", {}).get("heads", ())}
    for column in ("rank", "head", "score", *(("95 % over masks", "stability") if fitted else ("95 % interval",))):
        table.add_column(column, justify="right")
    intervals, ranked = _intervals(scores, ".4g"), list(enumerate(scores.ranking(), 1))
    top, bottom = max(top, 0 if bottom > 0 else 1), max(bottom, 0)
    for rank, head in dict.fromkeys([*ranked[:top], *ranked[max(0, len(ranked) - bottom) :]]):
        more = _fitted(fitted.get(head)) if fitted else (intervals[head],)
        table.add_row(str(rank), str(head), f"{scores[head]:.4g}", *more)
    return table


def _fitted(row: Mapping[str, Any] | None) -> tuple[str, str]:
    """Interval over masks and stability of a head that a regression chose; dashes for others."""
    if row is None or row["low"] is None or row["high"] is None:
        return NOTHING, NOTHING if row is None else f"{row['stability']:.2f}"
    return f"[{row['low']:.4g}, {row['high']:.4g}]", f"{row['stability']:.2f}"


def curve(found: AblationCurve, metric: str | None = None, task: str | None = None, title: str | None = None) -> Table:
    """One metric of one task: rows are rankings and controls, columns are k, cells are value [95 % interval].

    Sets of heads by a name of their own, which have one k each, are left out.
    """
    task = task or found.main_task
    metric = metric or ("rougeL" if "rougeL" in found.metrics else found.metrics[0])
    frame = found.frame[(found.frame["task"] == task) & (found.frame["metric"] == metric)]
    frame = frame[frame["set"] != "given"]
    ks = sorted(k for k in frame["k"].unique() if k)
    base = frame[frame["k"] == 0].iloc[0]
    about = f"{task}: {metric} with k heads ablated; unablated {_cell(base)}, {_trials(int(base['trials']))}"
    table = Table(title=title or about)
    table.add_column("heads")
    for k in ks:
        table.add_column(f"k = {k}", justify="right")
    for method, set_ in dict.fromkeys(zip(frame["method"], frame["set"], strict=True)):
        if set_ == "none":
            continue
        rows = frame[(frame["method"] == method) & (frame["set"] == set_)].set_index("k")
        name = {"top": method, "random": "random"}.get(set_, f"{method}, {set_}")
        table.add_row(name, *(_cell(rows.loc[k]) for k in ks), style=None if set_ == "top" else "dim")
    return table


def _trials(n: int) -> str:
    return f"{n} trial{'s' * (n != 1)}"


def _cell(row: Any) -> str:
    """Value and interval of one row of a curve's frame."""
    return f"{row['value']:.3f} {_interval(row['low'], row['high'], int(row['trials']), '.3f')}"


def claims(found: pd.DataFrame, title: str) -> Table:
    """A paper's claims beside its numbers and this model's: one row per claim, with the interval it is judged by."""
    table = Table(title=title)
    for column in ("claim", "paper", "here", "judged by [95 % interval]", "verdict"):
        table.add_column(column)
    for row in found.to_dict("records"):
        bounds = "" if math.isnan(row["low"]) else f" [{row['low']:.2f}, {row['high']:.2f}]"
        judged = NOTHING if math.isnan(row["value"]) else f"{row['value']:.2f}{bounds}"
        table.add_row(row["claim"], row["paper"], row["found"], f"{judged}: {row['holds_if']}", row["verdict"])
    return table


def checks(report: CheckReport) -> Table:
    """One row per statement that was checked."""
    shape = report.shape
    table = Table(
        title=f"{report.model}: {shape.n_layers} layers, {shape.n_heads} heads ({shape.n_kv_heads} kv), d_head {shape.d_head}"
    )
    for column in ("holds", "check", "error", "tolerance", "note"):
        table.add_column(column)
    for check in report.checks:
        holds = "yes" if check.passed else "[bold red]NO[/]"
        table.add_row(holds, check.name, f"{check.error:.1e}", f"{check.tolerance:.0e}", check.note)
    return table
