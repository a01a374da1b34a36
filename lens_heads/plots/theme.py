"""Figures of head scores and ablation studies; a method has the same colour and symbol in all of them (`LOOKS`).

Every figure draws numbers that `HeadScores` and `AblationCurve` hold and computes nothing of its own but ranks. Placing
figures on a page is in `report.py`.
"""

from __future__ import annotations

import html
import math
import zlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
import torch
from scipy.stats import spearmanr

from lens_heads.curves import MAIN_TASK, AblationCurve
from lens_heads.heads import Head, HeadScores


class Look(NamedTuple):
    """How a method appears: colour, marker symbol, written name, unit of its scores."""

    color: str
    symbol: str
    label: str
    unit: str = ""

    @property
    def axis(self) -> str:
        return f"{self.label} score" + (f" ({self.unit})" if self.unit else "")


# Okabe and Ito's palette, told apart by readers with any colour vision; the symbols repeat the distinction.
LOOKS: dict[str, Look] = {
    "locos": Look("#0072B2", "circle", "LOCOS", "logits"),
    "attention_spatial": Look("#56B4E9", "square", "attention, spatial", "attention mass"),
    "dla": Look("#CC79A7", "diamond", "DLA", "logits"),
    "copy": Look("#D55E00", "triangle-up", "copy", "copies per needle token"),
    "contrastive": Look("#009E73", "cross", "contrastive", "share of most attended keys"),
    "headkv": Look("#E69F00", "x", "HeadKV", "attention mass"),
}
SPARE_COLORS = ("#5D3A9B", "#882255", "#7A5C3E", "#117733", "#332288")
SPARE_SYMBOLS = ("pentagon", "star", "hexagon", "triangle-down", "bowtie")
CONTROLS = {"random": ("#555555", "dash"), "random_like": ("#8A8A8A", "dashdot"), "bottom": ("#8A8A8A", "dot")}
METRIC_LABELS = {"rougeL": "ROUGE-L", "rouge1_recall": "ROUGE-1 recall", "token_f1": "token F1"} | {
    "contains": "share of answers that contain the gold answer",
    "exact_match": "share of exact answers",
    "logprob": "log-probability of the gold answer (nats per token)",
}
SEQUENTIAL = [[0.0, "#F7F9FC"], [0.25, "#BDD3EA"], [0.5, "#6BA3D0"], [0.75, "#2A6DAF"], [1.0, "#08306B"]]
_NEGATIVE = [[0.0, "#7F2704"], [0.125, "#C4500B"], [0.25, "#F19A55"], [0.375, "#FAD7B4"]]
DIVERGING = [*_NEGATIVE, *[[0.5 + position / 2, color] for position, color in SEQUENTIAL]]
INK, LINE, GRID, GREY, MARK = "#222222", "#9A9A9A", "#E5E5E5", "#B4B4B4", "#E69F00"


def look(method: str) -> Look:
    """Colour, symbol, label and unit of a method; one that is not in `LOOKS` gets a spare look fixed by its name."""
    number = zlib.crc32(method.encode())
    color, symbol = SPARE_COLORS[number % 5], SPARE_SYMBOLS[number // 5 % 5]
    return LOOKS.get(method) or Look(color, symbol, html.escape(method.replace("_", " "), quote=False))


def head_map(scores: HeadScores, title: str | None = None, mark: int = 5) -> go.Figure:
    """Scores by layer (0 at the bottom) and head; the best `mark` heads are outlined, and named or numbered by rank.

    Orange is below zero, white zero, blue above; without negative scores the scale starts at zero.
    """
    z, shown = scores.values.numpy(), look(scores.method)
    largest = float(np.abs(z).max()) or 1.0
    rank = {head: place for place, head in enumerate(scores.ranking(), 1)}
    low, high = _interval(scores)
    rows = [[Head(layer, head) for head in range(scores.n_heads)] for layer in range(scores.n_layers)]
    trace = _heat(z, largest, bool((z < 0).any()), shown.unit or "score").update(
        customdata=[[[str(h), rank[h], _range(low[h.layer, h.head], high[h.layer, h.head])] for h in r] for r in rows],
        hovertemplate="<b>%{customdata[0]}</b>  rank %{customdata[1]}<br>score %{z:.3g}%{customdata[2]}<extra></extra>",
    )
    cell = min(max(640 / scores.n_heads, 11), 72)
    height = min(max(18 * scores.n_layers, 220), 640) + 130
    best, named = scores.top(min(mark, z.size)), cell >= 46
    key = ", ".join(f"{place} {head}" for place, head in enumerate(best, 1))
    heading = title or f"{shown.label} per head, mean over {len(scores.trial_ids)} trials"
    subtitle = f"Outlined, by rank: {key}" if best and not named else ""
    figure = _figure(heading, height, [trace], subtitle, cell * scores.n_heads + 180)
    for place, head in enumerate(best, 1):
        x, y, color = head.head, head.layer, "#FFFFFF" if abs(scores[head]) > 0.65 * largest else INK
        box = {"x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5, "line": {"color": MARK, "width": 2.5}}
        figure.add_shape(type="rect", name=str(head), **box)
        text = f"<b>{head if named else place}</b>"
        figure.add_annotation(x=x, y=y, text=text, showarrow=False, font={"color": color, "size": 11})
    unit = "KV head" if scores.unit == "kv_head" else "head"
    figure.update_xaxes(title=unit, showgrid=False, **_whole(scores.n_heads))
    return figure.update_yaxes(title="layer", showgrid=False, **_whole(scores.n_layers))


def ranking_bars(scores: HeadScores, k: int = 10, title: str | None = None) -> go.Figure:
    """The k best heads, best on top, each with its 95 % bootstrap interval over trials."""
    best, shown = scores.top(min(k, scores.values.numel())), look(scores.method)
    low, high = _interval(scores)
    at = [head.layer for head in best], [head.head for head in best]
    values = scores.values.numpy()[at]
    trace = go.Bar(
        x=values,
        y=[str(head) for head in best],
        orientation="h",
        marker={"color": shown.color, "opacity": 0.85},
        error_x=_whiskers(values, low[at], high[at], INK),
        customdata=[_range(*pair) for pair in zip(low[at], high[at], strict=True)],
        hovertemplate="<b>%{y}</b>  %{x:.3g}%{customdata}<extra></extra>",
    )
    subtitle = f"Whiskers: 95 % bootstrap interval over {len(scores.per_trial)} trials"
    heading = title or f"The {len(best)} best heads by {shown.label}"
    figure = _figure(heading, 150 + 26 * len(best), [trace], subtitle if len(scores.per_trial) > 1 else "", 720)
    figure.update_layout(bargap=0.35).update_xaxes(title=shown.axis, zeroline=True)
    return figure.update_yaxes(autorange="reversed", showgrid=False, showline=False, tickcolor="white")


def ablation_curves(
    curve: AblationCurve, metric: str, task: str = MAIN_TASK, title: str | None = None, height: int | None = None
) -> go.Figure:
    """The metric against the number k of heads ablated: a line per ranking's top k, controls grey and broken.

    Whiskers are 95 % intervals over trials, bands the range of the random draws, the black line is no ablation (k = 0).
    Points of one k stand side by side around it. Controls of rankings other than the lead wait in the legend.
    """
    rows: Any = curve.frame[(curve.frame["metric"] == metric) & (curve.frame["task"] == task)]
    ablated = rows[rows["k"] > 0]
    if ablated.empty:
        tasks = ", ".join(map(str, curve.frame["task"].unique()))
        raise ValueError(f"no {metric!r} on {task!r}: this curve has {', '.join(curve.metrics)} on {tasks}")
    ks = sorted({int(k) for k in ablated["k"]})
    step = min([math.log(after / before) for before, after in pairwise(ks)], default=1.0)
    start, end = ks[0] * math.exp(-max(step, 0.4)), ks[-1] * math.exp(0.3 * max(step, 0.4))
    lead = str((curve.meta.get("rankings") or [ablated["method"].iloc[0]])[0])
    groups = [(*name, part.sort_values("k")) for name, part in ablated.groupby(["method", "set"], sort=False)]
    groups.sort(key=lambda group: (group[1] != "top", group[0] not in (lead, "any")))
    beside = sum(set_ == "top" or method in (lead, "any") for method, set_, _ in groups)
    gap = min(0.5 * step / beside, 0.055)
    traces: list[Any] = [_baseline(rows[rows["k"] == 0].iloc[0], start, end)]
    for place, (method, set_, part) in enumerate(groups):
        shift = math.exp((min(place, beside - 1) - (beside - 1) / 2) * gap)
        traces += _line(curve, method, set_, part, shift, visible=True if place < beside else "legendonly")
    heading = title or ("" if task == MAIN_TASK else f"Task: {html.escape(task)}")
    figure = _figure(heading, height or max(480, 140 + 27 * len(groups)), traces)
    span = [math.log10(start) - 0.05, math.log10(end)]
    figure.update_xaxes(title="heads ablated (k)", type="log", range=span, tickvals=[start, *ks], ticktext=["0", *ks])
    bounds = None if metric == "logprob" else [-0.03, 1.03]
    figure.update_yaxes(title=METRIC_LABELS.get(metric, html.escape(metric)), range=bounds)
    return figure.update_layout(legend={"tracegroupgap": 4, "font": {"size": 12}}, hovermode="closest")


def method_agreement(scores: Mapping[str, HeadScores], title: str | None = None) -> go.Figure:
    """Spearman correlation between the methods' scores over all heads; hover adds the heads shared in the top ten."""
    shapes = {name: tuple(found.values.shape) for name, found in scores.items()}
    if len(set(shapes.values())) != 1:
        raise ValueError(f"rankings of one model are needed, these have [layers, heads] {shapes or 'nothing'}")
    names = [look(name).label for name in scores]
    matrix = np.array([[_spearman(a, b) for b in scores.values()] for a in scores.values()])
    k = min(10, math.prod(next(iter(shapes.values()))))
    trace = _heat(matrix, 1.0, True, "Spearman ρ").update(
        x=names,
        y=names,
        text=[["–" if math.isnan(rho) else f"{rho:.2f}".replace("-", "−") for rho in row] for row in matrix],
        texttemplate="%{text}",
        textfont={"size": 13},
        customdata=[[len(set(a.top(k)) & set(b.top(k))) for b in scores.values()] for a in scores.values()],
        hovertemplate=f"%{{y}} and %{{x}}: ρ = %{{z:.3f}}<br>%{{customdata}} of the top {k} shared<extra></extra>",
    )
    heading, n = title or "Agreement of the rankings over all heads", len(names)
    figure = _figure(heading, 180 + 52 * n, [trace], width=280 + 74 * n)
    figure.update_xaxes(showgrid=False, showline=False, tickcolor="white", tickangle=-30)
    return figure.update_yaxes(autorange="reversed", showgrid=False, showline=False, tickcolor="white")


def scatter(a: HeadScores, b: HeadScores, mark: int = 5, title: str | None = None) -> go.Figure:
    """Every head's score by one method (x) against another (y); the best `mark` heads of either are named."""
    if a.values.shape != b.values.shape:
        shapes = f"{a.method} {tuple(a.values.shape)}, {b.method} {tuple(b.values.shape)}"
        raise ValueError(f"rankings of one model are needed, these have [layers, heads] {shapes}")
    x, y, every = look(a.method), look(b.method), a.ranking()
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
    rho = f"{_spearman(a, b):.2f}".replace("-", "−")
    subtitle = f"Spearman ρ = {rho} over {len(every)} heads; {len(top_a & top_b)} of the top {mark} shared"
    figure = _figure(title or f"{y.label} against {x.label}", 520, traces, subtitle, 860)
    return figure.update_xaxes(title=x.axis, zeroline=True).update_yaxes(title=y.axis, zeroline=True)


def _line(curve: AblationCurve, method: str, set_: str, rows: Any, shift: float, visible: bool | str) -> list[Any]:
    """One condition along k: the line with its intervals, and under it the band of the draws if there were several."""
    shown, table = look(method), curve.per_trial
    draws = int(table.loc[(table["method"] == method) & (table["set"] == set_), "seed"].nunique())
    name = {
        "top": f"top k by {shown.label}",
        "bottom": f"lowest k by {shown.label}",
        "random": f"random k ({draws} draws)",
        "random_like": f"random k, layers<br>as {shown.label} ({draws} draws)",
    }.get(set_, f"{html.escape(set_)} {shown.label}")
    top, (color, dash) = set_ == "top", CONTROLS.get(set_, (shown.color, "solid"))
    common: dict[str, Any] = {"legendgroup": f"{method}|{set_}", "visible": visible}
    x, value, low, high = rows["k"].to_numpy() * shift, *(rows[c].to_numpy() for c in ("value", "low", "high"))
    line = go.Scatter(
        x=x,
        y=value,
        error_y=_whiskers(value, low, high, color),
        mode="lines+markers",
        line={"color": color, "dash": dash, "width": 2.5 if top else 1.6},
        marker={"symbol": shown.symbol if top else "circle-open", "size": 9 if top else 6},
        name=name,
        customdata=[[int(k), _range(*pair)] for k, *pair in zip(rows["k"], low, high, strict=True)],
        hovertemplate=f"<b>{name}</b><br>k = %{{customdata[0]}}: %{{y:.3f}}%{{customdata[1]}}<extra></extra>",
        **common,
    )
    if draws < 2:
        return [line]
    edge = [*rows["seed_max"], *rows["seed_min"][::-1]]
    band = go.Scatter(x=[*x, *x[::-1]], y=edge, fill="toself", fillcolor=color, opacity=0.18, mode="none", **common)
    return [band.update(showlegend=False, hoverinfo="skip", name=f"range of draws, {name}"), line]


def _baseline(row: Any, start: float, end: float) -> go.Scatter:
    value, low, high = (np.array([row[column], row["value"]]) for column in ("value", "low", "high"))
    hover = f"<b>no ablation</b>: %{{y:.3f}}{_range(low[0], high[0])}<extra></extra>"
    drawn = {"mode": "lines", "line": {"color": INK, "width": 1.4}, "name": "no ablation", "hovertemplate": hover}
    return go.Scatter(x=[start, end], y=value, error_y=_whiskers(value, low, high, INK), **drawn)


def _heat(z: np.ndarray, largest: float, diverging: bool, unit: str) -> go.Heatmap:
    bar = {"title": {"text": unit, "side": "right"}, "thickness": 12, "outlinewidth": 0}
    scale = {"colorscale": DIVERGING, "zmid": 0.0} if diverging else {"colorscale": SEQUENTIAL}
    return go.Heatmap(z=z, zmin=-largest if diverging else 0.0, zmax=largest, xgap=1, ygap=1, colorbar=bar, **scale)


def _spearman(a: HeadScores, b: HeadScores) -> float:
    x, y = a.values.flatten().numpy(), b.values.flatten().numpy()
    found: Any = spearmanr(x, y) if np.ptp(x) > 0 and np.ptp(y) > 0 else None
    return math.nan if found is None else float(found.statistic)


def _interval(scores: HeadScores) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % interval per head, NaN where fewer than two trials make one impossible."""
    missing = (torch.full_like(scores.values, math.nan),) * 2
    low, high = scores.interval() if len(scores.per_trial) > 1 else missing
    return low.numpy(), high.numpy()


def _range(low: float, high: float) -> str:
    return "" if math.isnan(low) or math.isnan(high) else f"  [{low:.3g}, {high:.3g}]"


def _whiskers(value: np.ndarray, low: np.ndarray, high: np.ndarray, color: str) -> dict[str, Any]:
    up, down = ([*np.clip(np.nan_to_num(gap), 0, None)] for gap in (high - value, value - low))
    return {"symmetric": False, "array": up, "arrayminus": down, "color": color, "thickness": 1.3, "width": 3}


def _whole(n: int) -> dict[str, Any]:
    """An axis of n whole numbers from 0, with a tick at each or at every 2nd, 4th, ... of many."""
    return {"range": [-0.55, n - 0.45], "dtick": 2 ** max(0, math.ceil(math.log2(n / 18)))}


def _figure(title: str, height: int, traces: list[Any], subtitle: str = "", width: float | None = None) -> go.Figure:
    heading = {"text": title, "subtitle": {"text": subtitle, "font": {"size": 12, "color": "#555555"}}}
    figure = go.Figure(traces)
    figure.update_layout(
        template="none",
        title={**heading, "x": 0, "xref": "paper", "xanchor": "left", "font": {"size": 16}},
        height=height,
        width=round(min(width, 900)) if width else None,
        margin={"l": 64, "r": 24, "t": 76 if subtitle else 56 if title else 24, "b": 72},
        font={"family": "Helvetica, Arial, sans-serif", "size": 13, "color": INK},
        hoverlabel={"bgcolor": "white", "font": {"color": INK}},
    )
    axis = {"gridcolor": GRID, "zeroline": False, "zerolinecolor": LINE, "linecolor": LINE, "showline": True}
    axis |= {"ticks": "outside", "tickcolor": LINE, "ticklen": 4, "automargin": True, "title": {"standoff": 10}}
    return figure.update_xaxes(**axis).update_yaxes(**axis)
