"""Two models side by side, and which head of one corresponds to which head of the other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go

from lens_heads.plots.draw import check_members, figure_of, legend_below
from lens_heads.plots.protocols import HeadLike, MatchLike
from lens_heads.plots.theme import INK, SEQUENTIAL, escape, number

STABLE = {
    "at least 90 % of resamples": (0.9, SEQUENTIAL[4][1], 1.8),
    "at least half": (0.5, SEQUENTIAL[2][1], 1.2),
    "less than half": (0.0, "#D9C9B8", 0.8),
}
"""How often a pair is found again: the smallest share, and the colour and width of its line."""
_COLUMNS = (0.0, 2.0)
"""Where the columns of a and b begin; each is 1 wide, its heads beside each other."""


def match_diagram(
    match: MatchLike, *, heads: Iterable[HeadLike | str] | None = None, title: str | None = None
) -> go.Figure:
    """A dot per head in its layer, a on the left and b on the right, and a line from each head of a to its partner.

    Both models have the same height, so a horizontal line joins heads of the same relative depth. The more often resampled
    texts and trials give the same partner, the darker the line. `heads`: draw only the lines of these heads of a ("L12H1").

    `match`: of `match_heads`. `title`: of the figure.

    Example:
        >>> match = lh.match_heads(untrained, untrained, texts=["It rained. Nobody went out all day."] * 3)
        >>> figure = lh.plots.match_diagram(match, heads=["L0H1"])
        >>> len(figure.data) > 1
        True
    """
    check_members("match_diagram", match, "the result of match_heads itself", "pairs", "shape_a", "shape_b")
    rows = match.pairs.to_dict("records")
    if heads is not None:
        named = {_layer_and_head(str(head)) for head in ([heads] if isinstance(heads, str) else heads)}
        rows = [row for row in rows if _layer_and_head(row["head_a"]) in named]
    if not rows:
        model = match.meta["model_a"]
        raise ValueError(f"match_diagram: no head to draw has a partner. Pass matched heads of {model}.")
    traces, above = [], math.inf
    for name, (least, color, width) in STABLE.items():
        found = [row for row in rows if least <= row["stability"] < above]
        above = least
        ends = [(_place(match, 0, row["head_a"]), _place(match, 1, row["head_b"])) for row in found]
        lines = [[value for a, b in ends for value in (a[axis], b[axis], None)] for axis in (0, 1)]
        line = {"color": color, "width": width}
        traces.append(go.Scatter(x=lines[0], y=lines[1], mode="lines", line=line, name=name, hoverinfo="skip"))
    traces = [*traces[::-1], *(_dots(match, side) for side in (0, 1))]
    layers = max(match.shape_a[0], match.shape_b[0])
    pairs = f"{len(rows)} pair{'' if len(rows) == 1 else 's'}"
    subtitle = f"{pairs}; line colour: how often resampled texts and trials give the same partner"
    names = [escape(match.meta["model_a"]), escape(match.meta["model_b"])]
    heading = title or f"Heads of {names[0]} and their partners in {names[1]}"
    figure = figure_of(heading, min(900, 240 + 18 * layers), traces, subtitle, 860)
    figure.update_xaxes(tickvals=[start + 0.5 for start in _COLUMNS], ticktext=names, showgrid=False, ticks="")
    figure.update_xaxes(range=[-0.1, _COLUMNS[1] + 1.1], showline=False)
    figure.update_yaxes(**_layer_axis(match.shape_a[0]), title="layer")
    right = {"overlaying": "y", "side": "right", "title": "layer", "ticks": "outside", "automargin": True}
    figure.update_layout(
        yaxis2={**_layer_axis(match.shape_b[0]), **right, "zeroline": False}, margin={"r": 64, "b": 110}
    )
    return legend_below(figure, 40)


def _layer_and_head(name: str) -> tuple[int, int]:
    """The layer and head that "L12H1" names."""
    found = re.fullmatch(r"L(\d+)H(\d+)", name)
    if found is None:
        raise ValueError(f"match_diagram: {name!r} is not the name of a head. Write layer and head as in 'L12H1'.")
    return int(found[1]), int(found[2])


def _place(match: MatchLike, side: int, name: str) -> tuple[float, float]:
    """Across: the column of the model, heads beside each other. Up: relative depth."""
    (layer, head), (layers, heads) = _layer_and_head(name), (match.shape_a, match.shape_b)[side]
    return _COLUMNS[side] + (head + 0.5) / heads, layer / max(layers - 1, 1)


def _dots(match: MatchLike, side: int) -> go.Scatter:
    """Every head of one model, its partner in the hover text."""
    layers, heads = (match.shape_a, match.shape_b)[side]
    mine, theirs = ("head_a", "head_b") if side == 0 else ("head_b", "head_a")
    partners = {
        row[mine]: f"{row[theirs]}: distance {number(row['distance'])}, stability {row['stability']:.2f}"
        for row in match.pairs.to_dict("records")
    }
    names = [f"L{layer}H{head}" for layer in range(layers) for head in range(heads)]
    places = [_place(match, side, name) for name in names]
    return go.Scatter(
        x=[across for across, _ in places],
        y=[up for _, up in places],
        yaxis="y" if side == 0 else "y2",
        mode="markers",
        marker={"color": INK, "size": 5},
        text=names,
        customdata=[partners.get(name, "no partner") for name in names],
        hovertemplate="<b>%{text}</b> %{customdata}<extra></extra>",
        showlegend=False,
        name=str(match.meta["model_b" if side else "model_a"]),
    )


def _layer_axis(layers: int) -> dict[str, Any]:
    """Relative depth, with the numbers of at most 15 layers."""
    labelled = range(0, layers, -(-layers // 15))
    return {
        "range": [-0.04, 1.04],
        "tickvals": [layer / max(layers - 1, 1) for layer in labelled],
        "ticktext": [str(layer) for layer in labelled],
        "showgrid": False,
    }
