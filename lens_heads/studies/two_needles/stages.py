"""The stages of the study of choices: what is measured.

Stages take trials, of which every passage is asked both of its questions.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from lens_heads.runs.digests import digest
from lens_heads.stats.intervals import FEWEST
from lens_heads.studies.two_needles.claims import (
    CARRYING,
    EVERYWHERE,
    KINDS,
    LEAD,
    METHODS,
    METRIC,
    PATCHED,
    TASK,
    Preset,
)
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.exchanges import exchange_questions
from lens_heads.trials.trial import AnyTrial

LEADS = (LEAD, "attention_mass", PATCHED)
"""The rankings whose heads are looked at one by one, and found again on other selection questions."""
MORE_SEEDS = (21, 31)
"""Seeds of the further selections: other passages of the selection half."""
UNGATED = 100
"""Passages of the test half, answered or not, on which the claims' heads are ablated once more: the gate looks at the answers
that it keeps."""
MORE_SETS = 199
"""Random sets for the rank of a claim's heads, since with 40 the least p is 0.024."""


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
    """What the stages after the gate share: the questions that rank, those that judge, and the model's folder.

    `more`: by seed, the passages of further selections. `sets`: random sets for the ranks of the claims' heads. `every`: the
    passages of the test half, before the gate.
    """

    model: Model
    plan: Preset
    select: Sequence[AnyTrial]
    test: Sequence[AnyTrial]
    out: Path
    more: Mapping[int, Sequence[AnyTrial]] = field(default_factory=dict)
    sets: int = MORE_SETS
    every: Sequence[AnyTrial] = ()

    @cached_property
    def means(self) -> MeanActivations:
        """The mean activations of the questions that rank; stored."""
        file = self.out / "means.safetensors"
        if not file.exists():
            mean_activations(self.model, self.select, n=None).save(file)
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
        key = digest([donor.id for donor in donors])  # The passages before the gate have donors of their own.
        rows = row_activations(self.model, donors, out=self.out / f"donors-{name}-{key[:8]}")
        return {"kind": "interchange", "reference": rows}

    def capped(self, ks: Sequence[int]) -> list[int]:
        """Those that the model has heads for."""
        shape = head_geometry(self.model)
        return capped(ks, shape.size)

    def ablate(
        self, name: str, trials: Sequence[AnyTrial], rankings: Mapping[str, HeadScores], **options: Any
    ) -> AblationCurve:
        how: dict[str, Any] = {"batch_size": self.plan.batch_size, "generate": False, "out": self.out / name}
        return ablation_curve(self.model, {TASK: trials}, rankings, **{**how, **options})


def ranked(setup: Setup, methods: Sequence[str] = METHODS) -> dict[str, HeadScores]:
    """The methods' rankings and that of patching, from the questions that rank."""
    options: dict[str, Any] = {"out": setup.out / "scores", "batch_size": setup.plan.batch_size}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Tables show a method that ranks nothing.
        scores = dict(rank(setup.model, setup.select, list(methods), **options))
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
    how = setup.kind("mean") | {"controls": (), "selecting": True}
    curve = setup.ablate("choice", setup.select, scores, ks=setup.capped(setup.plan.ks), **how)
    return {name: smallest_k(curve, name, metric=METRIC) for name in scores}


def judged(setup: Setup, scores: Mapping[str, HeadScores]) -> dict[str, AblationCurve]:
    """What every method's heads cost under every kind of ablation, beside random heads."""
    plan, found = setup.plan, {}
    for name in KINDS:
        alone = single(setup, scores) if name == "counterfactual" else {}
        controls = Controls(("random", "random_like"), plan.draws, trials=plan.few)
        how = setup.kind(name) | {"controls": controls, "sets": alone}
        found[name] = setup.ablate(name, setup.test, scores, ks=setup.capped(plan.ks), **how)
    if plan.whole:
        how = {"kind": "mean", "reference": setup.means, "controls": Controls("random", plan.whole_draws)}
        few = {name: scores[name] for name in dict.fromkeys((*LEADS, f"{LEAD}_exact")) if name in scores}
        found[EVERYWHERE] = setup.ablate(
            "everywhere", setup.test[: plan.whole], few, ks=setup.capped(plan.whole_ks), **how
        )
    return found


def single(setup: Setup, scores: Mapping[str, HeadScores]) -> dict[str, Head]:
    """The first heads of each leading ranking, by name, to be exchanged alone."""
    heads = [head for name in LEADS if name in scores for head in scores[name].ranking()[: setup.plan.alone]]
    return {str(head): head for head in dict.fromkeys(heads)}


def outranked(setup: Setup, scores: Mapping[str, HeadScores], k: Mapping[str, int]) -> AblationCurve:
    """The heads of every claim at their own k beside many random sets, under the first kind, on the first questions."""
    plan = setup.plan
    names = [name for name in CARRYING if name in scores]
    how = setup.kind(KINDS[0]) | {"controls": Controls("random", setup.sets), "ks": sorted({k[name] for name in names})}
    return setup.ablate("sets", setup.test[: plan.few], {name: scores[name] for name in names}, **how)


def ungated(setup: Setup, scores: Mapping[str, HeadScores], k: Mapping[str, int]) -> dict[str, AblationCurve]:
    """The same heads on passages that no answer chose, under the first and the last kind. Over both questions of a passage, what
    the model prefers unasked cancels."""
    every, plan = replace(setup, test=asked_twice(setup.every[:UNGATED])), setup.plan
    names = [name for name in CARRYING if name in scores]
    how = {"ks": sorted({k[name] for name in names}), "controls": Controls("random", plan.draws, trials=plan.few)}
    return {
        kind: every.ablate(
            f"ungated-{kind}", every.test, {name: scores[name] for name in names}, **every.kind(kind), **how
        )
        for kind in (KINDS[0], KINDS[-1])
    }


def reselected(setup: Setup) -> dict[str, HeadScores]:
    """The leading rankings again, from the passages of other seeds, by method and seed. Seeds of which the model answers too few
    passages are left out."""
    found: dict[str, HeadScores] = {}
    methods = [name for name in LEADS if name != PATCHED]
    for seed, trials in setup.more.items():
        folder = setup.out / f"seed-{seed}"
        drawn = can(setup.model, trials, setup.plan, folder / "ability")
        passages = comparable(setup.model, drawn.passing)[: setup.plan.choose]
        if len(passages) >= FEWEST:
            again = replace(setup, select=asked_twice(passages), out=folder)
            found |= {f"{name}, seed {seed}": one for name, one in ranked(again, methods).items()}
    return found


def rejudged(setup: Setup, scores: Mapping[str, HeadScores]) -> AblationCurve:
    """What the heads of every seed cost under the first kind, each method's own and those found again."""
    how = setup.kind(KINDS[0]) | {"controls": ()}
    return setup.ablate("seeds", setup.test, scores, ks=setup.capped(setup.plan.ks), **how)


def literal(setup: Setup) -> HeadScores:
    """The share of what each head writes that is a copy of the token it reads."""
    return anatomy.literalness(setup.model, setup.select, teacher_forced=True, out=setup.out / "literal")
