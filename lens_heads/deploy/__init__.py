"""Going on without the other heads: pruned checkpoints, caches that only some heads fill, decoding with some heads more."""

from lens_heads.deploy.contrast import contrast as contrast
from lens_heads.deploy.prune import Pruned as Pruned
from lens_heads.deploy.prune import lowest_groups as lowest_groups
from lens_heads.deploy.prune import prune as prune
from lens_heads.deploy.reinforce import reinforce as reinforce
from lens_heads.deploy.reinforce import reinforced_heads as reinforced_heads
from lens_heads.deploy.speed import prefill_ratio as prefill_ratio
from lens_heads.deploy.streaming import StreamingTable as StreamingTable
from lens_heads.deploy.streaming import streaming as streaming
from lens_heads.deploy.streaming import streaming_cache as streaming_cache

__all__ = [
    "Pruned",
    "StreamingTable",
    "contrast",
    "lowest_groups",
    "prefill_ratio",
    "prune",
    "reinforce",
    "reinforced_heads",
    "streaming",
    "streaming_cache",
]
