"""Metrics of a patched run: one number per run, read from the logits of the rows that produce the answer."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.runs import checks
from lens_heads.runs.warned import users_line
from lens_heads.trials.pairs import TokenPair

Measure: TypeAlias = Callable[[Float[Tensor, "run step d_vocab"], Int[Tensor, " step"]], Float[Tensor, " run"]]
"""From float32 logits of the answer rows and the gold tokens to one number per run; differentiable for attribution."""


def answer_logprob(logits: Float[Tensor, "run step d_vocab"], gold: Int[Tensor, " step"]) -> Float[Tensor, " run"]:
    """The gold answer's mean log-probability per token, in nats, teacher-forced."""
    index = gold.to(logits.device).expand(len(logits), -1)[..., None]
    return logits.log_softmax(-1).gather(-1, index)[..., 0].mean(-1)


def answer_logit(logits: Float[Tensor, "run step d_vocab"], gold: Int[Tensor, " step"]) -> Float[Tensor, " run"]:
    """The gold answer's logit above the mean of all logits, mean over its tokens, teacher-forced.

    Its gradient does not vanish where the model is sure of the answer, as that of the log-probability does.
    """
    index = gold.to(logits.device).expand(len(logits), -1)[..., None]
    return (logits.gather(-1, index)[..., 0] - logits.mean(-1)).mean(-1)


def first_token_prob(logits: Float[Tensor, "run step d_vocab"], gold: Int[Tensor, " step"]) -> Float[Tensor, " run"]:
    """The probability of the answer's first token."""
    return logits[:, 0].softmax(-1)[:, int(gold[0])]


def first_token_logit_diff(pair: TokenPair, corrupt: Float[Tensor, "step d_vocab"]) -> Measure:
    """Logit of the answer's first token minus that of the wrong answer's, or else of what the corrupt run ranks first there.

    Without a pair's `wrong`, the default of the LOCOS authors' code, which takes the highest-ranked wrong token. If the corrupt
    run then ranks the answer's own first token first, the corruption has not removed the answer: this raises ValueError instead
    of using the runner-up, and `patch_heads` omits such pairs with a warning.
    """
    given = pair.wrong
    favourite, first = int(corrupt[0].argmax() if given is None else given[0]), int(pair.gold[0])
    if favourite == first:
        raise ValueError(
            f"pair {pair.id}: the corrupt run ranks the answer's own first token {first} first, leaving no wrong token to "
            "compare with. Use another corruption, or metric='logprob'."
        )
    return lambda logits, gold: logits[:, 0, first] - logits[:, 0, favourite]


def closeness(clean: Float[Tensor, "step d_vocab"]) -> Measure:
    """Minus the divergence KL(clean || run) of the next token, mean over the answer rows, in nats: 0 is the clean run.

    Needs no gold answer. The loss of EAP-IG for checkpoints (Thinking Sparks), with the sign of the other metrics.
    """
    wanted = clean.log_softmax(-1)
    return lambda logits, gold: -(wanted.exp() * (wanted - logits.log_softmax(-1))).sum(-1).mean(-1)


UNITS = {
    "logprob": "nats",
    "answer_logit": "logits",
    "first_token_logit_diff": "logits",
    "first_token_prob": "probability",
    "kl": "nats",
}
"""The metrics known by name, with their units."""

OF_ONE_RUN: dict[str, Measure] = {
    "logprob": answer_logprob,
    "answer_logit": answer_logit,
    "first_token_prob": first_token_prob,
}
"""Those that compare with no other run."""


def measure_of(
    metric: str | Measure,
    pair: TokenPair,
    clean: Float[Tensor, "step d_vocab"],
    corrupt: Float[Tensor, "step d_vocab"],
) -> Measure:
    """The measure for one pair, given the metric and the pair's logits."""
    if not isinstance(metric, str):
        return metric
    if metric in OF_ONE_RUN:
        return OF_ONE_RUN[metric]
    return closeness(clean) if metric == "kl" else first_token_logit_diff(pair, corrupt)


def warn_of_reversed(metric: str, values: Iterable[tuple[str, float, float]]) -> None:
    """One warning where the corrupt run has the answer more than the clean one: `values` are ids with both.

    Scores of such a pair have the wrong sign: what carries the answer counts as what suppresses it.
    """
    listed = list(values)
    found = [one for one in listed if one[1] < one[2]]
    if found:
        name, clean, corrupt = found[0]
        warnings.warn(
            f"pair {name}: {metric} is {clean:.3g} in the clean run and {corrupt:.3g} in the corrupt one, which has the answer "
            f"more ({len(found)} of {len(listed)} pairs): exchange its prompts, or use pairs whose answer the corruption "
            "takes away",
            stacklevel=users_line(),
        )


def check_measure(metric: str | Measure) -> str:
    """The metric's name. ValueError for an unknown name, TypeError for anything else that is not callable."""
    if isinstance(metric, str):
        if metric not in UNITS:
            raise ValueError(f"metric={metric!r}: use {', '.join(UNITS)}, or a function (logits, gold) -> one per run")
        return metric
    if not callable(metric):
        raise TypeError(f"metric={metric!r}: must be a name or a function (logits, gold) -> one number per run")
    if not _takes_two(metric):
        raise TypeError(f"{_named(metric)} must take two arguments, (logits, gold), and return one number per run")
    return getattr(metric, "__name__", type(metric).__name__)


def _takes_two(metric: Measure) -> bool:
    try:
        inspect.signature(metric).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # Of a function that does not say.
        return True
    return True


def judged(measure: Measure, logits: Float[Tensor, "run step d_vocab"], pair: TokenPair) -> Float[Tensor, " run"]:
    """The measure of each run. ValueError naming the pair for a wrong shape or a value that is not finite."""
    values = checks.numbers(measure(logits.float(), pair.gold.to(logits.device).clone()))
    if not isinstance(values, Tensor) or tuple(values.shape) != (len(logits),):
        found = f"shape {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"pair {pair.id}: {_named(measure)} returned {found} for logits {list(logits.shape)} [run, step, d_vocab]. "
            f"Return one number per run: a tensor of shape [{len(logits)}]."
        )
    if not torch.isfinite(values).all():
        bad = float(values[~torch.isfinite(values)][0])
        raise ValueError(
            f"pair {pair.id}: {_named(measure)} is {bad}. Load the model in float32 or bfloat16, and use a finite metric."
        )
    return values


def _named(measure: Measure) -> str:
    """The metric, with its name if it is a function of the user's that has one."""
    name = getattr(measure, "__name__", type(measure).__name__)
    known = getattr(measure, "__module__", "") == __name__ or name == "<lambda>"
    return "the metric" if known else f"the metric {name}"
