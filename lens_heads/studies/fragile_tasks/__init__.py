"""The study "Different Heads, Same Fragile Tasks": do two tasks use the same heads, do two models?"""

from lens_heads.studies.fragile_tasks.presets import PRESETS, Preset
from lens_heads.studies.fragile_tasks.study import Finding, fragile_tasks

__all__ = ["PRESETS", "Finding", "Preset", "fragile_tasks"]
