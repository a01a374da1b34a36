"""Bars with intervals: drops by group, and the share of the ablation cost that patching recovers, beside other heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from lens_heads.plots.draw import check_rows, figure_of, hatched, legend_below, whiskers
from lens_heads.plots.theme import (
    CONTROL_STYLES,
    GREY,
    INK,
    LINE,
    escape,
    interval_text,
    interval_texts,
    number,
    series_styles,
    wrapped,
)

_HATCHES = dict(zip(CONTROL_STYLES, ("/", "x", "."), strict=True))
SETS = {
    "patched": "the ablated<br>heads",
    "random": "random",
    "random_like": "random,<br>same layers",
    "matched_layers": "random,<br>same layers",  # Stored results of older runs.
    "same_layer": "next head in<br>the layer",
    "bottom": "lowest<br>scores",
}
SHOWN = (-1.0, 2.0)
"""The largest range of the axis: a ratio far outside it has a denominator near zero."""
_KINDS = {
    "the ablated heads, patched": ("#2A6DAF", ""),
    "other heads, patched instead": (GREY, ""),
    "other heads, themselves ablated and patched": ("#6E6E6E", "/"),
}


def drop_bars(
    frame: pd.DataFrame, *, title: str | None = None, unit: str = "nats per token", axis: str = "drop", groups: str = ""
) -> go.Figure:
    """Grouped bars with their intervals: one group of bars per `group`, one bar per `name`, both in order of appearance.

    `frame` has the columns group, name, value, low, high; a name missing from a group leaves a gap. `axis` and `unit` label
    the value axis, `groups` the other. Methods have their own colours; controls are grey and hatched.

    `title`: of the figure.

    Example:
        >>> columns = ["group", "name", "value", "low", "high"]
        >>> figure = lh.plots.drop_bars(pd.DataFrame([["names", "locos", 2.0, 1.5, 2.5]], columns=columns))
        >>> figure.data[0].name, [float(value) for value in figure.data[0].y]
        ('LOCOS', [2.0])
    """
    check_rows("drop_bars", frame, "group", "name", "value", "low", "high")
    twice = frame[frame.duplicated(["group", "name"])]
    if not twice.empty:
        group, name = twice.iloc[0][["group", "name"]]
        raise ValueError(
            f"drop_bars: group {str(group)!r} has more than one row for {name!r}. Average them, or keep one."
        )
    traces = []
    for name, shown in series_styles(map(str, frame["name"])).items():
        part = frame[frame["name"].astype(str) == name]
        value, low, high = (part[column].to_numpy(dtype=float) for column in ("value", "low", "high"))
        bar = go.Bar(
            x=[wrapped(str(group).replace("_", " ")) for group in part["group"]],
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
    order = [wrapped(str(group).replace("_", " ")) for group in dict.fromkeys(frame["group"])]
    ends = [-0.5, len(order) - 0.5]
    figure.update_xaxes(title=escape(groups), type="category", categoryorder="array", categoryarray=order, range=ends)
    figure.update_xaxes(showgrid=False, showline=False, ticks="", tickangle=0)
    figure.update_yaxes(title=escape(axis) + (f" ({escape(unit)})" if unit else ""))
    lines = max(group.count("<br>") for group in order) + 1
    return legend_below(figure, 22 + 16 * lines + (36 if groups else 0))


def recovery_bars(frame: pd.DataFrame, *, title: str | None = None) -> go.Figure:
    """The share of the ablation cost that patching recovers, per set of heads, with its interval; takes `Recovery.frame`.

    Each control stands beside its fair variant (hatched), whose heads were themselves ablated. A bar is pale if ablation cost
    less than 0.5 nats in at least half of the cases, so that there was little to recover. The axis never exceeds -1 to 2; an
    arrow gives the value of any bar or whisker that it cuts.

    `title`: of the figure.

    Example:
        >>> few = lh.Controls("random", draws=1)
        >>> found = lh.recovery(model, others[:2], heads, heads, controls=few, fair=False, max_new_tokens=1, kind="zero")
        >>> len(lh.plots.recovery_bars(found.frame).data)
        2
    """
    check_rows("recovery_bars", frame, "set", "fair", "draws", "recovery", "low", "high", "examples", "undefined")
    axis, sets = _axis(frame), frame.groupby("set", sort=False)
    beside = sets.cumcount() - (sets["set"].transform("size") - 1) / 2
    themselves, instead, fair = _KINDS
    kinds = np.select([frame["set"] == "patched", frame["fair"]], [themselves, fair], instead)
    rows: list[Any] = frame.assign(x=sets.ngroup() + 0.42 * beside, kind=kinds).to_dict("records")
    traces = [_bars(kind, part, axis) for kind in _KINDS if (part := [row for row in rows if row["kind"] == kind])]
    examples = sorted({str(int(n)) for n in frame["examples"]}, key=int)
    over = examples[0] if len(examples) == 1 else f"{examples[0]} to {examples[-1]}"
    subtitle = f"Ratio of sums over {over} examples; whiskers: 95 % intervals"
    if (frame["undefined"] >= 0.5).any():
        subtitle += "<br>Pale: ablation cost under 0.5 nats in at least half of the cases"
    heading = title or "Recovery: share of the ablation cost that patching restores"
    figure = figure_of(heading, 540, traces, subtitle, 860)
    notes = [note for row in rows for note in _notes(row, axis)]
    for y, text, color, dash in (
        (0, "nothing<br>recovered", INK, "solid"),
        (1, "everything<br>recovered", LINE, "dash"),
    ):
        figure.add_hline(y=y, line={"color": color, "dash": dash, "width": 1.2})
        notes.append({"text": text, "x": 1.01, "xref": "paper", "xanchor": "left", "y": y, "align": "left"})
    for note in notes:
        figure.add_annotation(showarrow=False, font={"size": 11, "color": INK}, **note)
    draws = {row["set"]: int(row["draws"]) for row in rows}
    labels = [SETS.get(name, escape(name)) + (f"<br>({n} draws)" if n > 1 else "") for name, n in draws.items()]
    figure.update_xaxes(tickvals=[*range(len(draws))], ticktext=labels, range=[-0.6, len(draws) - 0.4])
    figure.update_xaxes(showgrid=False, showline=False, ticks="")
    figure.update_yaxes(title="recovery (share of the ablation cost)", range=list(axis))
    figure.update_layout(barmode="overlay", margin={"r": 90, "b": 130})
    return legend_below(figure, 66)


def _axis(frame: pd.DataFrame) -> tuple[float, float]:
    """Fits all bars and whiskers, zero and one, but never exceeds `SHOWN`."""
    ends = frame[["recovery", "low", "high"]].to_numpy(dtype=float)
    ends = np.append(ends[np.isfinite(ends)], [0.0, 1.0])
    room = 0.08 * (ends.max() - ends.min())
    return max(float(ends.min()) - room * (ends.min() < 0), SHOWN[0]), min(float(ends.max()) + room, SHOWN[1])


def _bars(kind: str, rows: list[dict[str, Any]], axis: tuple[float, float]) -> go.Bar:
    """The bars of one kind of set, at the rows' own `x`."""
    color, hatch = _KINDS[kind]
    value, low, high = (np.array([row[column] for row in rows], dtype=float) for column in ("recovery", "low", "high"))
    return go.Bar(
        x=[row["x"] for row in rows],
        y=value,
        width=0.36,
        name=kind,
        error_y=whiskers(value, low, high, INK),
        marker={**hatched(color, hatch), "opacity": [0.35 if row["undefined"] >= 0.5 else 0.9 for row in rows]},
        customdata=[[escape(row["set"]), _hover(row, axis)] for row in rows],
        hovertemplate=f"<b>%{{customdata[0]}}</b>: {kind}<br>%{{customdata[1]}}<extra></extra>",
    )


def _hover(row: dict[str, Any], axis: tuple[float, float]) -> str:
    cut = f"<br>cut off by the axis, which ends at {_short(axis[0])} and {_short(axis[1])}"
    return (
        f"recovery {number(row['recovery'], 3)}{interval_text(row['low'], row['high'])}"
        f"{cut if math.isfinite(row['recovery']) and _notes(row, axis) else ''}<br>"
        f"median over examples {number(row['median'], 3)}<br>"
        f"{row['undefined']:.0%} of denominators under 0.5 nats<br>"
        f"mean ablation cost {number(row['cost'])} nats<br>"
        f"{row['draws']} draw{'s' * (row['draws'] > 1)}, {row['examples']} examples"
    )


def _notes(row: dict[str, Any], axis: tuple[float, float]) -> list[dict[str, Any]]:
    """An arrow with the value where the axis cuts a bar or its whisker; a note where the ratio is undefined."""
    value, found = row["recovery"], []
    if not math.isfinite(value):
        return [{"text": "not<br>defined", "x": row["x"], "y": 0, "yanchor": "bottom"}]
    for arrow, sign, end, limit, anchor in (
        ("▼", -1, row["low"], axis[0], "bottom"),
        ("▲", 1, row["high"], axis[1], "top"),
    ):
        lines = [f"<b>{arrow} {_short(value)}</b>"] if sign * (value - limit) > 0 else []
        if sign * (end - limit) > 0:
            lines.append(f"to {_short(end)}" if lines else f"{arrow} to {_short(end)}")
        if lines:
            text = {"text": "<br>".join(lines), "bgcolor": "white", "borderpad": 1}
            found.append({**text, "x": row["x"], "y": limit, "yanchor": anchor})
    return found


def _short(value: float) -> str:
    text = f"{value:.2g}" if abs(value) < 1000 else f"{value:.0e}".replace("e+0", "e")
    return text.replace("-", "−")
