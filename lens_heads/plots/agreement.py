"""How far methods agree: correlation over all heads, and the heads shared by their top k against chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from scipy.stats import spearmanr

from lens_heads.heads.scores import HeadScores
from lens_heads.plots.theme import (
    INK,
    LOOKS,
    Look,
    check_columns,
    escape,
    figure_of,
    heat,
    legend_below,
    look,
    looks_of,
    number,
)

if TYPE_CHECKING:
    import pandas as pd

_CHANCE = ["k", "chance", "chance_low", "chance_high"]


def method_agreement(scores: Mapping[str, HeadScores], title: str | None = None) -> go.Figure:
    """Spearman correlation between the methods' scores over all heads; hover adds the heads shared in the top ten."""
    shapes = {name: tuple(found.values.shape) for name, found in scores.items()}
    if len(set(shapes.values())) != 1:
        raise ValueError(f"rankings of one model are needed, these have [layers, heads] {shapes or 'nothing'}")
    names = [look(name).label for name in scores]
    matrix = np.array([[spearman(a, b) for b in scores.values()] for a in scores.values()])
    k = min(10, math.prod(next(iter(shapes.values()))))
    trace = heat(matrix, 1.0, True, "Spearman ρ").update(
        x=names,
        y=names,
        text=[[number(rho) for rho in row] for row in matrix],
        texttemplate="%{text}",
        textfont={"size": 13},
        customdata=[[len(set(a.top(k)) & set(b.top(k))) for b in scores.values()] for a in scores.values()],
        hovertemplate=f"%{{y}} and %{{x}}: ρ = %{{z:.3f}}<br>%{{customdata}} of the top {k} shared<extra></extra>",
    )
    heading, n = title or "Agreement of the rankings over all heads", len(names)
    figure = figure_of(heading, 180 + 52 * n, [trace], width=280 + 74 * n)
    figure.update_xaxes(showgrid=False, showline=False, tickcolor="white", tickangle=-30)
    return figure.update_yaxes(autorange="reversed", showgrid=False, showline=False, tickcolor="white")


def jaccard_curves(curves: Mapping[str, pd.DataFrame], title: str | None = None) -> go.Figure:
    """How much of their top k methods share, by k: each curve (solid) against chance, with layers matched dotted.

    `curves` are `compare.jaccard_curve` tables by name. Chance is dashed, with the band that holds 95 % of it: one in grey
    where all curves have the same, which those of one model have, else one in the colour of each curve.
    """
    if not curves:
        raise ValueError("jaccard_curves: no curves to draw: give {name: compare.jaccard_curve(a, b)}")
    for name, table in curves.items():
        needed = [*_CHANCE, "jaccard", "layer_matched_chance", "overlap"]
        check_columns(f"jaccard_curves, {name!r}", table, needed, "tables of compare.jaccard_curve")
    looks, tables = looks_of(curves), {name: table.sort_values("k") for name, table in curves.items()}
    first = next(iter(tables.values()))
    alike = all(np.array_equal(first[_CHANCE], table[_CHANCE]) for table in tables.values())
    traces: list[Any] = []
    if alike:
        traces += _chance(first, Look("#555555", "", "chance, with the band of 95 %"), "chance")
    for name, table in tables.items():
        shown, group = looks[name], f"curve {name}"
        label = shown.label if name in LOOKS else escape(name)
        if not alike:
            traces += [
                trace.update(showlegend=False)
                for trace in _chance(table, shown._replace(label=f"{label}, chance"), group)
            ]
        common: dict[str, Any] = {"x": table["k"], "legendgroup": group}
        dotted = {"color": shown.color, "dash": "dot", "width": 1.6}
        matched = go.Scatter(y=table["layer_matched_chance"], mode="lines", line=dotted, showlegend=False, **common)
        hover = f"<b>{label}</b>, layers matched<br>k = %{{x}}: %{{y:.3f}}<extra></extra>"
        traces.append(matched.update(name=f"{label}, layers matched", hovertemplate=hover))
        line = go.Scatter(y=table["jaccard"], mode="lines+markers", name=label, customdata=table["overlap"], **common)
        line.update(line={"color": shown.color, "width": 2.5}, marker={"symbol": shown.symbol, "size": 9})
        hover = f"<b>{label}</b><br>top %{{x}}: Jaccard %{{y:.3f}}, %{{customdata}} heads in both<extra></extra>"
        traces.append(line.update(hovertemplate=hover))
    traces += [] if alike else [_key("chance, with the band of 95 %", "dash")]
    traces.append(_key("chance with as many heads per layer", "dot"))
    figure = figure_of(title or "Heads shared by the top k of two methods", 480, traces, width=820)
    ks = sorted({int(k) for table in tables.values() for k in table["k"]})
    ends = [math.log10(ks[0]) - 0.06, math.log10(ks[-1]) + 0.06]
    figure.update_xaxes(title="heads compared (k)", type="log", range=ends, tickvals=ks, ticktext=[*map(str, ks)])
    figure.update_yaxes(title="Jaccard index: shared / in either", range=[-0.03, 1.03])
    return legend_below(figure.update_layout(margin={"b": 130}))


def _chance(table: pd.DataFrame, shown: Look, group: str) -> list[go.Scatter]:
    """The band of the null, out along its upper and back along its lower edge, and its mean."""
    edge = [*table["chance_high"], *table["chance_low"][::-1]]
    common: dict[str, Any] = {"legendgroup": group}
    band = go.Scatter(x=[*table["k"], *table["k"][::-1]], y=edge, fill="toself", mode="none", **common)
    band.update(fillcolor=shown.color, opacity=0.16, showlegend=False, hoverinfo="skip", name=f"band, {shown.label}")
    line = {"color": shown.color, "dash": "dash", "width": 1.6}
    hover = "<b>chance</b><br>k = %{x}: %{y:.3f}  [%{customdata[0]:.3f}, %{customdata[1]:.3f}]<extra></extra>"
    mean = go.Scatter(
        x=table["k"], y=table["chance"], mode="lines", line=line, name=shown.label, legendrank=1001, **common
    )
    return [band, mean.update(customdata=table[["chance_low", "chance_high"]].to_numpy(), hovertemplate=hover)]


def _key(name: str, dash: str) -> go.Scatter:
    """A line of the legend alone."""
    line = {"color": INK, "dash": dash, "width": 1.6}
    return go.Scatter(x=[None], y=[None], mode="lines", line=line, name=name, legendrank=1001)


def spearman(a: HeadScores, b: HeadScores) -> float:
    """Over all heads; NaN where a method gives all of them the same score."""
    x, y = a.values.flatten().numpy(), b.values.flatten().numpy()
    found: Any = spearmanr(x, y) if np.ptp(x) > 0 and np.ptp(y) > 0 else None
    return math.nan if found is None else float(found.statistic)
