"""Which sets of heads an ablation study evaluates: rankings cut at k, their controls, sets given by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lens_heads.ablation.curves import MAIN_TASK, Condition
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.replay import together
from lens_heads.trials.encoded import EncodedTrial

CONTROLS = ("bottom", "random", "random_like")


@dataclass(frozen=True)
class Unit:
    """One trial of one task under one set of ablated heads; `block` are the trials of like length it is run with."""

    task: str
    trial: EncodedTrial
    heads: tuple[Head, ...]
    block: int

    @property
    def key(self) -> str:
        return f"{self.task}|{self.trial.id}|{','.join(head.key for head in sorted(self.heads))}"


@dataclass
class Plan:
    """Which sets of heads are evaluated, and what each stands for (one set may stand for several conditions)."""

    conditions: list[tuple[Condition, tuple[Head, ...]]] = field(default_factory=list)

    def add(self, heads: Sequence[Head], **condition: Any) -> None:
        self.conditions.append((Condition(**condition), tuple(heads)))

    def units(
        self, tasks: dict[str, list[EncodedTrial]], rankings: Sequence[str] | None, batch_size: int
    ) -> list[Unit]:
        """Every trial under every different set of heads, once; other tasks than the main one for some rankings only.

        All sets on one block of trials come before the next block: they share one unablated prefill.
        """
        sets: dict[tuple[Head, ...], bool] = {}
        for condition, heads in self.conditions:
            key = tuple(sorted(heads))
            every = rankings is None or condition.method in ("none", "any", *rankings)
            sets[key] = sets.get(key, False) or every
        found: list[Unit] = []
        for task, encoded in tasks.items():
            wanted = [heads for heads, every in sets.items() if every or task == MAIN_TASK]
            for block, trials in enumerate(together(encoded, batch_size)):
                found += [Unit(task, trial, heads, block) for heads in wanted for trial in trials]
        return found


def plan_sets(
    rankings: dict[str, HeadScores],
    ks: list[int],
    controls: Sequence[str],
    controls_for: str | Sequence[str] | None,
    seeds: int,
) -> Plan:
    for control in controls:
        if control not in CONTROLS:
            raise ValueError(f"unknown control {control!r}: the controls are {', '.join(CONTROLS)}")
    named = named_rankings(next(iter(rankings)) if controls_for is None else controls_for, rankings, "controls_for")
    plan = Plan()
    plan.add([], method="none", set="none", k=0, seed=0)
    for k in ks:
        for name, scores in rankings.items():
            plan.add(scores.top(k), method=name, set="top", k=k, seed=0)
        for name in named:
            if "bottom" in controls:
                plan.add(rankings[name].bottom(k), method=name, set="bottom", k=k, seed=0)
            for seed in range(seeds if "random_like" in controls else 0):
                plan.add(rankings[name].random(k, seed, like="layer"), method=name, set="random_like", k=k, seed=seed)
        for seed in range(seeds if "random" in controls else 0):
            plan.add(_random(rankings, k, seed), method="any", set="random", k=k, seed=seed)
    return plan


def named_rankings(names: str | Sequence[str], rankings: Mapping[str, HeadScores], what: str) -> list[str]:
    """Names of rankings; "all" for all of them."""
    named = list(rankings) if names == "all" else [names] if isinstance(names, str) else list(names)
    for name in named:
        if name not in rankings:
            raise ValueError(f"{what}: there is no ranking {name!r}: the rankings are {', '.join(rankings)}")
    return named


def _random(rankings: dict[str, HeadScores], k: int, seed: int) -> list[Head]:
    """k random heads outside every ranking's top k, while there are enough of them; else outside the lead's."""
    lead = next(iter(rankings.values()))
    taken = {head for scores in rankings.values() for head in scores.top(k)}
    drawn = [head for head in lead.random(lead.values.numel(), seed) if head not in taken]
    return drawn[:k] if len(drawn) >= k else lead.random(k, seed)
