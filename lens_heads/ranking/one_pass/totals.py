"""TextTotals: what is summed over the rows of a text, for scores that no single row has; and the sums as they grow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model.geometry import Model, is_bridge
from lens_heads.ranking.one_pass.row_view import RowView


@dataclass(frozen=True)
class TextTotals:
    """One layer of one text after its last row. A field that the scorer does not name in `needs` is empty.

    `received` [head, key]: mean rank-normalised attention from the `receiving[key]` rows at least `min_distance` tokens on.
    `q_mean`, `k_mean`: means over the text's positions, after QK-norm and before rotation; `cos`, `sin` [position, rotated] as
    the model rotates; `scale` and `softcap` of its attention scores; `window` of the layer, None for full attention.
    """

    layer: int
    min_distance: int
    received: Float[Tensor, "head key"]
    receiving: Int[Tensor, " key"]
    q_mean: Float[Tensor, "head d_head"]
    k_mean: Float[Tensor, "kv_head d_head"]
    cos: Float[Tensor, "position rotated"]
    sin: Float[Tensor, "position rotated"]
    scale: float = 1.0
    softcap: float | None = None
    window: int | None = None

    @property
    def rotated(self) -> tuple[Float[Tensor, "head d_head"], Float[Tensor, "position kv_head d_head"]]:
        """The mean query at the last position, and the mean key at every position."""
        return rotate(self.q_mean, self.cos[-1], self.sin[-1]), rotate(
            self.k_mean, self.cos[:, None, :], self.sin[:, None, :]
        )


def rotate(x: Float[Tensor, "*batch e"], cos: Float[Tensor, "*some r"], sin: Float[Tensor, "*some r"]) -> Tensor:
    """RoPE as Hugging Face's models of the Llama kind apply it: halves are paired, and only the first r entries are turned."""
    turned, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    one, other = turned.chunk(2, -1)
    turned = turned * cos + torch.cat([-other, one], -1) * sin
    return torch.cat([turned, rest.expand(*turned.shape[:-1], rest.shape[-1])], -1)


def rank_normalised(x: Float[Tensor, "... key"]) -> Float[Tensor, "... key"]:
    """Each value's rank from 1 (the smallest) divided by their number; equal values share their mean rank."""
    ordered = x.sort(-1).values
    below, upto = torch.searchsorted(ordered, x), torch.searchsorted(ordered, x, right=True)
    return (below + upto + 1) / 2 / x.shape[-1]


class Received:
    """Sums of the rank-normalised attention that each key of each layer receives."""

    def __init__(self, shape: HeadGeometry, length: int, min_distance: int, device: torch.device | str) -> None:
        self.min_distance, self.shape = min_distance, shape
        size = (shape.n_layers, shape.n_heads, length)
        self.sums = torch.zeros(size, dtype=torch.float64, device=device)
        self.rows = torch.zeros(shape.n_layers, length, dtype=torch.long, device=device)

    def see(self, view: RowView) -> None:
        for row in view.counted.nonzero()[:, 0].tolist():
            at = int(view.row_positions[row])
            # Keys that are far enough, and inside the window or chunk, which is one stretch up to the row.
            reached = self.shape.reaches(view.layer, torch.tensor(at), torch.arange(at + 1))
            start, end = at + 1 - int(reached.sum()), at - self.min_distance + 1
            if end > start:
                self.sums[view.layer, : len(view.pattern), start:end] += rank_normalised(
                    view.pattern[:, row, start:end].contiguous()
                )
                self.rows[view.layer, start:end] += 1

    def mean(self, layer: int) -> tuple[Float[Tensor, "head key"], Int[Tensor, " key"]]:
        rows = self.rows[layer]
        return (self.sums[layer, : self.shape.layers[layer].n_heads] / rows.clamp(min=1)).float(), rows


class QueriesAndKeys:
    """Sums of queries and keys before rotation, and the rotation itself, from the hooks of every layer."""

    def __init__(self, model: Model, shape: HeadGeometry) -> None:
        points = model.hook_dict
        first = f"blocks.{shape.attending[0]}.attn"
        if not is_bridge(model) or f"{first}.hook_cos" not in points:
            why = "is no TransformerBridge" if not is_bridge(model) else "has no rotary positions"
            raise ValueError(
                f"far_mass compares rotated queries and keys, but {shape.name} {why}: leave this method out"
            )
        self.model, self.shape = model, shape
        self.normed = "_normed" if f"{first}.hook_q_normed" in points else ""
        self.sums: dict[tuple[str, int], Tensor] = {}
        self.last: dict[tuple[str, int], Tensor] = {}
        self.turns: dict[tuple[str, int], list[Tensor]] = {}

    def hooks(self) -> list[tuple[str, Callable[..., None]]]:
        """(name, function) of every hook that the sums need."""
        seeing = {"cos": self._see_turn, "sin": self._see_turn, "rot_q": self._see_last}
        seeing |= {f"{name}{self.normed}": self._see_sum for name in ("q", "k")}
        return [
            (f"blocks.{layer}.attn.hook_{name}", partial(see, at=(name.removesuffix("_normed"), layer)))
            for layer in self.shape.attending
            for name, see in seeing.items()
        ]

    def _see_turn(self, x: Tensor, hook: Any, at: tuple[str, int]) -> None:
        self.turns.setdefault(at, []).append(x.reshape(-1, x.shape[-1]).float())

    def _see_last(self, x: Tensor, hook: Any, at: tuple[str, int]) -> None:
        self.last[at] = x[0, -1].float()

    def _see_sum(self, x: Tensor, hook: Any, at: tuple[str, int]) -> None:
        if self.normed and x.ndim == 4:  # Norms of single heads come with the heads before the rows.
            x = x.transpose(1, 2)
        by_head = x[0].float().reshape(x.shape[1], -1, self.shape.layers[at[1]].d_head)
        self.last[at] = by_head[-1]
        self.sums[at] = self.sums.get(at, 0) + by_head.double().sum(0)

    def of(self, layer: int, length: int) -> dict[str, Any]:
        """The fields of TextTotals. ValueError if the model rotates in a way that `rotate` does not know."""
        cos, sin = (torch.cat(self.turns[name, layer]) for name in ("cos", "sin"))
        turned = rotate(self.last["q", layer], cos[-1], sin[-1])
        if not torch.allclose(turned, self.last["rot_q", layer], atol=1e-2, rtol=1e-2):
            raise ValueError(
                f"{self.shape.name} rotates queries in a form that far_mass does not know: leave this method out"
            )
        means = {f"{name}_mean": (self.sums[name, layer] / length).float() for name in ("q", "k")}
        attention = self.model.blocks[layer].attn.original_component
        scale = float(getattr(attention, "scaling", None) or self.shape.layers[layer].d_head ** -0.5)
        return means | {"cos": cos, "sin": sin, "scale": scale}
