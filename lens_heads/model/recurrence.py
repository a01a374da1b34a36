"""What a head of linear attention reads of each earlier position, as signed weights with which the sum over positions is exact.

A head keeps a matrix S [d_key, d_head] and reads it with a query. With k, v and q of a position, a decay a and a strength b:

    S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T        gated delta rule: what stood at the key is replaced
    S_t = a_t S_{t-1} + b_t k_t v_t^T                            Mamba-2: k, v, q, b are its B, x, C, dt
    o_t = S_t^T q_t + D v_t                                      D: Mamba-2's skip, else 0

o is linear in the values, so o_t = sum_j w[t, j] v_j. Followed backwards from its row, a query becomes s, off which every
position reads its own weight before it changes s:

    s = q_t;   for j = t, t - 1, ..., 0:   w[t, j] = b_j k_j^T s,   s <- a_j (s - w[t, j] k_j)      (Mamba-2: s <- a_j s)

and w[t, t] += D. Unlike softmax attention's, these weights may be negative, and sum to anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from einops import einsum, rearrange, repeat
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

DELTA, MAMBA_2 = "gated delta rule", "Mamba-2"


@dataclass(frozen=True)
class Recurrence:
    """What enters the recurrence of the heads of a layer, position by position; float32, but for the values."""

    q: Float[Tensor, "batch head key d_key"]
    k: Float[Tensor, "batch head key d_key"]
    v: Float[Tensor, "batch head key d_head"]
    strength: Float[Tensor, "batch head key"]
    log_decay: Float[Tensor, "batch head key"]
    replaces: bool
    skip: Float[Tensor, " head"] | None = None

    def weights(self, rows: int) -> Float[Tensor, "batch head row key"]:
        """Of the last `rows` positions. Cost: a step a position for all rows at once, and no state of the size of S."""
        length = self.k.shape[2]
        first = length - rows
        s, found = torch.zeros_like(self.q[:, :, first:]), self.q.new_zeros(*self.q.shape[:2], rows, length)
        decay = self.log_decay.exp()
        for j in range(length - 1, -1, -1):
            row = max(j - first, 0)
            if j >= first:
                s[:, :, row] = self.q[:, :, j]
            later, k = s[:, :, row:], self.k[:, :, j]
            w = self.strength[:, :, j, None] * einsum(later, k, "batch head row e, batch head e -> batch head row")
            found[:, :, row:, j] = w
            if self.replaces:
                later = later - w[..., None] * k[:, :, None]
            s[:, :, row:] = decay[:, :, j, None, None] * later
        if self.skip is not None:
            at = torch.arange(rows, device=found.device)
            found[:, :, at, first + at] += self.skip[:, None]
        return found


def kind_of(mixer: Any) -> str:
    """What the heads of a module of transformers are: "gated delta rule", "Mamba-2", or "" for neither."""
    if any(hasattr(mixer, name) for name in _DELTA):
        return DELTA
    return MAMBA_2 if hasattr(mixer, "n_groups") and getattr(getattr(mixer, "A_log", None), "ndim", 0) == 1 else ""


def heads_of(mixer: Any) -> tuple[int, int]:
    """(number of heads, d_head)."""
    return (mixer.num_v_heads, mixer.head_v_dim) if kind_of(mixer) == DELTA else (mixer.num_heads, mixer.head_dim)


def projections(mixer: Any) -> tuple[str, ...]:
    """The parts of a module whose outputs enter the recurrence."""
    return next((names for name, names in _DELTA.items() if hasattr(mixer, name)), ("in_proj",))


_DELTA = {
    "in_proj_qkvz": ("in_proj_qkvz", "in_proj_ba"),  # Qwen3-Next
    "in_proj_qkv": ("in_proj_qkv", "in_proj_b", "in_proj_a"),  # Qwen 3.5
    "b_proj": ("q_proj", "k_proj", "v_proj", "b_proj", "a_proj"),  # OLMo hybrid
}


def recurrence(
    mixer: Any, projected: list[Float[Tensor, "batch key width"]], there: Float[Tensor, "batch key"]
) -> Recurrence:
    """From the outputs of `projections` for all positions of a text; `there`: 0 for padding, 1 for tokens."""
    return (_delta if kind_of(mixer) == DELTA else _mamba)(mixer, projected, there)


def _delta(mixer: Any, projected: list[Tensor], there: Tensor) -> Recurrence:
    if hasattr(mixer, "in_proj_qkvz"):
        q, k, v, _, b, a = mixer.fix_query_key_value_ordering(*projected)
        mixed = torch.cat([x.flatten(2) for x in (q, k, v)], -1)
    else:
        *parts, b, a = projected
        mixed = torch.cat(parts, -1)
    q, k, v = _convolved(mixer, mixed, there).split([mixer.key_dim, mixer.key_dim, mixer.value_dim], -1)
    q, k = (_by_head(x, mixer.num_k_heads, mixer.num_v_heads).float() for x in (q, k))
    q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    strength = b.sigmoid() * (2 if getattr(mixer, "allow_neg_eigval", False) else 1)
    log_decay = -mixer.A_log.float().exp() * functional.softplus(a.float() + mixer.dt_bias)
    return Recurrence(
        q=q * mixer.head_k_dim**-0.5,
        k=k,
        v=_by_head(v, mixer.num_v_heads, mixer.num_v_heads),
        strength=strength.float().mT,
        log_decay=log_decay.mT,
        replaces=True,
    )


def _mamba(mixer: Any, projected: list[Tensor], there: Tensor) -> Recurrence:
    (whole,) = projected
    n, groups, width = mixer.num_heads, mixer.n_groups, mixer.n_groups * mixer.ssm_state_size
    inner = n * mixer.head_dim
    _, mixed, dt = whole.split([whole.shape[-1] - inner - 2 * width - n, inner + 2 * width, n], -1)
    x, B, C = _convolved(mixer, mixed, there).split([inner, width, width], -1)
    step = functional.softplus(dt.float() + mixer.dt_bias.float()).clamp(*mixer.time_step_limit)
    return Recurrence(
        q=_by_head(C, groups, n).float(),
        k=_by_head(B, groups, n).float(),
        v=_by_head(x, n, n),
        strength=step.mT,
        log_decay=(-mixer.A_log.float().exp() * step).mT,
        replaces=False,
        skip=mixer.D.float(),
    )


def _convolved(mixer: Any, mixed: Float[Tensor, "batch key width"], there: Tensor) -> Float[Tensor, "batch key width"]:
    """The short causal convolution of each number, and the activation after it; nothing of padding."""
    from transformers.activations import ACT2FN

    act: Callable[[Tensor], Tensor] = ACT2FN[mixer.activation]
    conv = mixer.conv1d
    padded = functional.pad(mixed.mT, (conv.kernel_size[0] - 1, 0))
    return act(functional.conv1d(padded, conv.weight, conv.bias, groups=conv.groups)).mT * there[..., None].to(mixed)


def _by_head(x: Float[Tensor, "batch key width"], n: int, heads: int) -> Float[Tensor, "batch head key e"]:
    """By head, where each of n is that of as many heads as come on it."""
    apart = rearrange(x, "batch key (n e) -> batch n key e", n=n)
    return repeat(apart, "batch n key e -> batch (n group) key e", group=heads // n)
