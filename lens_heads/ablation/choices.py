"""Multiple choice by log-likelihood: how likely is each choice where the answer goes?   (Brown et al., arXiv 2005.14165)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lens_heads.model.forward import Cache, advance
from lens_heads.model.geometry import Model
from lens_heads.trials.encoded import EncodedTrial

CHOICE_METRICS = ("choice", "choice_norm", "choice_logprob")
"""`choice`: 1 where the gold choice has the highest log-likelihood, summed over its tokens (`acc` of lm-evaluation-harness).
`choice_norm`: the same per character of the choice (its `acc_norm`). `choice_logprob`: log of the gold choice's share among
the choices, in nats: 0 at best, -log(choices) where the model cannot tell them apart. It moves where `choice` is still the
same, so it needs far fewer trials."""

MOST_BYTES = 2**31
"""Choices run side by side as far as their copies of the prompts' cache, and their logits, take no more memory than this."""

Forced = list[tuple[Float[Tensor, " step"], Bool[Tensor, " step"]]]
"""Of each continuation, the log-probability of its tokens, and which of them are the likeliest."""


def without_choices(trials: Sequence[EncodedTrial]) -> list[EncodedTrial]:
    """The trials for metrics that no choice is compared in, of which each would be a run more."""
    return [replace(trial, choices=(), choice_tokens=()) for trial in trials]


def answers_and_choices(
    model: Model,
    trials: Sequence[EncodedTrial],
    last: Int[Tensor, "batch 1"],
    cache: Cache,
    pads: Int[Tensor, " batch"],
) -> tuple[Forced, list[dict[str, float]]]:
    """The gold answers, teacher-forced, and the metrics of the choices, nothing for trials without.

    One short forward, or as many as `MOST_BYTES` asks for. The cache (prompts but `last`) stays as it is.
    """
    texts = [_texts(trial) for trial in trials]
    owners = [row for row, listed in enumerate(texts) for _ in listed]
    every = [text for listed in texts for text in listed]
    # A logit takes four bytes, and as many while all are summed.
    row_bytes = cache.row_bytes + 8 * max(map(len, every)) * model.W_U.shape[-1]
    at_once = max(1, MOST_BYTES // row_bytes)
    forced: Forced = []
    for start in range(0, len(every), at_once):
        rows = owners[start : start + at_once]
        branch = cache.branch(rows if rows != list(range(len(trials))) else None)  # One a row needs no copies.
        forced += continuations(model, every[start : start + at_once], last[rows], branch, pads[rows])
        del branch  # Before the next copies are made.
    golds: Forced = []
    found: list[dict[str, float]] = []
    for trial, listed in zip(trials, texts, strict=True):
        mine, forced = forced[: len(listed)], forced[len(listed) :]
        golds.append(mine[0] if len(mine) > len(trial.choices) else mine[trial.choices.index(trial.answer)])
        found.append(_metrics(trial, mine[-len(trial.choices) :]) if trial.choices else {})
    return golds, found


def _texts(trial: EncodedTrial) -> list[Int[Tensor, " step"]]:
    """The trial's choices; before them its answer, unless it stands among them."""
    known = bool(trial.choices) and torch.equal(
        trial.choice_tokens[trial.choices.index(trial.answer)], trial.answer_tokens
    )
    return [*trial.choice_tokens] if known else [trial.answer_tokens, *trial.choice_tokens]


def _metrics(trial: EncodedTrial, forced: Forced) -> dict[str, float]:
    gold = trial.choices.index(trial.answer)
    total = torch.stack([picked.sum() for picked, _ in forced])
    length = torch.tensor([len(choice) for choice in trial.choices], device=total.device)
    return {
        "choice": float(_first(total) == gold),
        "choice_norm": float(_first(total / length) == gold),
        "choice_logprob": float(total.log_softmax(0)[gold]),
    }


def _first(scores: Float[Tensor, " choice"]) -> int:
    """The best choice; -1 where two are equally good, which is not chosen."""
    best = (scores == scores.max()).nonzero()[:, 0]
    return int(best[0]) if len(best) == 1 else -1


def continuations(
    model: Model,
    texts: Sequence[Int[Tensor, " step"]],
    last: Int[Tensor, "batch 1"],
    cache: Cache,
    pads: Int[Tensor, " batch"],
) -> Forced:
    """Each row's continuation, teacher-forced, in one short forward, which advances the cache."""
    longest = max(len(text) for text in texts)
    gold = torch.zeros(len(texts), longest, dtype=torch.long, device=last.device)
    for i, text in enumerate(texts):
        gold[i, : len(text)] = text
    logits = advance(model, torch.cat([last, gold[:, :-1]], 1), cache, pads, logits=longest)
    assert logits is not None
    targets = gold[..., None].to(logits.device)
    # Without a normalised copy of all logits, of which some models have 262,144 a row.
    picked = logits.gather(-1, targets)[..., 0].float() - logits.float().logsumexp(-1)
    likeliest = logits.argmax(-1, keepdim=True).eq(targets)[..., 0]
    return [(picked[i, : len(text)], likeliest[i, : len(text)]) for i, text in enumerate(texts)]
