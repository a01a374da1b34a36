"""Constants by which some architectures multiply what attention writes and what the unembedding reads, from the configuration."""

from __future__ import annotations

from lens_heads.model.geometry import Model


def residual_multiplier(model: Model) -> float:
    """What attention writes is multiplied by this before it enters the residual stream (Granite); 1 without."""
    return _of(model, "residual_multiplier")


def logit_multiplier(model: Model) -> float:
    """What the unembedding makes is multiplied by this: Granite divides by `logits_scaling`, Cohere multiplies by `logit_scale`,
    Falcon-H1 by `lm_head_multiplier`; 1 without."""
    return _of(model, "logit_scale") * _of(model, "lm_head_multiplier") / _of(model, "logits_scaling")


def _of(model: Model, name: str) -> float:
    value = getattr(getattr(getattr(model, "original_model", None), "config", None), name, None)
    return 1.0 if value is None else float(value)
