"""The fields of HeadScores, checked: shapes that agree, names and heads that exist once, finite scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from lens_heads.heads.head import Head


def check_shapes(method: str, values: Tensor, per_trial: Tensor, trial_ids: Sequence[str]) -> None:
    """ValueError unless values are [layer, head], and per_trial [trial, layer, head] of the same model with an id per trial."""
    if values.ndim != 2 or per_trial.shape[1:] != values.shape:
        raise ValueError(
            f"{method}: values {tuple(values.shape)} must be [layer, head] and per_trial {tuple(per_trial.shape)} must be "
            "[trial, layer, head] of the same model"
        )
    if len(trial_ids) != len(per_trial):
        raise ValueError(f"{method}: {len(per_trial)} trials but {len(trial_ids)} trial ids")


def check_null(method: str, null: Tensor, values: Tensor) -> None:
    """ValueError unless the null is [draw, layer, head] with at least one draw, all of it finite."""
    if len(null) == 0 or null.shape[1:] != values.shape:
        shape = tuple(values.shape)
        raise ValueError(f"{method}: null {tuple(null.shape)} must be [draw, layer, head] over {shape} heads")
    if not torch.isfinite(null[:, ~values.isnan()]).all():
        raise ValueError(f"{method}: the null is not finite: drop the trials at fault, or rescore in float32")


def check_names(method: str, trial_ids: Sequence[str], order: Sequence[Head], shape: tuple[int, int]) -> None:
    """ValueError for a method without a name, a trial id that occurs twice, or an order of heads that do not exist."""
    if not isinstance(method, str) or not method:
        raise ValueError(f"method={method!r}: must be a non-empty string")
    twice = next((one for one, times in Counter(trial_ids).items() if times > 1), None)
    if twice is not None:
        raise ValueError(f"{method}: two trials have the id {twice!r}: ids must be unique")
    for head in order:
        if head.layer >= shape[0] or head.head >= shape[1]:
            raise ValueError(f"{method}: order names {head}, but there are {shape[0]} layers x {shape[1]} heads")


def check_finite(method: str, values: Tensor, per_trial: Tensor, trial_ids: Sequence[str]) -> None:
    """ValueError naming the first head and trial whose score is NaN or infinite. Where every one is NaN, there is no head."""
    every = torch.cat([values[None], per_trial])
    bad = ~torch.isfinite(every) & ~every.isnan().all(0)
    if every.isnan().all():
        raise ValueError(f"{method}: all scores are NaN: drop the trials at fault, or rescore in float32")
    if bad.any():
        at, layer, head = (int(i) for i in bad.nonzero()[0])
        where = f", trial {trial_ids[at - 1]}," if at else ""
        value = per_trial[at - 1, layer, head] if at else values[layer, head]
        raise ValueError(
            f"{method}: the score of {Head(layer, head)}{where} is {value} ({int(bad.any(0).sum())} heads are not finite): "
            "drop the trials at fault, or rescore in float32"
        )
