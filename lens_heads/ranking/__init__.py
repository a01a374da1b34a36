"""Everything that gives a ranking: scores read off one pass, patching and gradients, masks, trained gates.

A method ranks and says nothing of what its heads do: that is `evidence`, which nothing here imports.
"""

from lens_heads.ranking.causal.ablated import attribute_ablation, gradient_importance, importance
from lens_heads.ranking.causal.attribution import attribution_patch
from lens_heads.ranking.causal.circuits import trace_circuit
from lens_heads.ranking.causal.function_vectors import average_indirect_effect
from lens_heads.ranking.causal.knockout import knockout_heads, sahara
from lens_heads.ranking.causal.patching import patch_heads
from lens_heads.ranking.causal.paths import path_patch
from lens_heads.ranking.causal.queries import attribute_queries
from lens_heads.ranking.gates.duo import duo
from lens_heads.ranking.gates.fitted import Fitted
from lens_heads.ranking.gates.hardkuma import hardkuma
from lens_heads.ranking.gates.head_gating import HeadRoles, head_gating
from lens_heads.ranking.gates.lofit import Lofit, lofit
from lens_heads.ranking.gates.passkeys import passkeys
from lens_heads.ranking.gates.soft_injection import Injected, soft_injection
from lens_heads.ranking.masks.designs import draw_masks
from lens_heads.ranking.masks.greedy import greedy, one_shot
from lens_heads.ranking.masks.localize import localize, localize_heads
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.ranking.masks.search import Search, search
from lens_heads.ranking.masks.sparse_fit import Fit, fit, solve_masks
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method
from lens_heads.ranking.one_pass.common_texts import common_texts
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.documents import score_documents
from lens_heads.ranking.one_pass.linear_probes import probe_heads
from lens_heads.ranking.one_pass.razor import razor_attention_heads
from lens_heads.ranking.one_pass.repeated import repeated_blocks
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.ranking.one_pass.scorers import SCORERS
from lens_heads.ranking.one_pass.token_maps import TokenMap, by_map, token_maps
from lens_heads.ranking.rank import rank
from lens_heads.ranking.registry import methods

__all__ = [
    "SCORERS", "Fit", "Fitted", "HeadRoles", "Injected", "Lofit", "MaskedMetric", "Material", "Method", "Scorer",
    "Search", "TokenMap", "attribute_ablation", "attribute_queries", "attribution_patch", "average_indirect_effect",
    "by_map", "common_texts", "draw_masks", "duo", "fit", "gradient_importance", "greedy", "hardkuma",
    "head_gating", "importance", "knockout_heads", "localize", "localize_heads", "lofit", "methods", "one_shot",
    "passkeys", "patch_heads", "path_patch", "probe_heads", "rank", "razor_attention_heads", "repeated_blocks",
    "sahara", "score_documents", "score_heads", "search", "soft_injection", "solve_masks", "token_maps",
    "trace_circuit",
]  # fmt: skip
__dir__ = __all__.copy
