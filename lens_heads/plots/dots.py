"""A dot per head: its score by one method against its score by another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from jaxtyping import Bool, Float

from lens_heads.plots.agreement import spearman
from lens_heads.plots.draw import check_one_model, figure_of, legend_below
from lens_heads.plots.protocols import HeadLike, ScoresLike
from lens_heads.plots.theme import GREY, INK, number, style_of

THIRDS = {"early": ("#FB8861", "circle"), "middle": ("#B63679", "diamond"), "late": ("#2C105C", "triangle-up")}
"""Colour and symbol by depth: darker is later, in print too, and none is a method's."""
_PLOT = (740, 400)
"""Width and height of the plot area of `score_scatter` in pixels, precise enough to keep its labels apart."""


def scatter(a: ScoresLike, b: ScoresLike, *, mark: int = 5, title: str | None = None) -> go.Figure:
    """Every head's score by one method (x) against another (y); the best `mark` heads of either are named.

    `a`, `b`: of one model. `title`: of the figure.

    Example:
        >>> figure = lh.plots.scatter(scores, lh.sanity.random_ranking(scores))
        >>> figure.layout.xaxis.title.text
        'LOCOS score (logits)'
    """
    check_one_model("scatter", [(getattr(one, "method", ""), one) for one in (a, b)])
    x, y, every = style_of(a), style_of(b), a.ranking()
    top_a, top_b = (set(found.ranking()[:mark]) for found in (a, b))
    traces = []
    for name, chosen, color, symbol in (
        ("other heads", set(every) - top_a - top_b, GREY, "circle"),
        (f"top {mark} of both", top_a & top_b, INK, "star"),
        (f"top {mark} by {x.label} only", top_a - top_b, x.color, x.symbol),
        (f"top {mark} by {y.label} only", top_b - top_a, y.color, y.symbol),
    ):
        heads, named = [head for head in every if head in chosen], color != GREY
        marker = {"color": color, "symbol": symbol, "size": 11 if named else 6, "opacity": 1 if named else 0.6}
        places = ["top center" if i % 2 == 0 else "bottom center" for i in range(len(heads))]
        trace = _dots(a, b, heads, name, marker).update(mode="markers+text" if named else "markers")
        traces += [trace.update(textposition=places)] if heads else []
    rho = number(spearman(a, b))
    subtitle = f"Spearman ρ = {rho} over {len(every)} heads; {len(top_a & top_b)} of the top {mark} shared"
    figure = figure_of(title or f"{y.label} against {x.label}", 520, traces, subtitle, 860)
    return figure.update_xaxes(title=x.axis, zeroline=True).update_yaxes(title=y.axis, zeroline=True)


def score_scatter(
    a: ScoresLike, b: ScoresLike, thirds: pd.DataFrame, *, title: str | None = None, mark: int = 5
) -> go.Figure:
    """Every head's score by one method (x) against another (y), by layer third; the best `mark` of either are named.

    `thirds` is the table of `compare.by_layer_third(a, b)`. The subtitle gives Spearman over all heads and within each third
    (with its 95 % interval), because methods that agree only about depth also correlate over all heads.

    `title`: of the figure.

    Example:
        >>> found = lh.rank(untrained, trials, ["locos", "dla"])
        >>> thirds = lh.compare.by_layer_third(found["locos"], found["dla"])
        >>> figure = lh.plots.score_scatter(found["locos"], found["dla"], thirds)
        >>> figure.layout.xaxis.title.text
        'LOCOS score (logits)'
    """
    check_one_model("score_scatter", [(getattr(one, "method", ""), one) for one in (a, b)])
    rows = thirds.to_dict("records")
    layers = [layer for row in rows for layer in range(row["first_layer"], row["last_layer"] + 1)]
    if [row["third"] for row in rows] != list(THIRDS) or layers != list(range(len(a.values))):
        raise ValueError(
            f"score_scatter: thirds must split the layers 0 to {len(a.values) - 1} into {', '.join(THIRDS)}. "
            "Pass the table of compare.by_layer_third(a, b)."
        )
    x, y, every = style_of(a), style_of(b), a.ranking()
    traces, rhos = [], []
    for row in rows:
        color, symbol = THIRDS[row["third"]]
        heads = [head for head in every if row["first_layer"] <= head.layer <= row["last_layer"]]
        heads.sort(key=lambda head: (head.layer, head.head))
        name = f"{row['third']} third (layers {row['first_layer']} to {row['last_layer']})"
        line = {"color": "white", "width": 0.6}
        marker = {"color": color, "symbol": symbol, "size": 8, "opacity": 0.8, "line": line}
        traces.append(_dots(a, b, heads, name, marker))
        rhos.append(f"{row['third']} {number(row['spearman'])} [{number(row['low'])}, {number(row['high'])}]")
    subtitle = f"Spearman ρ = {number(spearman(a, b))} over {len(every)} heads<br>By layer third: {', '.join(rhos)}"
    figure = figure_of(title or f"{y.label} against {x.label}, by depth", 622, traces, subtitle, 828)
    figure.update_layout(margin={"b": 130})
    _name_best(figure, a, b, min(mark, len(every)))
    figure.update_xaxes(title=x.axis, zeroline=True, range=[*_span(a)])
    return legend_below(figure.update_yaxes(title=y.axis, zeroline=True, range=[*_span(b)]))


def _dots(a: ScoresLike, b: ScoresLike, heads: Sequence[HeadLike], name: str, marker: dict[str, Any]) -> go.Scatter:
    """Heads where their scores put them."""
    place = f"{style_of(a).label} %{{x:.3g}}<br>{style_of(b).label} %{{y:.3g}}"
    return go.Scatter(
        x=[a[head] for head in heads],
        y=[b[head] for head in heads],
        mode="markers",
        marker=marker,
        text=[str(head) for head in heads],
        cliponaxis=False,
        hovertemplate=f"<b>%{{text}}</b><br>{place}<extra></extra>",
        name=name,
    )


def _name_best(figure: go.Figure, a: ScoresLike, b: ScoresLike, count: int) -> None:
    """Label the best `count` heads of each method, with a line from label to dot."""
    pixels = {
        head: tuple(
            (scores[head] - low) / (high - low) * size
            for scores, (low, high), size in zip((a, b), (_span(a), _span(b)), _PLOT, strict=True)
        )
        for head in a.ranking()
    }
    for head, (right, up) in _beside(list(dict.fromkeys([*a.ranking()[:count], *b.ranking()[:count]])), pixels).items():
        at = {"x": a[head], "y": b[head], "ax": right, "ay": -up, "xanchor": "center", "yanchor": "middle"}
        arrow = {"showarrow": True, "arrowhead": 0, "arrowwidth": 0.8, "arrowcolor": GREY, "standoff": 4}
        figure.add_annotation(text=str(head), font={"size": 11, "color": INK}, borderpad=0, **at, **arrow)


def _span(scores: ScoresLike) -> tuple[float, float]:
    """The axis range: all scores, and room for labels at both ends."""
    there = scores.values[~scores.values.isnan()]
    low, high = float(there.min()), float(there.max())
    room = 0.07 * (high - low) or 1.0
    return low - room, high + room


def _beside(named: Sequence[HeadLike], pixels: dict[HeadLike, tuple[float, ...]]) -> dict[HeadLike, tuple[int, int]]:
    """Where each label goes, in pixels from its dot: of 60 places the nearest that hides the fewest dots, labels and lines."""
    turns = np.pi / 6 * np.array([3, 9, 0, 6, 1, 5, 7, 11, 2, 4, 8, 10])
    around = np.concatenate([reach * np.stack([34 * np.cos(turns), 17 * np.sin(turns)], 1) for reach in range(1, 6)])
    far, size = np.repeat(np.arange(5.0), len(turns)), np.array(_PLOT)
    names, lines, dots = np.empty((0, 2)), np.empty((0, 2)), np.array(list(pixels.values()))
    found = {}
    for head in named:
        half, dot = np.array([4 + 3.4 * len(str(head)), 8]), np.array(pixels[head])
        places = dot + around
        leaders = dot + around[:, None] * np.linspace(0.3, 1, 10)[:, None]
        outside = ((places < half) | (places > size - half)).any(1)
        cost = far + 30.0 * outside + 20 * _within(places[:, None], names, 2 * half).sum((1, 2))
        cost += 2 * _within(places[:, None], dots, half + 3).sum((1, 2))
        cost += 4 * _within(places[:, None], lines, half).any((1, 2)) + 4 * _within(leaders, names, half).any((1, 2))
        best = int(cost.argmin())
        names, lines = np.vstack([names, places[best]]), np.vstack([lines, leaders[best]])
        found[head] = (round(float(around[best, 0])), round(float(around[best, 1])))
    return found


def _within(
    one: Float[np.ndarray, "place point xy"], other: Float[np.ndarray, "other xy"], reach: Float[np.ndarray, " xy"]
) -> Bool[np.ndarray, "place point other"]:
    """Which of the others lie within the reach, a box around each point."""
    return np.asarray((np.abs(one[:, :, None] - other) < reach).all(-1))
