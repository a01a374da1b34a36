"""WeightsView: what scorers of weights see of one layer, for one map of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class WeightsView:
    """One layer's raw weights by query head (those of a group share W_V), and one map; float32.

    `sources` [pair, d_model]: what the first MLP makes of the embedding of each pair's first token. `readouts`
    [d_model, token]: the unembedding of every token of the map. `targets[i]`: the index of pair i's second token there.
    `lowest`: the map is one of suppression.
    """

    layer: int
    W_V: Float[Tensor, "head d_model d_head"]
    W_O: Float[Tensor, "head d_head d_model"]
    sources: Float[Tensor, "pair d_model"]
    readouts: Float[Tensor, "d_model token"]
    targets: Int[Tensor, " pair"]
    lowest: bool = False

    @cached_property
    def logits(self) -> Float[Tensor, "head pair token"]:
        """What each head's OV circuit makes of each source token, read by the unembedding of each token of the map."""
        values = einsum(self.sources, self.W_V, "pair d, head d e -> head pair e")
        return einsum(values, self.W_O, "head pair e, head e d -> head pair d") @ self.readouts
