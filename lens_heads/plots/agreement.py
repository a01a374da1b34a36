"""How far methods agree: correlation over all heads, and the heads shared by their top k against chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from scipy.stats import spearmanr

from lens_heads.plots.protocols import ScoresLike
from lens_heads.plots.theme import (
    INK,
    LOOKS,
    Look,
    check_columns,
    check_one_model,
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
_CHANCE_LABEL = "chance, with 95 % band"


def method_agreement(scores: Mapping[str, ScoresLike], title: str | None = None) -> go.Figure:
    """Spearman correlation between the methods' scores over all heads; hover text adds how many of the top ten they share."""
    check_one_model("method_agreement", scores.items())
    names = [look(name).label for name in scores]
    matrix = np.array([[spearman(a, b) for b in scores.values()] for a in scores.values()])
    k = min(10, next(iter(scores.values())).values.numel())
    trace = heat(matrix, 1.0, True, "Spearman ρ").update(
        x=names,
        y=names,
        text=[[number(rho) for rho in row] for row in matrix],
        texttemplate="%{text}",
        textfont={"size": 13},
        customdata=[[len(set(a.top(k)) & set(b.top(k))) for b in scores.values()] for a in scores.values()],
        hovertemplate=f"%{{y}} and %{{x}}: ρ = %{{z:.3f}}<br>%{{customdata}} of the top {k} shared<extra></extra>",
    )
    heading, n = title or "Agreement of the methods over all heads", len(names)
    figure = figure_of(heading, 180 + 52 * n, [trace], width=280 + 74 * n)
    figure.update_xaxes(showgrid=False, showline=False, tickcolor="white", tickangle=-30)
    return figure.update_yaxes(autorange="reversed", showgrid=False, showline=False, tickcolor="white")


def jaccard_curves(curves: Mapping[str, pd.DataFrame], title: str | None = None) -> go.Figure:
    """Overlap of two methods' top k heads by k (solid), with the overlap expected by chance (dashed).

    `curves` are `compare.jaccard_curve` tables by name. The band holds 95 % of chance; the dotted line is chance with the same
    number of heads per layer. Curves of one model share their chance, drawn once in grey; otherwise each curve has its own.
    """
    if not curves:
        raise ValueError("jaccard_curves: there are no curves to draw. Pass {name: compare.jaccard_curve(a, b)}.")
    for name, table in curves.items():
        needed = [*_CHANCE, "jaccard", "layer_matched_chance", "overlap"]
        check_columns(f"jaccard_curves, {name!r}", table, needed, "a table of compare.jaccard_curve")
    looks, tables = looks_of(curves), {name: table.sort_values("k") for name, table in curves.items()}
    first = next(iter(tables.values()))
    alike = all(np.array_equal(first[_CHANCE], table[_CHANCE]) for table in tables.values())
    traces: list[Any] = []
    if alike:
        traces += _chance(first, Look("#555555", "", _CHANCE_LABEL), "chance")
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
        hover = f"<b>{label}</b>, layer-matched chance<br>k = %{{x}}: %{{y:.3f}}<extra></extra>"
        traces.append(matched.update(name=f"{label}, layer-matched chance", hovertemplate=hover))
        line = go.Scatter(y=table["jaccard"], mode="lines+markers", name=label, customdata=table["overlap"], **common)
        line.update(line={"color": shown.color, "width": 2.5}, marker={"symbol": shown.symbol, "size": 9})
        hover = f"<b>{label}</b><br>top %{{x}}: Jaccard %{{y:.3f}}, %{{customdata}} heads shared<extra></extra>"
        traces.append(line.update(hovertemplate=hover))
    traces += [] if alike else [_key(_CHANCE_LABEL, "dash")]
    traces.append(_key("layer-matched chance", "dot"))
    figure = figure_of(title or "Heads shared by two methods' top k", 480, traces, width=820)
    ks = sorted({int(k) for table in tables.values() for k in table["k"]})
    ends = [math.log10(ks[0]) - 0.06, math.log10(ks[-1]) + 0.06]
    figure.update_xaxes(title="heads compared (k)", type="log", range=ends, tickvals=ks, ticktext=[*map(str, ks)])
    figure.update_yaxes(title="Jaccard index (heads in both / heads in either)", range=[-0.03, 1.03])
    return legend_below(figure.update_layout(margin={"b": 130}))


def _chance(table: pd.DataFrame, shown: Look, group: str) -> list[go.Scatter]:
    """The band of chance, along its upper edge and back along its lower one, and its mean."""
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
    """An entry in the legend without data."""
    line = {"color": INK, "dash": dash, "width": 1.6}
    return go.Scatter(x=[None], y=[None], mode="lines", line=line, name=name, legendrank=1001)


def spearman(a: ScoresLike, b: ScoresLike) -> float:
    """Spearman over all heads; NaN if a method scores all of them the same."""
    x, y = a.values.flatten().numpy(), b.values.flatten().numpy()
    found: Any = spearmanr(x, y) if np.ptp(x) > 0 and np.ptp(y) > 0 else None
    return math.nan if found is None else float(found.statistic)
