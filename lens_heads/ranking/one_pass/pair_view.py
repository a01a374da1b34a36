"""PairView: what scorers of a pair of runs see, with and without its context."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from einops import einsum
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class PairView:
    """One layer at the rows that produce the answer, in both runs; float32. Row r of one run corresponds to row r of the other.

    `z` is of the run with context, `other` of that without.
    """

    layer: int
    z: Float[Tensor, "row head d_head"]
    other: Float[Tensor, "row head d_head"]
    W_O: Float[Tensor, "head d_head d_model"]

    @cached_property
    def writes(self) -> Float[Tensor, "row head d_model"]:
        """z @ W_O of the run with context."""
        return einsum(self.z, self.W_O, "row head e, head e d -> row head d")

    @cached_property
    def other_writes(self) -> Float[Tensor, "row head d_model"]:
        """The same of the run without."""
        return einsum(self.other, self.W_O, "row head e, head e d -> row head d")

    @property
    def difference(self) -> Float[Tensor, "row head"]:
        """The length of the difference of the writes."""
        return (self.writes - self.other_writes).norm(dim=-1)

    @property
    def norm(self) -> Float[Tensor, "row head"]:
        return self.writes.norm(dim=-1)

    @property
    def other_norm(self) -> Float[Tensor, "row head"]:
        return self.other_writes.norm(dim=-1)
