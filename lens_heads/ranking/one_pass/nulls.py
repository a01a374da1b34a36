"""The null of needle scores: the same score where other spans of the prompt stand in for the needle.

Spans are as long as the needle and do not overlap it. A score there says what a head gives to any text of that length in
that prompt. The test that compares them with the score at the needle is `HeadScores.p_values`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView
from lens_heads.ranking.one_pass.scorers import is_ours, scored
from lens_heads.runs.digests import digest
from lens_heads.trials.encoded import EncodedTrial


def check_draws(trials: Sequence[EncodedTrial], n: int) -> None:
    """ValueError where trials have too few other spans for so many draws, or none at all.

    If a draw could as well have been the needle, the needle is the best of all combinations of spans with a chance of one in
    their number: no p is smaller, however often the same spans are drawn.
    """
    combinations = math.prod(1 + len(allowed_starts(trial)) for trial in trials)
    for trial in trials:
        draw_spans(trial, n)  # A trial that has none is an error now, not after hours.
    if n >= combinations:
        raise ValueError(
            f"null_spans={n}: the prompts have no more than {combinations - 1} combinations of other spans of the needles' "
            "lengths: draw so many at most, or use longer prompts or more trials"
        )


def allowed_starts(trial: EncodedTrial) -> Int[np.ndarray, " start"]:
    """Where a span of the needle's length may begin: not at the first position, the attention sink, nor so that it overlaps."""
    assert trial.needle is not None
    start, end = trial.needle
    starts = np.arange(1, len(trial) - (end - start) + 1)
    return starts[(starts + end - start <= start) | (starts >= end)]


def draw_spans(trial: EncodedTrial, n: int) -> Int[Tensor, "draw 2"]:
    """n spans [start, end) of the needle's length in the prompt, with replacement, uniform over the allowed starts.

    A span does not overlap the needle and does not begin at the first position, the attention sink. The draws depend on the
    trial's id, and the first m of n draws are those of m. ValueError if no span is left.
    """
    assert trial.needle is not None
    start, end = trial.needle
    length, allowed = end - start, allowed_starts(trial)
    if n and len(allowed) == 0:
        raise ValueError(
            f"trial {trial.id}: no other span of {length} tokens fits beside the needle {trial.needle} in {len(trial)} "
            "tokens: use null_spans=0, or longer prompts"
        )
    drawn = np.random.default_rng(int(digest(["null spans", trial.id]), 16)).random(n)
    first = torch.from_numpy(allowed[(drawn * len(allowed)).astype(int)])
    return torch.stack([first, first + length], 1)


def null_scores(
    scorer: Scorer, view: LayerView, spans: Int[Tensor, "draw 2"], n_heads: int
) -> Float[Tensor, "draw head"]:
    """A scorer's results in one layer with each span as the needle, on the CPU.

    The library's own scorers read all spans at once. A user's reads a copy of the view for every span.
    """
    if is_ours(scorer):
        return scorer.score(view.across(spans.to(view.pattern.device))).float().cpu()
    moved = [replace(view, needle=(int(start), int(end))) for start, end in spans]
    return torch.stack([scored(scorer, one, n_heads) for one in moved])
