"""What ablating heads costs, as tables: on a capability's own trials, on other data of it, and elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from lens_heads.curves import AblationCurve
from lens_heads.localize import Generality
from lens_heads.stats import bootstrap_ratio, percentile_interval
from lens_heads.studies.capability_paper.presets import LEAD, Preset
from lens_heads.studies.capability_paper.stages import kin_of
from lens_heads.studies.running import widened

BEFORE = ("none", "none", 0)
RESAMPLES = 1000


class Mean(NamedTuple):
    """A mean with its 95 % interval, over so many trials."""

    value: float
    low: float
    high: float
    trials: int

    def row(self, name: str) -> dict[str, float]:
        """Three columns of a table."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def mean_gap(gaps: Sequence[Float[np.ndarray, "draw trial"]], seed: int = 0) -> Mean:
    """The mean over tasks of their mean gap, each task's trials resampled, and all tasks' draws of heads together.

    The interval is widened by sqrt(n / (n - 1)) around the mean, n the trials of the task with the fewest: a bootstrap has
    (n - 1) / n of the variance. NaN without tasks, no interval with a single trial.
    """
    if not gaps or min(gap.shape[1] for gap in gaps) == 0:
        return Mean(math.nan, math.nan, math.nan, 0)
    generator, draws = np.random.default_rng(seed), len(gaps[0])
    by_draw = generator.multinomial(draws, [1 / draws] * draws, size=RESAMPLES) / draws
    samples = np.zeros(RESAMPLES)
    for gap in gaps:
        trials = gap.shape[1]
        by_trial = generator.multinomial(trials, [1 / trials] * trials, size=RESAMPLES) / trials
        samples += np.einsum("nd,dt,nt->n", by_draw, gap, by_trial) / len(gaps)
    value, least = float(np.mean([gap.mean() for gap in gaps])), min(gap.shape[1] for gap in gaps)
    stretch = math.sqrt(least / (least - 1)) if least > 1 else math.nan
    low, high = (value + stretch * (float(end) - value) for end in percentile_interval(samples))
    return Mean(value, low, high, sum(gap.shape[1] for gap in gaps))


def cost(
    curve: AblationCurve, source: str, k: int, tasks: Sequence[str], metrics: Mapping[str, str]
) -> dict[str, float]:
    """damage, random (what as many random heads cost), beyond_random: each the mean over tasks, with its interval."""
    here, anyone = (source, "top", k), ("any", "random", k)
    pairs = {"damage": (BEFORE, here), "random": (BEFORE, anyone), "beyond_random": (anyone, here)}
    row: dict[str, float] = {}
    for name, (one, other) in pairs.items():
        row |= mean_gap([curve.gaps(one, other, metrics[task], task) for task in tasks]).row(name)
    return row


def relatives(name: str, found: Generality) -> dict[str, list[str]]:
    """A capability's tasks among those measured: its own, other data of it, and unrelated ones."""
    kin = kin_of(name)
    unrelated = [task for task in found.metrics if task not in (name, kin) and not task.endswith(kin_of(""))]
    return {"own": [name], "other data": [kin] if kin in found.metrics else [], "unrelated": unrelated}


def spread(found: Generality, plan: Preset) -> pd.DataFrame:
    """One row per set of heads and kind of task: what ablating it costs, beside random heads, and right answers lost.

    Sets that are no capability's (universal heads) have all capabilities and general tasks for unrelated ones.
    """
    right = {task: plan.capabilities[task.removesuffix(kin_of(""))].right for task in found.metrics}
    rows: list[dict[str, Any]] = []
    for source, k in found.curve.meta["sizes"].items():
        name = source.removesuffix(", specific")
        for where, tasks in relatives(name, found).items():
            if tasks and (where == "unrelated" or name in found.metrics):
                row = {"heads": source, "k": k, "on": where, "tasks": len(tasks)}
                row |= cost(found.curve, source, k, tasks, found.metrics)
                here = (source, "top", k)
                row |= mean_gap([found.curve.gaps(BEFORE, here, right[task], task) for task in tasks]).row("right_lost")
                rows.append(row)
    return pd.DataFrame(rows)


def above_chance(right: Sequence[float], chance: float) -> bool:
    """Whether the interval of the right answers lies above chance: what a model cannot do it cannot lose."""
    return mean_gap([np.asarray(right, dtype=float)[None] - chance]).low > 0


def right_answers(curves: Mapping[str, AblationCurve], plan: Preset, chances: Mapping[str, float]) -> pd.DataFrame:
    """One row per capability and number of heads: right answers, what share of those above chance is lost, and with random
    heads."""
    rows: list[dict[str, Any]] = []
    for name, curve in curves.items():
        right = plan.capabilities[name].right
        table = curve.frame[curve.frame["metric"] == right].set_index(["method", "set", "k"])
        for k in (0, *curve.meta["ks"]):
            found, random = ((LEAD, "top", k), ("any", "random", k)) if k else (BEFORE, BEFORE)
            row = {"capability": name, "right": right, "k": k, "chance": chances[name]}
            row |= {part: float(table.loc[found, part]) for part in ("value", "low", "high")}  # type: ignore[arg-type]
            row |= {"random": float(table.loc[random, "value"])}  # type: ignore[arg-type]
            lost = _lost(curve, found, right, chances[name]) if k else (math.nan,) * 3
            rows.append(row | dict(zip(("lost", "lost_low", "lost_high"), lost, strict=True)))
    return pd.DataFrame(rows)


def _lost(curve: AblationCurve, found: tuple[str, str, int], right: str, chance: float) -> tuple[float, float, float]:
    """Share of the right answers above chance that is lost, widened by what so few may not have shown; NaN without any."""
    before, after = curve.values(*BEFORE, right), curve.values(*found, right)
    before, after = before.align(after, join="inner")
    if not above_chance(before.tolist(), chance):
        return math.nan, math.nan, math.nan
    above, below = (torch.tensor(gap.to_numpy(float))[None] for gap in (before - after, before - chance))
    return bootstrap_ratio(above, below)[0], *widened(*bootstrap_ratio(above, below), int((before > 0).sum()))


def methods(
    found: Generality, evaluations: Mapping[str, int], seconds: Mapping[str, float], plan: Preset
) -> pd.DataFrame:
    """One row per method: its heads, evaluations and seconds, what its heads cost their own capability, and others."""
    own, others = plan.compared, [task for task in found.metrics if task != plan.compared]
    rows: list[dict[str, Any]] = []
    for method, k in found.curve.meta["sizes"].items():
        row: dict[str, Any] = {"method": method, "heads": ", ".join(found.curve.meta["heads"][method])}
        row |= {"evaluations": evaluations[method], "seconds": seconds[method]}
        row |= cost(found.curve, method, k, [own], found.metrics)
        here = (method, "top", k)
        elsewhere = [found.curve.gaps(BEFORE, here, found.metrics[task], task) for task in others]
        rows.append(row | mean_gap(elsewhere).row("others"))
    return pd.DataFrame(rows)
