"""Two models side by side, and which head of one corresponds to which head of the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from lens_heads.heads.head import Head, parse_heads
from lens_heads.heads.sets import every_head
from lens_heads.plots.theme import INK, SEQUENTIAL, escape, figure_of, legend_below, number

if TYPE_CHECKING:
    from lens_heads.compare.head_match import AnyHeads, HeadMatch

STABLE = {
    "90 % of resamples or more": (0.9, SEQUENTIAL[4][1], 1.8),
    "half or more": (0.5, SEQUENTIAL[2][1], 1.2),
    "fewer": (0.0, "#D9C9B8", 0.8),
}
"""How often a pair is found again: from which share on, colour and width of its line."""
_COLUMNS = (0.0, 2.0)
"""Where the columns of a and b begin; each is 1 wide, its heads beside each other."""


def match_diagram(match: HeadMatch, heads: AnyHeads | None = None, title: str | None = None) -> go.Figure:
    """A dot per head in its layer, a on the left and b on the right, and a line from each head of a to its partner.

    Both models are drawn to the same height, so that a level line joins heads of the same relative depth. Lines are dark
    where resampled texts and trials give the same partner. `heads` of a: only their lines.
    """
    every = [Head.parse(name) for name in match.pairs["head_a"]]
    shown = set(every if heads is None else parse_heads(heads))
    rows = [row for head, row in zip(every, match.pairs.to_dict("records"), strict=True) if head in shown]
    if not rows:
        raise ValueError(
            f"match_diagram: none of the {len(shown)} heads has a partner: name heads of {match.meta['model_a']}"
        )
    bounds = [least for least, _, _ in STABLE.values()]
    traces: list[Any] = []
    for (name, (least, color, width)), above in zip(STABLE.items(), [1.1, *bounds], strict=False):
        found = [row for row in rows if least <= row["stability"] < above]
        ends = [(_place(match, 0, row["head_a"]), _place(match, 1, row["head_b"])) for row in found]
        lines = [[value for a, b in ends for value in (a[axis], b[axis], None)] for axis in (0, 1)]
        line = {"color": color, "width": width}
        traces.append(go.Scatter(x=lines[0], y=lines[1], mode="lines", line=line, name=name, hoverinfo="skip"))
    traces = [*traces[::-1], *(_dots(match, side) for side in (0, 1))]
    layers = max(match.shape_a[0], match.shape_b[0])
    subtitle = f"{len(rows)} pairs; lines by how often resampled texts and trials give the same partner"
    heading = title or f"Heads of {escape(match.meta['model_a'])} and their partners in {escape(match.meta['model_b'])}"
    figure = figure_of(heading, min(900, 240 + 18 * layers), traces, subtitle, 860)
    names = [escape(match.meta["model_a"]), escape(match.meta["model_b"])]
    figure.update_xaxes(tickvals=[start + 0.5 for start in _COLUMNS], ticktext=names, showgrid=False, ticks="")
    figure.update_xaxes(range=[-0.1, _COLUMNS[1] + 1.1], showline=False)
    figure.update_yaxes(**_layer_axis(match.shape_a[0]), title="layer")
    right = {"overlaying": "y", "side": "right", "title": "layer", "ticks": "outside", "automargin": True}
    figure.update_layout(
        yaxis2={**_layer_axis(match.shape_b[0]), **right, "zeroline": False}, margin={"r": 64, "b": 110}
    )
    return legend_below(figure, 40)


def _place(match: HeadMatch, side: int, head: Head | str) -> tuple[float, float]:
    """Across: the column of the model, heads beside each other. Up: relative depth."""
    found, (layers, heads) = Head.parse(head), (match.shape_a, match.shape_b)[side]
    return _COLUMNS[side] + (found.head + 0.5) / heads, found.layer / max(layers - 1, 1)


def _dots(match: HeadMatch, side: int) -> go.Scatter:
    """Every head of one model; hovering tells its partner."""
    layers, heads = (match.shape_a, match.shape_b)[side]
    mine, theirs = ("head_a", "head_b") if side == 0 else ("head_b", "head_a")
    told = {
        row[mine]: f"{row[theirs]}: distance {number(row['distance'])}, stability {row['stability']:.2f}"
        for row in match.pairs.to_dict("records")
    }
    every = every_head(layers, heads)
    places = [_place(match, side, head) for head in every]
    return go.Scatter(
        x=[across for across, _ in places],
        y=[up for _, up in places],
        yaxis="y" if side == 0 else "y2",
        mode="markers",
        marker={"color": INK, "size": 5},
        text=[str(head) for head in every],
        customdata=[told.get(str(head), "no partner") for head in every],
        hovertemplate="<b>%{text}</b> %{customdata}<extra></extra>",
        showlegend=False,
        name=str(match.meta["model_b" if side else "model_a"]),
    )


def _layer_axis(layers: int) -> dict[str, Any]:
    """Relative depth, labelled with layers, at most some fifteen of them."""
    labelled = range(0, layers, -(-layers // 15))
    return {
        "range": [-0.04, 1.04],
        "tickvals": [layer / max(layers - 1, 1) for layer in labelled],
        "ticktext": [str(layer) for layer in labelled],
        "showgrid": False,
    }
