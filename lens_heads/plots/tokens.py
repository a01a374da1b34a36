"""A number for every token of a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from lens_heads.plots.draw import figure_of
from lens_heads.plots.theme import SPARE_COLORS, escape

WRITTEN = 60
"""Up to so many tokens are written along the axis."""


def token_curve(name: str, words: Sequence[str], values: np.ndarray, *, title: str | None = None) -> go.Figure:
    """A line over the positions of a text; hover names the token.

    `name`: of what it shows. `words`, `values`: of the positions. `title`: of the figure.

    Example:
        >>> figure = lh.plots.token_curve("surprise", ["It", " rained"], np.array([2.0, 5.0]))
        >>> [float(value) for value in figure.data[0].y]
        [2.0, 5.0]
    """
    if len(words) != len(values):
        raise ValueError(f"token_curve: {len(words)} words and {len(values)} values: pass a value for each")
    trace = go.Scatter(
        x=list(range(len(words))),
        y=values,
        mode="lines+markers",
        marker={"size": 4},
        line={"color": SPARE_COLORS[0], "width": 1.5},
        customdata=[escape(repr(word)) for word in words],
        hovertemplate="%{customdata} at %{x}: %{y:.3g}<extra></extra>",
    )
    figure = figure_of(title or f"{escape(name)} over the text", 320, [trace], "", 960)
    figure.update_xaxes(title="position")
    if len(words) <= WRITTEN:
        figure.update_xaxes(tickvals=list(range(len(words))), ticktext=[escape(word.strip()) for word in words])
    return figure.update_yaxes(title=escape(name), rangemode="tozero")
