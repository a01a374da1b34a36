"""What a vector of the residual stream says about the next token, through the model's own final norm and unembedding."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.model.geometry import Model, head_geometry, is_bridge
from lens_heads.model.modes import evaluating
from lens_heads.model.norms import post_attention_norm

AT_ONCE = 64
"""Vectors whose logits are in memory at the same time."""


def extreme_tokens(
    model: Model, writes: Float[Tensor, "row d_model"], layer: int, k: int
) -> tuple[Int[Tensor, "row side k"], Float[Tensor, "row side k"]]:
    """The k tokens that each write of a layer's heads raises most, and the k that it lowers most, with their logits.

    Side 0 is raised, the highest first; side 1 lowered, the lowest first. Each write is read as if it stood alone, through the
    post-attention norm if there is one, and the final norm, less what no write at all would give (a norm's bias). Norms make it
    a direction: its size does not compare between writes.
    """
    norm = post_attention_norm(model, layer)
    ids, values = [], []
    with torch.no_grad():
        nothing = readout(model, torch.zeros_like(writes[:1]).to(model.W_U)).float()
        for some in writes.to(model.W_U).split(AT_ONCE):
            logits = readout(model, some if norm is None else _through(norm, some)).float() - nothing
            raised, lowered = logits.topk(k), logits.topk(k, largest=False)
            ids.append(torch.stack([raised.indices, lowered.indices], 1).cpu())
            values.append(torch.stack([raised.values, lowered.values], 1).cpu())
    return torch.cat(ids), torch.cat(values)


def readout(model: Model, x: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_vocab"]:
    """Logits of vectors: TransformerLens's `logit_readout` where it exists (version 4, bridges)."""
    try:
        from transformer_lens.tools.analysis.logit_lens import logit_readout
    except ImportError:  # Before version 4.
        logit_readout = None
    if logit_readout is None or not is_bridge(model):
        return _through(model.ln_final, x) @ model.W_U
    with evaluating(model):  # Its own way through the norm expects that where the unembedding is.
        try:
            return logit_readout(model, _through(model.ln_final, x), apply_ln=False).values
        except ValueError as error:  # A head between the last norm and the unembedding (ModernBERT).
            raise ValueError(
                f"{head_geometry(model).name}: what a vector raises is read through the last norm and the unembedding alone, "
                f"which is not all that this model has there ({error}): use methods that read attention"
            ) from None


def _through(norm: Any, x: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    """Vectors after a norm, which in a model spread over devices may be elsewhere."""
    weights = next(norm.parameters(), x)
    return norm(x[None].to(weights.device))[0]
