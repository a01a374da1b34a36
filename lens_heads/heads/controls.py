"""Controls: heads that a ranking did not choose, to compare with those that it did. All random heads are drawn here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from lens_heads.heads.conditions import NO_NEEDLE, TOP_NO_NEEDLE
from lens_heads.heads.head import Head
from lens_heads.heads.sets import random_heads, random_like
from lens_heads.runs import checks
from lens_heads.runs.typed import typed_fields

CONTROLS = ("bottom", "random", "random_like")
"""Those that any ranking of heads can have."""
SAME_LAYER = "same_layer"
MOST_DRAWS = 10_000
"""Sets of random heads, each of which takes a pass for every trial."""
KNOWN = (*CONTROLS, SAME_LAYER, NO_NEEDLE, TOP_NO_NEEDLE)


@dataclass(frozen=True)
class Controls:
    """Which controls stand beside a ranking's heads, and how many draws of random heads.

    `names`:
        "random": k of all heads, the chosen ones among them: what a ranking would find that knows nothing.
        "random_like": the same with as many heads in each layer as were chosen, so that depth alone explains nothing.
        "bottom": the k lowest heads of the ranking.
        "same_layer": for every chosen head the next of its layer that was not chosen (`recovery`).
        "no_needle": no ablation, on prompts without their needles (`ablation_curve`; `Trial`s with a haystack).
        "top_no_needle": every ranking's top heads on these prompts too, so that what ablation does to any prompt is not counted
            as lost benefit (`AblationCurve.share_lost`); as many more runs as there are trials and rankings.
    `draws`: sets of random heads of each size; a verdict takes 40.
    `seed`: of the first draw; draw i has seed + i, so more draws begin with the same sets, and another seed redraws them.
    `of`: the rankings whose bottom and layer-matched heads are taken: names, "all", or None for the lead. "random" and
        those without needles take no notice of it.
    `trials`: random heads run on the first so many trials of a task; None for all. Draws carry most of the variance, so 20
        trials are enough.

    ValueError for an unknown name, and for numbers of draws or trials that are none.

    Example:
        >>> lh.Controls("random", draws=40).draws
        40
    """

    names: Sequence[str] | str = CONTROLS
    draws: int = 8
    seed: int = 0
    of: str | Sequence[str] | None = None
    trials: int | None = None

    def __post_init__(self) -> None:
        typed_fields(self)
        object.__setattr__(self, "names", (self.names,) if isinstance(self.names, str) else tuple(self.names))
        _check(self.names, KNOWN, "the controls are")
        checks.count("draws", self.draws, 0, MOST_DRAWS, remedy="; 0 draws no random sets")
        checks.seed(self.seed)
        if self.trials is not None:
            checks.whole_number("trials", self.trials, remedy=", or None for all")
        if not self.draws and self.names and all(name.startswith("random") for name in self.names):
            raise ValueError(f"draws=0 leaves no control of {', '.join(self.names)}: use at least 1, or controls=()")

    def random(self, everyone: Sequence[Head], k: int) -> list[list[Head]]:
        """k random heads of all, once for every draw; none without "random" in `names`."""
        seeds = range(self.seed, self.seed + self.draws) if "random" in self.names else ()
        return [random_heads(everyone, k, seed) for seed in seeds]

    def random_like(self, chosen: Sequence[Head], everyone: Sequence[Head]) -> list[list[Head]]:
        """Random heads of all, as many in each layer as chosen, once for every draw; none without "random_like"."""
        seeds = range(self.seed, self.seed + self.draws) if "random_like" in self.names else ()
        return [random_like(chosen, everyone, seed) for seed in seeds]

    @classmethod
    def given(
        cls,
        controls: AnyControls,
        default: Controls,
        known: Sequence[str],
        *,
        few: bool = True,
        several: bool = True,
    ) -> Controls:
        """What a function was given, with `default`'s numbers where only names were.

        ValueError for a control that it does not run, for `trials` where all controls run on all of them (not `few`), and for
        `of` where no ranking is chosen whose heads are matched (not `several`).
        """
        found = controls if isinstance(controls, Controls) else replace(default, names=controls)
        if found.trials is not None and not few:
            raise ValueError(f"controls.trials={found.trials}: random heads run on all trials here: use None")
        if found.of is not None and not several:
            raise ValueError(f"controls.of={found.of!r}: there are no rankings to choose from here: use None")
        _check(found.names, known, "here they are")
        return found


AnyControls: TypeAlias = Controls | Sequence[str] | str
"""`Controls`, or names alone, which leave a function's own numbers of draws and trials; () for none."""


def _check(names: Sequence[str] | str, known: Sequence[str], which: str) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"unknown control {name!r}: {which} {', '.join(known)}")
