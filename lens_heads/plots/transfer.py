"""Transfer between tasks: the drops source by target, and one model's fragile tasks against another's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from lens_heads.compare.correlate import Correlation
from lens_heads.compare.transfer_matrix import TransferMatrix
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


def transfer_map(matrix: TransferMatrix, k: int, relative: bool = False, title: str | None = None) -> go.Figure:
    """What the top k heads of each task (rows) cost each task (columns); the last row is the mean over random sets.

    Blue is harm, orange gain; the diagonal is outlined. Under each target stands its accuracy without ablation.
    """
    if k not in matrix.ks:
        raise ValueError(f"k={k} was not run: this matrix has k = {', '.join(map(str, matrix.ks))}")
    drops = matrix.drop(relative).loc[k].to_numpy()
    rows = [_written(source) for source in matrix.sources]
    if matrix.draws:
        drops = np.vstack([drops, matrix.statistic("random", relative=relative).loc[k]])
        rows.append(f"random heads ({matrix.draws} draws)" if matrix.draws > 1 else "random heads")
    columns = [
        f"{_written(target)}<br>({number(base)})"
        for target, base in zip(matrix.targets, matrix.cells.base, strict=True)
    ]
    largest = float(np.nanmax(np.abs(drops), initial=0.0)) or 1.0
    what = "relative drop" if relative else "drop"
    trace = heat(
        drops, largest, bool((drops < 0).any()), f"{what}: {METRIC_LABELS.get(matrix.metric, escape(matrix.metric))}"
    ).update(
        x=columns,
        y=rows,
        text=[[number(value) for value in row] for row in drops],
        texttemplate="%{text}",
        textfont={"size": 11},
        hovertemplate="heads of <b>%{y}</b>, task <b>%{x}</b><br>" + what + " %{z:.3f}<extra></extra>",
    )
    subtitle = f"Top {k} heads of the row's task ablated; in brackets without ablation; outlined: a task's own heads"
    heading = title or f"What {k} heads of one task do to another"
    figure = figure_of(heading, 230 + 30 * len(rows), [trace], subtitle, 330 + 66 * len(columns))
    for row, source in enumerate(matrix.sources):
        at = matrix.targets.index(source)
        box = {"x0": at - 0.5, "x1": at + 0.5, "y0": row - 0.5, "y1": row + 0.5, "line": {"color": INK, "width": 1.6}}
        figure.add_shape(type="rect", **box)
    figure.update_xaxes(title="evaluated task", showgrid=False, showline=False, tickcolor="white", tickangle=-40)
    axis = {"showgrid": False, "showline": False, "tickcolor": "white"}
    return figure.update_yaxes(title="heads of", autorange="reversed", **axis)


def transfer_scatter(found: Correlation, title: str | None = None) -> go.Figure:
    """A point per task and k: one model (x) against the other (y), after the control, with 95 % intervals over items.

    A colour and symbol per task; the larger the point, the more heads ablated. The line is the least-squares fit.
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
    subtitle += f", p = {found.p:.2g} over orders of the tasks"
    if found.noise_ceiling_r2 is not None:
        subtitle += f"; noise ceiling {number(found.noise_ceiling_r2, 3)}"
    subtitle += f"<br>Larger points: more heads ablated ({', '.join(map(str, ks))})"
    what = escape(found.statistic.replace("_", " "))
    heading = title or f"{what.capitalize()} of tasks in two models"
    figure = figure_of(heading, 640, traces, subtitle, 760).update_layout(margin={"b": 170})
    axis = what + (", mean at each k removed" if found.control == "k" else "")
    figure.update_xaxes(title=f"{escape(found.names[0])}: {axis}", zeroline=True)
    return legend_below(figure.update_yaxes(title=f"{escape(found.names[1])}: {axis}", zeroline=True))


def _points(part: pd.DataFrame, label: str, shown: Look, sizes: list[float]) -> go.Scatter:
    """One task's points, with whiskers where its items are known."""
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
