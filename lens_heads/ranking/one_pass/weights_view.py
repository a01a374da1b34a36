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

    `sources` [pair, d_model]: what the heads read of each pair's first token, up to a factor, namely its embedding and what the
    first MLP adds, times the gain of the norm before the heads. `raw_sources`: what that MLP makes of the embedding, without
    norms. `readouts` [d_model, token]: the unembedding of every token of the map. `targets[i]`: the index of pair i's second
    token there. `lowest`: the map is one of suppression.
    """

    layer: int
    W_V: Float[Tensor, "head d_model d_head"]
    W_O: Float[Tensor, "head d_head d_model"]
    sources: Float[Tensor, "pair d_model"]
    raw_sources: Float[Tensor, "pair d_model"] | None
    readouts: Float[Tensor, "d_model token"]
    targets: Int[Tensor, " pair"]
    lowest: bool = False

    @cached_property
    def logits(self) -> Float[Tensor, "head pair token"]:
        """What each head's OV circuit makes of each source token, read by the unembedding of each token of the map."""
        return self._through_heads(self.sources)

    @cached_property
    def raw_logits(self) -> Float[Tensor, "head pair token"]:
        """The same of the raw sources."""
        if self.raw_sources is None:
            raise ValueError("the first MLP of this model does not run alone on an embedding: use token_map instead")
        return self._through_heads(self.raw_sources)

    def _through_heads(self, sources: Float[Tensor, "pair d_model"]) -> Float[Tensor, "head pair token"]:
        values = einsum(sources, self.W_V, "pair d, head d e -> head pair e")
        return einsum(values, self.W_O, "head pair e, head e d -> head pair d") @ self.readouts
