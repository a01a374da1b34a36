"""Ablation curves: a metric against the number of heads that were switched off."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from lens_heads.plots.draw import band, check_members, check_rows, figure_of, whiskers
from lens_heads.plots.protocols import CurveLike
from lens_heads.plots.theme import (
    CONTROL_STYLES,
    INK,
    METRIC_LABELS,
    Style,
    escape,
    interval_text,
    interval_texts,
    series_styles,
    styles_apart,
)


def ablation_curves(
    curve: CurveLike, metric: str, *, task: str | None = None, title: str | None = None, height: int | None = None
) -> go.Figure:
    """The metric against the number k of heads ablated: a line per ranking's top k; controls are grey and dashed or dotted.

    `task` is the curve's main task by default. Whiskers are 95 % intervals over trials, bands the range of the random draws;
    the black line is no ablation (k = 0). Points of one k stand side by side around it. Controls of rankings other than the
    first are hidden until clicked in the legend.

    `title`, `height`: of the figure; by default from the curve.

    Example:
        >>> figure = lh.plots.ablation_curves(curve, "logprob")
        >>> [line.name for line in figure.data if line.name][:2]
        ['no ablation', 'top k by LOCOS']
    """
    check_members("ablation_curves", curve, "the curve of ablation_curve itself", "frame", "main_task", "rankings")
    task = curve.main_task if task is None else task
    rows = curve.frame[(curve.frame["metric"] == metric) & (curve.frame["task"] == task)]
    ablated = rows[rows["k"] > 0]
    if ablated.empty:
        tasks = ", ".join(map(str, curve.frame["task"].unique()))
        measured = f"This curve has {', '.join(curve.metrics)} on {tasks}."
        raise ValueError(f"ablation_curves: metric {metric!r} was not measured on task {task!r}. {measured}")
    ks = sorted({int(k) for k in ablated["k"]})
    step = min([math.log(after / before) for before, after in pairwise(ks)], default=1.0)
    start, end = ks[0] * math.exp(-max(step, 0.4)), ks[-1] * math.exp(0.3 * max(step, 0.4))
    lead = next(iter(curve.rankings), ablated["method"].iloc[0])
    groups = [(*name, part.sort_values("k")) for name, part in ablated.groupby(["method", "set"], sort=False)]
    groups.sort(key=lambda group: (group[1] != "top", group[0] not in (lead, "any")))
    beside = sum(set_ == "top" or method in (lead, "any") for method, set_, _ in groups)
    gap = min(0.5 * step / beside, 0.055)
    styles = styles_apart(dict.fromkeys(method for method, *_ in groups))
    traces: list[Any] = [_baseline(rows[rows["k"] == 0].iloc[0], start, end)]
    for place, (method, set_, part) in enumerate(groups):
        shift = math.exp((min(place, beside - 1) - (beside - 1) / 2) * gap)
        drawn = _line(curve, method, styles[method], set_, part, shift)
        traces += [trace.update(visible=True if place < beside else "legendonly") for trace in drawn]
    heading = title or ("" if task == curve.main_task else f"Task: {escape(task)}")
    figure = figure_of(heading, height or max(480, 140 + 27 * len(groups)), traces)
    span = [math.log10(start) - 0.05, math.log10(end)]
    figure.update_xaxes(title="heads ablated (k)", type="log", range=span, tickvals=[start, *ks], ticktext=["0", *ks])
    limits = None if metric.endswith(("logprob", "margin")) else [-0.03, 1.03]
    figure.update_yaxes(title=METRIC_LABELS.get(metric, escape(metric)), range=limits)
    return figure.update_layout(legend={"tracegroupgap": 4, "font": {"size": 12}}, hovermode="closest")


def _line(curve: CurveLike, method: str, shown: Style, set_: str, rows: Any, shift: float) -> list[go.Scatter]:
    """One condition along k: the line with its intervals, above the band of the draws if there were several."""
    table = curve.per_trial
    draws = int(table.loc[(table["method"] == method) & (table["set"] == set_), "draw"].nunique())
    name = {
        "top": f"top k by {shown.label}",
        "top_no_needle": f"top k by {shown.label},<br>no needle in the prompt",
        "bottom": f"bottom k by {shown.label}",
        "random": f"random k ({draws} draws)",
        "random_like": f"random k, same layers<br>as {shown.label} ({draws} draws)",
    }.get(set_, f"{escape(set_)} {shown.label}")
    top, (color, dash), group = set_ == "top", CONTROL_STYLES.get(set_, (shown.color, "solid")), f"{method}|{set_}"
    x, value, low, high = rows["k"].to_numpy() * shift, *(rows[c].to_numpy() for c in ("value", "low", "high"))
    line = go.Scatter(
        x=x,
        y=value,
        error_y=whiskers(value, low, high, color),
        mode="lines+markers",
        line={"color": color, "dash": dash, "width": 2.5 if top else 1.6},
        marker={"symbol": shown.symbol if top else "circle-open", "size": 9 if top else 6},
        name=name,
        legendgroup=group,
        customdata=[*zip(map(int, rows["k"]), interval_texts(low, high), strict=True)],
        hovertemplate=f"<b>{name}</b><br>k = %{{customdata[0]}}: %{{y:.3f}}%{{customdata[1]}}<extra></extra>",
    )
    if draws < 2:
        return [line]
    style: dict[str, Any] = {"fillcolor": color, "opacity": 0.18, "name": f"range of draws, {name}"}
    return [band(x, rows["draw_min"], rows["draw_max"], legendgroup=group, **style), line]


def _baseline(row: Any, start: float, end: float, name: str = "no ablation") -> go.Scatter:
    value, low, high = (np.array([row[column], row["value"]]) for column in ("value", "low", "high"))
    hover = f"<b>{name}</b>: %{{y:.3f}}{interval_text(low[0], high[0])}<extra></extra>"
    drawn = {"mode": "lines", "line": {"color": INK, "width": 1.4}, "name": name, "hovertemplate": hover}
    return go.Scatter(x=[start, end], y=value, error_y=whiskers(value, low, high, INK), **drawn)


def task_curves(frame: pd.DataFrame, *, title: str = "", unit: str = "nats") -> go.Figure:
    """Damage against the number k of heads ablated, all tasks in one figure: each one's own heads, and random heads dashed.

    `frame` has the columns capability, set ("top" or "random"), k, damage, damage_low, damage_high. Whiskers are 95 %
    intervals; points of one k stand side by side.

    `title`: of the figure. `unit`: of the damage.

    Example:
        >>> columns = ["capability", "set", "k", "damage", "damage_low", "damage_high"]
        >>> frame = pd.DataFrame([["names", "top", 5, 2.0, 1.5, 2.5], ["names", "random", 5, 0.1, 0.0, 0.2]], columns=columns)
        >>> lh.plots.task_curves(frame).data[0].name
        'names'
    """
    check_rows("task_curves", frame, "capability", "set", "k", "damage", "damage_low", "damage_high")
    names, ks, traces = list(dict.fromkeys(frame["capability"])), sorted(set(frame["k"])), []
    for place, (name, shown) in enumerate(series_styles(map(str, names)).items()):
        shift = math.exp((place - (len(names) - 1) / 2) * 0.03)
        for set_, part in frame[frame["capability"] == name].sort_values("k").groupby("set", sort=False):
            value, low, high = (part[f"damage{end}"].to_numpy(float) for end in ("", "_low", "_high"))
            top = set_ == "top"
            line = go.Scatter(
                x=part["k"].to_numpy() * shift,
                y=value,
                error_y=whiskers(value, low, high, shown.color) if top else None,
                mode="lines+markers",
                line={"color": shown.color, "dash": "solid" if top else "dash", "width": 2.5 if top else 1.2},
                marker={"symbol": shown.symbol if top else "circle-open", "size": 9 if top else 5},
                name=shown.label if top else f"{shown.label}, random heads",
                legendgroup=name,
                customdata=[*zip(map(int, part["k"]), interval_texts(low, high), strict=True)],
                hovertemplate=f"<b>{shown.label}</b><br>k = %{{customdata[0]}}: %{{y:.3f}}%{{customdata[1]}}<extra></extra>",
            )
            traces.append(line)
    figure = figure_of(title, 480, traces)
    figure.add_hline(y=0, line={"color": INK, "width": 1.2})
    figure.update_xaxes(title="heads ablated (k)", type="log", tickvals=ks, ticktext=[str(k) for k in ks])
    return figure.update_yaxes(title=f"damage ({escape(unit)})")


def faithfulness_curves(frame: Any, mlps: str, *, title: str | None = None) -> go.Figure:
    """Faithfulness against the share of heads kept: a line per ranking; controls are grey and dashed or dotted.

    `frame`: method, set, share, value, low, high, as in `faithfulness`. Whiskers are 95 % intervals over pairs; 1 is all heads.

    `mlps`: as there, for the axis. `title`: of the figure.

    Example:
        >>> found = lh.faithfulness(model, pairs[:2], {"locos": scores}, ks=[2], controls=(), positions="all")
        >>> lh.plots.faithfulness_curves(found.frame, "free").data[0].name
        'LOCOS'
    """
    check_rows("faithfulness_curves", frame, "method", "set", "share", "value", "low", "high")
    inside = frame[(frame["share"] > 0) & (frame["share"] < 1)]
    styles = styles_apart(dict.fromkeys(inside["method"]))
    traces: list[Any] = []
    for (method, set_), rows in inside.groupby(["method", "set"], sort=False):
        shown, rows = styles[method], rows.sort_values("share")
        name = {"top": shown.label, "random": "random"}.get(set_, f"{set_.replace('_', ' ')}, as {shown.label}")
        traces.append(_kept(rows, "share", name, shown, set_, [f"{k} heads" for k in rows["k"]]))
    what = "heads only; MLPs run freely" if mlps == "free" else "MLPs from the corrupt run"
    figure = figure_of(title or "What the heads that are kept still do", 460, traces, what)
    figure.add_hline(y=1, line={"color": INK, "width": 1.2}).add_hline(y=0, line={"color": INK, "width": 0.6})
    figure.update_xaxes(title="share of heads kept", type="log", tickformat=".3~g")
    return figure.update_yaxes(title="faithfulness")


def cache_curves(frame: pd.DataFrame, metric: str, *, title: str | None = None) -> go.Figure:
    """A metric against the share of the cache that is kept: a line per method, random heads in grey, the whole cache in black.

    `frame`: method, share, kept, and the metric with its `_low` and `_high`, as of `StreamingTable.of`. Every line begins
    with the cache that no kv head has whole. Whiskers are 95 % intervals over trials.

    `title`: of the figure.

    Example:
        >>> columns = ["method", "share", "kept", "correct", "correct_low", "correct_high"]
        >>> rows = [["none", 0, 0.1, 0.2, 0.1, 0.3], ["duo", 0.5, 0.6, 0.9, 0.8, 1.0], ["whole", 1, 1.0, 1.0, 1.0, 1.0]]
        >>> figure = lh.plots.cache_curves(pd.DataFrame(rows, columns=columns), "correct")
        >>> figure.layout.xaxis.title.text
        "share of the cache's memory"
    """
    check_rows("cache_curves", frame, "method", "share", "kept", metric, f"{metric}_low", f"{metric}_high")
    drawn = frame.rename(columns={metric: "value", f"{metric}_low": "low", f"{metric}_high": "high"})
    none, whole = (drawn[drawn["method"] == name] for name in ("none", "whole"))
    names = [name for name in drawn["method"].unique() if name not in ("none", "whole")]
    traces: list[Any] = [_baseline(whole.iloc[0], float(drawn["kept"].min()), 1.0, "whole cache")]
    for name, shown in styles_apart(names).items():
        rows = pd.concat([none, drawn[drawn["method"] == name].sort_values("kept")])
        hovers = [
            f"{share:.0%} of kv heads, {kept:.0%} of memory"
            for share, kept in zip(rows["share"], rows["kept"], strict=True)
        ]
        traces.append(_kept(rows, "kept", shown.label, shown, name if name in CONTROL_STYLES else "top", hovers))
    figure = figure_of(title or "What is left with a smaller cache", 460, traces)
    figure.update_xaxes(title="share of the cache's memory", tickformat=".0%")
    return figure.update_yaxes(title=METRIC_LABELS.get(metric, escape(metric)))


def _kept(rows: pd.DataFrame, x: str, name: str, shown: Style, set_: str, hovers: list[str]) -> go.Scatter:
    """One condition along the share of heads that is kept."""
    color, dash = CONTROL_STYLES.get(set_, (shown.color, "solid"))
    low, high = rows["low"].to_numpy(), rows["high"].to_numpy()
    return go.Scatter(
        x=rows[x],
        y=rows["value"],
        error_y=whiskers(rows["value"].to_numpy(), low, high, color),
        mode="lines+markers",
        line={"color": color, "dash": dash, "width": 2.5 if set_ == "top" else 1.6},
        marker={"symbol": shown.symbol if set_ == "top" else "circle-open", "size": 8},
        name=name,
        customdata=[*zip(hovers, interval_texts(low, high), strict=True)],
        hovertemplate=f"<b>{name}</b><br>%{{customdata[0]}}: %{{y:.2f}}%{{customdata[1]}}<extra></extra>",
    )
