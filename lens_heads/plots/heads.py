"""The heads of one method: a map of all of them, the best with their intervals, and what they attend to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from lens_heads.plots.draw import (
    BARE,
    bounds,
    check_rows,
    check_scores,
    figure_of,
    heat,
    legend_below,
    outline,
    whiskers,
    whole_axis,
)
from lens_heads.plots.protocols import ScoresLike
from lens_heads.plots.theme import INK, MARK, escape, interval_text, interval_texts, style_of

SOURCES = {
    "needle": "#0072B2",
    "question": "#E69F00",
    "answer mention": "#56B4E9",
    "sink": "#4D4D4D",
    "neighbourhood": "#949494",
    "bulk": "#DADADA",
}
"""What a head can attend to, in stacking order: text spans in colour, the rest in greys."""
KIND_COLORS = {
    "induction": "#56B4E9",
    "previous": "#E69F00",
    "duplicate": "#009E73",
    "successor": "#D55E00",
    "copy_suppression": "#CC79A7",
    "copying": "#F0E442",
    "sink": "#949494",
    "entropy": "#C9C3E6",
}
KIND_LETTERS = {"copy_suppression": "X", "copying": "C", "successor": "S", "sink": "0", "entropy": "U"}
"""What `kind_map` writes in a head's cell, so that colour is not all that tells; else the kind's first letter."""


def head_map(scores: ScoresLike, *, title: str | None = None, mark: int = 5) -> go.Figure:
    """Scores by layer (0 at the bottom) and head; the best `mark` heads are outlined, and named or numbered by rank.

    Orange is negative, white zero, blue positive; without negative scores the scale starts at zero.

    `title`: of the figure.

    Example:
        >>> figure = lh.plots.head_map(scores)
        >>> figure.data[0].z.shape
        (2, 4)
    """
    check_scores("head_map", scores)
    z, shown = scores.values.numpy(), style_of(scores)
    (layers, heads), largest = z.shape, float(np.nanmax(np.abs(z))) or 1.0
    low, high = bounds(scores)
    hover = {
        (at.layer, at.head): [str(at), rank, interval_text(low[at.layer, at.head], high[at.layer, at.head])]
        for rank, at in enumerate(scores.ranking(), 1)
    }
    trace = heat(z, largest, bool((z < 0).any()), shown.unit or "score").update(
        customdata=[[hover.get((layer, head), NO_HEAD) for head in range(heads)] for layer in range(layers)],
        hoverongaps=False,
        hovertemplate="<b>%{customdata[0]}</b>  rank %{customdata[1]}<br>score %{z:.3g}%{customdata[2]}<extra></extra>",
    )
    cell = min(max(640 / heads, 11), 72)
    height = min(max(18 * layers, 220), 640) + 130
    best, named = scores.ranking()[:mark], cell >= 46
    trials = len(scores.trial_ids)
    heading = title or f"{shown.label} per head, mean over {trials} trial{'' if trials == 1 else 's'}"
    key = ", ".join(f"{place} {head}" for place, head in enumerate(best, 1))
    subtitle = f"Outlined, by rank: {key}" if best and not named else ""
    figure = figure_of(heading, height, [trace], subtitle, cell * heads + 180)
    for place, head in enumerate(best, 1):
        outline(figure, head.head, head.layer, str(head), color=MARK, width=2.5)
        font = {"color": "#FFFFFF" if abs(scores[head]) > 0.65 * largest else INK, "size": 11}
        text = f"<b>{head if named else place}</b>"
        figure.add_annotation(x=head.head, y=head.layer, text=text, showarrow=False, font=font)
    figure.update_xaxes(title="KV head" if scores.unit == "kv_head" else "head", **whole_axis(heads))
    return figure.update_yaxes(title="layer", **whole_axis(layers))


NO_HEAD = ["no head", "–", ""]
"""What stands where the model has none."""


def kind_map(frame: pd.DataFrame, kinds: Sequence[str], *, title: str) -> go.Figure:
    """Layer (0 at the bottom) by head, coloured by kind and lettered; `frame` as in `describe`. Hover has a head's scores.

    Kinds that `describe` does not know take its colours in their order.

    `kinds`: in the order of the legend. `title`: of the figure.

    Example:
        >>> frame = pd.DataFrame({"head": ["L0H0", "L0H1"], "layer": 0, "index": [0, 1], "kind": ["sink", "induction"]})
        >>> lh.plots.kind_map(frame, ["sink", "induction"], title="Kinds").layout.title.text
        'Kinds'
    """
    check_rows("kind_map", frame, "head", "layer", "index", "kind")
    known = list(KIND_COLORS.values())
    color = {kind: KIND_COLORS.get(kind, known[number % len(known)]) for number, kind in enumerate(kinds)}
    place = {kind: number for number, kind in enumerate(["", *kinds])}
    layers, heads = int(frame["layer"].max()) + 1, int(frame["index"].max()) + 1
    z, hover = np.full((layers, heads), np.nan), [[""] * heads for _ in range(layers)]
    letters = [[""] * heads for _ in range(layers)]
    for row in frame.to_dict("records"):
        layer, head, kind = int(row["layer"]), int(row["index"]), str(row["kind"])
        z[layer, head] = place[kind]
        letters[layer][head] = KIND_LETTERS.get(kind, kind[:1].upper())
        scored = "<br>".join(f"{name.replace('_', ' ')} {row[name]:.2f}" for name in kinds if name in row)
        hover[layer][head] = f"<b>{escape(row['head'])}</b>  {escape(kind or 'no kind').replace('_', ' ')}<br>{scored}"
    colors = ["#EEEEEE", *color.values()]
    steps = [(i / len(colors), (i + 1) / len(colors)) for i in range(len(colors))]
    scale = [[edge, color] for (low, high), color in zip(steps, colors, strict=True) for edge in (low, high)]
    trace = go.Heatmap(
        z=z,
        zmin=-0.5,
        zmax=len(colors) - 0.5,
        colorscale=scale,
        showscale=False,
        xgap=1,
        ygap=1,
        text=letters,
        texttemplate="%{text}",
        customdata=hover,
        hovertemplate="%{customdata}<extra></extra>",
    )
    used = [kind for kind in kinds if (frame["kind"] == kind).any()]
    named = ", ".join(f"{KIND_LETTERS.get(kind, kind[:1].upper())} {kind.replace('_', ' ')}" for kind in used)
    height = min(max(18 * layers, 220), 640) + 140
    figure = figure_of(title, height, [trace], named, min(max(640 / heads, 24), 72) * heads + 200)
    for kind in used:
        mark = {"color": color[kind], "symbol": "square", "size": 11}
        figure.add_trace(
            go.Scatter(x=[None], y=[None], mode="markers", marker=mark, name=escape(kind.replace("_", " ")))
        )
    figure.update_xaxes(title="head", **whole_axis(heads)).update_yaxes(title="layer", **whole_axis(layers))
    return legend_below(figure)


def ranking_bars(scores: ScoresLike, *, k: int = 10, title: str | None = None) -> go.Figure:
    """The k best heads, best on top, each with its 95 % interval over trials; without whiskers where there is none.

    `scores`: of one method. `title`: of the figure.

    Example:
        >>> list(lh.plots.ranking_bars(scores, k=2).data[0].y)
        ['L1H0', 'L0H0']
    """
    check_scores("ranking_bars", scores)
    best, shown, trials = scores.ranking()[:k], style_of(scores), len(scores.trial_ids)
    at = [head.layer for head in best], [head.head for head in best]
    values, low, high = (found[at] for found in (scores.values.numpy(), *bounds(scores)))
    trace = go.Bar(
        x=values,
        y=[str(head) for head in best],
        orientation="h",
        marker={"color": shown.color, "opacity": 0.85},
        error_x=whiskers(values, low, high, INK),
        customdata=interval_texts(low, high),
        hovertemplate="<b>%{y}</b>  %{x:.3g}%{customdata}<extra></extra>",
    )
    subtitle = f"Whiskers: 95 % intervals over {trials} trials" if np.isfinite(low).any() else ""
    figure = figure_of(title or f"Top {len(best)} heads by {shown.label}", 150 + 26 * len(best), [trace], subtitle, 720)
    figure.update_layout(bargap=0.35).update_xaxes(title=shown.axis, zeroline=True)
    return figure.update_yaxes(**BARE, autorange="reversed")


def provenance_bars(frame: pd.DataFrame, *, title: str | None = None) -> go.Figure:
    """What each head attends to most at the answer steps: a stacked bar per head, the first on top.

    `frame` is the table of `inspection.provenance`. Shares of at least 7 % are written in the bar.

    `title`: of the figure.

    Example:
        >>> figure = lh.plots.provenance_bars(lh.inspection.provenance(model, trials, heads, teacher_forced=True))
        >>> figure.data[0].name, [float(share) for share in figure.data[0].x]
        ('needle', [1.0, 1.0])
    """
    check_rows("provenance_bars", frame, "head", *SOURCES)
    traces = [
        go.Bar(
            x=frame[source].to_numpy(dtype=float),
            y=[escape(head) for head in frame["head"]],
            orientation="h",
            name=source,
            marker={"color": color, "line": {"color": "white", "width": 1}},
            text=[f"{share:.0%}" if share >= 0.07 else "" for share in frame[source]],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"size": 11, "color": "white" if source in ("needle", "sink") else INK},
            customdata=frame["trials"],
            hovertemplate=f"<b>%{{y}}</b>  {source}: %{{x:.1%}}<br>%{{customdata}} trials<extra></extra>",
        )
        for source, color in SOURCES.items()
    ]
    trials = sorted({int(n) for n in frame["trials"]})
    over = f"{trials[0]} trials" if len(trials) == 1 else f"{trials[0]} to {trials[-1]} trials"
    heading = title or "What the heads attend to while the answer is written"
    subtitle = f"Type of the most attended key at each answer step, mean over {over}"
    figure = figure_of(heading, 210 + 26 * len(frame), traces, subtitle, 820)
    figure.update_layout(barmode="stack", bargap=0.25, margin={"b": 110, "r": 40}, legend={"traceorder": "normal"})
    figure.update_xaxes(title="share of answer steps", range=[0, 1], tickformat=".0%")
    return legend_below(figure.update_yaxes(**BARE, autorange="reversed", type="category"))
