"""Put heads to work: checkpoints without the others, documents ranked by a few.

What it costs to leave heads out is told by `evidence`.
"""

from lens_heads.deploy.prune import Pruned, lowest_groups, prune
from lens_heads.deploy.rerank import rerank
from lens_heads.deploy.speed import prefill_ratio

__all__ = [
    "Pruned", "lowest_groups", "prefill_ratio", "prune", "rerank",
]  # fmt: skip
__dir__ = __all__.copy
