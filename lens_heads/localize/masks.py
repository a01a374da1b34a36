"""Which heads each evaluation ablates: random designs, and the check of masks that come from elsewhere.

A mask is True where a head is ablated. Nothing depends on what a head is: the axes may as well be layer and kv group.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

Design: TypeAlias = Callable[[int, int, int, float, np.random.Generator], Bool[np.ndarray, "mask layer head"]]
"""From numbers of masks, layers and heads, the share to ablate, and a generator to the masks."""


def draw_masks(
    design: str, n_masks: int, n_layers: int, n_heads: int, sparsity: float, seed: int = 0
) -> Bool[np.ndarray, "mask layer head"]:
    """n_masks sets of heads to ablate, each about a share `sparsity` of the n_layers * n_heads there are.

    `design`: "bernoulli" (every head on its own), "stratified" (the authors' code: every head equally often) or
    "layer_balanced" (besides, every layer equally often in each mask); see the functions of `DESIGNS`.

    Raises ValueError for an unknown design, for counts below 1, and for a sparsity that ablates no head or every head. Warns
    of masks that are drawn twice and of heads that no mask ablates.
    """
    if design not in DESIGNS:
        raise ValueError(f"unknown design {design!r}: there are {', '.join(DESIGNS)}")
    for name, count in (("n_masks", n_masks), ("n_layers", n_layers), ("n_heads", n_heads)):
        if count < 1:
            raise ValueError(f"{name}={count}: at least 1 is needed")
    if not 0 < sparsity < 1:
        raise ValueError(f"sparsity={sparsity}: the share of heads to ablate lies between 0 and 1, e.g. 0.02")
    masks = DESIGNS[design](n_masks, n_layers, n_heads, sparsity, np.random.default_rng(seed))
    return check_masks(masks, f"sparsity={sparsity} of {n_layers * n_heads} heads")


def bernoulli(
    n_masks: int, n_layers: int, n_heads: int, sparsity: float, generator: np.random.Generator
) -> Bool[np.ndarray, "mask layer head"]:
    """Every head with probability `sparsity`, independently. A mask may be empty: it measures the model as it is."""
    return generator.random((n_masks, n_layers, n_heads)) < sparsity


def stratified(
    n_masks: int, n_layers: int, n_heads: int, sparsity: float, generator: np.random.Generator
) -> Bool[np.ndarray, "mask layer head"]:
    """floor(sparsity * heads) heads per mask, always those ablated least often so far, ties at random.

    How often heads are ablated differs by at most one, over all masks and over the first m of them for any m.
    """
    size = _size(n_layers * n_heads, sparsity)
    masks = np.zeros((n_masks, n_layers * n_heads), dtype=bool)
    counts = np.zeros(n_layers * n_heads, dtype=int)
    for mask in masks:
        mask[_least(counts, size, generator)] = True
        counts += mask
    return masks.reshape(n_masks, n_layers, n_heads)


def layer_balanced(
    n_masks: int, n_layers: int, n_heads: int, sparsity: float, generator: np.random.Generator
) -> Bool[np.ndarray, "mask layer head"]:
    """floor(sparsity * heads) heads per mask, spread over the layers; in a layer those ablated least often so far.

    Every layer gives the same number of heads; what is left over comes one each from the layers that gave least so far.
    Guaranteed for any numbers, over all masks and over the first m of them for any m: the layers of a mask differ by at
    most one head, the layers' totals differ by at most one, and how often heads are ablated differs by at most one, in the
    whole model as in a layer (totals t and t + 1 shared evenly by as many heads give the same two neighbouring counts).
    """
    each, left_over = divmod(_size(n_layers * n_heads, sparsity), n_layers)
    masks = np.zeros((n_masks, n_layers, n_heads), dtype=bool)
    counts = np.zeros((n_layers, n_heads), dtype=int)
    for mask in masks:
        sizes = np.full(n_layers, each)
        sizes[_least(counts.sum(1), left_over, generator)] += 1
        for layer, size in enumerate(sizes):
            mask[layer, _least(counts[layer], size, generator)] = True
        counts += mask
    return masks


DESIGNS: dict[str, Design] = {"bernoulli": bernoulli, "stratified": stratified, "layer_balanced": layer_balanced}


def check_masks(
    masks: Bool[np.ndarray, "mask *unit"] | Float[np.ndarray, "mask *unit"], name: str = "masks"
) -> Bool[np.ndarray, "mask *unit"]:
    """The masks as booleans, checked; `name` says in messages where they come from.

    Raises ValueError for a shape without a mask and a unit axis, for entries other than 0 and 1, and where every mask
    ablates nothing, or everything. Warns of repeated masks, and of heads that no mask ablates or all do.
    """
    masks = np.asarray(masks)
    if masks.ndim < 2 or masks.size == 0:
        raise ValueError(f"{name}: masks of shape {list(masks.shape)}: [mask, layer, head] is needed, none of them 0")
    wrong = masks[(masks != 0) & (masks != 1)]
    if wrong.size:
        raise ValueError(
            f"{name}: a mask holds {wrong[0]}: use True or 1 where a head is ablated, False or 0 elsewhere"
        )
    masks = masks.astype(bool)
    flat = masks.reshape(len(masks), -1)
    if not flat.any() or flat.all():
        what, remedy = ("every head", "fewer") if flat.all() else ("no head", "more")
        raise ValueError(f"{name}: each of the {len(masks)} masks ablates {what}: ablate {remedy}")
    repeated = len(flat) - len(np.unique(flat, axis=0))
    if repeated:
        warnings.warn(
            f"{name}: {repeated} of {len(flat)} masks repeat another, which tells nothing new: draw fewer masks, or ablate "
            "more heads in each",
            stacklevel=3,
        )
    fixed = int((flat.all(0) | ~flat.any(0)).sum())
    if fixed:
        warnings.warn(
            f"{name}: {fixed} of {flat.shape[1]} heads are ablated in none or in all of {len(flat)} masks, which tell "
            "nothing of them: draw more masks, or ablate more heads in each",
            stacklevel=3,
        )
    return masks


def _size(heads: int, sparsity: float) -> int:
    """Heads per mask. ValueError where that is none."""
    size = math.floor(sparsity * heads + 1e-9)  # .29 * 100 is a little below 29.
    if size == 0:
        raise ValueError(f"sparsity={sparsity} of {heads} heads is less than one head: use at least {share(1, heads)}")
    return size


def share(of: int, heads: int) -> float:
    """The least number of two digits that is so many heads of all."""
    unit = 10 ** (math.floor(math.log10(of / heads)) - 1)
    return round(math.ceil(of / heads / unit - 1e-9) * unit, 12)


def _least(counts: Int[np.ndarray, " n"], size: int, generator: np.random.Generator) -> Int[np.ndarray, " size"]:
    """The places of the `size` smallest counts, ties at random."""
    return np.lexsort((generator.random(len(counts)), counts))[:size]
