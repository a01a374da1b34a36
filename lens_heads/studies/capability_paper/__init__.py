"""The study "Compressed Sensing for Capability Localization": which few heads carry a capability?"""

from lens_heads.studies.capability_paper.claims import CapabilityFinding
from lens_heads.studies.capability_paper.presets import PRESETS, Capability, Preset
from lens_heads.studies.capability_paper.study import capability

__all__ = ["PRESETS", "Capability", "CapabilityFinding", "Preset", "capability"]
