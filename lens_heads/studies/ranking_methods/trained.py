"""The methods of the table that train something small on every head, on the same selection trials as all others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lens_heads.heads.scores import HeadScores
from lens_heads.heads.units import to_query_heads
from lens_heads.interventions.vectors import HeadVectors, task_vectors
from lens_heads.model.geometry import geometry
from lens_heads.ranking.causal.function_vectors import aie
from lens_heads.ranking.gates.duo import duo as train_duo
from lens_heads.ranking.gates.hardkuma import hardkuma as train_hardkuma
from lens_heads.ranking.gates.head_gating import head_gating as train_head_gating
from lens_heads.ranking.gates.lofit import lofit as train_lofit
from lens_heads.ranking.gates.soft_injection import soft_injection as train_soft_injection
from lens_heads.studies.ranking_methods.material import Material
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.pairs import TokenPair

EPOCHS = 10
"""How often every trial is seen in a training. A step costs a forward and a backward pass, three plain passes."""
SINK, RECENT = 4, 32
"""Of the streaming branch, on prompts of some hundred tokens."""

Train = Callable[[Material, dict[str, Any]], HeadScores]


def trained(train: Train, batch: int) -> Callable[[Material], HeadScores]:
    """A ranking by a training of `EPOCHS` epochs in batches of so many trials."""

    def rank(material: Material) -> HeadScores:
        steps = math.ceil(EPOCHS * len(material.trials) / batch)
        validate = max(1, steps // 5)
        how = {
            "steps": steps,
            "batch_size": batch,
            "validate_every": validate,
            "seed": material.seed,
            "progress": False,
        }
        return train(material, how)

    return rank


def duo(material: Material, how: dict[str, Any]) -> HeadScores:
    """DuoAttention's gates, spread over the query heads."""
    found = train_duo(material.model, material.trials, SINK, RECENT, **how)
    return to_query_heads(found.scores, geometry(material.model).group)


def hardkuma(material: Material, how: dict[str, Any]) -> HeadScores:
    """HardKuma gates, spread over the query heads."""
    found = train_hardkuma(material.model, material.trials, sink=SINK, recent=RECENT, **how)
    return to_query_heads(found.scores, geometry(material.model).group)


def lofit(material: Material, how: dict[str, Any]) -> HeadScores:
    """LoFiT's scalings."""
    return train_lofit(material.model, material.trials, **how).scores


def head_gating(material: Material, how: dict[str, Any]) -> HeadScores:
    """Causal head gating: facilitation."""
    return train_head_gating(material.model, material.trials, **how).scores()


def soft_injection(material: Material, how: dict[str, Any]) -> HeadScores:
    """Gates by which the mean of other clean prompts goes into the corrupt ones."""
    bare = [_bare(pair) for pair in material.pairs]
    return train_soft_injection(material.model, bare, donors(material), **how).scores


def indirect_effect(material: Material) -> HeadScores:
    """The average indirect effect of the mean of other clean prompts in the corrupt ones."""
    return aie(material.model, [_bare(pair) for pair in material.pairs], donors(material), progress=False)


def donors(material: Material) -> HeadVectors:
    """What heads hold at the end of other clean prompts, on average."""
    return task_vectors(material.model, material.others)


def _bare(pair: TokenPair) -> EncodedTrial:
    """The corrupt side of a pair as a trial."""
    return EncodedTrial(pair.corrupt[: pair.answer[0]], None, pair.id, pair.gold, pair.id, group=pair.group)
