"""RowView: what scorers of texts see, one layer and a few rows at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class RowView:
    """Some rows of one layer of one text; float32, on the model's device.

    Row r is at absolute position `row_positions[r]`. Keys are the positions 0 .. last of these rows; those after a row, or
    outside a sliding window, have attention 0. `first` is where the counted rows begin: 1, or the response's first token.
    `block` is the number of tokens of a repeated block, which begins at position `start`; None for another text.
    """

    layer: int
    pattern: Float[Tensor, "head row key"]
    row_positions: Int[Tensor, " row"]
    tokens: Int[Tensor, " key"]
    first: int = 1
    block: int | None = None
    start: int = 0

    @property
    def counted(self) -> Bool[Tensor, " row"]:
        """The rows that most scores run over: all from the second position on, or those of the response."""
        return self.row_positions >= self.first

    @property
    def repeats(self) -> Bool[Tensor, " row"]:
        """The rows from the second copy of the block on."""
        return self.row_positions >= self.start + self._size

    @property
    def seen_before(self) -> Bool[Tensor, " row"]:
        """The counted rows whose token occurred before."""
        return self.counted & self._same.any(-1)

    @cached_property
    def distances(self) -> Int[Tensor, "row key"]:
        """t - s for each row and key; 0 for keys after the row."""
        return (self.row_positions[:, None] - self._keys).clamp(min=0)

    def back(self, distance: int) -> Float[Tensor, "head row"]:
        """Attention to the key so many tokens back; 0 where there is none."""
        return self._at(self.row_positions - distance, 0)

    def to_copies(self, shift: int) -> Float[Tensor, "head row"]:
        """Attention to the same place in the earlier copies of the block, `shift` tokens on, summed over the copies."""
        total = torch.zeros_like(self.pattern[..., 0])
        for back in range(self._size, int(self.row_positions.max()) - self.start + 1, self._size):
            total += self._at(self.row_positions - back + shift, self.start + shift)
        return total

    @property
    def to_same_token(self) -> Float[Tensor, "head row"]:
        """Attention to the earlier places of the row's own token."""
        return (self.pattern * self._same).sum(-1)

    @property
    def _keys(self) -> Int[Tensor, " key"]:
        return torch.arange(self.pattern.shape[-1], device=self.pattern.device)

    @cached_property
    def _same(self) -> Bool[Tensor, "row key"]:
        before = self._keys < self.row_positions[:, None]
        return before & (self.tokens == self.tokens[self.row_positions][:, None])

    @property
    def _size(self) -> int:
        if self.block is None:
            raise ValueError("this text has no repeated block: score lh.repeated_blocks(model)")
        return self.block

    def _at(self, keys: Int[Tensor, " row"], least: int) -> Float[Tensor, "head row"]:
        """The attention of each row to one key, 0 if that lies before `least`."""
        there = keys >= least
        index = keys.clamp(min=0).expand(self.pattern.shape[0], -1)[..., None]
        return self.pattern.gather(-1, index)[..., 0] * there
