"""The README's figures: python benchmarks/figure.py [runs/locos]

`methods_costs.png`: what a ranking method costs and what it finds, from the stored table of methods. `locos_curves.png`, if the
folder of a finished study of LOCOS is given: one panel per model, drawn by `AblationCurve.plot`. Needs `pip install 'kaleido>=1'`
and a Chromium (set BROWSER_PATH where it is not found).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from plotly.subplots import make_subplots

from lens_heads import AblationCurve, Bench

RESULTS = Path(__file__).parent / "results"
SHOWN = ("locos", "locos_exact", "attention_spatial", "copy", "one_shot", "patching")
"""The rankings in the figure, beside random heads."""


def shown(curve: AblationCurve) -> AblationCurve:
    """The curve without other rankings and controls."""
    rows = curve.per_trial
    kept = rows["set"].isin(["none", "random"]) | ((rows["set"] == "top") & rows["method"].isin(SHOWN))
    return AblationCurve(rows[kept], curve.meta)


def methods() -> None:
    Bench.load(RESULTS / "methods").plot().write_image(RESULTS / "methods_costs.png", width=1000, height=620, scale=2)


def curves(run: Path) -> None:
    folders = sorted(file.parent for file in run.glob("*/ablation/curve.json"))
    if not folders:
        raise SystemExit(f"error: {run} contains no finished study: run lens-heads study locos --out {run}")
    names = [folder.parent.name.removesuffix(".gguf") for folder in folders]
    figure: Any = make_subplots(1, len(folders), subplot_titles=names, horizontal_spacing=0.08)
    for column, folder in enumerate(folders, 1):
        panel: Any = shown(AblationCurve.load(folder)).plot("logprob")
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
    figure.write_image(RESULTS / "locos_curves.png", width=200 + 400 * len(folders), height=430, scale=2)


if __name__ == "__main__":
    methods()
    if len(sys.argv) > 1:
        curves(Path(sys.argv[1]))
