"""Recovery: how much of the ablation cost patching the heads recovers, beside patching other heads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from lens_heads.plots.theme import (
    GREY,
    INK,
    LINE,
    check_columns,
    escape,
    figure_of,
    hatched,
    interval_text,
    legend_below,
    number,
    whiskers,
)

if TYPE_CHECKING:
    import pandas as pd

SETS = {
    "patched": "the ablated<br>heads",
    "random": "random",
    "matched_layers": "random,<br>same layers",
    "same_layer": "next head in<br>the layer",
    "bottom": "lowest<br>scores",
}
SHOWN = (-1.0, 2.0)
"""The largest range of the axis: a ratio far outside it has a denominator near zero."""
_COLUMNS = ["set", "fair", "recovery", "low", "high", "median", "undefined", "cost", "draws", "examples"]
_KINDS = {
    "the ablated heads, patched": ("#2A6DAF", ""),
    "other heads, patched instead": (GREY, ""),
    "other heads, themselves ablated and patched": ("#6E6E6E", "/"),
}


def recovery_bars(frame: pd.DataFrame, title: str | None = None) -> go.Figure:
    """The share of the ablation cost that patching recovers, per set of heads, with its interval; takes `Recovery.frame`.

    Each control stands beside its fair variant (hatched), whose heads were themselves ablated. A bar is pale if ablation cost
    less than 0.5 nats in at least half of the cases, so that there was little to recover. The axis never exceeds -1 to 2; an
    arrow gives the value of any bar or whisker that it cuts.
    """
    check_columns("recovery_bars", frame, _COLUMNS, "the frame of a Recovery")
    rows: list[dict[str, Any]] = [
        {str(column): value for column, value in row.items()} for row in frame.to_dict("records")
    ]
    axis, middles = _axis(frame), {name: place for place, name in enumerate(dict.fromkeys(frame["set"]))}
    for name, middle in middles.items():
        beside = [row for row in rows if row["set"] == name]
        for place, row in enumerate(beside):
            row["x"] = middle + 0.42 * (place - (len(beside) - 1) / 2)
    for row in rows:
        row["kind"] = list(_KINDS)[0 if row["set"] == "patched" else 2 if row["fair"] else 1]
    traces = [_bars(kind, part, axis) for kind in _KINDS if (part := [row for row in rows if row["kind"] == kind])]
    counts = sorted({int(row["examples"]) for row in rows})
    subtitle = f"Ratio of sums over {' to '.join(map(str, counts[:: max(1, len(counts) - 1)]))} examples"
    subtitle += "; whiskers: 95 % bootstrap interval"
    if any(row["undefined"] >= 0.5 for row in rows):
        subtitle += "<br>Pale: ablation cost under 0.5 nats in at least half of the cases"
    heading = title or "Recovery: share of the ablation cost that patching restores"
    figure = figure_of(heading, 540, traces, subtitle, 860)
    notes = [note for row in rows for note in _notes(row, axis)]
    for y, text in ((0, "nothing<br>recovered"), (1, "everything<br>recovered")):
        line = {"color": LINE, "dash": "dash"} if y else {"color": INK, "dash": "solid"}
        figure.add_hline(y=y, line={**line, "width": 1.2})
        notes.append({"text": text, "x": 1.01, "xref": "paper", "xanchor": "left", "y": y, "align": "left"})
    for note in notes:
        figure.add_annotation(showarrow=False, font={"size": 11, "color": INK}, **note)
    draws = {row["set"]: int(row["draws"]) for row in rows}
    drawn = {name: f"<br>({n} draws)" if n > 1 else "" for name, n in draws.items()}
    labels = [SETS.get(name, escape(name)) + drawn[name] for name in middles]
    figure.update_xaxes(tickvals=[*middles.values()], ticktext=labels, range=[-0.6, len(middles) - 0.4])
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
    hover = []
    for row in rows:
        cut = (
            f"<br>cut off by the axis, which ends at {_short(axis[0])} and {_short(axis[1])}"
            if _notes(row, axis) and math.isfinite(row["recovery"])
            else ""
        )
        hover.append(
            f"recovery {number(row['recovery'], 3)}{interval_text(row['low'], row['high'])}{cut}<br>"
            f"median over examples {number(row['median'], 3)}<br>"
            f"{row['undefined']:.0%} of denominators under 0.5 nats<br>"
            f"mean ablation cost {number(row['cost'])} nats<br>"
            f"{row['draws']} draw{'s' * (row['draws'] > 1)}, {row['examples']} examples"
        )
    return go.Bar(
        x=[row["x"] for row in rows],
        y=value,
        width=0.36,
        name=kind,
        error_y=whiskers(value, low, high, INK),
        marker={**hatched(color, hatch), "opacity": [0.35 if row["undefined"] >= 0.5 else 0.9 for row in rows]},
        customdata=[[escape(row["set"]), text] for row, text in zip(rows, hover, strict=True)],
        hovertemplate=f"<b>%{{customdata[0]}}</b>: {kind}<br>%{{customdata[1]}}<extra></extra>",
    )


def _notes(row: dict[str, Any], axis: tuple[float, float]) -> list[dict[str, Any]]:
    """An arrow with the value where the axis cuts a bar or its whisker; a note where the ratio is undefined."""
    value, found = row["recovery"], []
    if not math.isfinite(value):
        return [{"text": "not<br>defined", "x": row["x"], "y": 0, "yanchor": "bottom"}]
    for side, end, limit in (("▼", row["low"], axis[0]), ("▲", row["high"], axis[1])):
        sign = -1 if side == "▼" else 1
        lines = [f"<b>{side} {_short(value)}</b>"] if sign * (value - limit) > 0 else []
        if sign * (end - limit) > 0:
            lines.append(f"to {_short(end)}" if lines else f"{side} to {_short(end)}")
        if lines:
            at = {"x": row["x"], "y": limit, "yanchor": "top" if sign > 0 else "bottom"}
            found.append({"text": "<br>".join(lines), "bgcolor": "white", "borderpad": 1, **at})
    return found


def _short(value: float) -> str:
    text = f"{value:.2g}" if abs(value) < 1000 else f"{value:.0e}".replace("e+0", "e")
    return text.replace("-", "−")
