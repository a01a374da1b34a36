"""Control sets: heads that were not selected, to compare with those that were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.head import Head, Unit


def every_head(n_layers: int, n_heads: int, *, unit: Unit = "query_head") -> list[Head]:
    """All heads of a model, ordered by layer, then head."""
    return [Head(layer, head, unit) for layer in range(n_layers) for head in range(n_heads)]


def by_layer(heads: Iterable[Head]) -> dict[int, list[int]]:
    """The indices of the heads in each layer."""
    found: dict[int, list[int]] = {}
    for head in heads:
        found.setdefault(head.layer, []).append(head.head)
    return found


def best_of_each_layer(values: Float[Tensor, "layer head"]) -> list[Head]:
    """All heads: the best of every layer, then the second of every layer, and so on; no score is compared across layers.

    Among these, those of the layers in which they stand out most come first, by score over the layer's mean size.
    """
    there = ~values.isnan()
    places = values.nan_to_num(-torch.inf).argsort(dim=-1, descending=True, stable=True).argsort(-1)
    sizes = values.abs().nanmean(-1, keepdim=True)
    outstanding = values / torch.where(sizes > 0, sizes, 1)
    return sorted(
        (head for head in every_head(*values.shape) if there[head.layer, head.head]),
        key=lambda at: (int(places[at.layer, at.head]), -float(outstanding[at.layer, at.head])),
    )


def lowest_layer(heads: Iterable[Head], n_layers: int) -> int:
    """The lowest layer of some heads; `n_layers` if there are none."""
    return min((head.layer for head in heads), default=n_layers)


def by_lowest_layer(sets: Sequence[Iterable[Head]], n_layers: int) -> tuple[list[int], list[int]]:
    """Where the sets stand that come first, second, ... by their lowest layers, and these layers in ascending order."""
    lowest = [lowest_layer(heads, n_layers) for heads in sets]
    order = sorted(range(len(sets)), key=lowest.__getitem__)
    return order, [lowest[at] for at in order]


def shuffled(heads: Sequence[Head], seed: int) -> list[Head]:
    """The heads in a random order that depends only on the seed."""
    order = torch.randperm(len(heads), generator=torch.Generator().manual_seed(seed))
    return [heads[int(i)] for i in order]


def random_heads(everyone: Iterable[Head], k: int, seed: int = 0) -> list[Head]:
    """k random heads of all, chosen ones among them."""
    return shuffled(sorted(everyone), seed)[:k]


def random_like(chosen: Iterable[Head], everyone: Iterable[Head], seed: int = 0) -> list[Head]:
    """Random heads of all, chosen ones among them, as many per layer as chosen: draws from the null of a random lead."""
    generator, drawn, everyone = torch.Generator().manual_seed(seed), [], sorted(everyone)
    for layer, taken in sorted(by_layer(chosen).items()):
        pool = [head for head in everyone if head.layer == layer]
        drawn += [pool[int(at)] for at in torch.randperm(len(pool), generator=generator)[: len(taken)]]
    return drawn


def shifted(chosen: Sequence[Head], n_heads: int | Sequence[int], avoid: Iterable[Head] = ()) -> list[Head]:
    """For every chosen head the next head of its layer that is free: neither chosen, nor to avoid, nor taken already.

    A head whose layer has no free head left gets none. `n_heads`: of a layer, or of each.
    """
    taken, found = {*chosen, *avoid}, []
    for head in chosen:
        n = n_heads if isinstance(n_heads, int) else n_heads[head.layer]
        after = [replace(head, head=(head.head + step) % n) for step in range(1, n)]
        found += [other for other in after if other not in taken and other not in found][:1]
    return found
