"""Quality against cost: a dot per method, and the front of those that none beats for less."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go

from lens_heads.plots.draw import check_rows, figure_of, legend_below, whiskers
from lens_heads.plots.theme import GREY, INK, Style, interval_texts, method_style

FAMILIES: dict[str, Style] = {
    "observational": Style("#56B4E9", "circle", "attention and writes, one pass"),
    "exact": Style("#0072B2", "diamond", "writes through the norms"),
    "gradient": Style("#E69F00", "triangle-up", "gradients"),
    "patching": Style("#009E73", "square", "activation patching"),
    "ablation": Style("#CC79A7", "cross", "each head ablated"),
    "masks": Style("#D55E00", "x", "random masks"),
    "search": Style("#332288", "star", "search"),
    "trained": Style("#661100", "hexagram", "trained gates"),
    "combined": Style("#882255", "hexagon", "combined"),
    "own": Style("#117733", "bowtie", "your own"),
    "baseline": Style("#8A8A8A", "circle-open", "baselines"),
}
FREE = 0.3
"""Where a method without any pass is drawn on the logarithmic axis."""


def quality_cost(frame: Any, value: str, what: str, *, title: str) -> go.Figure:
    """`value`, with its bounds, against passes on a logarithmic axis: a dot per method, coloured by family.

    `frame`: method, family, passes, `value`, and `<value>_low` and `<value>_high` where it has an interval; the row "random
    heads" becomes a line. Methods on the Pareto front, which no cheaper method beats, are named and joined.

    `what`: how the value is called. `title`: of the figure.

    Example:
        >>> rows = [["locos", "observational", 1.0, 0.9], ["greedy", "search", 90.0, 0.8]]
        >>> frame = pd.DataFrame(rows, columns=["method", "family", "passes", "auroc"])
        >>> lh.plots.quality_cost(frame, "auroc", "AUROC", title="Planted heads").layout.yaxis.title.text
        'AUROC'
    """
    check_rows("quality_cost", frame, "method", "family", "passes", value)
    ends, bounded = (f"{value}_low", f"{value}_high"), f"{value}_low" in frame
    frame = frame if bounded else frame.assign(**dict.fromkeys(ends, math.nan))
    chance = frame[frame["method"] == "random heads"]
    rows = frame[frame["method"] != "random heads"].assign(x=lambda one: one["passes"].clip(lower=FREE))
    front = pareto(rows, value)
    step = rows.loc[front]
    joined = {"shape": "hv", "color": INK, "width": 1.2, "dash": "dot"}
    traces: list[Any] = [
        go.Scatter(x=step["x"], y=step[value], mode="lines", line=joined, name="Pareto front", hoverinfo="skip")
    ]
    for family, own in rows.groupby("family", sort=False):
        shown = FAMILIES.get(str(family)) or FAMILIES["own"]
        low, high = (own[end].to_numpy(float) for end in ends)
        trace = go.Scatter(
            x=own["x"],
            y=own[value],
            error_y=whiskers(own[value].to_numpy(float), low, high, shown.color),
            mode="markers+text",
            text=[method_label(name) if at in front else "" for at, name in own["method"].items()],
            textposition="top left",
            textfont={"size": 11},
            marker={"color": shown.color, "symbol": shown.symbol, "size": 9},
            name=shown.label,
            customdata=[*zip(map(method_label, own["method"]), own["passes"], interval_texts(low, high), strict=True)],
            hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]:.3g} passes: %{y:.2f}%{customdata[2]}<extra></extra>",
            cliponaxis=False,
        )
        traces.append(trace)
    whiskered = "Whiskers: 95 % intervals. " if bounded else ""
    figure = figure_of(title, 560, traces, f"{whiskered}Dashed: random heads.", 860)
    figure.update_layout(margin={"b": 150})
    for height in chance[value]:
        figure.add_hline(y=height, line={"color": GREY, "dash": "dash", "width": 1.5})
    figure.update_xaxes(title="plain passes over the selection trials", type="log", tickformat="~g")
    return legend_below(figure.update_yaxes(title=what))


def method_label(method: Any) -> str:
    """The method's written name."""
    return method_style(str(method)).label


def pareto(rows: Any, value: str) -> list[Any]:
    """The index of the rows that no row of at most their cost exceeds in value, the cheapest first."""
    found: list[Any] = []
    best = float("-inf")
    for at, row in rows.sort_values(["passes", value], ascending=[True, False]).iterrows():
        if row[value] > best:
            found.append(at)
            best = row[value]
    return found
