"""Material: what a method may use to rank heads. The same model, trials, pairs and means for all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lens_heads.answering.ordinary import ordinary_means
from lens_heads.interventions.activations import MeanActivations, mean_activations
from lens_heads.model.geometry import Model
from lens_heads.runs.files import plain_name
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.needles import with_needle


@dataclass(frozen=True, eq=False)
class Material:
    """What a method may use to rank heads.

    `trials`: selection trials in tokens. `needled`: the same with a needle, their own or the one that `with_needle` finds; () if
    there is none. `pairs`: the same with their counterfactual (`corrupt`); () if they have none. `others`: trials of the same
    task that rank no heads, whose means stand in for ablated heads; () for means of ordinary prompts. `masks`: how many random
    masks a method that draws masks measures. `k`: how many heads a search looks for. `out`, `progress`: as in
    `runs.options.RunOptions`; every method has a folder of its own in `out`.

    `seed`: of everything drawn.

    Example:
        >>> material = lh.ranking.Material.of(model, trials, pairs, others)
        >>> material.model is model, len(material.trials), len(material.pairs)
        (True, 8, 8)
    """

    model: Model
    trials: tuple[EncodedTrial, ...]
    needled: tuple[EncodedTrial, ...]
    pairs: tuple[EncodedTrial, ...]
    others: tuple[EncodedTrial, ...] = ()
    masks: int = 100
    k: int = 5
    seed: int = 0
    out: Path | None = None
    progress: bool = False

    @cached_property
    def reference(self) -> MeanActivations:
        """What stands in for ablated heads: means of the `others`, or of ordinary prompts."""
        if not self.others:
            return ordinary_means(self.model, "give other trials of the task, calibration=")
        return mean_activations(self.model, self.others, n=None, progress=False)

    def loop(self, name: str) -> dict[str, Any]:
        """The options of a loop that a method of this name runs."""
        return {"out": None if self.out is None else self.out / plain_name(name, "method"), "progress": self.progress}

    def half(self, which: int) -> Material:
        """Every other trial, and another seed for what is drawn."""
        found = replace(
            self,
            trials=self.trials[which::2],
            needled=self.needled[which::2],
            pairs=self.pairs[which::2],
            seed=self.seed + 1 + which,
            out=None,
        )
        found.__dict__["reference"] = self.reference  # Of the same others.
        return found

    @classmethod
    def of(
        cls,
        model: Model,
        trials: Iterable[EncodedTrial],
        pairs: Sequence[EncodedTrial],
        others: Iterable[EncodedTrial],
        **more: Any,
    ) -> Material:
        """Material from trials, their pairs, and others, whose means stand in for ablated heads."""
        listed = tuple(trials)
        found = [with_needle(trial, model.tokenizer) for trial in listed]
        needled = tuple(one for one in found if one is not None) if all(found) else ()
        return cls(model, listed, needled, tuple(pairs), tuple(others), **more)
