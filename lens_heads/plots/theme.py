"""What all figures share: how a method looks (`LOOKS`), colours, axes, whiskers. Draws nothing by itself."""

from __future__ import annotations

import html
import math
import zlib
from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
import torch

from lens_heads.plots.protocols import ScoresLike

if TYPE_CHECKING:
    import pandas as pd


class Look(NamedTuple):
    """How a method appears: colour, marker symbol, written name, unit of its scores."""

    color: str
    symbol: str
    label: str
    unit: str = ""

    @property
    def axis(self) -> str:
        return f"{self.label} score" + (f" ({self.unit})" if self.unit else "")


# Okabe and Ito's palette can be distinguished with any colour vision; the symbols repeat the distinction.
LOOKS: dict[str, Look] = {
    "locos": Look("#0072B2", "circle", "LOCOS", "logits"),
    "attention_spatial": Look("#56B4E9", "square", "attention, spatial", "attention mass"),
    "dla": Look("#CC79A7", "diamond", "DLA", "logits"),
    "copy": Look("#D55E00", "triangle-up", "copy", "copies per needle token"),
    "contrastive": Look("#009E73", "cross", "contrastive", "share of most attended keys"),
    "headkv": Look("#E69F00", "x", "HeadKV", "attention mass"),
    "attention_mass": Look("#332288", "square-open", "attention mass", "share of attention"),
}
WRITTEN = {"cri": "CRI", "attribution": "attribution patching", "eap_ig": "EAP-IG", "path_patch": "path patching"} | {
    "random_like": "random, same layers",
    "bottom": "lowest scores",
    "css": "compressed sensing, stratified",
    "csb": "compressed sensing, Bernoulli",
    "csl": "compressed sensing, layer-balanced",
    "one_shot": "one-shot greedy",
    "qr": "QRScore",
}
SPARE_COLORS = ("#5D3A9B", "#882255", "#7A5C3E", "#117733", "#661100")
SPARE_SYMBOLS = ("pentagon", "star", "hexagon", "triangle-down", "bowtie")
CONTROLS = {"random": ("#555555", "dash"), "random_like": ("#8A8A8A", "dashdot"), "bottom": ("#8A8A8A", "dot")}
METRIC_LABELS = {"rougeL": "ROUGE-L", "rouge1_recall": "ROUGE-1 recall", "token_f1": "token F1"} | {
    "contains": "share of answers that contain the gold answer",
    "exact_match": "share of exact answers",
    "correct": "share of correct answers",
    "logprob": "log-probability of the gold answer (nats per token)",
    "greedy_match": "share of trials whose greedy decoding begins with the gold answer",
    "choice": "share of trials whose gold choice is the most likely",
    "choice_norm": "share of trials whose gold choice is the most likely per character",
    "choice_logprob": "log-probability of the gold choice among the choices (nats)",
}
SEQUENTIAL = [[0.0, "#F7F9FC"], [0.25, "#BDD3EA"], [0.5, "#6BA3D0"], [0.75, "#2A6DAF"], [1.0, "#08306B"]]
_NEGATIVE = [[0.0, "#7F2704"], [0.125, "#C4500B"], [0.25, "#F19A55"], [0.375, "#FAD7B4"]]
DIVERGING = [*_NEGATIVE, *[[0.5 + position / 2, color] for position, color in SEQUENTIAL]]
INK, LINE, GRID, GREY, MARK = "#222222", "#9A9A9A", "#E5E5E5", "#B4B4B4", "#E69F00"


def look(method: str) -> Look:
    """Colour, symbol, label and unit of a method; one that is not in `LOOKS` gets a spare look fixed by its name."""
    number = zlib.crc32(method.encode())
    label = WRITTEN.get(method) or escape(method.replace("_", " "))
    return LOOKS.get(method) or Look(SPARE_COLORS[number % 5], SPARE_SYMBOLS[number // 5 % 5], label)


def look_of(scores: ScoresLike) -> Look:
    """The look of these scores; a unit of their own (`score_unit`) takes precedence."""
    shown = look(scores.method)
    return shown._replace(unit=scores.score_unit or shown.unit)


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """A look for each series of one figure: a method's own, a control's grey; others share out what is left, in order."""
    found = dict.fromkeys(names, Look("", "", ""))
    spare = [Look(color, symbol, "") for color, symbol in zip(SPARE_COLORS, SPARE_SYMBOLS, strict=True)]
    left = cycle(each for each in [*LOOKS.values(), *spare] if each not in [LOOKS.get(name) for name in found])
    for name in found:
        label = look(name).label
        if name in CONTROLS:
            found[name] = Look(CONTROLS[name][0], "circle-open", label)
        else:
            found[name] = LOOKS.get(name) or next(left)._replace(label=label, unit="")
    return found


def escape(text: object) -> str:
    """Names come from anywhere, and plotly reads tags."""
    return html.escape(str(text), quote=False)


def check_columns(what: str, frame: pd.DataFrame, needed: Sequence[str], source: str) -> None:
    """ValueError unless the frame has rows and the columns that the figure draws; `source` says what to pass instead."""
    missing = [column for column in needed if column not in frame.columns]
    if missing:
        has = ", ".join(map(str, frame.columns)) or "none"
        raise ValueError(f"{what}: the frame has no column {', '.join(missing)} (columns: {has}). Pass {source}.")
    if frame.empty:
        raise ValueError(f"{what}: the frame has no rows, so there is nothing to draw. Pass {source}.")


def check_one_model(what: str, named: Iterable[tuple[str, ScoresLike]]) -> None:
    """ValueError unless there are scores, and all of them have the same layers and heads."""
    shapes = [(name, tuple(scores.values.shape)) for name, scores in named]
    if not shapes:
        raise ValueError(f"{what}: there are no scores to draw. Pass the scores of at least one method.")
    if len({shape for _, shape in shapes}) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes)
        raise ValueError(f"{what}: scores have different [layer, head] shapes: {listed}. Pass scores of one model.")


def heat(z: np.ndarray, largest: float, diverging: bool, unit: str) -> go.Heatmap:
    """A heat map from zero, or around it in two colours, up to `largest`."""
    bar = {"title": {"text": unit, "side": "right"}, "thickness": 12, "outlinewidth": 0}
    scale = {"colorscale": DIVERGING, "zmid": 0.0} if diverging else {"colorscale": SEQUENTIAL}
    return go.Heatmap(z=z, zmin=-largest if diverging else 0.0, zmax=largest, xgap=1, ygap=1, colorbar=bar, **scale)


def interval(scores: ScoresLike) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % interval per head; NaN with fewer than two trials."""
    missing = (torch.full_like(scores.values, math.nan),) * 2
    low, high = scores.interval() if len(scores.per_trial) > 1 else missing
    return low.numpy(), high.numpy()


def number(value: float, digits: int = 2) -> str:
    """With a true minus sign; a dash where there is no number."""
    return f"{value:.{digits}f}".replace("-", "−") if math.isfinite(value) else "–"


def interval_text(low: float, high: float) -> str:
    """The bounds in brackets, for hover text; empty where there are none."""
    return "" if math.isnan(low) or math.isnan(high) else f"  [{low:.3g}, {high:.3g}]"


def whiskers(value: np.ndarray, low: np.ndarray, high: np.ndarray, color: str) -> dict[str, Any]:
    """Error bars from low to high; none where a bound is missing."""
    up, down = ([*np.clip(np.nan_to_num(gap), 0, None)] for gap in (high - value, value - low))
    return {"symmetric": False, "array": up, "arrayminus": down, "color": color, "thickness": 1.3, "width": 3}


def whole_axis(n: int) -> dict[str, Any]:
    """An axis of n whole numbers from 0, with a tick at each or at every 2nd, 4th, ... of many."""
    return {"range": [-0.55, n - 0.45], "dtick": 2 ** max(0, math.ceil(math.log2(n / 18)))}


def figure_of(title: str, height: int, traces: list[Any], subtitle: str = "", width: float | None = None) -> go.Figure:
    """The traces on the axes, fonts and margins that every figure has."""
    heading = {"text": title, "subtitle": {"text": subtitle, "font": {"size": 12, "color": "#555555"}}}
    figure = go.Figure(traces)
    figure.update_layout(
        template="none",
        title={**heading, "x": 0, "xref": "paper", "xanchor": "left", "font": {"size": 16}},
        height=height,
        width=round(min(width, 900)) if width else None,
        margin={"l": 64, "r": 24, "t": 76 + 16 * subtitle.count("<br>") if subtitle else 56 if title else 24, "b": 72},
        font={"family": "Helvetica, Arial, sans-serif", "size": 13, "color": INK},
        hoverlabel={"bgcolor": "white", "font": {"color": INK}},
    )
    axis = {"gridcolor": GRID, "zeroline": False, "zerolinecolor": LINE, "linecolor": LINE, "showline": True}
    axis |= {"ticks": "outside", "tickcolor": LINE, "ticklen": 4, "automargin": True, "title": {"standoff": 10}}
    return figure.update_xaxes(**axis).update_yaxes(**axis)


def hatched(color: str, shape: str) -> dict[str, Any]:
    """A bar's fill: full without a shape, else strokes of it on white inside an outline."""
    pattern = {"shape": shape, "fgcolor": color, "bgcolor": "white", "size": 7, "solidity": 0.45}
    return {"color": color, "line": {"color": color, "width": 1.2}, "pattern": pattern if shape else {"shape": ""}}


def legend_below(figure: go.Figure, below: int = 68) -> go.Figure:
    """The legend in rows under the plot, `below` pixels down, where it covers neither points nor the axis."""
    layout: Any = figure.layout
    plot = layout.height - layout.margin.t - layout.margin.b
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": -below / plot, "yanchor": "top"}
    return figure.update_layout(legend={**legend, "font": {"size": 12}})
