"""The README's figures, from stored results: python benchmarks/figure.py

`methods_costs.png`: what a ranking method costs and what it finds. `locos_curves.png`: one panel per model of the study of LOCOS.
Needs `pip install 'kaleido>=1'` and a Chromium (set BROWSER_PATH where it is not found).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from plotly.subplots import make_subplots

from lens_heads import plots
from lens_heads.answering.evaluation import range_of

RESULTS = Path(__file__).parent / "results"
SHOWN = ("locos", "locos_exact", "attention_spatial", "copy", "one_shot", "patching")
"""The rankings in the figure, beside random heads."""


@dataclass(frozen=True)
class Stored:
    """A study's curve over k, as its summary keeps it: what `plots.ablation_curves` draws."""

    frame: pd.DataFrame
    per_trial: pd.DataFrame
    main_task: str
    rankings: list[str]
    metrics: list[str]

    @classmethod
    def of(cls, one: dict[str, Any]) -> Stored:
        """The rankings that are shown, no ablation, and random heads."""
        # Files of an older run call draws seeds.
        rows = pd.DataFrame(one["ablation"]).rename(columns={"seed_min": "draw_min", "seed_max": "draw_max"})
        rows = rows[rows["set"].isin(["none", "random"]) | ((rows["set"] == "top") & rows["method"].isin(SHOWN))]
        ranges = rows["metric"].map(range_of)
        # Files of an older run hold intervals that reach beyond what a metric can be.
        ends = {name: rows[name].clip(ranges.str[0], ranges.str[1]) for name in ("low", "high")}
        # The summary says how many random sets there were; the plot counts them.
        seeds = one["settings"]["preset"]["seeds"]
        draws = pd.DataFrame([{"method": "any", "set": "random", "draw": seed} for seed in range(seeds)])
        return cls(rows.assign(**ends), draws, "retrieval", ["locos"], list(rows["metric"].unique()))


def methods() -> None:
    rows = pd.DataFrame(json.loads((RESULTS / "methods_overall.json").read_text()))
    what = f"share of the best known damage, {rows['cells'].max()} models and tasks"
    drawn = plots.quality_cost(rows, "share", what, title="What a ranking of heads costs, and what it finds")
    drawn.write_image(RESULTS / "methods_costs.png", width=1000, height=620, scale=2)


def curves() -> None:
    models = json.loads((RESULTS / "study_locos.json").read_text())["models"]
    names = [name.removesuffix(".gguf") for name in models]
    figure: Any = make_subplots(1, len(models), subplot_titles=names, horizontal_spacing=0.08)
    for column, one in enumerate(models.values(), 1):
        panel: Any = plots.ablation_curves(Stored.of(one), "logprob")
        for trace in panel.data:
            listed = bool(trace.showlegend is not False and column == 1)
            figure.add_trace(trace.update(showlegend=listed), row=1, col=column)
        axis = panel.layout.xaxis
        about = {"type": "log", "range": axis.range, "tickvals": axis.tickvals, "ticktext": axis.ticktext}
        figure.update_xaxes(title=axis.title.text, row=1, col=column, **about)
    figure.update_yaxes(title=panel.layout.yaxis.title.text, col=1)
    figure.update_layout(
        template=panel.layout.template,
        legend={"orientation": "h", "y": -0.2},
        margin={"t": 40, "l": 60, "r": 20, "b": 20},
    )
    figure.write_image(RESULTS / "locos_curves.png", width=200 + 400 * len(models), height=430, scale=2)


if __name__ == "__main__":
    methods()
    curves()
