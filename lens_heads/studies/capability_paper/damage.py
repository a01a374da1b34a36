"""The cost of ablating heads, as tables: on a capability's own trials, on other data of it, and elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.stats import binomtest, norm
from scipy.stats import t as student

from lens_heads.ablation.conditions import Condition
from lens_heads.ablation.curves import AblationCurve
from lens_heads.localize import Generality
from lens_heads.stats import percentile_interval, ratio_interval
from lens_heads.studies.capability_paper.presets import LEAD, Preset
from lens_heads.studies.capability_paper.stages import kin_of
from lens_heads.studies.claims import widened

BEFORE = Condition.none()
RESAMPLES = 1000


class Mean(NamedTuple):
    """A mean over trials with its 95 % interval."""

    value: float
    low: float
    high: float
    trials: int

    def row(self, name: str) -> dict[str, float]:
        """Three columns of a table."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


NOTHING = Mean(math.nan, math.nan, math.nan, 0)


def mean_gap(gaps: Sequence[Float[np.ndarray, "draw trial"]], seed: int = 0) -> Mean:
    """The mean over tasks of their mean gap. Resampled are each task's trials and, jointly for all tasks, the draws of heads.

    What n resampled trials or draws contribute is widened by sqrt(n / (n - 1)), because a bootstrap has (n - 1) / n of the
    variance, and by the ratio of Student's t for n - 1 to the normal quantile. The mean is NaN without tasks; the interval is NaN
    if a task has a single trial.
    """
    if not gaps or min(gap.shape[1] for gap in gaps) == 0:
        return NOTHING
    generator, value = (np.random.default_rng(seed), float(np.mean([gap.mean() for gap in gaps])))
    by_draws = {draws: _weights(generator, draws) for draws in sorted({len(gap) for gap in gaps})}
    samples = np.full(RESAMPLES, value)
    for gap in gaps:
        over_trials = _weights(generator, gap.shape[1]) @ gap.mean(0) - gap.mean()
        samples += _stretch(gap.shape[1]) * over_trials / len(gaps)
        if len(gap) > 1:
            samples += _stretch(len(gap)) * (by_draws[len(gap)] @ gap.mean(1) - gap.mean()) / len(gaps)
    low, high = map(float, percentile_interval(samples))
    return Mean(value, low, high, sum(gap.shape[1] for gap in gaps))


def _weights(generator: np.random.Generator, n: int) -> Float[np.ndarray, "sample n"]:
    """The share of each of n in every resample."""
    return generator.multinomial(n, [1 / n] * n, size=RESAMPLES) / n


def _stretch(n: int) -> float:
    return math.sqrt(n / (n - 1)) * float(student.ppf(0.975, n - 1) / norm.ppf(0.975)) if n > 1 else math.nan


def cost(
    curve: AblationCurve, source: str, k: int, tasks: Sequence[str], metrics: Mapping[str, str]
) -> dict[str, float]:
    """damage, random (the same number of random heads) and beyond_random: means over tasks, with intervals."""
    here, anyone = Condition.top(source, k), Condition.random(k)
    pairs = {"damage": (BEFORE, here), "random": (BEFORE, anyone), "beyond_random": (anyone, here)}
    row: dict[str, float] = {}
    for name, (one, other) in pairs.items():
        row |= mean_gap([curve.gaps(one, other, metrics[task], task) for task in tasks]).row(name)
    return row


def spread(found: Generality, plan: Preset) -> pd.DataFrame:
    """One row per set of heads and kind of task: damage, that of random heads, and right answers lost.

    For universal heads, which belong to no capability, all capabilities and general tasks are unrelated.
    """
    right = {task: plan.capabilities[task.removesuffix(kin_of(""))].right for task in found.metrics}
    rows: list[dict[str, Any]] = []
    for source, k in found.sizes.items():
        name = source.removesuffix(", specific")
        unrelated = [task for task in found.metrics if task != name and not task.endswith(kin_of(""))]
        for where, tasks in {"own": [name], "other data": [kin_of(name)], "unrelated": unrelated}.items():
            if tasks and set(tasks) <= set(found.metrics):
                row = {"heads": source, "k": k, "on": where, "tasks": len(tasks)}
                row |= cost(found.curve, source, k, tasks, found.metrics)
                here = Condition.top(source, k)
                row |= mean_gap([found.curve.gaps(BEFORE, here, right[task], task) for task in tasks]).row("right_lost")
                rows.append(row)
    return pd.DataFrame(rows)


def above_chance(right: Sequence[float], chance: float) -> bool:
    """Whether a binomial test at 0.025 finds more right answers (0 or 1 each) than by chance. Only these can be lost.

    If chance is 0, one right answer is enough.
    """
    return bool(binomtest(round(sum(right)), len(right), chance, alternative="greater").pvalue < 0.025)


def right_answers(curves: Mapping[str, AblationCurve], plan: Preset, chances: Mapping[str, float]) -> pd.DataFrame:
    """One row per capability and number of heads: right answers, those with random heads, and the share above chance lost."""
    rows: list[dict[str, Any]] = []
    for name, curve in curves.items():
        right = plan.capabilities[name].right
        table = curve.frame[curve.frame["metric"] == right].set_index(["method", "set", "k"])
        for k in sorted({one.k for one in curve.conditions()}):
            found, random = (Condition.top(LEAD, k), Condition.random(k)) if k else (BEFORE, BEFORE)
            row = {"capability": name, "right": right, "k": k, "chance": chances[name]}
            row |= {part: float(table.loc[astuple(found), part]) for part in ("value", "low", "high")}  # type: ignore[arg-type]
            row |= {"random": float(table.loc[astuple(random), "value"])}  # type: ignore[arg-type]
            rows.append(row | (_lost(curve, found, right, chances[name]) if k else NOTHING).row("lost"))
    return pd.DataFrame(rows)


def _lost(curve: AblationCurve, found: Condition, right: str, chance: float) -> Mean:
    """The share of right answers above chance that is lost, with an interval widened for few trials; NaN without any."""
    before, after = curve.values(BEFORE, right), curve.values(found, right)
    before, after = before.align(after, join="inner")
    if not above_chance(before.tolist(), chance):
        return NOTHING
    above, below = (torch.tensor(gap.to_numpy(float))[None] for gap in (before - after, before - chance))
    value, low, high = ratio_interval(above, below)
    return Mean(value, *widened(value, low, high, int((before > 0).sum())), len(before))


def methods(found: Generality, evaluations: Mapping[str, int], plan: Preset) -> pd.DataFrame:
    """One row per method: its heads, its evaluations, and what its heads cost their own capability and others."""
    own, others = (plan.compared, [task for task in found.metrics if task != plan.compared])
    rows: list[dict[str, Any]] = []
    for method, k in found.sizes.items():
        here = Condition.top(method, k)
        row: dict[str, Any] = {"method": method, "heads": found.curve.heads(here).replace(",", ", ")}
        row |= {"evaluations": evaluations[method]} | cost(found.curve, method, k, [own], found.metrics)
        elsewhere = [found.curve.gaps(BEFORE, here, found.metrics[task], task) for task in others]
        rows.append(row | mean_gap(elsewhere).row("others"))
    return pd.DataFrame(rows)
