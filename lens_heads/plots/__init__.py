"""Figures of head scores and studies; a method has the same colour and symbol in all of them (`STYLES`).

Figures take data frames, tensors, and any object with the members in `protocols.py`; nothing here imports the rest of the
package. They draw the numbers they are given, and compute only ranks and rank correlations.
"""

from lens_heads.plots.agreement import jaccard_curves, method_agreement, similarity_map
from lens_heads.plots.bars import drop_bars, recovery_bars
from lens_heads.plots.correspondence import match_diagram
from lens_heads.plots.costs import quality_cost
from lens_heads.plots.curves import ablation_curves, cache_curves, faithfulness_curves, task_curves
from lens_heads.plots.dots import scatter, score_scatter
from lens_heads.plots.heads import SOURCES, head_map, kind_map, provenance_bars, ranking_bars
from lens_heads.plots.theme import CONTROL_STYLES, DIVERGING, METRIC_LABELS, SEQUENTIAL, STYLES, Style, method_style
from lens_heads.plots.tokens import token_curve
from lens_heads.plots.transfer import generality_map, transfer_map, transfer_scatter

__all__ = [
    "CONTROL_STYLES", "DIVERGING", "METRIC_LABELS", "SEQUENTIAL", "SOURCES", "STYLES", "Style", "ablation_curves",
    "cache_curves", "drop_bars", "faithfulness_curves", "generality_map", "head_map", "jaccard_curves",
    "kind_map", "match_diagram", "method_agreement", "method_style", "provenance_bars", "quality_cost",
    "ranking_bars", "recovery_bars", "scatter", "score_scatter", "similarity_map", "task_curves", "token_curve",
    "transfer_map", "transfer_scatter",
]  # fmt: skip
__dir__ = __all__.copy
