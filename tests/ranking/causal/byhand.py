"""Activation and path patching on a plain Hugging Face model: torch forward hooks, full forwards, one loop per formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lens_heads.trials.pairs import TokenPair
from tests import handmade

Metric = Callable[[Tensor, TokenPair], float]


def answer_logprob(logits: Tensor, pair: TokenPair) -> float:
    """Mean log-probability of the gold answer's tokens; `logits` [row, d_vocab] of a full run."""
    rows = logits.log_softmax(-1)
    start = pair.answer[0]
    picked = [float(rows[start - 1 + i, token]) for i, token in enumerate(pair.gold.tolist())]
    return sum(picked) / len(picked)


def read_z(hf: Any, tokens: Tensor) -> list[Tensor]:
    """What the output projection of every layer reads: [row, head * d_head]."""
    seen: dict[int, Tensor] = {}
    handles = [
        handmade.out_projection(attention).register_forward_pre_hook(
            lambda module, args, layer=layer: seen.update({layer: args[0][0].clone()})
        )
        for layer, attention in enumerate(handmade.attentions(hf))
    ]
    handmade.logits(hf, tokens)
    for handle in handles:
        handle.remove()
    return [seen[layer] for layer in range(len(handles))]


def columns(hf: Any, head: int) -> slice:
    """A head's columns side by side with the others."""
    return slice(head * handmade.d_head(hf), (head + 1) * handmade.d_head(hf))


def patched_heads(hf: Any, pair: TokenPair, positions: str, metric: Metric = answer_logprob) -> Tensor:
    """[layer, head]: metric with one head's z taken from the clean run, minus the corrupt run's, one full run per head."""
    clean = read_z(hf, pair.clean)
    start, end = pair.answer
    rows = range(start - 1, end - 1) if positions == "answer" else range(len(pair))
    base = metric(handmade.logits(hf, pair.corrupt), pair)
    scores = torch.zeros(len(clean), hf.config.num_attention_heads)
    for layer, attention in enumerate(handmade.attentions(hf)):
        for head in range(hf.config.num_attention_heads):

            def put(module: Any, args: Any, layer: int = layer, head: int = head) -> Any:
                z = args[0].clone()
                for row in rows:
                    z[0, row, columns(hf, head)] = clean[layer][row, columns(hf, head)]
                return (z, *args[1:])

            handle = handmade.out_projection(attention).register_forward_pre_hook(put)
            scores[layer, head] = metric(handmade.logits(hf, pair.corrupt), pair) - base
            handle.remove()
    return scores


def projection(attention: Any, component: str) -> Any:
    """The linear map that makes queries, keys or values; GPT-2's makes all three."""
    return attention.c_attn if hasattr(attention, "c_attn") else getattr(attention, f"{component}_proj")


def component_columns(hf: Any, attention: Any, component: str, head: int) -> slice:
    """Where a head's query, key or value stands in what its projection gives."""
    n_heads = hf.config.num_attention_heads
    if hasattr(attention, "c_attn"):
        width, e = n_heads * handmade.d_head(hf), handmade.d_head(hf)
        start = "qkv".index(component) * width + head * e
        return slice(start, start + e)
    place = head if component == "q" else head // (n_heads // hf.config.num_key_value_heads)
    return columns(hf, place)


def path(
    hf: Any,
    pair: TokenPair,
    sender: tuple[int, int],
    receivers: list[tuple[int, int]],
    component: str,
    base: Tensor,
    other: Tensor,
    metric: Metric = answer_logprob,
) -> float:
    """The metric of a `base` run whose receivers get what reaches them when only the sender is as in the `other` run."""
    frozen, changed = read_z(hf, base), read_z(hf, other)
    frozen[sender[0]][:, columns(hf, sender[1])] = changed[sender[0]][:, columns(hf, sender[1])]
    attentions, handles, arrived = handmade.attentions(hf), [], {}

    def hold(module: Any, args: Any, layer: int) -> Any:
        return (frozen[layer][None], *args[1:])

    def keep(module: Any, args: Any, out: Tensor, layer: int) -> None:
        arrived[layer] = out.clone()

    for layer, attention in enumerate(attentions):
        handles.append(
            handmade.out_projection(attention).register_forward_pre_hook(lambda m, a, layer=layer: hold(m, a, layer))
        )
        handles.append(
            projection(attention, component).register_forward_hook(lambda m, a, o, layer=layer: keep(m, a, o, layer))
        )
    first = handmade.logits(hf, base)
    for handle in handles:
        handle.remove()
    if not receivers:
        return metric(first, pair)
    handles = []
    for layer, head in receivers:
        if layer <= sender[0]:
            continue

        def put(module: Any, args: Any, out: Tensor, layer: int = layer, head: int = head) -> Tensor:
            out, at = out.clone(), component_columns(hf, attentions[layer], component, head)
            out[..., at] = arrived[layer][..., at]
            return out

        handles.append(projection(attentions[layer], component).register_forward_hook(put))
    result = metric(handmade.logits(hf, base), pair)
    for handle in handles:
        handle.remove()
    return result
