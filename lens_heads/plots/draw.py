"""What figures are built from: the figure itself, heat maps, bars' fills, whiskers, bands, legends."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import plotly.graph_objects as go

from lens_heads.plots.protocols import ScoresLike
from lens_heads.plots.theme import DIVERGING, GRID, INK, LINE, SEQUENTIAL, wrapped

BARE = {"showgrid": False, "showline": False, "tickcolor": "white"}
"""An axis of names: labels, and nothing else."""


def check_one_model(what: str, named: Iterable[tuple[str, ScoresLike]]) -> None:
    """ValueError unless there are scores, all of one shape and, where both know theirs, of the same weights."""
    listed = list(named)
    for _, scores in listed:
        check_scores(what, scores)
    shapes = [(name, tuple(scores.values.shape)) for name, scores in listed]
    if not shapes:
        raise ValueError(f"{what}: there are no scores to draw. Pass the scores of at least one method.")
    if len({shape for _, shape in shapes}) > 1:
        found = ", ".join(f"{name} {shape}" for name, shape in shapes)
        raise ValueError(f"{what}: scores have different [layer, head] shapes: {found}. Pass scores of one model.")

    weights: dict[str, tuple[str, str]] = {}  # By dtype: a copy in another one is no other model.
    for name, scores in listed:
        model = getattr(scores, "model", None)
        known = str(getattr(model, "weights", ""))
        other, before = weights.setdefault(str(getattr(model, "dtype", "")), (name, known))
        if known and before and known != before:
            raise ValueError(f"{what}: {other} and {name} are scores of different weights. Pass scores of one model.")


def check_scores(what: str, scores: Any) -> None:
    """TypeError for what is no scores of heads."""
    check_members(
        what, scores, "scores of heads, as score_heads gives them for each method", "method", "values", "ranking"
    )


def check_members(what: str, given: Any, wanted: str, *members: str) -> None:
    """TypeError for what lacks the members that are drawn: see `protocols`."""
    if not all(hasattr(given, name) for name in members):
        raise TypeError(f"{what}: got a {type(given).__name__}, but draws {wanted}")


def check_rows(what: str, table: Any, *columns: str) -> None:
    """TypeError for what is no frame, ValueError for one without these columns or without rows."""
    check_members(what, table, "a pandas DataFrame", "columns", "iterrows")
    missing = [name for name in columns if name not in table.columns]
    if missing:
        has = ", ".join(map(str, table.columns)) or "none"
        raise ValueError(
            f"{what}: the frame has no column {missing[0]!r}, only {has}. Pass one with {', '.join(columns)}."
        )
    if table.empty:
        raise ValueError(f"{what}: the frame has no rows, so there is nothing to draw. Pass at least one row.")


def figure_of(title: str, height: int, traces: list[Any], subtitle: str = "", width: float | None = None) -> go.Figure:
    """The traces on the axes, fonts and margins that every figure has."""
    heading = {"text": title, "subtitle": {"text": subtitle, "font": {"size": 12, "color": "#555555"}}}
    figure = go.Figure(traces)
    figure.update_layout(
        template="none",
        title={**heading, "x": 0, "xref": "paper", "xanchor": "left", "font": {"size": 16}},
        height=height,
        width=round(min(width, 900)) if width else None,
        margin={"l": 64, "r": 24, "t": 76 + 16 * subtitle.count("<br>") if subtitle else 56 if title else 24, "b": 72},
        font={"family": "Helvetica, Arial, sans-serif", "size": 13, "color": INK},
        hoverlabel={"bgcolor": "white", "font": {"color": INK}},
    )
    axis = {"gridcolor": GRID, "zeroline": False, "zerolinecolor": LINE, "linecolor": LINE, "showline": True}
    axis |= {"ticks": "outside", "tickcolor": LINE, "ticklen": 4, "automargin": True, "title": {"standoff": 10}}
    return figure.update_xaxes(**axis).update_yaxes(**axis)


def whole_axis(n: int) -> dict[str, Any]:
    """An axis of n whole numbers from 0, with a tick at each or at every 2nd, 4th, ... of many."""
    return {"range": [-0.55, n - 0.45], "dtick": 2 ** max(0, math.ceil(math.log2(n / 18))), "showgrid": False}


def legend_below(figure: go.Figure, below: int = 68) -> go.Figure:
    """The legend in rows under the plot, `below` pixels down, where it covers neither points nor the axis."""
    layout: Any = figure.layout
    plot = layout.height - layout.margin.t - layout.margin.b
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": -below / plot, "yanchor": "top"}
    return figure.update_layout(legend={**legend, "font": {"size": 12}})


def heat(z: np.ndarray, largest: float, diverging: bool, unit: str) -> go.Heatmap:
    """A heat map from zero, or around it in two colours, up to `largest`."""
    bar = {"title": {"text": wrapped(unit), "side": "top"}, "thickness": 12, "outlinewidth": 0}
    scale = {"colorscale": DIVERGING, "zmid": 0.0} if diverging else {"colorscale": SEQUENTIAL}
    return go.Heatmap(z=z, zmin=-largest if diverging else 0.0, zmax=largest, xgap=1, ygap=1, colorbar=bar, **scale)


def outline(figure: go.Figure, x: int, y: int, name: str | None = None, **line: Any) -> None:
    """Draw a box around one cell of a heat map."""
    figure.add_shape(type="rect", name=name, x0=x - 0.5, x1=x + 0.5, y0=y - 0.5, y1=y + 0.5, line=line)


def hatched(color: str, shape: str) -> dict[str, Any]:
    """A bar's fill: full without a shape, else strokes of it on white inside an outline."""
    pattern = {"shape": shape, "fgcolor": color, "bgcolor": "white", "size": 7, "solidity": 0.45}
    return {"color": color, "line": {"color": color, "width": 1.2}, "pattern": pattern if shape else {"shape": ""}}


def whiskers(value: np.ndarray, low: np.ndarray, high: np.ndarray, color: str) -> dict[str, Any]:
    """Error bars from low to high; none where a bound is missing."""
    up, down = (np.clip(gap, 0, None) for gap in (high - value, value - low))
    return {"symmetric": False, "array": up, "arrayminus": down, "color": color, "thickness": 1.3, "width": 3}


def band(x: Any, low: Any, high: Any, **style: Any) -> go.Scatter:
    """The area between two lines: along the upper one, and back along the lower one."""
    edge = {"x": [*x, *x[::-1]], "y": [*high, *low[::-1]], "fill": "toself", "mode": "none"}
    return go.Scatter(showlegend=False, hoverinfo="skip", **edge, **style)


def bounds(scores: ScoresLike) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % interval per head; NaN without trials, and where there is none."""
    if len(scores.trial_ids):
        _, low, high = scores.interval()
        return low.numpy(), high.numpy()
    missing = np.full(scores.values.shape, math.nan)
    return missing, missing
