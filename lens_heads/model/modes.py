"""evaluating: eval mode for the duration of a `with` block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from lens_heads.model.changes import changing


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Inside, the model is in eval mode (no dropout); afterwards each of its modules is back in its own mode."""
    wrapped = getattr(model, "original_model", model)  # The bridge's own modules do not include its outermost ones.
    with changing(model) as change:
        training = [module for part in (model, wrapped) for module in part.modules() if module.training]
        change.note(partial(_set, training, True))
        _set(training, False)
        yield


def _set(modules: list[Any], training: bool) -> None:
    for module in modules:
        module.training = training
