"""Joining: one forward for many variants of the same prompts, each of which enters the batch where it begins to differ.

An intervention on heads changes nothing below the lowest of them: there the residual stream and the cached keys and values are
those of the unchanged run. So a variant joins the batch at that layer, with the stream kept from the unchanged run. Every layer
reads its weights once for all variants that have joined, and one unembedding serves all.

Rows of the batch are ordered by variant, then by prompt; variants come in the order in which they join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lens_heads.model.forward import repeated
from lens_heads.model.geometry import Model
from lens_heads.model.hooks import running


@contextmanager
def joining(
    model: Model,
    begins: Sequence[int],
    residuals: Sequence[Tensor] = (),
    tuples: bool = False,
    until: int | None = None,
) -> Iterator[None]:
    """Inside, a forward of some prompts' rows runs one variant for each of `begins`, in ascending order, from its layer on.

    A variant that begins at `n_layers` differs nowhere. Blocks that no variant has reached compute nothing and append nothing to
    the cache; the others expect a cache of `cache.joined(begins)`.

    Args:
        begins: the first layer at which each variant differs.
        residuals: per layer, the unchanged run's stream after it, for the rows of the forward [prompt, row, d_model]. Only
            those below a layer at which a variant joins are read.
        tuples: the blocks return tuples, as `noting_tuples` noted it.
        until: blocks from here on compute nothing.

    A HookedTransformer takes one variant at a time. TransformerLens's own `start_at_layer` saves no time on a bridge, which runs
    every block.
    """
    n_layers = len(model.blocks)
    joined = [sum(begin <= layer for begin in begins) for layer in range(n_layers + 1)]

    def enter(x: Tensor, layer: int) -> Tensor:
        """The stream with the variants that begin at a layer. `x` holds those before them; without any, the embedding."""
        before = joined[layer - 1] if layer else 0
        if joined[layer] == before:
            return x
        new = repeated(residuals[layer - 1] if layer else x, joined[layer] - before)
        return torch.cat([x, new]) if before else new

    def block(layer: int, run: Callable[..., Any]) -> Callable[..., Any]:
        def forward(x: Tensor, *args: Any, **kwargs: Any) -> Any:
            if until is not None and layer >= until:
                return (x,) if tuples else x
            prompts = len(x) // max(1, joined[layer - 1] if layer else 1)
            x = enter(x, layer)
            if joined[layer]:
                args, kwargs = _for_all((args, kwargs), prompts, joined[layer], int(model.cfg.n_heads))
                out = run(x, *args, **kwargs)
            else:
                out = (x,) if tuples else x
            if layer < n_layers - 1:
                return out
            return (enter(out[0], n_layers), *out[1:]) if isinstance(out, tuple) else enter(out, n_layers)

        return forward

    with running(model, [(module, block(layer, module.forward)) for layer, module in enumerate(model.blocks)]):
        yield


def _for_all(value: Any, prompts: int, variants: int, n_heads: int) -> Any:
    """What a block is told about each prompt (masks, rotations, ALiBi per prompt and head), once for every variant."""
    if isinstance(value, Tensor):
        by_prompt = value.ndim > 2 or (value.ndim == 2 and not value.is_floating_point())
        if by_prompt and len(value) > 1 and len(value) in (prompts, prompts * n_heads):
            return repeated(value, variants)
        return value
    if type(value) in (tuple, list):
        return type(value)(_for_all(one, prompts, variants, n_heads) for one in value)
    if type(value) is dict:
        return {name: _for_all(one, prompts, variants, n_heads) for name, one in value.items()}
    return value
