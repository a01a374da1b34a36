"""Tables for the terminal, each from one result."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from lens_heads.checking import CheckReport
from lens_heads.curves import MAIN_TASK, AblationCurve
from lens_heads.heads import HeadScores


def show(table: Table) -> None:
    """Print a table to the terminal."""
    Console().print(table)


def top_heads(scores: Mapping[str, HeadScores], k: int = 5, title: str = "Top heads") -> Table:
    """Methods side by side: the k best heads with 95 % intervals, heads significantly above zero, and reliability."""
    table = Table(title=title)
    for column in ("method", "trials", f"top {k} heads: score [95 % interval]", "above 0", "reliability"):
        table.add_column(column)
    for name, found in scores.items():
        low, high = found.interval()
        best = [f"{h} {found[h]:.3g} [{low[h.layer, h.head]:.3g}, {high[h.layer, h.head]:.3g}]" for h in found.top(k)]
        above = f"{int(found.significant().sum())} of {found.values.numel()}"
        table.add_row(name, str(len(found.trial_ids)), "  ".join(best), above, f"{found.reliability():.2f}")
    return table


def ranking(scores: HeadScores, top: int, bottom: int) -> Table:
    """The best (and worst) heads of one score file."""
    table = Table(
        title=f"{scores.method}: {scores.n_layers} layers x {scores.n_heads} heads, {len(scores.trial_ids)} trials"
    )
    for column in ("rank", "head", "score", "95 % interval"):
        table.add_column(column, justify="right")
    low, high = scores.interval()
    ranked = scores.ranking()
    for rank, head in [*list(enumerate(ranked, 1))[:top], *(list(enumerate(ranked, 1))[-bottom:] if bottom else [])]:
        bounds = f"{low[head.layer, head.head]:.4g} to {high[head.layer, head.head]:.4g}"
        table.add_row(str(rank), str(head), f"{scores[head]:.4g}", bounds)
    return table


def curve(found: AblationCurve, metric: str | None = None, task: str = MAIN_TASK, title: str | None = None) -> Table:
    """One metric of one task: rows are rankings and controls, columns are k, cells are value [95 % interval]."""
    metric = metric or ("rougeL" if "rougeL" in found.metrics else found.metrics[0])
    frame = found.frame[(found.frame["task"] == task) & (found.frame["metric"] == metric)]
    ks = sorted(k for k in frame["k"].unique() if k)
    base = frame[frame["k"] == 0].iloc[0]
    about = (
        f"{task}: {metric} with k heads ablated; unablated {base['value']:.3f} [{base['low']:.3f}, {base['high']:.3f}]"
    )
    table = Table(title=title or f"{about}, {int(base['trials'])} trials")
    table.add_column("heads")
    for k in ks:
        table.add_column(f"k = {k}", justify="right")
    for method, set_ in dict.fromkeys(zip(frame["method"], frame["set"], strict=True)):
        if set_ == "none":
            continue
        rows = frame[(frame["method"] == method) & (frame["set"] == set_)].set_index("k")
        cells = [f"{rows.loc[k, 'value']:.3f} [{rows.loc[k, 'low']:.3f}, {rows.loc[k, 'high']:.3f}]" for k in ks]
        name = {"top": method, "random": "random"}.get(set_, f"{method}, {set_}")
        table.add_row(name, *cells, style=None if set_ == "top" else "dim")
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


def tasks() -> Table:
    """The tasks, what they ask, and the arguments `--with` takes."""
    import inspect

    from lens_heads.tasks import TASKS

    table = Table(title="Tasks")
    for column in ("task", "what it asks", "arguments (--with name=value)"):
        table.add_column(column)
    for name, task in TASKS.items():
        parameters = inspect.signature(task.trials).parameters.values()
        arguments = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)
        table.add_row(name, task.about, arguments)
    return table
