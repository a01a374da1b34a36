"""Multiple choice by log-likelihood: how likely is each choice where the answer goes?   (Brown et al., arXiv 2005.14165)"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lens_heads.forward import Cache, advance
from lens_heads.models import Model
from lens_heads.trials import EncodedTrial

CHOICE_METRICS = ("choice", "choice_norm", "choice_logprob")
"""`choice`: 1 where the gold choice has the highest log-likelihood, summed over its tokens (`acc` of lm-evaluation-harness).
`choice_norm`: the same per character of the choice (its `acc_norm`). `choice_logprob`: log of the gold choice's share among
the choices, in nats: 0 at best, -log(choices) where the model cannot tell them apart. It moves where `choice` is still the
same, so it needs far fewer trials."""


def choice_scores(
    model: Model,
    trials: Sequence[EncodedTrial],
    last: Int[Tensor, "batch 1"],
    cache: Cache,
    pads: Int[Tensor, " batch"],
) -> list[dict[str, float]]:
    """The metrics of every trial that has choices, nothing for the others; the cache (prompts but `last`) stays as it is."""
    found: list[dict[str, float]] = []
    for row, trial in enumerate(trials):
        if not trial.choices:
            found.append({})
            continue
        n, gold = len(trial.choices), trial.choices.index(trial.answer)
        branch = cache.branch(row, n)
        forced = continuations(model, trial.choice_tokens, last[row].expand(n, 1), branch, pads[row].expand(n))
        total = torch.stack([picked.sum() for picked, _ in forced])
        length = torch.tensor([len(choice) for choice in trial.choices], device=total.device)
        found.append(
            {
                "choice": float(_first(total) == gold),
                "choice_norm": float(_first(total / length) == gold),
                "choice_logprob": float(total.log_softmax(0)[gold]),
            }
        )
    return found


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
) -> list[tuple[Float[Tensor, " step"], Bool[Tensor, " step"]]]:
    """Each row's continuation, teacher-forced, in one short forward: log-probability of its tokens, and which are likeliest.

    Advances the cache.
    """
    longest = max(len(text) for text in texts)
    gold = torch.zeros(len(texts), longest, dtype=torch.long, device=last.device)
    for i, text in enumerate(texts):
        gold[i, : len(text)] = text
    logits = advance(model, torch.cat([last, gold[:, :-1]], 1), cache, pads, logits=longest)
    assert logits is not None
    targets = gold[..., None].to(logits.device)
    picked = logits.float().log_softmax(-1).gather(-1, targets)[..., 0]
    likeliest = logits.argmax(-1, keepdim=True).eq(targets)[..., 0]
    return [(picked[i, : len(text)], likeliest[i, : len(text)]) for i, text in enumerate(texts)]
