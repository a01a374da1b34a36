"""Multiple choice by log-likelihood: how likely is each choice where the answer goes?   (Brown et al., arXiv 2005.14165)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lens_heads.model.forward import Cache, advance
from lens_heads.model.geometry import Model
from lens_heads.trials.encoded import EncodedTrial

CHOICE_METRICS = ("choice", "choice_norm", "choice_logprob", "choice_margin")
"""`choice`: 1 if the gold choice has the highest log-likelihood, summed over its tokens (`acc` of lm-evaluation-harness).
`choice_norm`: the same per character of the choice (its `acc_norm`). `choice_logprob`: log of the gold choice's share among
the choices, in nats: 0 at best, -log(choices) if the model cannot distinguish them. It changes before `choice` does, so it
needs far fewer trials. `choice_margin`: log p(gold choice) - log p(the likeliest other one), in nats: above 0 where `choice`
is 1, and without the bound that `choice_logprob` has."""

MOST_BYTES = 2**31
"""The most memory for choices that run in one batch: their copies of the prompts' cache and their logits."""

Text: TypeAlias = tuple[int, ...]
"""The tokens of an answer."""
Forced = list[tuple[Float[Tensor, " step"], Bool[Tensor, " step"]]]
"""For each continuation, the log-probabilities of its tokens, and which of the tokens are the likeliest."""


def without_choices(trials: Sequence[EncodedTrial]) -> list[EncodedTrial]:
    """The trials without choices, each of which would cost a forward that metrics without choices do not need."""
    return [replace(trial, choices=(), choice_tokens=()) for trial in trials]


def answers_and_choices(
    model: Model,
    trials: Sequence[EncodedTrial],
    last: Int[Tensor, "batch 1"],
    cache: Cache,
    pads: Int[Tensor, " batch"],
) -> tuple[Forced, list[dict[str, float]]]:
    """The teacher-forced gold answers, and the metrics of the choices (an empty dictionary for trials without).

    Runs one short forward, or as many as `MOST_BYTES` requires. The cache (prompts without `last`) is left unchanged.
    """
    texts = [_texts(trial) for trial in trials]
    # Texts that differ in their last token alone (choices of one token) are read off one row.
    alike: dict[tuple[int, Text], list[Text]] = {}
    for row, listed in enumerate(texts):
        for text in listed:
            alike.setdefault((row, text[:-1]), []).append(text)
    owners, every = [row for row, _ in alike], list(alike.values())
    # A logit takes four bytes, and four more during the logsumexp.
    row_bytes = cache.row_bytes + 8 * max(len(listed[0]) for listed in every) * model.W_U.shape[-1]
    at_once = max(1, MOST_BYTES // row_bytes)
    forced: dict[tuple[int, Text], tuple[Float[Tensor, " step"], Bool[Tensor, " step"]]] = {}
    for start in range(0, len(every), at_once):
        rows, some = owners[start : start + at_once], every[start : start + at_once]
        branch = cache.branch(rows if rows != list(range(len(trials))) else None)  # One per row needs no copies.
        for row, listed, read in zip(
            rows, some, continuations(model, some, last[rows], branch, pads[rows]), strict=True
        ):
            forced |= {(row, text): one for text, one in zip(listed, read, strict=True)}
        del branch  # Frees the copies before the next are made.
    golds: Forced = []
    found: list[dict[str, float]] = []
    for row, (trial, listed) in enumerate(zip(trials, texts, strict=True)):
        mine = [forced[row, text] for text in listed]
        golds.append(mine[0] if len(mine) > len(trial.choices) else mine[trial.choices.index(trial.answer)])
        found.append(_metrics(trial, mine[-len(trial.choices) :]) if trial.choices else {})
    return golds, found


def _texts(trial: EncodedTrial) -> list[Text]:
    """The trial's choices, preceded by its answer unless that is among them with the same tokens."""
    gold, *choices = (tuple(ids.tolist()) for ids in (trial.answer_tokens, *trial.choice_tokens))
    return choices if choices and choices[trial.choices.index(trial.answer)] == gold else [gold, *choices]


def _metrics(trial: EncodedTrial, forced: Forced) -> dict[str, float]:
    gold = trial.choices.index(trial.answer)
    total = torch.stack([picked.sum() for picked, _ in forced])
    length = torch.tensor([len(choice) for choice in trial.choices], device=total.device)
    return {
        "choice": float(_first(total) == gold),
        "choice_norm": float(_first(total / length) == gold),
        "choice_logprob": float(total.log_softmax(0)[gold]),
        "choice_margin": float(total[gold] - torch.cat([total[:gold], total[gold + 1 :]]).max()),
    }


def _first(scores: Float[Tensor, " choice"]) -> int:
    """The best choice; -1 for a tie, which chooses none."""
    best = (scores == scores.max()).nonzero()[:, 0]
    return int(best[0]) if len(best) == 1 else -1


def continuations(
    model: Model,
    texts: Sequence[Sequence[Text]],
    last: Int[Tensor, "batch 1"],
    cache: Cache,
    pads: Int[Tensor, " batch"],
) -> list[Forced]:
    """Each row's teacher-forced continuations, which differ in their last token alone, in one short forward of the cache."""
    longest = max(len(listed[0]) for listed in texts)
    given = torch.zeros(len(texts), longest - 1, dtype=torch.long, device=last.device)
    for i, listed in enumerate(texts):
        given[i, : len(listed[0]) - 1] = torch.tensor(listed[0][:-1], dtype=torch.long)
    logits = advance(model, torch.cat([last, given], 1), cache, pads, logits=longest)
    assert logits is not None
    # log_softmax would copy all logits, of which some models have 262,144 per row.
    norms, likeliest = logits.float().logsumexp(-1), logits.argmax(-1)

    def one(row: int, text: Text) -> tuple[Float[Tensor, " step"], Bool[Tensor, " step"]]:
        ids = torch.tensor(text, device=logits.device)
        picked = logits[row, : len(ids)].gather(-1, ids[:, None])[:, 0].float() - norms[row, : len(ids)]
        return picked, likeliest[row, : len(ids)] == ids

    return [[one(row, text) for text in listed] for row, listed in enumerate(texts)]
