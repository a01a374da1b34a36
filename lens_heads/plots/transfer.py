"""Transfer between tasks: drops by source and target, damage by capability and task, and two models' statistics compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from lens_heads.plots.protocols import CorrelationLike, GeneralityLike, TransferLike
from lens_heads.plots.theme import (
    GREY,
    INK,
    METRIC_LABELS,
    Look,
    escape,
    figure_of,
    heat,
    interval_text,
    legend_below,
    looks_of,
    number,
    whiskers,
)

if TYPE_CHECKING:
    import pandas as pd


_BRACKETS = "In brackets: metric without ablation."


def transfer_map(matrix: TransferLike, k: int, relative: bool = False, title: str | None = None) -> go.Figure:
    """The drop in each task (columns) when the top k heads of each task (rows) are ablated; last row: mean over random sets.

    Blue is a loss, orange a gain; each task's own heads are outlined. Below each target is its metric without ablation.
    """
    if k not in matrix.ks:
        raise ValueError(f"transfer_map: k={k} was not run. This matrix has k = {', '.join(map(str, matrix.ks))}.")
    drops = matrix.drop(relative).loc[k].to_numpy()
    rows = [_written(source) for source in matrix.sources]
    if matrix.draws:
        drops = np.vstack([drops, matrix.statistic("random", relative=relative).loc[k]])
        rows.append(f"random heads ({matrix.draws} draws)" if matrix.draws > 1 else "random heads")
    columns = [
        f"{_written(target)}<br>({number(base)})"
        for target, base in zip(matrix.targets, matrix.cells.base, strict=True)
    ]
    what = "relative drop" if relative else "drop"
    unit = f"{what}: {METRIC_LABELS.get(matrix.metric, escape(matrix.metric))}"
    subtitle = f"Ablated: top {k} heads of the row's task. Outlined: a task's own heads.<br>{_BRACKETS}"
    heading = title or f"Effect of ablating each task's top {k} heads"
    own = [(row, matrix.targets.index(source)) for row, source in enumerate(matrix.sources)]
    return _cells(drops, rows, columns, own, what, unit, heading, subtitle)


def generality_map(found: GeneralityLike, column: str = "damage", title: str | None = None) -> go.Figure:
    """Damage to each task (columns) when each set of heads (rows) is ablated, in the task's own metric; last row: random heads.

    Tasks have different metrics, so colours are relative to the largest value of a task. Blue is a loss, orange a gain; each
    task's own heads are outlined. Below each task are its metric and its value without ablation. `column` of `frame` is drawn.
    """
    table, frame = found.matrix(column), found.frame
    values, rows = table.to_numpy(), [_written(source) for source in table.index]
    if values.dtype.kind not in "fi":
        raise ValueError(
            f"generality_map: column {column!r} is not numeric. Choose a numeric one, such as 'damage' or 'beyond_random'."
        )
    if "random_damage" in frame and column == "damage":
        values = np.vstack([values, found.matrix("random_damage").mean()])
        rows.append("random heads")
    base = frame.groupby("task", sort=False)["base"].first()
    columns = [f"{_written(task)}<br>({found.metrics[task]} {number(base[task])})" for task in table.columns]
    own = [(row, list(table.columns).index(name)) for row, name in enumerate(table.index) if name in table.columns]
    subtitle = f"Ablated: heads of the row's capability. Outlined: a task's own heads.<br>{_BRACKETS}"
    heading = title or "Effect of ablating each capability's heads"
    scale = np.nanmax(np.abs(values), axis=0)
    return _cells(
        values, rows, columns, own, escape(column), "relative to the task's largest", heading, subtitle, scale
    )


def _cells(
    values: Float[np.ndarray, "source target"],
    rows: list[str],
    columns: list[str],
    own: list[tuple[int, int]],
    what: str,
    unit: str,
    heading: str,
    subtitle: str,
    scale: Float[np.ndarray, " target"] | float = 1.0,
) -> go.Figure:
    """Sources by targets, each value written in its cell and coloured relative to the scale; `own` cells are outlined."""
    shares = values / np.where(np.asarray(scale) == 0, 1.0, scale)
    largest = float(np.nanmax(np.abs(shares), initial=0.0)) or 1.0
    trace = heat(shares, largest, bool((values < 0).any()), unit).update(
        x=columns,
        y=rows,
        text=[[number(value) for value in row] for row in values],
        texttemplate="%{text}",
        textfont={"size": 11},
        hovertemplate="heads of <b>%{y}</b>, task <b>%{x}</b><br>" + what + " %{text}<extra></extra>",
    )
    figure = figure_of(heading, 230 + 30 * len(rows), [trace], subtitle, 330 + 66 * len(columns))
    for row, at in own:
        box = {"x0": at - 0.5, "x1": at + 0.5, "y0": row - 0.5, "y1": row + 0.5, "line": {"color": INK, "width": 1.6}}
        figure.add_shape(type="rect", **box)
    figure.update_xaxes(title="evaluated task", showgrid=False, showline=False, tickcolor="white", tickangle=-40)
    axis = {"showgrid": False, "showline": False, "tickcolor": "white"}
    return figure.update_yaxes(title="heads of", autorange="reversed", **axis)


def transfer_scatter(found: CorrelationLike, title: str | None = None) -> go.Figure:
    """A point per task and k: one model (x) against the other (y), after the control, with 95 % intervals over items.

    Each task has its own colour and symbol; larger points have more heads ablated. The line is the least-squares fit.
    """
    points, ks = found.points, sorted(found.points["k"].unique())
    x, y = points["a_controlled"].to_numpy(), points["b_controlled"].to_numpy()
    slope, start = np.polyfit(x, y, 1)
    ends = np.array([x.min(), x.max()])
    line = {"color": GREY, "width": 1.6, "dash": "dash"}
    traces = [go.Scatter(x=ends, y=start + slope * ends, mode="lines", line=line, hoverinfo="skip", showlegend=False)]
    for task, shown in looks_of(map(str, dict.fromkeys(points["task"]))).items():
        part = points[points["task"].astype(str) == task]
        traces.append(
            _points(part, _written(task), shown, [6 + 7 * ks.index(k) / max(1, len(ks) - 1) for k in part["k"]])
        )
    subtitle = f"R² = {number(found.r2, 3)}" + ("" if found.interval is None else interval_text(*found.interval))
    subtitle += f", p = {found.p:.2g} over permutations of the tasks"
    if found.noise_ceiling_r2 is not None:
        subtitle += f"; noise ceiling {number(found.noise_ceiling_r2, 3)}"
    subtitle += f"<br>Larger points: more heads ablated ({', '.join(map(str, ks))})"
    what = escape(found.statistic.replace("_", " "))
    heading = title or f"{what.capitalize()} of the tasks in two models"
    figure = figure_of(heading, 640, traces, subtitle, 760).update_layout(margin={"b": 170})
    axis = what + (", minus the mean at each k" if found.control == "k" else "")
    figure.update_xaxes(title=f"{escape(found.names[0])}: {axis}", zeroline=True)
    return legend_below(figure.update_yaxes(title=f"{escape(found.names[1])}: {axis}", zeroline=True))


def _points(part: pd.DataFrame, label: str, shown: Look, sizes: list[float]) -> go.Scatter:
    """One task's points, with whiskers where the points have intervals."""
    x, y = part["a_controlled"].to_numpy(), part["b_controlled"].to_numpy()
    drawn = go.Scatter(x=x, y=y, mode="markers", name=label, customdata=[[int(k), "", ""] for k in part["k"]])
    drawn.update(marker={"color": shown.color, "symbol": shown.symbol, "size": sizes, "opacity": 0.9})
    if "a_low" in part.columns:
        left, right, low, high = (part[end].to_numpy() for end in ("a_low", "a_high", "b_low", "b_high"))
        drawn.update(error_x=whiskers(x, left, right, shown.color), error_y=whiskers(y, low, high, shown.color))
        bounds = zip(part["k"], left, right, low, high, strict=True)
        drawn.update(customdata=[[int(k), interval_text(*ends[:2]), interval_text(*ends[2:])] for k, *ends in bounds])
    place = "x %{x:.3f}%{customdata[1]}<br>y %{y:.3f}%{customdata[2]}"
    return drawn.update(hovertemplate=f"<b>{label}</b>, k = %{{customdata[0]}}<br>{place}<extra></extra>")


def _written(task: str) -> str:
    return escape(task.replace("_", " "))
