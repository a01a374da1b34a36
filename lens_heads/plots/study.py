"""Grouped bars with intervals from a long table."""

from __future__ import annotations

import textwrap

import pandas as pd
import plotly.graph_objects as go

from lens_heads.plots.draw import check_rows, figure_of, hatched, legend_below, whiskers
from lens_heads.plots.theme import CONTROLS, INK, escape, interval_texts, looks_of

_HATCHES = dict(zip(CONTROLS, ("/", "x", "."), strict=True))


def drop_bars(
    frame: pd.DataFrame, title: str | None = None, unit: str = "nats per token", axis: str = "drop", groups: str = ""
) -> go.Figure:
    """Grouped bars with their intervals: one group of bars per `group`, one bar per `name`, both in order of appearance.

    `frame` has the columns group, name, value, low, high; a name missing from a group leaves a gap. `axis` and `unit` label
    the value axis, `groups` the other. Methods have their own colours; controls are grey and hatched.
    """
    check_rows("drop_bars", frame)
    twice = frame[frame.duplicated(["group", "name"])]
    if not twice.empty:
        group, name = twice.iloc[0][["group", "name"]]
        raise ValueError(
            f"drop_bars: group {str(group)!r} has more than one row for {name!r}. Average them, or keep one."
        )
    traces = []
    for name, shown in looks_of(map(str, frame["name"])).items():
        part = frame[frame["name"].astype(str) == name]
        value, low, high = (part[column].to_numpy(dtype=float) for column in ("value", "low", "high"))
        bar = go.Bar(
            x=[_wrapped(group) for group in part["group"]],
            y=value,
            name=shown.label,
            error_y=whiskers(value, low, high, INK),
            marker={**hatched(shown.color, _HATCHES.get(name, "")), "opacity": 0.8},
            customdata=interval_texts(low, high),
            hovertemplate=f"<b>{shown.label}</b>, %{{x}}<br>%{{y:.3g}}%{{customdata}}<extra></extra>",
        )
        traces.append(bar)
    figure = figure_of(title or escape(axis[:1].upper() + axis[1:]), 470, traces, "Whiskers: 95 % intervals", width=900)
    figure.add_hline(y=0, line={"color": INK, "width": 1.2})
    figure.update_layout(barmode="group", bargap=0.25, bargroupgap=0.08, margin={"b": 130})
    order = [_wrapped(group) for group in dict.fromkeys(frame["group"])]
    ends = [-0.5, len(order) - 0.5]
    figure.update_xaxes(title=escape(groups), type="category", categoryorder="array", categoryarray=order, range=ends)
    figure.update_xaxes(showgrid=False, showline=False, ticks="", tickangle=0)
    figure.update_yaxes(title=escape(axis) + (f" ({escape(unit)})" if unit else ""))
    lines = max(group.count("<br>") for group in order) + 1
    return legend_below(figure, 22 + 16 * lines + (36 if groups else 0))


def _wrapped(group: object) -> str:
    """A group's name, broken into short lines."""
    return "<br>".join(escape(line) for line in textwrap.wrap(str(group).replace("_", " "), 16))
