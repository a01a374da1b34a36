"""Tiny random models of families whose attention differs from the usual, and plain transformers as a witness of what heads do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tests import zoo
from tests.scripts import script

HEADS, D_HEAD = 4, 8


@dataclass(frozen=True)
class Family:
    """A row of the table of families, and where its modules are: the attention in a block, and in that its value and output
    projections."""

    row: str
    blocks: str = "model.layers"
    attention: str = "self_attn"
    v: str = "v_proj"
    o: str = "o_proj"


HYBRIDS = {
    "lfm2": Family("LFM2", o="out_proj"),
    "qwen3_next": Family("Qwen3-Next"),
    "qwen3_5": Family("Qwen 3.5"),
    "olmo_hybrid": Family("OLMo hybrid"),
    "jamba": Family("Jamba"),
    "granite4": Family("Granite 4"),
    "falcon_h1": Family("Falcon-H1"),
}
"""Models of which every other layer mixes tokens by something else than heads, or each by both (Falcon-H1)."""
UNLIKE = {
    "gemma4": Family("Gemma 4"),
    "deepseek_v2": Family("DeepSeek V2", v=""),
    "deepseek_v3": Family("DeepSeek V3, R1; Kimi K2", v=""),
}
"""Models whose heads differ between layers, or whose values are of another width than their keys."""
FAMILIES = {
    "opt": Family("OPT", "model.decoder.layers", o="out_proj"),
    "gptj": Family("GPT-J", "transformer.h", "attn", o="out_proj"),
    "gpt_neo": Family("GPT-Neo", "transformer.h", "attn.attention", o="out_proj"),
    "xglm": Family("XGLM", o="out_proj"),
    "llama4": Family("Llama 4"),
    "afmoe": Family("AFMoE (Trinity)"),
    "laguna": Family("Laguna"),
    "bitnet": Family("BitNet"),
    "granite": Family("Granite 3"),
    "cohere": Family("Cohere 1"),
    "cohere2": Family("Cohere 2"),
    "exaone4": Family("EXAONE 4"),
    "gpt_oss": Family("gpt-oss"),
    "mpt": Family("MPT", "transformer.blocks", "attn", v="", o="out_proj"),
    "stablelm": Family("StableLM 2, 12B"),
    "gpt_bigcode": Family("GPT-BigCode", "transformer.h", "attn", v="", o="c_proj"),
    **HYBRIDS,
    **UNLIKE,
}
PARTLY = {
    "modernbert": Family("ModernBERT decoder", attention="attn", v="", o="Wo"),
    "bert": Family("BERT decoder", "bert.encoder.layer", "attention", v="", o="output.dense"),
}
"""Those on which something is refused: what is read through the unembedding of ModernBERT, which has a layer before it, and what
is read off the residual stream of a BERT decoder, which has its norms in it."""
KNOWN = FAMILIES | PARTLY
GATES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "afmoe": lambda attention, x: torch.sigmoid(attention.gate_proj(x)).reshape(*x.shape[:2], HEADS, -1),
    "laguna": lambda attention, x: torch.nn.functional.softplus(attention.g_proj(x)).reshape(*x.shape[:2], HEADS, -1),
} | dict.fromkeys(
    ("qwen3_next", "qwen3_5"),
    lambda attention, x: torch.sigmoid(attention.q_proj(x).reshape(*x.shape[:2], HEADS, 2, -1)[..., 1, :]),
)
"""What multiplies A v, from what the attention is given."""


@cache
def plain(name: str) -> Any:
    """The Hugging Face model, with eager attention."""
    model = script("families").plain(KNOWN[name].row)
    model.config.architectures = [type(model).__name__]
    return model


@cache
def bridged(name: str) -> Any:
    """The same weights as a TransformerBridge."""
    import copy

    return zoo.bridge(name, hf=copy.deepcopy(plain(name)))


def reached(model: Any, path: str) -> Any:
    """A part of a model by its path."""
    for step in path.split("."):
        model = getattr(model, step)
    return model


def attention(name: str, layer: int) -> Any:
    family = KNOWN[name]
    return reached(reached(plain(name), family.blocks)[layer], family.attention)


@contextmanager
def before_projection(name: str, layer: int, edit: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Inside, the output projection of a layer of the plain model is given `edit(z)`, z [batch, row, head, d_head]."""

    def hook(module: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        z = args[0]
        return (edit(z.reshape(*z.shape[:-1], HEADS, -1)).reshape(z.shape), *args[1:])

    handle = reached(attention(name, layer), KNOWN[name].o).register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def logits(name: str, tokens: Tensor) -> Tensor:
    """Of one forward of the plain model without a cache."""
    return plain(name)(tokens[None], use_cache=False).logits[0]
