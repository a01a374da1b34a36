"""Causal evidence: activation patching, attribution patching, path patching, and recovery."""

from lens_heads.causal.attribution import attribution_patch
from lens_heads.causal.pairs import TokenPair, make_pairs
from lens_heads.causal.patching import patch, patch_heads
from lens_heads.causal.paths import path_patch
from lens_heads.causal.recover import recovery
from lens_heads.causal.recovery_table import NothingFlipped, Recovery

__all__ = [
    "NothingFlipped",
    "Recovery",
    "TokenPair",
    "attribution_patch",
    "make_pairs",
    "patch",
    "patch_heads",
    "path_patch",
    "recovery",
]
