"""A model's norms as linear maps with frozen scale, and the location of the post-attention norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


def post_attention_norm(model: Any, layer: int) -> Any | None:
    """The norm between a layer's attention output and the residual stream, or None."""
    block = model.blocks[layer]
    if getattr(block, "ln1_post", None) is not None:
        return block.ln1_post
    # TransformerLens 3 keeps OLMo's post-norm under the name ln1.
    names = (getattr(model.cfg, "original_architecture", None), getattr(model.cfg, "architecture", None))
    return block.ln1 if {"Olmo2ForCausalLM", "Olmo3ForCausalLM"} & set(names) else None


def attention_norm(model: Any, layer: int) -> Any | None:
    """The norm between the residual stream and what a layer's heads read, or None (OLMo 2 and 3)."""
    norm = getattr(model.blocks[layer], "ln1", None)
    return None if norm is post_attention_norm(model, layer) else norm


def is_rms(model: Any, norm: Any) -> bool:
    """Whether a norm divides by the root mean square without centering."""
    if hasattr(norm, "uses_rms_norm"):
        return bool(norm.uses_rms_norm)
    return type(norm).__name__.startswith("RMS") or str(model.cfg.normalization_type).startswith("RMS")


@dataclass(frozen=True)
class FrozenNorm:
    """A norm as a linear map at a fixed scale: y = gain * center(x) / scale(x) (+ bias)."""

    gain: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"]
    centers: bool
    eps: float

    def scale(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... 1"]:
        """The divisor at each position: root mean square, or standard deviation if the norm centers."""
        x = x.float()
        x = x - x.mean(-1, keepdim=True) if self.centers else x
        return (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt()

    def unscaled(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """What the norm makes of x up to a positive factor at each position, without its bias."""
        x = x.to(self.gain)
        return self.gain * (x - x.mean(-1, keepdim=True) if self.centers else x)

    def pull_back(self, direction: Float[Tensor, "... d_model"], scale: Float[Tensor, "... 1"]) -> Tensor:
        """The direction that reads before the norm what `direction` reads after it, except for the bias."""
        pulled = direction * self.gain / scale
        return pulled - pulled.mean(-1, keepdim=True) if self.centers else pulled


def frozen_norm(model: Any, norm: Any) -> FrozenNorm:
    """The gain, bias and conventions of one of the model's norms (Gemma multiplies by 1 + weight)."""
    inner = getattr(norm, "original_component", norm)
    # Gemma 4's bridge shows no part of its norms; a HookedTransformer calls the weight w.
    weight = getattr(inner, "weight", None) if hasattr(norm, "original_component") else norm.w
    # OLMo 1 and nanochat learn no gain.
    gain = torch.ones(model.cfg.d_model, device=model.W_U.device) if weight is None else weight.detach().float()
    stored_offset = hasattr(norm, "uses_rms_norm") and getattr(model.cfg, "rmsnorm_uses_offset", False)  # 3.9 bridges.
    if weight is not None and getattr(norm, "uses_weight_offset", stored_offset):
        gain = gain + 1.0
    centers = not is_rms(model, norm)
    bias = getattr(inner, "bias", None)
    bias = getattr(norm, "b", None) if bias is None else bias
    bias = torch.zeros_like(gain) if bias is None or not centers else bias.detach().float()
    eps = getattr(norm, "eps", None)
    return FrozenNorm(gain, bias, centers, float(model.cfg.eps if eps is None else eps))


def unwatched_norms(model: Any) -> Iterator[tuple[Any, Callable[[Tensor], Tensor]]]:
    """A bridge's norms whose hooks on scale and normalized input are empty, each with a forward that leaves these out.

    A bridge computes both beside every wrapped norm, as much work again as the norm's own.
    """
    parts: list[Any] = []
    for block in model.blocks:
        parts += [*block.children(), *getattr(block, "attn", nn.Module()).children()]
    for norm in (*parts, model.ln_final):
        if getattr(norm, "use_native_layernorm_autograd", False):
            inside = norm.hook_scale, norm.hook_normalized
            if not any(point.fwd_hooks or point.bwd_hooks for point in inside):
                yield norm, partial(_wrapped_norm, norm)


def _wrapped_norm(norm: Any, x: Tensor) -> Tensor:
    x = norm.hook_in(x)
    return norm.hook_out(norm.original_component(x).to(x.dtype))
