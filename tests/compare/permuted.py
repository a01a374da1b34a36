"""A copy of a tiny model with its heads in another order, which computes the very same: ground truth for matching heads."""

from __future__ import annotations

from typing import Any

import torch

from lens_heads.heads.head import Head
from lens_heads.ranking import common_texts
from tests import handmade, zoo

TEXTS = [text[:140] for text in common_texts(n=8)]
"""The start of real paragraphs: the zoo's tokens are bytes, and its models' context is 512."""


@torch.no_grad()
def permuted(arch: str, seed: int = 1, noise: float = 0.0) -> tuple[Any, dict[Head, Head]]:
    """(copy, {head of the original: the same head of the copy}) of a model of the zoo.

    `noise`: in standard deviations of each weight matrix, added to the copy.
    """
    hf, generator = zoo.hf_model(arch), torch.Generator().manual_seed(seed)
    truth = shuffle_heads(hf, generator)
    for parameter in hf.parameters():
        if noise and parameter.ndim > 1:
            parameter.add_(noise * parameter.std() * torch.randn(parameter.shape, generator=generator))
    return zoo.bridge(arch, hf=hf), truth


@torch.no_grad()
def shuffle_heads(hf: Any, generator: torch.Generator) -> dict[Head, Head]:
    """Reorder the kv groups of every layer, and the heads inside each, in place: {head before: where it stands now}."""
    heads, e = hf.config.num_attention_heads, handmade.d_head(hf)
    kv = getattr(hf.config, "num_key_value_heads", heads)
    truth = {}
    for layer, attention in enumerate(handmade.attentions(hf)):
        groups = torch.randperm(kv, generator=generator)
        order = torch.cat([g * (heads // kv) + torch.randperm(heads // kv, generator=generator) for g in groups])
        if hasattr(attention, "c_attn"):
            weight, bias = attention.c_attn.weight, attention.c_attn.bias
            weight.copy_(weight.reshape(-1, 3, heads, e)[:, :, order].reshape(weight.shape))
            bias.copy_(bias.reshape(3, heads, e)[:, order].reshape(-1))
            weight = attention.c_proj.weight
            weight.copy_(weight.reshape(heads, e, -1)[order].reshape(weight.shape))
        else:
            _rows(attention.q_proj.weight, order, e)
            _rows(attention.k_proj.weight, groups, e)
            _rows(attention.v_proj.weight, groups, e)
            _rows(attention.o_proj.weight.T, order, e)
            for name, new in (("q_norm", order), ("k_norm", groups)):
                norm = getattr(attention, name, None)
                if norm is not None and norm.weight.numel() > e:  # OLMo norms all heads at once.
                    _rows(norm.weight, new, e)
        truth |= {Head(layer, int(old)): Head(layer, new) for new, old in enumerate(order)}
    return truth


def _rows(weight: torch.Tensor, order: torch.Tensor, e: int) -> None:
    """Reorder blocks of e rows, in place (also of a transposed view)."""
    weight.copy_(weight.clone().reshape(len(order), e, *weight.shape[1:])[order].reshape(weight.shape))
