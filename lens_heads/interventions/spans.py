"""Spans of a prompt that an intervention is for: one for all prompts, or one for each prompt of a batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lens_heads.runs import checks

Span: TypeAlias = tuple[int, int]
Spans: TypeAlias = tuple[Span, ...]
"""Half-open (start, end), in tokens from a prompt's first, without padding."""


def spans_of(name: str, given: Any) -> Spans:
    """One span or a list of them. ValueError for anything else."""
    listed = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    pairs = [listed] if len(listed) == 2 and all(checks.whole(each) is not None for each in listed) else listed
    found = []
    for pair in pairs:
        ends = [checks.whole(each) for each in pair] if isinstance(pair, Iterable) and not isinstance(pair, str) else []
        start, end = ends if len(ends) == 2 else (None, None)
        if start is None or end is None or not 0 <= start < end:
            raise ValueError(
                f"{name}={given!r:.60}: must be a pair (start, end) of tokens, start < end, or a list of one per prompt"
            )
        found.append((start, end))
    if not found:
        raise ValueError(f"{name}={given!r}: there is no span: pass (start, end)")
    return tuple(found)


def inside(
    spans: Spans | None, places: Int[Tensor, " place"], pads: Int[Tensor, "#batch"], batch: int
) -> Bool[Tensor, "#batch place"]:
    """Which places lie in the prompts' spans, which are counted from behind their padding; all places without spans.

    `batch`: rows of the batch, all prompts as often as there are variants. ValueError for another number of spans than prompts.
    """
    if spans is None:
        return torch.ones(1, len(places), dtype=torch.bool, device=places.device)
    if len(spans) > 1 and batch % len(spans):
        raise ValueError(
            f"there are {len(spans)} spans, but {batch} prompts in the batch: pass one span for each, or one for all"
        )
    starts, ends = torch.tensor(spans, device=places.device).T
    if len(spans) > 1:
        starts, ends = (each.repeat(batch // len(spans)) for each in (starts, ends))
    return (places >= (pads + starts)[:, None]) & (places < (pads + ends)[:, None])
