"""The stages of the study of choices: each takes trials, of which every passage is asked both of its questions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lens_heads.answering.ability import Ability, ability
from lens_heads.evidence.curve import ablation_curve
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.head_sets import capped
from lens_heads.evidence.verdicts import smallest_k
from lens_heads.heads.controls import Controls
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.inspection import anatomy
from lens_heads.interventions.activations import MeanActivations, mean_activations
from lens_heads.interventions.row_activations import row_activations
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.ranking.causal.patching import patch_heads
from lens_heads.ranking.rank import rank
from lens_heads.studies.two_needles.presets import EVERYWHERE, KINDS, LEAD, METHODS, METRIC, PATCHED, TASK, Preset
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.question_swaps import exchange_questions
from lens_heads.trials.trial import AnyTrial

LEADS = (LEAD, "attention_mass", PATCHED)
"""The rankings whose heads are looked at one by one."""


@dataclass(frozen=True, eq=False)
class Passages:
    """The passages of a half, what the model can do of them, and those whose two questions it answers."""

    trials: Sequence[AnyTrial]
    able: Ability

    @property
    def passing(self) -> list[AnyTrial]:
        """The passages of which the right answer is the likelier one under both questions."""
        assert self.able.exchanged is not None
        margins = (part.metrics[METRIC].tolist() for part in (self.able.asked, self.able.exchanged))
        rows = zip(self.able.asked.trial_ids, *margins, strict=True)
        right = {id for id, asked, exchanged in rows if asked > 0 and exchanged > 0}
        return [trial for trial in self.trials if trial.id in right]


def asked_twice(passages: Sequence[AnyTrial], most: int | None = None) -> list[AnyTrial]:
    """Each passage with its own question and with its distractor's, one after the other; at most so many trials."""
    return [one for pair in zip(passages, exchange_questions(passages), strict=True) for one in pair][:most]


def comparable(model: Model, passages: Sequence[AnyTrial]) -> list[AnyTrial]:
    """Those whose two answers begin with different tokens, which scores of the choice compare. Some tokenizers begin all numbers
    alike."""
    if not passages:
        return []
    shape = head_geometry(model)
    encoded = encode_all(passages, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
    return [trial for trial, one in zip(passages, encoded, strict=True) if one.wrong is not None]


def can(model: Model, trials: Sequence[AnyTrial], plan: Preset, out: Path) -> Passages:
    """Which of the passages the model can do."""
    return Passages(trials, ability(model, trials, batch_size=plan.batch_size, out=out))


@dataclass(frozen=True, eq=False)
class Setup:
    """What the stages after the gate share: the questions that rank, those that judge, and the model's folder."""

    model: Model
    plan: Preset
    select: Sequence[AnyTrial]
    test: Sequence[AnyTrial]
    out: Path

    @cached_property
    def means(self) -> MeanActivations:
        """The mean activations of the questions that rank; stored."""
        file = self.out / "means.safetensors"
        if not file.exists():
            mean_activations(self.model, self.select, n=None).save(partial := file.with_suffix(".partial"))
            partial.replace(file)
        return MeanActivations.load(file)

    def kind(self, name: str) -> dict[str, Any]:
        """The keywords of `ablation_curve` for a kind of this study, on the questions that judge."""
        if name == "mean":
            return {"kind": "mean", "reference": self.means, "span": "last"}
        if name == "zero":
            return {"kind": "zero", "span": "last"}
        donors = exchange_questions(self.test)
        if name == "resample":  # Those of another passage, half the list away.
            half = len(donors) // 2
            donors = [*donors[half:], *donors[:half]]
        return {"kind": "interchange", "reference": row_activations(self.model, donors)}

    @property
    def ks(self) -> list[int]:
        shape = head_geometry(self.model)
        return capped(self.plan.ks, shape.n_layers * shape.n_heads)

    def ablate(
        self, name: str, trials: Sequence[AnyTrial], rankings: Mapping[str, HeadScores], **options: Any
    ) -> AblationCurve:
        how: dict[str, Any] = {"batch_size": self.plan.batch_size, "generate": False, "out": self.out / name}
        return ablation_curve(self.model, {TASK: trials}, rankings, **{**how, **options})


def ranked(setup: Setup) -> dict[str, HeadScores]:
    """Every method's ranking, from the questions that rank."""
    options: dict[str, Any] = {"out": setup.out / "scores", "batch_size": setup.plan.batch_size}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Tables show a method that ranks nothing.
        scores = dict(rank(setup.model, setup.select, list(METHODS), **options))
    patched = patch_heads(
        setup.model,
        setup.select,
        metric="first_token_logit_diff",
        out=setup.out / "patching",
        corruption="counterfactual",
    )
    return {name: one for name, one in {**scores, PATCHED: patched}.items() if float(one.values.max()) > 0}


def chosen(setup: Setup, scores: Mapping[str, HeadScores]) -> dict[str, int]:
    """Each method's own k: the smallest of the preset's at which its heads take half of the choice, on questions that rank."""
    how = {"kind": "mean", "reference": setup.means, "span": "last"}
    curve = setup.ablate("choice", setup.select, scores, ks=setup.ks, controls=(), selecting=True, **how)
    return {name: smallest_k(curve, name, metric=METRIC) for name in scores}


def judged(setup: Setup, scores: Mapping[str, HeadScores]) -> dict[str, AblationCurve]:
    """What every method's heads cost under every kind of ablation, beside random heads."""
    plan, found = setup.plan, {}
    for name in KINDS:
        alone = single(setup, scores) if name == "counterfactual" else {}
        controls = Controls(("random", "random_like"), plan.draws, trials=plan.few)
        how = setup.kind(name) | {"controls": controls, "sets": alone}
        found[name] = setup.ablate(name, setup.test, scores, ks=setup.ks, **how)
    if plan.whole:
        shape = head_geometry(setup.model)
        how = {"kind": "mean", "reference": setup.means, "controls": Controls("random", plan.whole_draws)}
        few = {name: scores[name] for name in dict.fromkeys((*LEADS, f"{LEAD}_exact")) if name in scores}
        ks = capped(plan.whole_ks, shape.n_layers * shape.n_heads)
        found[EVERYWHERE] = setup.ablate("everywhere", setup.test[: plan.whole], few, ks=ks, **how)
    return found


def single(setup: Setup, scores: Mapping[str, HeadScores]) -> dict[str, Head]:
    """The first heads of each leading ranking, by name, to be exchanged alone."""
    heads = [head for name in LEADS if name in scores for head in scores[name].ranking()[: setup.plan.alone]]
    return {str(head): head for head in dict.fromkeys(heads)}


def literal(setup: Setup) -> HeadScores:
    """The share of what each head writes that is a copy of the token it reads."""
    return anatomy.literalness(setup.model, setup.select, teacher_forced=True, out=setup.out / "literal")
