"""A dot per head: its score by one method against its score by another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Bool, Float

from lens_heads.plots.agreement import spearman
from lens_heads.plots.protocols import HeadLike, ScoresLike
from lens_heads.plots.theme import (
    GREY,
    INK,
    check_columns,
    check_one_model,
    figure_of,
    legend_below,
    look_of,
    number,
)

if TYPE_CHECKING:
    import pandas as pd

THIRDS = {"early": ("#FB8861", "circle"), "middle": ("#B63679", "diamond"), "late": ("#2C105C", "triangle-up")}
"""Colour and symbol by depth: darker is later, in print too, and none is a method's."""
_PLOT = (740, 400)
"""Width and height of the plot area of `score_scatter` in pixels, precise enough to keep its labels apart."""
_THIRD = ["third", "first_layer", "last_layer", "spearman", "low", "high"]


def scatter(a: ScoresLike, b: ScoresLike, mark: int = 5, title: str | None = None) -> go.Figure:
    """Every head's score by one method (x) against another (y); the best `mark` heads of either are named."""
    check_one_model("scatter", [(a.method, a), (b.method, b)])
    x, y, every = look_of(a), look_of(b), a.ranking()
    top_a, top_b = (set(found.top(min(mark, len(every)))) for found in (a, b))
    traces = []
    for name, chosen, color, symbol in (
        ("other heads", set(every) - top_a - top_b, GREY, "circle"),
        (f"top {mark} of both", top_a & top_b, INK, "star"),
        (f"top {mark} by {x.label} only", top_a - top_b, x.color, x.symbol),
        (f"top {mark} by {y.label} only", top_b - top_a, y.color, y.symbol),
    ):
        heads, named = [head for head in every if head in chosen], color != GREY
        trace = go.Scatter(
            x=[a[head] for head in heads],
            y=[b[head] for head in heads],
            mode="markers+text" if named else "markers",
            marker={"color": color, "symbol": symbol, "size": 11 if named else 6, "opacity": 1 if named else 0.6},
            text=[str(head) for head in heads],
            textposition=["top center" if i % 2 == 0 else "bottom center" for i in range(len(heads))],
            cliponaxis=False,
            hovertemplate="<b>%{text}</b>  x %{x:.3g}, y %{y:.3g}<extra></extra>",
            name=name,
        )
        traces += [trace] if heads else []
    rho = number(spearman(a, b))
    subtitle = f"Spearman ρ = {rho} over {len(every)} heads; {len(top_a & top_b)} of the top {mark} shared"
    figure = figure_of(title or f"{y.label} against {x.label}", 520, traces, subtitle, 860)
    return figure.update_xaxes(title=x.axis, zeroline=True).update_yaxes(title=y.axis, zeroline=True)


def score_scatter(
    a: ScoresLike, b: ScoresLike, thirds: pd.DataFrame, title: str | None = None, mark: int = 5
) -> go.Figure:
    """Every head's score by one method (x) against another (y), by layer third; the best `mark` of either are named.

    `thirds` is the table of `compare.by_layer_third(a, b)`. The subtitle gives Spearman over all heads and within each third
    (with its 95 % interval), because methods that agree only about depth also correlate over all heads.
    """
    check_one_model("score_scatter", [(a.method, a), (b.method, b)])
    _check_thirds(thirds, a.n_layers)
    x, y, every = look_of(a), look_of(b), a.ranking()
    traces, rhos = [], []
    for row in thirds.to_dict("records"):
        color, symbol = THIRDS[row["third"]]
        heads = [head for head in every if row["first_layer"] <= head.layer <= row["last_layer"]]
        heads.sort(key=lambda head: (head.layer, head.head))
        trace = go.Scatter(
            x=[a[head] for head in heads],
            y=[b[head] for head in heads],
            mode="markers",
            marker={
                "color": color,
                "symbol": symbol,
                "size": 8,
                "opacity": 0.8,
                "line": {"color": "white", "width": 0.6},
            },
            text=[str(head) for head in heads],
            cliponaxis=False,
            hovertemplate=f"<b>%{{text}}</b><br>{x.label} %{{x:.3g}}<br>{y.label} %{{y:.3g}}<extra></extra>",
            name=f"{row['third']} third (layers {row['first_layer']} to {row['last_layer']})",
        )
        traces.append(trace)
        rhos.append(f"{row['third']} {number(row['spearman'])} [{number(row['low'])}, {number(row['high'])}]")
    subtitle = f"Spearman ρ = {number(spearman(a, b))} over {len(every)} heads<br>By layer third: {', '.join(rhos)}"
    figure = figure_of(title or f"{y.label} against {x.label}, by depth", 622, traces, subtitle, 828)
    figure.update_layout(margin={"b": 130})
    spans = _span(a), _span(b)
    count = min(mark, len(every))
    named = list(dict.fromkeys([*a.top(count), *b.top(count)]))
    pixels = {
        head: tuple(_pixel(s[head], span, n) for s, span, n in zip((a, b), spans, _PLOT, strict=True)) for head in every
    }
    for head, (right, up) in _beside(named, pixels).items():
        at = {"x": a[head], "y": b[head], "ax": right, "ay": -up, "xanchor": "center", "yanchor": "middle"}
        arrow = {"showarrow": True, "arrowhead": 0, "arrowwidth": 0.8, "arrowcolor": GREY, "standoff": 4}
        figure.add_annotation(text=str(head), font={"size": 11, "color": INK}, borderpad=0, **at, **arrow)
    figure.update_xaxes(title=x.axis, zeroline=True, range=list(spans[0]))
    return legend_below(figure.update_yaxes(title=y.axis, zeroline=True, range=list(spans[1])))


def _check_thirds(thirds: pd.DataFrame, n_layers: int) -> None:
    """ValueError unless the table splits all layers into an early, a middle and a late third."""
    source = "the table of compare.by_layer_third(a, b)"
    check_columns("score_scatter, thirds", thirds, _THIRD, source)
    if list(thirds["third"]) != list(THIRDS):
        found = ", ".join(map(str, thirds["third"]))
        raise ValueError(f"score_scatter: thirds has the rows {found}, not {', '.join(THIRDS)}. Pass {source}.")
    layers = [
        at for row in thirds.to_dict("records") for at in range(int(row["first_layer"]), int(row["last_layer"]) + 1)
    ]
    if layers != list(range(n_layers)):
        raise ValueError(f"score_scatter: thirds does not split the layers 0 to {n_layers - 1}. Pass {source}.")


def _span(scores: ScoresLike) -> tuple[float, float]:
    """The axis range: all scores, and room for labels at both ends."""
    low, high = float(scores.values.min()), float(scores.values.max())
    room = 0.07 * (high - low) or 1.0
    return low - room, high + room


def _pixel(value: float, span: tuple[float, float], pixels: int) -> float:
    return (value - span[0]) / (span[1] - span[0]) * pixels


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
