"""Task-KV: how far is what a head reads from what the other heads of its layer read?   (semantic distance)"""

import torch
from einops import einsum, repeat
from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView

KEYS = 256


def task_kv(view: LayerView) -> Float[Tensor, " head"]:
    """|v_h - mean over heads of v|, v_h = sum over the 256 most attended keys j of c[h, j] V[h, j]; c: mean over the rows of A.

    The rows are the last 32 of the prompt. Ranks heads inside a layer, since values of different layers have different sizes: the
    ranking (`top`, `bottom`) is the best of every layer, then the second of every layer, and so on. Depends on the basis of the
    values, which a model's weights do not fix, as `task_kv_write` does not.
    """
    read = _read(view)
    return (read - read.mean(0)).norm(dim=-1)


def task_kv_write(view: LayerView) -> Float[Tensor, " head"]:
    """The same distance of v_h W_O[h], what the head would write: ours, in units of the residual stream, also across layers."""
    writes = einsum(_read(view), view.W_O, "head e, head e d -> head d")
    return (writes - writes.mean(0)).norm(dim=-1)


def _read(view: LayerView) -> Float[Tensor, "head d_head"]:
    attended = view.pattern.mean(1)
    kept = attended.topk(min(KEYS, attended.shape[-1]), -1)
    weights = torch.zeros_like(attended).scatter(-1, kept.indices, kept.values)
    group = len(weights) // len(view.values)
    values = repeat(view.values, "kv key e -> (kv group) key e", group=group)
    return einsum(weights, values, "head key, head key e -> head e")


SCORERS = (
    Scorer(
        "task_kv", task_kv, "prompt", False, "Task-KV, semantic distance", False,
        reads=frozenset({"pattern", "values", "writes"}), reads_needle=False, prompt_rows=32, within_layers=True,
        only_named=True, fails="any other content counts; depends on the basis of the values, and compares no layers",
        unit="length of values",
    ),
    Scorer(
        "task_kv_write", task_kv_write, "prompt", False, "Task-KV, of writes", False,
        reads=frozenset({"pattern", "values", "writes"}), reads_needle=False, prompt_rows=32, only_named=True,
        fails="any other content counts, whatever it is for; writes grow with depth", unit="length in the residual stream",
    ),
)  # fmt: skip
