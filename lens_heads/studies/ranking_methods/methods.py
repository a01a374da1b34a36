"""The ranking methods of the table, and how your own enter it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import geometry
from lens_heads.model.identity import identify
from lens_heads.ranking.causal.ablated import attribute_ablation, gradient_importance
from lens_heads.ranking.causal.attribution import attribution_patch
from lens_heads.ranking.causal.knockout import knockout_heads
from lens_heads.ranking.causal.patching import patch_heads
from lens_heads.ranking.masks.localize import DESIGNED, localize
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.ranking.one_pass.repeated import repeated_blocks
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.ranking.one_pass.scorer import Scorer
from lens_heads.ranking.one_pass.scorers import SCORERS
from lens_heads.runs.code import labelled
from lens_heads.studies.ranking_methods import trained
from lens_heads.studies.ranking_methods.material import Material
from lens_heads.trials.context_pairs import context_pairs
from lens_heads.trials.digests import made_on
from lens_heads.trials.pairs import Positions

Rank: TypeAlias = Callable[[Material], HeadScores]
Needs = Literal["", "needle", "pairs"]
QUIET: dict[str, Any] = {"progress": False}
BATCH, BLOCK = 16, 50
"""Trials in a batch of masked runs, and tokens in a block of the repeated-token scores, which is written three times."""


@dataclass(frozen=True)
class Method:
    """A way to rank heads: a function from material to scores, and what it needs of the material.

    `passes`: about how many plain passes it takes on a model of this shape, with so many masks and a search for k heads.
    `halves`: per-trial scores cannot be halved, because all trials together choose what is scored; stability takes two runs on
    half of the trials each.
    """

    name: str
    family: str
    rank: Rank
    needs: Needs = ""
    passes: Callable[[HeadGeometry, int, int], float] = lambda shape, masks, k: 1.0
    halves: bool = False

    def missing(self, material: Material) -> str:
        """What the material lacks for this method, in words; empty if nothing."""
        if self.needs == "needle" and not material.needled:
            return "the prompts hold neither a needle nor their answer"
        return "the task has no counterfactual prompts" if self.needs == "pairs" and not material.pairs else ""

    @property
    def identity(self) -> str:
        """The name; for a method of your own, with a hash of its code."""
        return self.name if METHODS.get(self.name) is self else labelled(self.name, self.rank, True)


def by_scorer(scorer: Scorer, family: str = "observational") -> Method:
    """A scorer of needles: one teacher-forced pass."""

    def rank(material: Material) -> HeadScores:
        return score_heads(material.model, material.needled, [scorer], teacher_forced=True, **QUIET)[scorer.name]

    return Method(scorer.name, family, rank, "needle")


def _repeated(name: str) -> Method:
    """A score of repeated random tokens, which needs no trials: three blocks."""

    def rank(material: Material) -> HeadScores:
        blocks = [repeated_blocks(material.model, BLOCK, 3, material.seed * 3 + i) for i in range(3)]
        return score_heads(material.model, blocks, [name], **QUIET)[name]

    return Method(name, "observational", rank)


def _context(material: Material) -> HeadScores:
    name = "context_divergence"
    return score_heads(material.model, context_pairs(material.needled), [name], **QUIET)[name]


def measured(material: Material) -> MaskedMetric:
    """The answer's log-probability on the selection trials, as a function of the heads that mean ablation takes."""
    how: dict[str, Any] = {"kind": "mean", "reference": material.reference, "batch_size": BATCH}
    return MaskedMetric(material.model, material.trials, **how, **QUIET)


def masked(method: str) -> Rank:
    """A method of `localize_heads`, by mean ablation."""

    def rank(material: Material) -> HeadScores:
        total = geometry(material.model)
        sparsity = max(0.05, 2 / (total.n_layers * total.n_heads))
        more = {"n_masks": material.masks, "sparsity": sparsity} if method in DESIGNED else {}
        return localize(measured(material), method, k=material.k, seed=material.seed, **more)

    return rank


def random_ranking(material: Material) -> HeadScores:
    """Random numbers: what a method that knows nothing gets."""
    shape, rng = geometry(material.model), np.random.default_rng(material.seed)
    values = torch.from_numpy(rng.normal(size=(len(material.trials), shape.n_layers, shape.n_heads))).float()
    return scored("random_numbers", values, material)


def by_layer(material: Material) -> HeadScores:
    """Heads ranked by their layer alone: what ablating the whole layer costs. Heads of a layer are in random order."""
    metric, rng = measured(material), np.random.default_rng(material.seed)
    layers, heads = metric.units
    cost = metric.base - metric(np.eye(layers, dtype=bool)[:, :, None].repeat(heads, 2))
    values = torch.from_numpy(cost.T.copy()).float()[:, :, None].expand(-1, -1, heads)
    order = [Head(int(layer), int(head)) for layer in np.argsort(-cost.mean(1)) for head in rng.permutation(heads)]
    return scored("by_layer", values, material, order=tuple(order))


def scored(name: str, per_trial: Float[Tensor, "trial layer head"], material: Material, **more: Any) -> HeadScores:
    """HeadScores of the material's trials. `more`: further attributes of `HeadScores`."""
    about: dict[str, Any] = {"model": identify(material.model), "made_on": made_on(list(material.trials)), **more}
    return HeadScores.from_trials(name, per_trial, [trial.id for trial in material.trials], **about)


def _attribution(name: str, steps: int) -> Method:
    """Attribution patching: a clean and a corrupt pass, and one with gradients at every step of the integral."""

    def rank(material: Material) -> HeadScores:
        return attribution_patch(material.model, material.pairs, ig_steps=steps, **QUIET)

    return Method(name, "gradient", rank, "pairs", lambda shape, masks, k: 4.0 if steps == 1 else 2 + 3.0 * steps)


def _patching(positions: Positions, shared: int) -> Method:
    """Activation patching of every head; about `shared` heads cost one pass, since a run starts at the head's layer or row."""

    def rank(material: Material) -> HeadScores:
        return patch_heads(material.model, material.pairs, positions=positions, **QUIET)

    return Method(
        f"patching_{positions}", "patching", rank, "pairs", lambda shape, masks, k: 2 + _total(shape) / shared
    )


def _training(
    name: str, train: trained.Train, batch: int, needs: Needs = "", fits: int = 1, teacher: int = 0
) -> Method:
    """A training: per epoch and trial a forward and a backward pass, three plain ones, and those of the intact model."""
    passes = float(fits * trained.EPOCHS * (3 + teacher))
    return Method(name, "trained", trained.trained(train, batch), needs, lambda shape, masks, k: passes, halves=True)


def _total(shape: HeadGeometry) -> int:
    return shape.n_layers * shape.n_heads


def _every_head(shape: HeadGeometry, masks: int, k: int) -> float:
    return float(_total(shape))


def _every_mask(shape: HeadGeometry, masks: int, k: int) -> float:
    return float(masks)


def _k_rounds(shape: HeadGeometry, masks: int, k: int) -> float:
    return float(sum(_total(shape) - chosen for chosen in range(k)))


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        *(by_scorer(one, "exact" if one.direction == "exact" else "observational") for one in SCORERS.values()),
        _repeated("induction"),
        _repeated("echo"),
        Method("context_divergence", "observational", _context, "needle", lambda shape, masks, k: 2.0),
        Method(
            "attribute_ablation",
            "gradient",
            lambda m: attribute_ablation(m.model, m.trials, "mean", m.reference, **QUIET),
            passes=lambda shape, masks, k: 3.0,
        ),
        Method(
            "gradient_importance",
            "gradient",
            lambda m: gradient_importance(m.model, m.trials, **QUIET),
            passes=lambda shape, masks, k: 3.0,
        ),
        _attribution("attribution", 1),
        _attribution("eap_ig", 5),
        _patching("answer", shared=20),
        _patching("all", shared=2),
        Method("knockout", "ablation", lambda m: knockout_heads(m.model, m.trials, **QUIET), passes=_every_head),
        Method("one_shot", "ablation", masked("one_shot"), passes=_every_head),
        *(
            Method(name, "masks", masked(name), passes=_every_mask, halves=True)
            for name in ("css", "csl", "elastic_net")
        ),
        _training("duo_gate", trained.duo, 2, teacher=1),
        _training("hardkuma", trained.hardkuma, 2, teacher=1),
        _training("lofit", trained.lofit, 8),
        _training("head_gating", trained.head_gating, 8, fits=3),
        _training("soft_injection", trained.soft_injection, 2, "pairs"),
        Method("aie", "patching", trained.indirect_effect, "pairs", lambda shape, masks, k: 3 + _total(shape) / 20),
        Method("greedy", "search", masked("greedy"), passes=_k_rounds, halves=True),
        Method(
            "best_in_turn",
            "combined",
            masked("best_in_turn"),
            "needle",
            lambda shape, masks, k: 7 + 1.5 * k,
            halves=True,
        ),
        Method("by_layer", "baseline", by_layer, passes=lambda shape, masks, k: float(shape.n_layers)),
        Method("random_numbers", "baseline", random_ranking, passes=lambda shape, masks, k: 0.0),
    )
}
"""Every method that ranks heads from trials of one task, or from none."""


def resolve(given: Iterable[Any] | None) -> list[Method]:
    """Methods by name, `Scorer`s, `Method`s, finished `HeadScores`, or functions from Material to HeadScores; None: all.

    ValueError for an unknown name and for two of one name; TypeError for anything else.
    """
    if given is None:
        return list(METHODS.values())
    found = [_method(one) for one in ([given] if isinstance(given, str | Scorer | Method | HeadScores) else given)]
    names = [method.name for method in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two methods are called {twice!r}: give one of them another name")
    if not found:
        raise ValueError(f"there are no methods: choose from {', '.join(METHODS)}, or None for all")
    return found


def _method(given: Any) -> Method:
    if isinstance(given, Method):
        return given
    if isinstance(given, str):
        if given not in METHODS:
            raise ValueError(f"unknown method {given!r}: the methods are {', '.join(METHODS)}")
        return METHODS[given]
    if isinstance(given, Scorer):
        return by_scorer(given, "own")
    if isinstance(given, HeadScores):
        return Method(given.method, "own", _Finished(given), passes=lambda shape, masks, k: 0.0)
    if isinstance(given, Mapping):
        raise TypeError("methods is a mapping: pass a list, e.g. [Method(name, 'own', function)]")
    if callable(given):
        return Method(getattr(given, "__name__", type(given).__name__), "own", cast(Rank, given))
    raise TypeError(
        f"methods holds {given!r:.60}: use a name, a Scorer, a Method, HeadScores, or a function of Material"
    )


@dataclass(frozen=True)
class _Finished:
    """Scores that exist already, whatever the material."""

    scores: HeadScores

    def __call__(self, material: Material) -> HeadScores:
        shape = geometry(material.model)
        shape.check_scores(self.scores, f"method {self.scores.method!r}")
        return self.scores
