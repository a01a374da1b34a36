"""Every intervention on a plain Hugging Face model: torch hooks on projections, and an attention written out by hand.

Full forwards only, no cache, no padding, one loop per formula. Slow and obviously right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

Edit = Callable[[int, Tensor], Tensor]
"""Takes a layer and its pattern [batch, head, row, key], returns the pattern to use."""

torch.set_num_threads(1)  # Models this small only lose by sharing work.

_edits: list[Edit] = []


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scaling: float,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.transpose(-1, -2) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    pattern = (scores + mask).softmax(-1)
    for edit in _edits:
        pattern = edit(module.layer_idx, pattern)
    return (pattern @ value).transpose(1, 2).contiguous(), pattern


AttentionInterface.register("handmade", _attention)
AttentionMaskInterface.register("handmade", eager_mask)


def attentions(hf: Any) -> list[Any]:
    """The attention module of every layer."""
    layers = hf.transformer.h if hasattr(hf, "transformer") else hf.model.layers
    return [layer.attn if hasattr(layer, "attn") else layer.self_attn for layer in layers]


def out_projection(attention: Any) -> Any:
    """The linear map whose input is z of all heads side by side."""
    return attention.c_proj if hasattr(attention, "c_proj") else attention.o_proj


def query_projection(attention: Any) -> Any:
    """The linear map whose output is (or, fused, begins with) the queries of all heads side by side."""
    return attention.c_attn if hasattr(attention, "c_attn") else attention.q_proj


def window(hf: Any, layer: int) -> int | None:
    """The sliding window of a layer by the configuration file."""
    kinds = getattr(hf.config, "layer_types", None)
    return hf.config.sliding_window if kinds and kinds[layer] == "sliding_attention" else None


@contextmanager
def pattern_edited(hf: Any, edit: Edit) -> Iterator[None]:
    """Inside, every attention pattern of the model goes through `edit`."""
    before = hf.config._attn_implementation
    hf.config._attn_implementation = "handmade"
    _edits.append(edit)
    try:
        yield
    finally:
        _edits.remove(edit)
        hf.config._attn_implementation = before


@contextmanager
def by_hand(
    hf: Any, heads: Sequence[tuple[int, int]], kind: str, reference: Any = None, **options: Any
) -> Iterator[None]:
    """Inside, the plain model has the heads ablated. `reference`: [layer, (position,) head, d_head] of z or q."""
    with ExitStack() as stack:
        if kind in ("uniform", "streaming", "identity", "emphasise", "chunks"):
            stack.enter_context(pattern_edited(hf, lambda layer, A: _edit_pattern(hf, heads, kind, options, layer, A)))
        for layer, head in heads:
            attention = attentions(hf)[layer]
            if kind in ("zero", "mean", "scale", "resample", "add", "mix"):

                def at_z(module: Any, args: Any, layer: int = layer, head: int = head) -> Any:
                    return (_edit_slice(hf, args[0], kind, layer, head, reference, options), *args[1:])

                stack.callback(out_projection(attention).register_forward_pre_hook(at_z).remove)
            elif kind in ("query_zero", "query_mean"):

                def at_q(module: Any, args: Any, out: Tensor, layer: int = layer, head: int = head) -> Tensor:
                    return _edit_slice(hf, out, kind, layer, head, reference, options)

                stack.callback(query_projection(attention).register_forward_hook(at_q).remove)
        yield


def d_head(hf: Any) -> int:
    """Width of one head, from the width of what the output projection reads."""
    weight = out_projection(attentions(hf)[0]).weight
    read = weight.shape[0] if hasattr(hf, "transformer") else weight.shape[1]
    return read // hf.config.num_attention_heads


def _edit_slice(
    hf: Any, x: Tensor, kind: str, layer: int, head: int, reference: Any, options: dict[str, Any]
) -> Tensor:
    """Overwrite the columns of one head in [batch, row, head * d_head]."""
    x, e = x.clone(), d_head(hf)
    columns = slice(head * e, (head + 1) * e)
    for row in range(x.shape[1]):
        if kind in ("zero", "query_zero"):
            x[:, row, columns] = 0
        elif kind in ("mean", "query_mean"):
            x[:, row, columns] = reference[layer, head]
        elif kind == "scale":
            x[:, row, columns] *= options["factor"]
        elif kind == "resample":
            x[:, row, columns] = reference[layer, min(row, reference.shape[1] - 1), head]
        elif options["span"] is None or options["span"][0] <= row < options["span"][1]:
            vector, gate = reference
            if kind == "add":
                x[:, row, columns] += options["factor"] * vector[layer, head]
            else:
                a = options["a"] * gate[layer, head]
                x[:, row, columns] = (1 - a) * x[:, row, columns] + a * vector[layer, head]
    return x


def _edit_pattern(hf: Any, heads: Any, kind: str, options: dict[str, Any], layer: int, pattern: Tensor) -> Tensor:
    pattern = pattern.clone()
    n = pattern.shape[-1]
    for head in (h for at, h in heads if at == layer):
        for t in range(n):
            row = pattern[:, head, t].clone()
            if kind == "uniform":
                width = window(hf, layer)
                first = max(0, t - width + 1) if width else 0
                row = torch.zeros_like(row)
                row[:, first : t + 1] = 1 / (t + 1 - first)
            elif kind == "streaming":
                for j in range(n):
                    if not (j < options["sink"] or j > t - options["recent"]):
                        row[:, j] = 0
                row = row / row.sum(-1, keepdim=True)
            elif kind == "emphasise":
                for j in range(*options["span"]):
                    row[:, j] *= options["factor"]
                row = row / row.sum(-1, keepdim=True)
            elif kind == "chunks":
                row = _chunked(row, t, window(hf, layer) or n, **options)
            else:
                row = (1 - options["u"]) * row
                row[:, t] += options["u"]
            pattern[:, head, t] = row
    return pattern


def _chunked(row: Tensor, t: int, width: int, n_chunks: int, chunk_size: int) -> Tensor:
    """One row's attention within its k chunks of keys, batch row by batch row."""
    k, size = n_chunks, chunk_size
    own, first = t // size, max(0, t - width + 1)
    visible = {c: [j for j in range(c * size, (c + 1) * size) if first <= j <= t] for c in range(own + 1)}
    for b in range(len(row)):
        means = {c: sum(float(row[b, j].log()) for j in keys) / len(keys) for c, keys in visible.items() if keys}
        always = {0, own - 1, own} & set(means)
        rest = sorted(set(means) - always, key=lambda c: -means[c])
        kept = always | set(rest[: k - len(always)])
        row[b, [j for c, keys in visible.items() if c not in kept for j in keys]] = 0
    return row / row.sum(-1, keepdim=True)


@torch.no_grad()
def logits(hf: Any, tokens: Tensor) -> Tensor:
    """[row, d_vocab] of one prompt."""
    return hf(tokens[None]).logits[0]


@torch.no_grad()
def gold_logprob(hf: Any, prompt: Tensor, answer: Tensor) -> float:
    """Mean log-probability of the answer's tokens after the prompt, one row after another."""
    rows = logits(hf, torch.cat([prompt, answer])).log_softmax(-1)
    picked = [float(rows[len(prompt) - 1 + i, token]) for i, token in enumerate(answer.tolist())]
    return sum(picked) / len(picked)


def greedy_text(hf: Any, tokenizer: Any, prompt: Tensor, new: int, stops: set[int]) -> str:
    """The most likely token again and again, with a full forward for each, to a stop id, a newline, or `new` tokens."""
    steps: list[int] = []
    while len(steps) < new:
        token = int(logits(hf, torch.cat([prompt, torch.tensor(steps, dtype=torch.long)]))[-1].argmax())
        if token in stops:
            break
        steps.append(token)
        if "\n" in tokenizer.decode([token]):
            break
    text = tokenizer.decode(steps) if steps else ""
    return text[: text.index("\n")] if "\n" in text else text
