"""A bridge's attention by a function of ours, in the form in which transformers calls sdpa."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

from torch import Tensor

NAME = "lens_heads"
"""What a model's configuration calls it."""


class Attend(ABC):
    """A function that computes attention, called as transformers calls sdpa, whose mask it is given.

    (module, query [batch, head, row, d_head], key [batch, kv_head, key, d_head], value, attention_mask, **options) to the output
    [batch, row, head, d_head], and None in the place of a pattern.
    """

    alone: ClassVar[bool] = False
    """It reads a cache of its own, and no other cache may be used meanwhile (`check_free`)."""

    @abstractmethod
    def __call__(self, *given: Any, **options: Any) -> tuple[Tensor, None]: ...


_CURRENT: ContextVar[Attend] = ContextVar("attend")


@contextmanager
def attending(function: Attend) -> Iterator[None]:
    """Inside, attention of the name `NAME` is this function."""
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(NAME, lambda *given, **options: _CURRENT.get()(*given, **options))
    AttentionMaskInterface.register(NAME, sdpa_mask)
    token = _CURRENT.set(function)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def check_free(config: Any, function: Attend | None = None) -> None:
    """ValueError if the model's attention reads a cache of its own (a function that is `alone`), and not this one's alike."""
    held = _CURRENT.get(None) if config._attn_implementation == NAME else None
    if held is not None and held.alone and not (function is not None and function.alone):
        raise ValueError(
            "the model is inside streaming_cache, whose attention reads that cache alone: leave the block first, or use "
            "prefill, advance or greedy with the block's cache"
        )
