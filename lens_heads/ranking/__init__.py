"""Everything that gives a ranking: scores read off one pass, patching and gradients, masks, trained gates.

A method ranks and says nothing of what its heads do: that is `evidence`, which nothing here imports.
"""

from lens_heads.ranking.causal.ablated import attribute_ablation as attribute_ablation
from lens_heads.ranking.causal.ablated import gradient_importance as gradient_importance
from lens_heads.ranking.causal.ablated import importance as importance
from lens_heads.ranking.causal.attribution import attribution_patch as attribution_patch
from lens_heads.ranking.causal.circuits import trace_circuit as trace_circuit
from lens_heads.ranking.causal.function_vectors import aie as aie
from lens_heads.ranking.causal.knockout import knockout_heads as knockout_heads
from lens_heads.ranking.causal.knockout import sahara as sahara
from lens_heads.ranking.causal.patching import patch_heads as patch_heads
from lens_heads.ranking.causal.paths import path_patch as path_patch
from lens_heads.ranking.causal.queries import attribute_queries as attribute_queries
from lens_heads.ranking.gates.duo import duo as duo
from lens_heads.ranking.gates.fitted import Fitted as Fitted
from lens_heads.ranking.gates.hardkuma import hardkuma as hardkuma
from lens_heads.ranking.gates.head_gating import HeadRoles as HeadRoles
from lens_heads.ranking.gates.head_gating import head_gating as head_gating
from lens_heads.ranking.gates.lofit import lofit as lofit
from lens_heads.ranking.gates.passkeys import passkeys as passkeys
from lens_heads.ranking.gates.soft_injection import soft_injection as soft_injection
from lens_heads.ranking.masks.designs import draw_masks as draw_masks
from lens_heads.ranking.masks.greedy import greedy as greedy
from lens_heads.ranking.masks.greedy import one_shot as one_shot
from lens_heads.ranking.masks.localize import localize as localize
from lens_heads.ranking.masks.localize import localize_heads as localize_heads
from lens_heads.ranking.masks.measure import MaskedMetric as MaskedMetric
from lens_heads.ranking.masks.search import Search as Search
from lens_heads.ranking.masks.search import search as search
from lens_heads.ranking.masks.sparse_fit import Fit as Fit
from lens_heads.ranking.masks.sparse_fit import fit as fit
from lens_heads.ranking.masks.sparse_fit import solve_masks as solve_masks
from lens_heads.ranking.material import Material as Material
from lens_heads.ranking.method import Method as Method
from lens_heads.ranking.one_pass.common_texts import common_texts as common_texts
from lens_heads.ranking.one_pass.documents import score_documents as score_documents
from lens_heads.ranking.one_pass.linear_probes import probe_heads as probe_heads
from lens_heads.ranking.one_pass.razor import razor_heads as razor_heads
from lens_heads.ranking.one_pass.repeated import repeated_blocks as repeated_blocks
from lens_heads.ranking.one_pass.score_heads import score_heads as score_heads
from lens_heads.ranking.one_pass.scorer import Scorer as Scorer
from lens_heads.ranking.one_pass.scorers import SCORERS as SCORERS
from lens_heads.ranking.one_pass.token_maps import TokenMap as TokenMap
from lens_heads.ranking.one_pass.token_maps import by_map as by_map
from lens_heads.ranking.one_pass.token_maps import token_maps as token_maps
from lens_heads.ranking.rank import rank as rank
from lens_heads.ranking.registry import methods as methods

__all__ = [
    "SCORERS",
    "Fit",
    "Fitted",
    "HeadRoles",
    "MaskedMetric",
    "Material",
    "Method",
    "Scorer",
    "Search",
    "TokenMap",
    "aie",
    "attribute_ablation",
    "attribute_queries",
    "attribution_patch",
    "by_map",
    "common_texts",
    "draw_masks",
    "duo",
    "fit",
    "gradient_importance",
    "greedy",
    "hardkuma",
    "head_gating",
    "importance",
    "knockout_heads",
    "localize",
    "localize_heads",
    "lofit",
    "methods",
    "one_shot",
    "passkeys",
    "patch_heads",
    "path_patch",
    "probe_heads",
    "rank",
    "razor_heads",
    "repeated_blocks",
    "sahara",
    "score_documents",
    "score_heads",
    "search",
    "soft_injection",
    "solve_masks",
    "token_maps",
    "trace_circuit",
]
