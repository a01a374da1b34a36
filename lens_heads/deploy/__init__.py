"""Put heads to work: checkpoints without the others, documents ranked by a few.

What it costs to leave heads out is told by `evidence`.
"""

from lens_heads.deploy.prune import Pruned as Pruned
from lens_heads.deploy.prune import lowest_groups as lowest_groups
from lens_heads.deploy.prune import prune as prune
from lens_heads.deploy.rerank import rerank as rerank
from lens_heads.deploy.speed import prefill_ratio as prefill_ratio

__all__ = ["Pruned", "lowest_groups", "prefill_ratio", "prune", "rerank"]
