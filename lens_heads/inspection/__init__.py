"""See why: what heads read and write, one prompt, one head or one text at a time.

Explains single cases; it is no evidence for a task.
"""

from lens_heads.inspection.anatomy import Concentration, KvGroups, concentration, kv_groups, literalness, provenance
from lens_heads.inspection.cards import HeadCards, describe
from lens_heads.inspection.influence import Influence, influence
from lens_heads.inspection.look import look
from lens_heads.inspection.look_results import Look
from lens_heads.inspection.token_curves import TokenCurve, token_curves
from lens_heads.inspection.why import Why, why

__all__ = [
    "Concentration", "HeadCards", "Influence", "KvGroups", "Look", "TokenCurve", "Why", "concentration", "describe",
    "influence", "kv_groups", "literalness", "look", "provenance", "token_curves", "why",
]  # fmt: skip
__dir__ = __all__.copy
