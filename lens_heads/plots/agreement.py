"""How far methods agree: correlation over all heads, and the heads shared by their top k against chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from scipy.stats import spearmanr

from lens_heads.plots.draw import BARE, band, check_members, check_one_model, check_rows, figure_of, heat, legend_below
from lens_heads.plots.protocols import ScoresLike
from lens_heads.plots.theme import INK, STYLES, Style, escape, method_style, number, series_styles

_CHANCE = ["k", "chance", "chance_low", "chance_high"]
_CHANCE_LABEL = "chance, with 95 % band"


def similarity_map(names: Sequence[str], values: np.ndarray, *, title: str) -> go.Figure:
    """How alike every two heads are, from -1 to 1.

    `names`: of the heads. `values` [head, head]. `title`: of the figure. ValueError for values of another number of heads.

    Example:
        >>> found = lh.compare.ov_similarity(untrained, layer=0)
        >>> figure = lh.plots.similarity_map([str(head) for head in found.heads], found.values.numpy(), title="Layer 0")
        >>> list(figure.data[0].x)[:2]
        ['L0H0', 'L0H1']
    """
    if values.shape != (len(names), len(names)):
        raise ValueError(f"values of shape {list(values.shape)}: must be [head, head] of the {len(names)} names")
    trace = heat(values, 1.0, True, "cosine").update(
        x=list(names), y=list(names), hovertemplate="<b>%{x}</b> and <b>%{y}</b>: %{z:.2f}<extra></extra>"
    )
    size = min(max(12 * len(names), 360), 900)
    figure = figure_of(title, size + 120, [trace], "", size + 160)
    return figure.update_yaxes(autorange="reversed")


def method_agreement(rankings: Mapping[str, ScoresLike], *, title: str | None = None) -> go.Figure:
    """Spearman correlation between the methods' scores over all heads; hover text adds how many of the top ten they share.

    `rankings`: by name. `title`: of the figure.

    Example:
        >>> figure = lh.plots.method_agreement({"locos": scores, "chance": lh.sanity.random_ranking(scores)})
        >>> round(float(figure.data[0].z[0][0]), 3)
        1.0
    """
    check_one_model("method_agreement", rankings.items())
    names = [method_style(name).label for name in rankings]
    matrix = np.array([[spearman(a, b) for b in rankings.values()] for a in rankings.values()])
    k = min(10, len(next(iter(rankings.values())).ranking()))
    trace = heat(matrix, 1.0, True, "Spearman ρ").update(
        x=names,
        y=names,
        text=[[number(rho) for rho in row] for row in matrix],
        texttemplate="%{text}",
        textfont={"size": 13},
        customdata=[
            [len(set(a.ranking()[:k]) & set(b.ranking()[:k])) for b in rankings.values()] for a in rankings.values()
        ],
        hovertemplate=f"%{{y}} and %{{x}}: ρ = %{{z:.3f}}<br>%{{customdata}} of the top {k} shared<extra></extra>",
    )
    heading, n = title or "Agreement of the methods over all heads", len(names)
    figure = figure_of(heading, 180 + 52 * n, [trace], width=280 + 74 * n)
    return figure.update_xaxes(**BARE, tickangle=-30).update_yaxes(**BARE, autorange="reversed")


def jaccard_curves(curves: Mapping[str, pd.DataFrame], *, title: str | None = None) -> go.Figure:
    """Overlap of two methods' top k heads by k (solid), with the overlap expected by chance (dashed).

    `curves` are `compare.jaccard_curve` tables by name. The band holds 95 % of chance; the dotted line is chance with the same
    number of heads per layer. Curves of one model share their chance, drawn once in grey; otherwise each curve has its own.

    `title`: of the figure.

    Example:
        >>> table = lh.compare.jaccard_curve(scores, scores)
        >>> figure = lh.plots.jaccard_curves({"the same": table})
        >>> "the same" in [line.name for line in figure.data]
        True
    """
    check_members("jaccard_curves", curves, "tables by name, {name: compare.jaccard_curve(a, b)}", "items", "values")
    if hasattr(curves, "columns") or not curves:
        raise ValueError("jaccard_curves: there are no curves to draw. Pass {name: compare.jaccard_curve(a, b)}.")
    for name, table in curves.items():
        check_rows(f"jaccard_curves, {name!r}", table, "k", "jaccard")
    styles, tables = series_styles(curves), {name: table.sort_values("k") for name, table in curves.items()}
    first = next(iter(tables.values()))
    alike = all(np.array_equal(first[_CHANCE], table[_CHANCE]) for table in tables.values())
    traces = _chance(first, Style("#555555", "", _CHANCE_LABEL), "chance") if alike else []
    for name, table in tables.items():
        shown, group = styles[name], f"curve {name}"
        label = shown.label if name in STYLES else escape(name)
        if not alike:
            own = _chance(table, shown._replace(label=f"{label}, chance"), group)
            traces += [trace.update(showlegend=False) for trace in own]
        matched = _line(table, "layer_matched_chance", f"{label}, layer-matched chance", shown.color, "dot")
        hover = f"<b>{label}</b>, layer-matched chance<br>k = %{{x}}: %{{y:.3f}}<extra></extra>"
        traces.append(matched.update(legendgroup=group, showlegend=False, hovertemplate=hover))
        line = go.Scatter(x=table["k"], y=table["jaccard"], mode="lines+markers", name=label, legendgroup=group)
        line.update(line={"color": shown.color, "width": 2.5}, marker={"symbol": shown.symbol, "size": 9})
        hover = f"<b>{label}</b><br>top %{{x}}: Jaccard %{{y:.3f}}, %{{customdata}} heads shared<extra></extra>"
        traces.append(line.update(customdata=table["overlap"], hovertemplate=hover))
    keys = {"layer-matched chance": "dot"} if alike else {_CHANCE_LABEL: "dash", "layer-matched chance": "dot"}
    empty = {"k": [None], "nothing": [None]}
    traces += [_line(empty, "nothing", name, INK, dash).update(legendrank=1001) for name, dash in keys.items()]
    figure = figure_of(title or "Heads shared by two methods' top k", 480, traces, width=820)
    ks = sorted({int(k) for table in tables.values() for k in table["k"]})
    ends = [math.log10(ks[0]) - 0.06, math.log10(ks[-1]) + 0.06]
    figure.update_xaxes(title="heads compared (k)", type="log", range=ends, tickvals=ks, ticktext=[*map(str, ks)])
    figure.update_yaxes(title="Jaccard index (heads in both / heads in either)", range=[-0.03, 1.03])
    return legend_below(figure.update_layout(margin={"b": 130}))


def _chance(table: pd.DataFrame, shown: Style, group: str) -> list[go.Scatter]:
    """Mean chance, above its band."""
    style: dict[str, Any] = {"fillcolor": shown.color, "opacity": 0.16, "name": f"band, {shown.label}"}
    around = band(table["k"], table["chance_low"], table["chance_high"], legendgroup=group, **style)
    mean = _line(table, "chance", shown.label, shown.color, "dash").update(legendgroup=group, legendrank=1001)
    hover = "<b>chance</b><br>k = %{x}: %{y:.3f}  [%{customdata[0]:.3f}, %{customdata[1]:.3f}]<extra></extra>"
    return [around, mean.update(customdata=table[["chance_low", "chance_high"]].to_numpy(), hovertemplate=hover)]


def _line(table: Any, column: str, name: str, color: str, dash: str) -> go.Scatter:
    line = {"color": color, "dash": dash, "width": 1.6}
    return go.Scatter(x=table["k"], y=table[column], mode="lines", line=line, name=name)


def spearman(a: ScoresLike, b: ScoresLike) -> float:
    """Spearman over all heads; NaN if a method scores all of them the same."""
    x, y = (scores.values[~scores.values.isnan()].numpy() for scores in (a, b))
    found: Any = spearmanr(x, y) if np.ptp(x) > 0 and np.ptp(y) > 0 else None
    return math.nan if found is None else float(found.statistic)
