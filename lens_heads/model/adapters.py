"""What a model from TransformerLens needs before it runs as the architecture does: mends of its adapters."""

from __future__ import annotations

from typing import Any


def mend(model: Any) -> None:
    """Take out what an adapter of TransformerLens put where the model has nothing.

    Granite 4 without rotary positions ("nope"): the adapter reads them as rotary, and wraps a module that is not there.
    """
    inner: Any = getattr(model.original_model, "model", None)
    rotary: Any = getattr(inner, "rotary_emb", None)
    if hasattr(type(rotary), "original_component") and rotary._modules.get("_original_component") is None:
        inner.rotary_emb = None
