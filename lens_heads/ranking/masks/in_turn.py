"""best_in_turn: heads that hurt together, for 7 + 1.5 k passes over the trials instead of a search's k * heads.

Three rankings propose their first k heads: exact LOCOS and exact DLA, from one pass; and the attribution of ablation in turn,

    h_i = argmax over h not in {h_1 .. h_(i-1)} of sum over positions of (z_h - what its ablation sets) . d m / d z_h,

with h_1 .. h_(i-1) ablated, so that what takes a head's place shows in the next round. m is the answer's logit above the mean
logit: the gradient of the log-probability vanishes where the model is sure. It uses every other trial, because a round costs a
forward and a backward pass. Each set is ablated once; that which lowers the metric most is taken.

No paper's: it was made on two tasks (ioi and induction) of the two packaged models, so only other cells of `studies.bench` test
it. There it keeps little more of the best damage than its attribution in turn alone; the results say where it wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from jaxtyping import Float

from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.model.geometry import Model
from lens_heads.ranking.causal.ablated import attribute_ablation
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.runs import checks
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.needles import with_needle

MADE_ON = tuple((model, task) for model in ("gemma-3-270m", "smollm2-135m-instruct") for task in ("ioi", "induction"))
"""The models and tasks that it was made on, which cannot test it."""

PROPOSING = ("locos_exact", "dla_exact")
"""The scores of one teacher-forced pass whose top heads are tried."""


def in_turn(model: Model, ablation: Ablation, k: int, score: Callable[[], HeadScores]) -> list[Head]:
    """All heads: the first of a score, then its first with that one ablated, and so on k times; then the last round's others."""
    chosen: list[Head] = []
    ranked: list[Head] = []
    while len(chosen) < k:
        with ablate(model, chosen, kind=ablation) if chosen else nullcontext():
            ranked = [head for head in score().ranking() if head not in chosen]
        chosen.append(ranked[0])
    return [*chosen, *ranked[1:]]


def attribute_in_turn(model: Model, trials: Sequence[EncodedTrial], ablation: Ablation, k: int) -> list[Head]:
    """All heads by the attribution of ablation, k of them in turn."""

    def score() -> HeadScores:
        how: dict[str, Any] = {"kind": ablation.kind, "reference": ablation.reference, "metric": "answer_logit"}
        return attribute_ablation(model, trials, progress=False, **how)

    return in_turn(model, ablation, k, score)


def best_in_turn(measured: MaskedMetric, k: int) -> tuple[list[Head], Float[np.ndarray, "trial layer head"], str]:
    """The proposed set of k heads that lowers the mean metric most.

    Needs kind "mean" or "zero", and trials with a needle; for one without, the answer's first place in the
    prompt, else the question, is its needle.

    Returns all heads, the set's first, in the order of the ranking that proposed it; the change of each trial's metric when the
    set is ablated, shared equally among its heads, 0 for others; and the name of that ranking. Raises ValueError for k outside 1
    to the number of heads, masks of kv groups, another kind, and a trial without a needle; RuntimeError if a run fails.
    """
    trials = _needled(measured, k)
    model, base = measured.model, measured.base
    scores = score_heads(model, trials, PROPOSING, teacher_forced=True, progress=False)
    rankings = {name: one.ranking() for name, one in scores.items()}
    rankings["attribute_in_turn"] = attribute_in_turn(model, measured.trials[::2], measured.ablation, k)
    values = measured(np.stack([measured.mask(ranking[:k]) for ranking in rankings.values()]))
    if np.isnan(values).any():
        raise RuntimeError("best_in_turn: the run of a proposed set failed. It needs every run: see the warning above.")
    best = int(values.mean(1).argmin())
    name, ranking = list(rankings.items())[best]
    change = (values[best] - base)[:, None] * measured.mask(ranking[:k])[measured.there] / k
    return ranking, measured.table(change), name


def _needled(measured: MaskedMetric, k: int) -> list[EncodedTrial]:
    """The trials with a needle. ValueError for one that has none, and for what best_in_turn does not do."""
    checks.whole_number("k", k, 1, len(measured.everyone), ", the number of heads")
    kind = measured.ablation.kind
    if measured.unit != "query_head":
        raise ValueError(f"unit={measured.unit!r}: best_in_turn ranks query heads; use 'greedy' for kv groups")
    if kind not in ("mean", "zero"):
        raise ValueError(f"kind={kind!r}: best_in_turn ablates by 'mean' or 'zero'; use 'greedy' for another kind")
    found = [with_needle(trial, measured.model.tokenizer) for trial in measured.trials]
    without = next((trial.id for trial, one in zip(measured.trials, found, strict=True) if one is None), None)
    if without is not None:
        raise ValueError(
            f"trial {without} has no needle, nor its answer in the prompt: best_in_turn needs one; use 'css' or 'greedy'"
        )
    return [one for one in found if one is not None]
