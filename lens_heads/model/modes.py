"""evaluating: eval mode for the duration of a `with` block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Inside, the model is in eval mode (no dropout); afterwards each of its modules is back in its own mode."""
    wrapped = getattr(model, "original_model", model)  # The bridge's own modules do not include its outermost ones.
    training = [module for part in (model, wrapped) for module in part.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True
