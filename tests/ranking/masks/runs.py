"""The planted model's trials in two halves with other needles, and what counts or disturbs runs with heads ablated."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

import lens_heads as lh
from lens_heads.heads.head import Head
from lens_heads.ranking.masks import measure
from lens_heads.ranking.masks.designs import draw_masks
from lens_heads.ranking.masks.measure import MaskedMetric
from tests import planted

FOUND, OTHERS = planted.trials(8)[:4], planted.trials(8)[4:]
SHAPE = (planted.LAYERS, planted.HEADS)


@cache
def model(dtype: torch.dtype = torch.float32) -> Any:
    """Over weights of its own: a second bridge over the same ones would run past the hooks that count passes."""
    return planted.model(copy.deepcopy(planted.hf_model()).to(dtype), dtype)


@cache
def measured(dtype: torch.dtype = torch.float32) -> MaskedMetric:
    """Log-probabilities of the first half; shared, for what was measured is the same for every test."""
    return MaskedMetric(model(dtype), FOUND, progress=False)


def different(design: str, n_masks: int, sparsity: float, seed: int = 0) -> np.ndarray:
    """The masks of the planted model that `localize` draws, each once, in the order drawn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = draw_masks(design, n_masks, *SHAPE, sparsity, seed=seed)
    kept = {mask.tobytes(): mask for mask in drawn}
    return np.stack(list(kept.values()))


def by_loop(
    model: Any,
    trials: Sequence[Any],
    sets: Sequence[Sequence[Any]],
    metric: str = "logprob",
    max_new_tokens: int = 0,
    **how: Any,
) -> np.ndarray:
    """[set, trial]: the model evaluated as a whole under every set of ablated heads, one trial after another."""
    rows = []
    for heads in sets:
        with lh.ablate(model, heads, **{"kind": "zero", **how}):
            found = lh.evaluate(
                model, trials, generate=max_new_tokens > 0, max_new_tokens=max_new_tokens or 1, progress=False
            )
        rows.append(found.metrics[metric].double().numpy())
    return np.stack(rows)


@contextmanager
def passes(model: Any) -> Iterator[list[int]]:
    """Inside, a list that grows with every forward pass through the last block."""
    seen: list[int] = []
    last = model.blocks[-1].mlp
    forward = type(last).forward

    def counted(module: Any, *args: Any, **more: Any) -> Any:
        if module is last:
            seen.append(1)
        return forward(module, *args, **more)

    with patch.object(type(last), "forward", counted):  # A hook would be refused by run folders.
        yield seen


def failing(monkeypatch: pytest.MonkeyPatch, when: Any, error: BaseException) -> None:
    """From now on a run raises where `when` (heads) is true."""
    real = measure.ablate_each

    @contextmanager
    def ablate_each(model: Any, sets: Sequence[Sequence[Head]], *how: Any) -> Iterator[None]:
        with real(model, sets, *how):
            if any(when(list(heads)) for heads in sets):
                raise error
            yield

    monkeypatch.setattr(measure, "ablate_each", ablate_each)
