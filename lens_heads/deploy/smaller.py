"""A model's configuration and weights without some of its kv heads and the query heads that read them."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Head
from lens_heads.heads.sets import by_layer
from lens_heads.model.architectures import architecture_of
from lens_heads.model.copies import Packed
from lens_heads.runs.reading import reason

Shape: TypeAlias = tuple[int, ...]
ZERO = "use how='zero'"
STACKED = "qkv_proj"
"""Phi-3's kind: all queries' rows, then all keys', then all values'. Other joint projections go kv head by kv head."""


def kept_groups(shape: HeadGeometry, chosen: Sequence[Head]) -> dict[int, list[int]]:
    """The kv heads that stay in each layer. ValueError for groups in part, and other numbers per layer, before or after."""
    shape.check_kv_heads("how='remove'")
    if shape.linear or len({(shape.layers[at].n_heads, shape.layers[at].n_kv_heads) for at in shape.attending}) > 1:
        raise ValueError(
            f"how='remove' changes the one number of heads that a configuration has, and the layers of {shape.name} differ in "
            f"their heads: {ZERO}"
        )
    gone = by_layer(chosen)
    kept: dict[int, list[int]] = {}
    for layer in shape.attending:
        here = set(gone.get(layer, ()))
        for kv in range(shape.n_kv_heads):
            group = range(kv * shape.group, (kv + 1) * shape.group)
            rest = [Head(layer, head) for head in group if head not in here]
            if rest and len(rest) < shape.group:
                needing = ", ".join(map(str, rest))
                raise ValueError(
                    f"kv head {kv} of layer {layer} cannot be removed: {needing} still need it. Prune these too, or {ZERO}"
                )
            if rest:
                kept.setdefault(layer, []).append(kv)
    numbers = {layer: len(kept.get(layer, ())) for layer in shape.attending}
    if len(set(numbers.values())) > 1 or not min(numbers.values()):
        few, many = min(numbers, key=numbers.__getitem__), max(numbers, key=numbers.__getitem__)
        raise ValueError(
            f"layer {few} would keep {numbers[few]} of {shape.n_kv_heads} kv heads and layer {many} {numbers[many]}: a "
            f"configuration has one number for all layers, at least 1. Remove equally many in each layer, or {ZERO}"
        )
    return kept


def without_groups(
    parts: Packed, shape: HeadGeometry, weights: Mapping[str, Tensor], kept: Mapping[int, list[int]]
) -> tuple[type, Any, dict[str, Tensor]]:
    """The class, the configuration and the weights, by name, with only these kv heads of each layer.

    What carries heads is told from the shapes that the configuration gives before and after: queries, keys, values, their
    biases, sinks and gates are all cut into as many equal blocks as there are kv heads.

    ValueError, with the numbers, for a configuration that transformers does not load, heads whose size follows from their
    number, norms over all heads together, and whatever else does not shrink in proportion.
    """
    before = _shapes(parts.kind, parts.config)
    kind, config, after = _fitting(parts, shape, before, len(kept[0]))
    cut: dict[str, Tensor] = {}
    for name, to in after.items():
        if name not in weights or name not in before:
            raise _refused(parts, f"has other tensors with fewer heads ({name})")
        tensor = weights[name]
        changed = [dim for dim, (old, new) in enumerate(zip(before[name], to, strict=True)) if old != new]
        for dim in changed:
            tensor = _cut(parts, shape, name, tensor, dim, kept)
        cut[name] = tensor.contiguous()
    return kind, config, cut


def _refused(parts: Packed, why: str) -> ValueError:
    return ValueError(f"{parts.name}: {architecture_of(parts.config)} {why}, so no kv head can be taken out: {ZERO}")


def _fitting(
    parts: Packed, shape: HeadGeometry, before: Mapping[str, Shape], number: int
) -> tuple[type, Any, dict[str, Shape]]:
    """Class, configuration and shapes with so many kv heads a layer. ValueError, which lists the numbers that fit."""
    first: Exception | None = None
    for relative in (False, True):
        try:
            kind, config = _config(parts, shape, number, relative)
            after = _shapes(kind, config)
        except Exception as error:  # of each configuration's own checks
            first = first or error
            continue
        _check_sizes(parts, shape, before, after, number)
        return kind, config, after
    assert first is not None
    fits = []
    for other in range(1, shape.n_kv_heads):
        with suppress(Exception):
            _check_sizes(parts, shape, before, _shapes(*_config(parts, shape, other)), other)
            fits.append(str(other))
    which = f"keep {' or '.join(fits)} of {shape.n_kv_heads}" if fits else "no other number fits"
    raise ValueError(
        f"{parts.name}: {number} of {shape.n_kv_heads} kv heads a layer leave {number * shape.group} query heads, with which "
        f"transformers does not load {architecture_of(parts.config)} ({reason(first)}): {which}, or {ZERO}"
    ) from first


def _config(parts: Packed, shape: HeadGeometry, number: int, relative: bool = False) -> tuple[type, Any]:
    """The class, and its configuration with so many kv heads a layer as it is read again from a file.

    `relative`: a Llama as a Mistral without a window, which computes the same, but does not want the width to be a multiple of
    the number of heads.
    """
    config = copy.deepcopy(parts.config)
    config.architectures = config.architectures or [parts.kind.__name__]
    text = config.get_text_config(decoder=True)
    with suppress(AttributeError):  # Falcon's kind derives it, which the sizes will show.
        text.head_dim = shape.d_head
    text.num_key_value_heads = number
    text.num_attention_heads = number * shape.group
    each = getattr(text, "num_attention_heads_per_layer", None)  # Laguna.
    if each is not None:
        text.num_attention_heads_per_layer = [number * shape.group] * len(each)
    kind, given = parts.kind, json.loads(config.to_json_string(use_diff=False))
    if not relative:
        return kind, type(config).from_dict(given)
    if kind.__name__ != "LlamaForCausalLM" or config.attention_bias or config.mlp_bias:
        raise ValueError("no relative")
    from transformers import MistralConfig, MistralForCausalLM

    given |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None}
    return MistralForCausalLM, MistralConfig.from_dict(given)


def _shapes(kind: Any, config: Any) -> dict[str, Shape]:
    """The shapes of a class's tensors by its configuration."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in kind(config).state_dict().items()}


def _check_sizes(
    parts: Packed, shape: HeadGeometry, before: Mapping[str, Shape], after: Mapping[str, Shape], number: int
) -> None:
    """ValueError unless in each layer the rows of a matrix, and the columns of one, shrink as the number of heads does."""
    heads = number * shape.group
    for layer, dim in itertools.product(shape.attending, (0, 1)):
        sizes = [
            (before[name][dim], to[dim])
            for name, to in after.items()
            if _layer(name) == layer and len(to) == 2 and name in before and before[name][dim] != to[dim]
        ]
        if not any(old * number == new * shape.n_kv_heads for old, new in sizes):
            size = f"{shape.d_model} / {heads} = {shape.d_model / heads:g} dimensions, not of {shape.d_head}"
            raise _refused(parts, f"makes {heads} heads of {size}")


def _layer(name: str) -> int | None:
    return next((int(word) for word in name.split(".") if word.isdigit()), None)


def _cut(
    parts: Packed, shape: HeadGeometry, name: str, tensor: Tensor, dim: int, kept: Mapping[int, list[int]]
) -> Tensor:
    """A tensor without what belongs to the kv heads that go, along one of its dimensions."""
    layer, size = _layer(name), tensor.shape[dim]
    if "norm" in name and size > shape.d_head and tensor.ndim == 1:
        raise _refused(parts, f"normalizes all heads of a layer together ({name})")
    if layer is None or size % shape.n_kv_heads:
        raise _refused(parts, f"has a tensor that is not cut by kv head ({name}, {size})")
    rows = tensor.movedim(dim, 0)
    sections = [len(rows)]
    if STACKED in name:
        sections = [shape.n_heads * shape.d_head, *[shape.n_kv_heads * shape.d_head] * 2]
    pieces = [_blocks(piece, shape.n_kv_heads, kept[layer]) for piece in rows.split(sections)]
    return torch.cat(pieces).movedim(0, dim)


def _blocks(tensor: Float[Tensor, "rows ..."], number: int, kept: list[int]) -> Tensor:
    """Some of so many equal blocks of rows."""
    return tensor.reshape(number, -1, *tensor.shape[1:])[kept].flatten(0, 1)
