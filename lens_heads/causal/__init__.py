"""Causal evidence: activation patching, attribution patching, path patching, and recovery."""

from lens_heads.causal.ablated import attribute_ablation, gradient_importance, importance
from lens_heads.causal.attribution import attribution_patch
from lens_heads.causal.circuits import Circuit, trace_circuit
from lens_heads.causal.faithfulness_curve import FaithfulnessCurve
from lens_heads.causal.knockout import knockout_heads, sahara
from lens_heads.causal.pairs import TokenPair, make_pairs
from lens_heads.causal.patching import patch, patch_heads
from lens_heads.causal.paths import path_patch
from lens_heads.causal.queries import attribute_queries
from lens_heads.causal.recover import recovery
from lens_heads.causal.recovery_table import NothingFlipped, Recovery
from lens_heads.causal.repairing import repair
from lens_heads.causal.sufficiency import faithfulness
from lens_heads.causal.text_pairs import pair

__all__ = [
    "Circuit",
    "FaithfulnessCurve",
    "NothingFlipped",
    "Recovery",
    "TokenPair",
    "attribute_ablation",
    "attribute_queries",
    "attribution_patch",
    "faithfulness",
    "gradient_importance",
    "importance",
    "knockout_heads",
    "make_pairs",
    "pair",
    "patch",
    "patch_heads",
    "path_patch",
    "recovery",
    "repair",
    "sahara",
    "trace_circuit",
]
