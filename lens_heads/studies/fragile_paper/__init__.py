"""The study "Different Heads, Same Fragile Tasks": do two tasks use the same heads, do two models?"""

from lens_heads.studies.fragile_paper.presets import PRESETS, Preset
from lens_heads.studies.fragile_paper.study import Finding, fragile_tasks

__all__ = ["PRESETS", "Finding", "Preset", "fragile_tasks"]
