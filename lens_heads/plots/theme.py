"""How things look and are written in every figure: methods (`LOOKS`), controls, colours, labels, numbers."""

from __future__ import annotations

import html
import math
import textwrap
import zlib
from collections.abc import Iterable
from itertools import cycle
from typing import Any, NamedTuple

from lens_heads.plots.protocols import ScoresLike


class Look(NamedTuple):
    """How a method appears: colour, marker symbol, written name, unit of its scores.

    `color`, `label`: as in figures.

    Example:
        >>> lh.plots.look("locos").label
        'LOCOS'
    """

    color: str
    symbol: str
    label: str
    unit: str = ""

    @property
    def axis(self) -> str:
        return f"{self.label} score" + (f" ({escape(self.unit)})" if self.unit else "")


# Okabe and Ito's palette can be distinguished with any colour vision; the symbols repeat the distinction.
LOOKS: dict[str, Look] = {
    "locos": Look("#0072B2", "circle", "LOCOS", "logits"),
    "locos_exact": Look("#003F66", "circle-open", "LOCOS, exact", "logits"),
    "attention_spatial": Look("#56B4E9", "square", "attention, spatial", "attention mass"),
    "attention_spatial_no_sink": Look(
        "#A3B8C2", "square-x", "attention, spatial, no sink", "share of attention outside the sink"
    ),
    "dla": Look("#CC79A7", "diamond", "DLA", "logits"),
    "dla_exact": Look("#8C3F67", "diamond-open", "DLA, exact", "logits"),
    "copy": Look("#D55E00", "triangle-up", "copy", "copies per needle token"),
    "contrastive": Look("#009E73", "cross", "contrastive", "share of most attended keys"),
    "headkv": Look("#E69F00", "x", "HeadKV", "attention mass"),
    "attention_mass": Look("#332288", "square-open", "attention mass", "share of attention"),
    "attention_mass_no_sink": Look(
        "#8F86C9", "square-dot", "attention mass, no sink", "share of attention outside the sink"
    ),
}
WRITTEN = {
    "cri": "CRI",
    "attribution": "attribution patching",
    "eap_ig": "EAP-IG",
    "path_patch": "path patching",
    "duo": "DuoAttention",
    "hardkuma": "HardKuma",
    "lofit": "LoFiT",
    "lofit_change": "LoFiT, change",
    "random_like": "random, same layers",
    "bottom": "lowest scores",
    "css": "compressed sensing, stratified",
    "csb": "compressed sensing, Bernoulli",
    "csl": "compressed sensing, layer-balanced",
    "one_shot": "one-shot greedy",
    "qr": "QRScore",
}
UNITS = dict.fromkeys(("induction", "echo", "previous", "duplicate", "sink"), "attention mass") | {
    "span": "share of the text before",
    "span_tokens": "tokens",
    "entropy": "share of even attention",
    "receiver": "kurtosis",
    "far_mass": "share of the text before",
    "token_map": "share of pairs",
    "token_map_raw": "share of pairs",
    "context_divergence": "length in the residual stream",
    "context_divergence_relative": "ratio",
    "context_divergence_cosine": "1 − cosine",
    **dict.fromkeys(("duo", "hardkuma", "soft_injection"), "gate"),
    "locos_name": "logits",
    "locos_beside": "logits",
    "locos_rest": "logits",
}
"""Units of methods that have no look of their own."""
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
    """Colour, symbol, label and unit of a method; one that is not in `LOOKS` gets a spare look fixed by its name.

    `method`: its name.

    Example:
        >>> lh.plots.look("locos").label, lh.plots.look("my own method").label
        ('LOCOS', 'my own method')
    """
    number = zlib.crc32(method.encode(errors="surrogatepass"))
    label = WRITTEN.get(method) or escape(method.replace("_", " "))
    spare = Look(SPARE_COLORS[number % 5], SPARE_SYMBOLS[number // 5 % 5], label, UNITS.get(method, ""))
    return LOOKS.get(method) or spare


def looks_apart(methods: Iterable[str]) -> dict[str, Look]:
    """`look` of every method of one figure; where two spare colours would meet, the later method takes the next spare look."""
    found: dict[str, Look] = {}
    for method in methods:
        shown, used = look(method), {one.color for name, one in found.items() if name not in LOOKS}
        left = [pair for pair in zip(SPARE_COLORS, SPARE_SYMBOLS, strict=True) if pair[0] not in used]
        if method not in LOOKS and shown.color in used and left:
            shown = shown._replace(color=left[0][0], symbol=left[0][1])
        found[method] = shown
    return found


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
