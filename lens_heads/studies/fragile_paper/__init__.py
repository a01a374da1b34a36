"""The study "Different Heads, Same Fragile Tasks": do tasks share heads, and do models share heads or fragile tasks?"""

from lens_heads.studies.fragile_paper.claims import PRESETS, FragileFinding, Pair, Preset
from lens_heads.studies.fragile_paper.study import fragile_tasks

__all__ = ["PRESETS", "FragileFinding", "Pair", "Preset", "fragile_tasks"]
