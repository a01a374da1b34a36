"""Transfer between tasks: drops by source and target, damage by capability and task, and two models' statistics compared."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from lens_heads.plots.draw import BARE, check_members, figure_of, heat, legend_below, outline, whiskers
from lens_heads.plots.protocols import CorrelationLike, GeneralityLike, TransferLike
from lens_heads.plots.theme import (
    GREY,
    INK,
    METRIC_LABELS,
    Style,
    escape,
    interval_text,
    interval_texts,
    number,
    series_styles,
)

RANDOM = "random heads"


def transfer_map(matrix: TransferLike, *, k: int, relative: bool = False, title: str | None = None) -> go.Figure:
    """The drop in each task (columns) when the top k heads of each task (rows) are ablated; last row: mean over random sets.

    Blue is a loss, orange a gain; each task's own heads are outlined. Below each target is its metric without ablation.

    `matrix`: of `transfer_matrix`. `relative`: drops as shares. `title`: of the figure.

    Example:
        >>> tasks = {"first": others[:2], "second": planted.trials(2, seed=2)}
        >>> both, few = {"first": scores, "second": scores}, lh.Controls("random", draws=1)
        >>> found = lh.evidence.transfer_matrix(
        ...     model, tasks, both, ks=[2], kind="zero", metric="greedy_match", generate=False, controls=few
        ... )
        >>> list(lh.plots.transfer_map(found, k=2).data[0].x)
        ['first<br>(1.00)', 'second<br>(1.00)']
    """
    check_members("transfer_map", matrix, "the result of transfer_matrix itself", "ks", "drop", "statistic")
    if k not in matrix.ks:
        raise ValueError(f"transfer_map: k={k} was not run. This matrix has k = {', '.join(map(str, matrix.ks))}.")
    table = matrix.drop(relative=relative).loc[k].copy()
    if matrix.draws:
        name = f"{RANDOM} ({matrix.draws} draws)" if matrix.draws > 1 else RANDOM
        table.loc[name] = matrix.statistic("random", relative=relative).loc[k]
    what = "relative drop" if relative else "drop"
    unit = f"{what}: {METRIC_LABELS.get(matrix.metric, escape(matrix.metric))}"
    table.columns = pd.MultiIndex.from_arrays([table.columns, [number(base) for base in matrix.cells.base]])
    heading = title or f"Effect of ablating each task's top {k} heads"
    return _cells(table, table, what, unit, heading, f"top {k} heads of the row's task")


def generality_map(found: GeneralityLike, *, column: str = "damage", title: str | None = None) -> go.Figure:
    """Damage to each task (columns) when each set of heads (rows) is ablated, in the task's own metric; last row: random heads.

    Tasks have different metrics, so colours are relative to the largest value of a task. Blue is a loss, orange a gain; each
    task's own heads are outlined. Below each task are its metric and its value without ablation. `column` of `frame` is drawn.

    `found`: of `generality`. `title`: of the figure.

    Example:
        >>> few = lh.Controls("random", draws=1)
        >>> found = lh.evidence.generality(model, {"own": others}, scores, k=2, kind="zero", controls=few)
        >>> lh.plots.generality_map(found).data[0].x[0].split('<')[0]
        'own'
    """
    check_members("generality_map", found, "the result of generality itself", "matrix", "frame", "metrics")
    table, frame = found.matrix(column).copy(), found.frame
    if table.to_numpy().dtype.kind not in "fi":
        raise ValueError(
            f"generality_map: column {column!r} is not numeric. Choose a numeric one, such as 'damage' or 'beyond_random'."
        )
    if "random_damage" in frame and column == "damage":
        table.loc[RANDOM] = found.matrix("random_damage").mean()
    base = frame.groupby("task", sort=False)["base"].first()
    below = [f"{found.metrics[task]} {number(base[task])}" for task in table.columns]
    table.columns = pd.MultiIndex.from_arrays([table.columns, below])
    shares, unit = table / table.abs().max().replace(0, 1), "relative to the task's largest"
    heading = title or "Effect of ablating each capability's heads"
    return _cells(table, shares, escape(column), unit, heading, "heads of the row's capability")


def _cells(table: pd.DataFrame, shares: pd.DataFrame, what: str, unit: str, title: str, ablated: str) -> go.Figure:
    """Each value, of a source (row) and a target, in a cell with the colour of its share; a task's own heads are outlined.

    A column has two names: the target, and the text under it. `what` names a value in hover text, `unit` the colours.
    """
    targets, z = list(table.columns.get_level_values(0)), shares.to_numpy()
    limit = float(np.nanmax(np.abs(z), initial=0.0)) or 1.0
    trace = heat(z, limit, bool((z < 0).any()), unit).update(
        x=[f"{_written(target)}<br>({text})" for target, text in table.columns],
        y=[_written(source) for source in table.index],
        text=[[number(value) for value in row] for row in table.to_numpy()],
        texttemplate="%{text}",
        textfont={"size": 11},
        hovertemplate=f"heads of <b>%{{y}}</b>, task <b>%{{x}}</b><br>{what} %{{text}}<extra></extra>",
    )
    subtitle = f"Ablated: {ablated}. Outlined: a task's own heads.<br>In brackets: metric without ablation."
    figure = figure_of(title, 230 + 30 * len(table), [trace], subtitle, 330 + 66 * len(targets))
    for row, source in enumerate(table.index):
        if source in targets:
            outline(figure, targets.index(source), row, color=INK, width=1.6)
    figure.update_xaxes(**BARE, title="evaluated task", tickangle=-40)
    return figure.update_yaxes(**BARE, title="heads of", autorange="reversed")


def transfer_scatter(found: CorrelationLike, *, title: str | None = None) -> go.Figure:
    """A point per task and k: one model (x) against the other (y), minus the mean at each k, with 95 % intervals over items.

    Each task has its own colour and symbol; larger points have more heads ablated. The line is the least-squares fit.

    `found`: of `correlate`. `title`: of the figure.

    Example:
        >>> table = pd.DataFrame([[0.1, 0.5, 0.9, 0.2, 0.7]], index=[8], columns=list("abcde"))
        >>> figure = lh.plots.transfer_scatter(lh.evidence.correlate(table, 2 * table))
        >>> [mark.name for mark in figure.data if mark.name][:2]
        ['a', 'b']
    """
    check_members("transfer_scatter", found, "the result of correlate itself", "points", "r2", "names")
    points, ks = found.points, sorted(found.points["k"].unique())
    x, y = points["a_controlled"].to_numpy(), points["b_controlled"].to_numpy()
    slope, start = np.polyfit(x, y, 1)
    ends = np.array([x.min(), x.max()])
    line = {"color": GREY, "width": 1.6, "dash": "dash"}
    traces = [go.Scatter(x=ends, y=start + slope * ends, mode="lines", line=line, hoverinfo="skip", showlegend=False)]
    for task, shown in series_styles(map(str, points["task"])).items():
        part = points[points["task"].astype(str) == task]
        sizes = [6 + 7 * ks.index(k) / max(1, len(ks) - 1) for k in part["k"]]
        traces.append(_points(part, _written(task), shown, sizes))
    subtitle = f"R² = {number(found.r2, 3)}" + ("" if found.interval is None else interval_text(*found.interval[1:]))
    subtitle += f", p = {found.p:.2g} over permutations of the tasks"
    if found.within is not None:
        subtitle += f"; inside strata of tasks R² = {number(found.within.r2, 3)}, p = {found.within.p:.2g}"
    if found.noise_ceiling_r2 is not None:
        subtitle += f"; noise ceiling {number(found.noise_ceiling_r2, 3)}"
    subtitle += f"<br>Larger points: more heads ablated ({', '.join(map(str, ks))})"
    what = escape(found.statistic.replace("_", " "))
    heading = title or f"{what.capitalize()} of the tasks in two models"
    figure = figure_of(heading, 640, traces, subtitle, 760).update_layout(margin={"b": 170})
    axis = f"{what}, minus the mean at each k"
    figure.update_xaxes(title=f"{escape(found.names[0])}: {axis}", zeroline=True)
    return legend_below(figure.update_yaxes(title=f"{escape(found.names[1])}: {axis}", zeroline=True))


def _points(part: pd.DataFrame, label: str, shown: Style, sizes: list[float]) -> go.Scatter:
    """One task's points, with whiskers where the points have intervals."""
    x, y = part["a_controlled"].to_numpy(), part["b_controlled"].to_numpy()
    left, right, low, high = part.reindex(columns=["a_low", "a_high", "b_low", "b_high"]).to_numpy(dtype=float).T
    place = "x %{x:.3f}%{customdata[1]}<br>y %{y:.3f}%{customdata[2]}"
    drawn = go.Scatter(
        x=x,
        y=y,
        mode="markers",
        name=label,
        marker={"color": shown.color, "symbol": shown.symbol, "size": sizes, "opacity": 0.9},
        customdata=[*zip(map(int, part["k"]), interval_texts(left, right), interval_texts(low, high), strict=True)],
        hovertemplate=f"<b>{label}</b>, k = %{{customdata[0]}}<br>{place}<extra></extra>",
    )
    if "a_low" in part:
        drawn.update(error_x=whiskers(x, left, right, shown.color), error_y=whiskers(y, low, high, shown.color))
    return drawn


def _written(task: object) -> str:
    return escape(str(task).replace("_", " "))
