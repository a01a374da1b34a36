"""evaluating: a model looked at in eval mode, and left in the mode it was found in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Inside, the model is in eval mode (no dropout); each of its modules is given its own mode back afterwards."""
    wrapped = getattr(model, "original_model", model)  # Its outermost modules are not among the bridge's own.
    training = [module for part in (model, wrapped) for module in part.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True
