"""Masks: which heads each evaluation ablates. Random designs, and a check of your own masks.

A mask is True where a head is ablated. The axes may be layer and head, or layer and kv group.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line

Shape: TypeAlias = tuple[int, int, int]
"""The numbers of masks, layers and heads."""

Masks: TypeAlias = Bool[np.ndarray, "mask layer head"]


@typed
def draw_masks(design: str, n_masks: int, n_layers: int, n_heads: int, sparsity: float, *, seed: int = 0) -> Masks:
    """Draw n_masks random masks, each ablating about a share `sparsity` of the n_layers * n_heads heads.

    `design`: "bernoulli" (each head independently), "stratified" (the authors' code: every head equally often) or
    "layer_balanced" (also, every layer equally often in each mask); see the functions in `DESIGNS`.

    Raises ValueError for an unknown design, counts below 1, and a sparsity that ablates no head or every head. Warns about
    repeated masks and about heads that no mask ablates.

    `seed`: of the draw.

    Example:
        >>> masks = lh.ranking.draw_masks("stratified", 8, 2, 4, 0.25)
        >>> masks.sum(0).tolist()  # Every head equally often.
        [[2, 2, 2, 2], [2, 2, 2, 2]]
    """
    if design not in DESIGNS:
        raise ValueError(f"unknown design {design!r}: use {', '.join(DESIGNS)}")
    for name, count in (("n_masks", n_masks), ("n_layers", n_layers), ("n_heads", n_heads)):
        checks.whole_number(name, count)
    checks.share("sparsity", sparsity, "0.02")
    checks.seed(seed)
    masks = DESIGNS[design]((n_masks, n_layers, n_heads), sparsity, np.random.default_rng(seed))
    return check_masks(masks, f"sparsity={sparsity} of {n_layers * n_heads} heads")


def bernoulli(shape: Shape, sparsity: float, generator: np.random.Generator) -> Masks:
    """Every head with probability `sparsity`, independently. A mask may be empty, which measures the intact model."""
    return generator.random(shape) < sparsity


def stratified(shape: Shape, sparsity: float, generator: np.random.Generator) -> Masks:
    """floor(sparsity * heads) heads per mask, always those ablated least often so far, ties broken at random.

    Any two heads' counts differ by at most one, over all masks and over the first m of them for any m.
    """
    masks = np.zeros(shape, dtype=bool)
    counts = np.zeros(masks[0].size, dtype=int)
    size = _size(counts.size, sparsity)
    for mask in masks.reshape(len(masks), -1):
        mask[_least(counts, size, generator)] = True
        counts += mask
    return masks


def layer_balanced(shape: Shape, sparsity: float, generator: np.random.Generator) -> Masks:
    """floor(sparsity * heads) heads per mask, spread over the layers; in each layer those ablated least often so far.

    The remainder comes from the layers that contributed least so far, one head each. Over the first m masks for any m, three
    counts differ by at most one: heads per layer in a mask, heads per layer in total, and how often each head is ablated.
    """
    masks, counts = np.zeros(shape, dtype=bool), np.zeros(shape[1:], dtype=int)
    each, left_over = divmod(_size(counts.size, sparsity), len(counts))
    for mask in masks:
        sizes = np.full(len(counts), each)
        sizes[_least(counts.sum(1), left_over, generator)] += 1
        for layer, size in enumerate(sizes):
            mask[layer, _least(counts[layer], size, generator)] = True
        counts += mask
    return masks


DESIGNS = {"bernoulli": bernoulli, "stratified": stratified, "layer_balanced": layer_balanced}


def as_booleans(masks: Any, name: str = "masks") -> Bool[np.ndarray, "mask *unit"]:
    """The masks as booleans. ValueError for entries other than 0 and 1."""
    masks = np.asarray(masks)
    wrong = masks[(masks != 0) & (masks != 1)]
    if wrong.size:
        raise ValueError(f"{name}: a mask contains {wrong[0]}. Use True or 1 where a head is ablated, else False or 0.")
    return masks.astype(bool)


def check_masks(
    masks: Bool[np.ndarray, "mask *unit"] | Float[np.ndarray, "mask *unit"], name: str = "masks"
) -> Bool[np.ndarray, "mask *unit"]:
    """The masks as booleans, checked. `name` is what messages call them.

    Raises ValueError for a shape without a mask and a unit axis, entries other than 0 and 1, and masks that all ablate
    nothing, or everything. Warns about repeated masks, and about heads that no mask or every mask ablates.
    """
    masks = as_booleans(masks, name)
    if masks.ndim < 2 or masks.size == 0:
        raise ValueError(f"{name}: masks of shape {list(masks.shape)}: must be [mask, layer, head] and not empty")
    flat = masks.reshape(len(masks), -1)
    if not flat.any() or flat.all():
        what, remedy = ("every head", "fewer") if flat.all() else ("no head", "more")
        raise ValueError(f"{name}: each of the {len(masks)} masks ablates {what}. Ablate {remedy}.")
    repeated = len(flat) - len(np.unique(flat, axis=0))
    if repeated:
        warnings.warn(
            f"{name}: {repeated} of {len(flat)} masks repeat another. Draw fewer masks, or ablate more heads in each.",
            stacklevel=users_line(),
        )
    fixed = int((flat.all(0) | ~flat.any(0)).sum())
    if fixed:
        warnings.warn(
            f"{name}: {fixed} of {flat.shape[1]} heads are ablated in none or in all of {len(flat)} masks, so their effect is "
            "unknown. Draw more masks, or ablate more heads in each.",
            stacklevel=users_line(),
        )
    return masks


def _size(heads: int, sparsity: float) -> int:
    """Heads per mask. ValueError if there are none."""
    size = math.floor(sparsity * heads + 1e-9)  # .29 * 100 is slightly below 29.
    if size == 0:
        raise ValueError(f"sparsity={sparsity} of {heads} heads is less than one head: use at least {share(1, heads)}")
    return size


def share(of: int, heads: int) -> float:
    """The smallest share with two significant digits that makes at least `of` of the heads."""
    unit = 10 ** (math.floor(math.log10(of / heads)) - 1)
    return round(math.ceil(of / heads / unit - 1e-9) * unit, 12)


def _least(counts: Int[np.ndarray, " n"], size: int, generator: np.random.Generator) -> Int[np.ndarray, " size"]:
    """The indices of the `size` smallest counts, ties broken at random."""
    return np.lexsort((generator.random(len(counts)), counts))[:size]
