"""Rotations whose table depends on the length of the text (LongRoPE, dynamic NTK): by the whole length that will be run.

transformers chooses the table by the positions seen so far, in every forward anew. A prompt read in chunks would then be rotated
by one table at its beginning and by another at its end, and differ from the same prompt in one forward. Phi-3's and Phi-4-mini's
long-context models are of this kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from lens_heads.model.geometry import Model, is_bridge
from lens_heads.model.hooks import running

KINDS = ("longrope", "dynamic")
"""Types of scaling, as configurations name them, whose table depends on the length."""


def rotates_by_length(model: Model) -> bool:
    """Whether the model's rotations depend on the length of the text."""
    return is_bridge(model) and any(
        held.get("rope_type", held.get("type")) in KINDS
        for name in ("rope_parameters", "rope_scaling")
        for held in _dicts(getattr(model.original_model.config, name, None))
    )


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    """A configuration's settings of rotations, which may differ by kind of layer."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _dicts(inner)


OUTGROWN = (
    "the model's rotations depend on the length of the text, and its first {} tokens were read as those of a text shorter than "
    "{}: give the text in one call"
)


def fixed_below(model: Model) -> float:
    """The length up to which the model's rotations do not depend on the length; infinite where they never do."""
    if not rotates_by_length(model):
        return math.inf
    config = model.original_model.config
    found = [getattr(config, "original_max_position_embeddings", None)]
    for name in ("rope_parameters", "rope_scaling"):
        found += [held.get("original_max_position_embeddings") for held in _dicts(getattr(config, name, None))]
    known = [int(value) for value in found if value]
    return min(known, default=int(config.max_position_embeddings))


@contextmanager
def rotating(model: Model, length: int) -> Iterator[None]:
    """Inside, rotations are those of a text of so many tokens, if they depend on it. Its end must not lie before a forward's."""
    if not rotates_by_length(model):
        yield
        return
    parts = model.original_model.modules()
    tables = [part for part in parts if hasattr(part, "rope_type") and not hasattr(part, "original_component")]
    with running(model, [(module, partial(_extended, module.forward, length)) for module in tables]):
        yield


def _extended(
    run: Callable[..., tuple[Tensor, Tensor]],
    length: int,
    x: Tensor,
    position_ids: Int[Tensor, "batch position"],
    *args: Any,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """The table at these positions, chosen as if the last position of the text were among them."""
    last = position_ids.new_full((*position_ids.shape[:-1], 1), length - 1)
    cos, sin = run(x, torch.cat([position_ids, last], -1), *args, **kwargs)
    return cos[..., :-1, :], sin[..., :-1, :]


def batched(model: Model, size: int) -> int:
    """How many prompts may share a batch: one where rotations depend on a prompt's length, which padding would change."""
    return 1 if rotates_by_length(model) else size
