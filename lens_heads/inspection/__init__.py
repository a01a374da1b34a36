"""See why: what heads read and write, one prompt, one head or one text at a time.

Explains single cases; it is no evidence for a task.
"""

from lens_heads.inspection.anatomy import concentration as concentration
from lens_heads.inspection.anatomy import kv_groups as kv_groups
from lens_heads.inspection.anatomy import literalness as literalness
from lens_heads.inspection.anatomy import provenance as provenance
from lens_heads.inspection.cards import HeadCards as HeadCards
from lens_heads.inspection.cards import describe as describe
from lens_heads.inspection.influence import Influence as Influence
from lens_heads.inspection.influence import influence as influence
from lens_heads.inspection.look import look as look
from lens_heads.inspection.look_results import Look as Look
from lens_heads.inspection.token_curves import TokenCurve as TokenCurve
from lens_heads.inspection.token_curves import token_curves as token_curves
from lens_heads.inspection.why import Why as Why
from lens_heads.inspection.why import why as why

__all__ = [
    "HeadCards",
    "Influence",
    "Look",
    "TokenCurve",
    "Why",
    "concentration",
    "describe",
    "influence",
    "kv_groups",
    "literalness",
    "look",
    "provenance",
    "token_curves",
    "why",
]
