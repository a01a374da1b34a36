"""How things look and are written in every figure: methods (`STYLES`), controls, colours, numbers."""

from __future__ import annotations

import html
import math
import textwrap
import zlib
from collections.abc import Iterable
from itertools import cycle
from typing import Any, NamedTuple, TypeAlias

from lens_heads.plots.protocols import ScoresLike

Marker: TypeAlias = tuple[str, str]
"""Colour and symbol of a method in figures."""


class Style(NamedTuple):
    """How a method appears: colour, marker symbol, written name, unit of its scores.

    `color`, `label`: as in figures.

    Example:
        >>> lh.plots.method_style("locos").label
        'LOCOS'
    """

    color: str
    symbol: str
    label: str
    unit: str = ""

    @property
    def axis(self) -> str:
        return f"{self.label} score" + (f" ({escape(self.unit)})" if self.unit else "")


STYLES: dict[str, Style] = {}
"""How methods appear that have a marker of their own; each says so in its file, and `add_style` enters it."""
_WRITTEN: dict[str, tuple[str, str]] = {"random_like": ("random, same layers", ""), "bottom": ("lowest scores", "")}
"""Label and unit of methods and controls that are not written as they are named."""
SPARE_COLORS = ("#5D3A9B", "#882255", "#7A5C3E", "#117733", "#661100")
SPARE_SYMBOLS = ("pentagon", "star", "hexagon", "triangle-down", "bowtie")
CONTROL_STYLES = {"random": ("#555555", "dash"), "random_like": ("#8A8A8A", "dashdot"), "bottom": ("#8A8A8A", "dot")}
METRIC_LABELS = {"rougeL": "ROUGE-L", "rouge1_recall": "ROUGE-1 recall", "token_f1": "token F1"} | {
    "contains": "share of answers that contain the gold answer",
    "exact_match": "share of exact answers",
    "correct": "share of correct answers",
    "logprob": "log-probability of the gold answer (nats per token)",
    "greedy_match": "share of trials whose greedy decoding begins with the gold answer",
    "choice": "share of trials whose gold choice is the most likely",
    "choice_norm": "share of trials whose gold choice is the most likely per character",
    "choice_logprob": "log-probability of the gold choice among the choices (nats)",
    "choice_margin": "log-probability of the gold choice less that of the next (nats)",
}
SEQUENTIAL = [[0.0, "#F7F9FC"], [0.25, "#BDD3EA"], [0.5, "#6BA3D0"], [0.75, "#2A6DAF"], [1.0, "#08306B"]]
_NEGATIVE = [[0.0, "#7F2704"], [0.125, "#C4500B"], [0.25, "#F19A55"], [0.375, "#FAD7B4"]]
DIVERGING = [*_NEGATIVE, *[[0.5 + position / 2, color] for position, color in SEQUENTIAL]]
INK, LINE, GRID, GREY, MARK = "#222222", "#9A9A9A", "#E5E5E5", "#B4B4B4", "#E69F00"


def add_style(method: str, label: str = "", unit: str = "", marker: Marker | None = None) -> None:
    """How a method is called and drawn from now on; what is empty follows from its name. The first that says so is heard."""
    if method in STYLES or method in _WRITTEN:
        return
    if label or unit:
        _WRITTEN[method] = label, unit
    if marker is not None:
        STYLES[method] = method_style(method)._replace(color=marker[0], symbol=marker[1])


def method_style(method: str) -> Style:
    """Colour, symbol, label and unit of a method; one without a marker of its own gets a spare one fixed by its name.

    `method`: its name.

    Example:
        >>> lh.plots.method_style("locos").label, lh.plots.method_style("my own method").label
        ('LOCOS', 'my own method')
    """
    if method in STYLES:
        return STYLES[method]
    number = zlib.crc32(method.encode(errors="surrogatepass"))
    label, unit = _WRITTEN.get(method, ("", ""))
    label = escape(label or method.replace("_", " "))
    return Style(SPARE_COLORS[number % 5], SPARE_SYMBOLS[number // 5 % 5], label, unit)


def styles_apart(methods: Iterable[str]) -> dict[str, Style]:
    """`method_style` of each method of one figure; where two spare colours would meet, the later takes the next spare style."""
    found: dict[str, Style] = {}
    for method in methods:
        shown, used = method_style(method), {one.color for name, one in found.items() if name not in STYLES}
        left = [pair for pair in zip(SPARE_COLORS, SPARE_SYMBOLS, strict=True) if pair[0] not in used]
        if method not in STYLES and shown.color in used and left:
            shown = shown._replace(color=left[0][0], symbol=left[0][1])
        found[method] = shown
    return found


def style_of(scores: ScoresLike) -> Style:
    """The style of these scores; a unit of their own (`score_unit`) takes precedence."""
    shown = method_style(scores.method)
    return shown._replace(unit=scores.score_unit or shown.unit)


def series_styles(names: Iterable[str]) -> dict[str, Style]:
    """A style for each series of one figure: a method's own, a control's grey; others share out what is left, in order."""
    found = dict.fromkeys(names, Style("", "", ""))
    spare = [Style(color, symbol, "") for color, symbol in zip(SPARE_COLORS, SPARE_SYMBOLS, strict=True)]
    left = cycle(each for each in [*STYLES.values(), *spare] if each not in [STYLES.get(name) for name in found])
    for name in found:
        label = method_style(name).label
        if name in CONTROL_STYLES:
            found[name] = Style(CONTROL_STYLES[name][0], "circle-open", label)
        else:
            found[name] = STYLES.get(name) or next(left)._replace(label=label, unit="")
    return found


def escape(text: object) -> str:
    """Names come from anywhere, and plotly reads tags."""
    return html.escape(str(text), quote=False)


def wrapped(text: object, width: int = 16) -> str:
    """Escaped, and broken into short lines."""
    return "<br>".join(map(escape, textwrap.wrap(str(text), width)))


def number(value: float, digits: int = 2) -> str:
    """With a true minus sign; a dash where there is no number."""
    return f"{value:.{digits}f}".replace("-", "−") if math.isfinite(value) else "–"


def interval_text(low: float, high: float) -> str:
    """The bounds in brackets, for hover text; empty where there are none."""
    return "" if math.isnan(low) or math.isnan(high) else f"  [{low:.3g}, {high:.3g}]"


def interval_texts(low: Iterable[Any], high: Iterable[Any]) -> list[str]:
    return [interval_text(*pair) for pair in zip(low, high, strict=True)]
