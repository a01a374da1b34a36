"""Far mass: would the mean query find the mean key far away?   (a forward-only stand-in for DuoAttention, as in kvpress)"""

import torch
from einops import repeat
from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.totals import TextTotals


def far_mass(view: TextTotals) -> Float[Tensor, " head"]:
    """a = softmax_j(RoPE_n(q) . RoPE_j(k) scale) over positions j up to n, the last row's; far_mass = mean_j cumsum(a)_j.

    q, k: the text's mean query and key of the head, after QK-norm and before rotation. About 1: all mass on the farthest
    key; 1 / n: on the nearest; (n + 1) / 2n for no preference. Positional only, so it needs RoPE.
    kvpress looks for the QK-norm in the wrong module and leaves it out; here it is applied. A sliding window hides what is
    out of its reach, so its layers score low by construction. For kv heads, average a group.
    """
    q, k = view.rotated
    group = q.shape[0] // k.shape[1]
    logits = torch.einsum("h e, j h e -> h j", q, repeat(k, "j kv e -> j (kv group) e", group=group)) * view.scale
    if view.softcap is not None:
        logits = view.softcap * torch.tanh(logits / view.softcap)
    n = logits.shape[-1]
    if view.window is not None:
        logits[:, : max(n - view.window, 0)] = -torch.inf
    return logits.softmax(-1).cumsum(-1).mean(-1)


SCORERS = (
    Scorer(
        "far_mass", far_mass, "totals", probe="text", needs=frozenset({"q_mean"}),
        paper="forward-only stand-in for DuoAttention (kvpress)", signed=False, only_named=True,
        unit="share of the text before", fails="knows positions alone, of the mean query and key; needs rotary positions",
    ),
)  # fmt: skip
