"""What the answer becomes without some heads, or with them put back: the explorer's experiments, one trial at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from lens_heads.answering.evaluation import evaluate
from lens_heads.heads.controls import Controls
from lens_heads.heads.head import Head
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.activations import MeanActivations, run_activations
from lens_heads.interventions.patch import patch
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.pairs import token_pairs

Try = Literal["mean", "zero", "patch"]
Change: TypeAlias = Callable[[Sequence[Head]], AbstractContextManager[Any]]
"""What is done to some heads."""


@dataclass(frozen=True)
class Tried:
    """One experiment. Log-probabilities of the gold answer (nats per token) and greedy texts, before and after.

    Ablation: before is the plain run, and `right` whether greedy decoding begins with the gold answer in it. Patching: before is
    the run of the corrupt prompt, after the same with what the heads wrote in the plain run: over prompt and gold answer for the
    log-probability, over the prompt alone for the text.

    `random`: the log-probability with as many random heads instead, mean over `draws` different sets; `random_low` and
    `random_high` their range. `as_much`: how many of these sets changed it as much or more (down by ablation, up by patching).
    """

    trial: str
    heads: tuple[str, ...]
    kind: Try
    before: float
    after: float
    right: bool
    text_before: str
    text_after: str
    random: float | None
    random_low: float | None
    random_high: float | None
    draws: int
    as_much: int

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "heads": list(self.heads)}


@dataclass(frozen=True)
class _Runs:
    """The prompt that is run, and what changes heads in it: while the gold answer is fed, and while a text is written."""

    start: EncodedTrial
    forced: Change
    written: Change


def attempt(
    model: Model,
    trial: EncodedTrial,
    heads: Sequence[Head],
    kind: Try,
    reference: MeanActivations | None,
    controls: Controls,
    max_new_tokens: int,
) -> Tried:
    """Ablate heads on one trial ("mean", "zero"), or patch them from it into its corrupt prompt ("patch").

    The corrupt prompt is the trial's counterfactual, or, without one, the prompt with its needle replaced. ValueError for no
    heads, another kind, "mean" without a reference, and a trial that has neither.
    """
    if kind not in get_args(Try):
        raise ValueError(f"kind={kind!r}: use {', '.join(get_args(Try))}")
    if not heads:
        raise ValueError("heads is empty: choose at least one")
    runs = _runs(model, trial, kind, reference)

    def logprob() -> float:
        return evaluate(model, runs.start, generate=False, progress=False).mean("logprob")

    plain = evaluate(model, runs.start, max_new_tokens=max_new_tokens, progress=False)
    with runs.forced(heads):
        after = logprob()
    with runs.written(heads):
        text = evaluate(model, runs.start, max_new_tokens=max_new_tokens, progress=False).texts[0]
    others = []
    shape = head_geometry(model)
    everyone = shape.every_head()
    drawn = controls.random(everyone, len(heads)) if len(heads) < len(everyone) else []
    for some in {frozenset(one): one for one in drawn}.values():  # A small model has few different sets.
        with runs.forced(some):
            others.append(logprob())
    as_much = sum(one >= after if kind == "patch" else one <= after for one in others)
    spread = (float(np.mean(others)), min(others), max(others)) if others else (None, None, None)
    said = (plain.mean("logprob"), after, plain.mean("greedy_match") == 1, plain.texts[0], text)
    return Tried(trial.id, tuple(map(str, heads)), kind, *said, *spread, len(others), as_much)


def _runs(model: Model, trial: EncodedTrial, kind: Try, reference: MeanActivations | None) -> _Runs:
    if kind != "patch":
        change = partial(ablate, model, kind=kind, reference=reference)
        return _Runs(trial, change, change)
    (pair,) = token_pairs([trial], model.tokenizer, head_geometry(model), None)
    fed, asked = (run_activations(model, tokens, pair.id) for tokens in (pair.clean[:-1], trial.tokens))
    corrupt = replace(trial, tokens=pair.corrupt[: len(trial)])
    return _Runs(corrupt, partial(patch, model, clean=fed), partial(patch, model, clean=asked))
