"""What a call costs: the work of its forward and backward passes, here and in workers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lens_heads.model.changes import changing
from lens_heads.model.geometry import Model
from lens_heads.model.hooks import attach
from lens_heads.trials.encoded import EncodedTrial

WITH_GRADIENT = 3
"""A pass that records gradients counts as three: its backward pass does about the work of two forward passes."""


@dataclass
class Cost:
    """Work done so far: tokens times layers, and seconds."""

    work: int = 0
    seconds: float = 0.0


_OPEN: list[Cost] = []


def add(work: int) -> None:
    """Count work that was done elsewhere."""
    for cost in _OPEN:
        cost.work += work


@contextmanager
def counted(model: Model) -> Iterator[Cost]:
    """Count what runs through the model's blocks inside: every token that a block processes, padding included.

    What workers do is counted with it. What is not in blocks (embedding, unembedding, fits on the CPU) is in the seconds only. A
    prefix whose keys and values are reused is not processed again and not counted again.
    """
    cost, started = Cost(), time.perf_counter()

    def note(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        cost.work += x.shape[0] * x.shape[1] * (WITH_GRADIENT if torch.is_grad_enabled() else 1)

    with changing(model) as change:
        for block in model.blocks:
            attach(change, block, partial(block.register_forward_pre_hook, note, with_kwargs=True))
        _OPEN.append(cost)
        try:
            yield cost
        finally:
            _OPEN[:] = [other for other in _OPEN if other is not cost]
            cost.seconds = time.perf_counter() - started


def plain_work(trials: Sequence[EncodedTrial], n_layers: int) -> int:
    """The work of one teacher-forced pass over each trial."""
    return n_layers * sum(len(trial) + len(trial.answer_tokens) - 1 for trial in trials)
