"""Trainings as methods: `EPOCHS` epochs over the trials that every method ranks by."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lens_heads.heads.scores import HeadScores
from lens_heads.heads.units import to_query_heads
from lens_heads.model.geometry import head_geometry
from lens_heads.ranking.gates.fitted import Fitted
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method, Needs

EPOCHS = 10
"""How often every trial is seen in a training. A step costs a forward and a backward pass, three plain passes."""
SINK, RECENT = 4, 32
"""Of the streaming branch, on prompts of some hundred tokens."""

Train = Callable[[Material, dict[str, Any]], HeadScores]


def streaming(train: Callable[..., Fitted]) -> Train:
    """A training of gates between full and streaming attention, spread over the query heads."""

    def rank(material: Material, how: dict[str, Any]) -> HeadScores:
        found = train(material.model, material.trials, sink=SINK, recent=RECENT, **how)
        return to_query_heads(found.scores, head_geometry(material.model).group)

    return rank


def training_method(
    name: str,
    train: Train,
    batch: int,
    needs: Needs = "",
    fits: int = 1,
    teacher: int = 0,
    paper: str = "",
    fails: str = "",
    label: str = "",
    unit: str = "gate",
) -> Method:
    """A training in batches of so many trials: for each, in every epoch, a forward, a backward, the teacher's."""

    def rank(material: Material) -> HeadScores:
        steps = math.ceil(EPOCHS * len(material.trials) / batch)
        how = {"steps": steps, "batch_size": batch, "validate_every": max(1, steps // 5), "seed": material.seed}
        return train(material, {**how, **material.loop(name)})

    passes = float(fits * EPOCHS * (3 + teacher))
    said: dict[str, Any] = {"paper": paper, "fails": fails, "label": label, "unit": unit, "signed": False}
    return Method(name, "trained", rank, needs, lambda shape, masks, k: passes, halves=True, **said)
