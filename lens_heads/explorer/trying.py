"""What the answer becomes without some heads, or with them put back: the explorer's experiments, one trial at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from lens_heads.ablation.evaluation import evaluate
from lens_heads.causal.pairs import make_pairs
from lens_heads.causal.patching import patch
from lens_heads.heads.head import Head
from lens_heads.heads.sets import every_head, random_heads
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.activations import MeanActivations, run_activations
from lens_heads.model.geometry import Model, geometry
from lens_heads.trials.encoded import EncodedTrial

Try = Literal["mean", "zero", "patch"]


@dataclass(frozen=True)
class Tried:
    """One experiment. Log-probabilities of the gold answer (nats per token) and greedy texts, before and after.

    Ablation: before is the plain run. Patching: before is the run of the corrupt prompt, after the same with what the heads wrote
    in the plain run. `random`: the log-probability with as many random other heads instead, mean over `draws` sets; `random_low`
    and `random_high` their range. `rank`: the place of the heads among these sets, 1 for the largest change of its kind (down by
    ablation, up by patching).
    """

    trial: str
    heads: tuple[str, ...]
    kind: Try
    before: float
    after: float
    text_before: str
    text_after: str
    random: float | None
    random_low: float | None
    random_high: float | None
    draws: int
    rank: int

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "heads": list(self.heads)}


def attempt(
    model: Model,
    trial: EncodedTrial,
    heads: Sequence[Head],
    kind: Try,
    reference: MeanActivations | None = None,
    draws: int = 5,
    max_new_tokens: int = 20,
) -> Tried:
    """Ablate heads on one trial ("mean", "zero"), or patch them from it into its corrupt prompt ("patch").

    The corrupt prompt is the trial's counterfactual, or, without one, the prompt with its needle replaced. ValueError for no
    heads, another kind, "mean" without a reference, and a trial that has neither.
    """
    if kind not in get_args(Try):
        raise ValueError(f"kind={kind!r}: use {', '.join(get_args(Try))}")
    if not heads:
        raise ValueError("heads is empty: choose at least one")
    shape = geometry(model)
    start, changed = _runs(model, trial, kind, reference)
    everyone = every_head(shape.n_layers, shape.n_heads)
    drawn = (
        [random_heads(everyone, heads, len(heads), seed) for seed in range(draws)] if len(heads) < len(everyone) else []
    )
    before, text_before = _answer(model, start, max_new_tokens)
    with changed(heads):
        after, text_after = _answer(model, start, max_new_tokens)
    others = []
    for some in drawn:
        with changed(some):
            others.append(_answer(model, start, 0)[0])
    spread = (float(np.mean(others)), min(others), max(others)) if others else (None, None, None)
    as_much = [one >= after if kind == "patch" else one <= after for one in others]
    named, rank = tuple(map(str, heads)), 1 + sum(as_much)
    return Tried(trial.id, named, kind, before, after, text_before, text_after, *spread, len(others), rank)


def _runs(
    model: Model, trial: EncodedTrial, kind: Try, reference: MeanActivations | None
) -> tuple[EncodedTrial, Callable[[Sequence[Head]], AbstractContextManager[Any]]]:
    """The prompt that is run, and what changes heads in it."""
    if kind != "patch":
        return trial, lambda heads: ablate(model, heads, kind, reference=reference)
    corruption = "counterfactual" if "corrupt" in trial.meta else "remove"
    (pair,) = make_pairs([trial], model.tokenizer, geometry(model), corruption)
    corrupt = replace(trial, tokens=pair.corrupt[: len(trial)])
    clean = run_activations(model, pair.clean[:-1], pair.id)
    return corrupt, lambda heads: patch(model, heads, clean)


def _answer(model: Model, trial: EncodedTrial, max_new_tokens: int) -> tuple[float, str]:
    """The gold answer's log-probability, and the text that the model writes instead ("" for none)."""
    found = evaluate(model, trial, generate=bool(max_new_tokens), max_new_tokens=max(1, max_new_tokens), progress=False)
    return float(found.metrics["logprob"][0]), found.texts[0] if found.texts else ""
