"""Whose are a capability's heads?

`generality` measures how much ablating them damages that capability, other data of it, and unrelated tasks. `universal_heads`
finds those that many unrelated capabilities need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pandas as pd

from lens_heads.answering.choices import CHOICE_METRICS, without_choices
from lens_heads.answering.evaluation import FORCED_METRICS, check_metric
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.grid import Grid, Tasks
from lens_heads.evidence.head_sets import check_names
from lens_heads.heads.conditions import NO_ABLATION, Condition, HeadSet, head_set
from lens_heads.heads.controls import AnyControls, Controls
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Head
from lens_heads.heads.named import AnyRanked, Ranking, ranked_by_name
from lens_heads.heads.ranks import check_ranks
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.interventions.options import AblationRun, ablation_run
from lens_heads.model.belonging import check_scores_of
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.workers import shared
from lens_heads.runs import checks
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.files import write_atomic
from lens_heads.runs.typed import typed, typed_methods

if TYPE_CHECKING:
    import plotly.graph_objects as go

BESIDE = Controls("random")
"""The controls by default."""


@typed_methods
@dataclass(frozen=True, eq=False)
class Generality(Drawn):
    """The result of `generality`: every set of heads (source) on every task, next to random sets of the same size.

    `curve` holds every trial under every set (sources as set "top"), `metrics` the metric of each task.

    Example:
        >>> asked = {"own": others, "another": lh.sanity.without_needle(planted.trials(8, seed=2))}
        >>> found = lh.evidence.generality(model, asked, scores, k=2, controls=lh.Controls("random", draws=1), kind="zero")
        >>> (found.frame.set_index("task")["damage"] > 1).to_dict()
        {'own': True, 'another': False}
    """

    curve: AblationCurve
    metrics: dict[str, str]

    @property
    def sizes(self) -> dict[str, int]:
        """The number of heads of each source."""
        return {
            one.method: one.k for task in self.metrics for one in self.curve.conditions(task=task) if one.set == "top"
        }

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per source and task: k (heads), metric, base, value, damage (base - value, paired, with low and high),
        random_damage, and beyond_random = damage minus that of random heads, with beyond_low and beyond_high.

        Intervals are 95 %, over trials and the draws of random heads, as in `AblationCurve.difference`.
        """
        rows: list[dict[str, Any]] = []
        every = {
            (row["task"], row["metric"], row["method"], row["k"]): row for row in self.curve.frame.to_dict("records")
        }
        for task, metric in self.metrics.items():
            for source, k in self.sizes.items():
                here, chance = every[task, metric, source, k], every.get((task, metric, "any", k))
                row = {"source": source, "task": task, "k": k, "metric": metric}
                row |= {"base": every[task, metric, "none", 0]["value"], "value": here["value"]}
                row |= {"damage": here["drop"], "low": here["drop_low"], "high": here["drop_high"]}
                if chance is not None:
                    gap = self.curve.difference(Condition.random(k), Condition.top(source, k), metric, task=task)
                    row["random_damage"] = chance["drop"]
                    row |= dict(zip(("beyond_random", "beyond_low", "beyond_high"), gap, strict=True))
                rows.append(row)
        return pd.DataFrame(rows)

    def matrix(self, column: str = "damage") -> pd.DataFrame:
        """A column of `frame` as a table of sources by tasks."""
        if column not in self.frame:
            raise ValueError(f"no column {column!r}: the frame has {', '.join(map(str, self.frame.columns))}")
        wide = self.frame.pivot(index="source", columns="task", values=column)
        return wide.loc[list(self.sizes), list(self.metrics)]

    def plot(self, column: str = "damage", *, title: str | None = None) -> go.Figure:
        """Heat map of `matrix(column)`."""
        from lens_heads import plots

        return plots.generality_map(self, column=column, title=title)

    def save(self, folder: str | Path) -> Path:
        """Write every trial (Parquet) and the frame (`generality.json`)."""
        self.curve.save(folder)
        write_atomic(Path(folder) / "generality.json", self.frame.to_json(orient="records", indent=1) + "\n")
        return Path(folder)

    def __repr__(self) -> str:
        return f"Generality({', '.join(self.sizes)} on {', '.join(self.metrics)})"


@typed
@shared
def generality(
    model: Model,
    trials: Tasks,
    rankings: AnyRanked,
    *,
    metric: str | Mapping[str, str] = "logprob",
    k: int = 5,
    kind: str | Ablation,
    controls: AnyControls = BESIDE,
    **options: Unpack[AblationRun],
) -> Generality:
    """Ablate a capability's heads on several tasks: its own, other data of the same capability, and unrelated ones.

    Args:
        trials: by task. No ranking may have been made on them.
        rankings: scores (their k best heads) or lists of heads (taken whole), one or several by name. Only for scores can the
            trials that selected the heads be checked.
        metric: one of `evaluate`'s for all tasks, or one per task by name.
        k: heads of each ranking.
        kind: as in `ablate`.
        controls: "random": random sets of each size, of all heads: without the sources' there would only be unneeded ones.
        **options: run options (`runs.options.RunOptions`), and `reference` and the
            options of the ablation.

    Raises ValueError before running anything: for trials shared between selection and evaluation, scores of another shape or
    of kv heads (`units.to_query_heads`), an empty list, a metric that is not measured, and what `ablate` refuses.

    Cost: for each trial of every task a run without ablation, and one for each set of heads and each draw.

    Example:
        >>> asked = {"own": others, "another": lh.sanity.without_needle(planted.trials(8, seed=2))}
        >>> found = lh.evidence.generality(model, asked, scores, k=2, controls=lh.Controls("random", draws=1), kind="zero")
        >>> (found.frame.set_index("task")["damage"] > 1).to_dict()
        {'own': True, 'another': False}
    """
    ablation, run = ablation_run(model, kind, options)
    controls = Controls.given(controls, BESIDE, ("random",), several=False)
    shape, named, metrics = head_geometry(model), ranked_by_name(rankings), _metrics(metric, list(trials))
    generate = any(name not in FORCED_METRICS for name in metrics.values())
    grid = Grid.of(model, trials, ablation, run, generate)
    for task, name in metrics.items():
        check_metric(name, grid.tasks[task], generate)
        if name not in CHOICE_METRICS:  # Scoring the choices would cost more than the answers.
            grid.tasks[task] = without_choices(grid.tasks[task])
    scored = {name: found for name, found in named.items() if isinstance(found, HeadScores)}
    sources = {name: _cut(name, found, k, shape) for name, found in named.items()}
    grid.check_independent(scored)
    check_scores_of(model, scored)
    check_ranks(scored, [k])
    listed = {name: [str(head) for head in found] for name, found in sources.items()}
    table = grid.run(_sets(sources, shape, controls))
    found = Generality(AblationCurve(table, {**grid.settings, "heads": listed, "seed": controls.seed}), metrics)
    if grid.folder is not None:
        found.save(grid.folder.path)
    return found


def _metrics(metric: str | Mapping[str, str], tasks: list[str]) -> dict[str, str]:
    """The metric of every task, in the order of the tasks."""
    if isinstance(metric, str):
        return dict.fromkeys(tasks, metric)
    if set(metric) != set(tasks):
        raise ValueError(f"metric names {', '.join(metric)}, but the tasks are {', '.join(tasks)}: give one per task")
    return {task: metric[task] for task in tasks}


def _cut(name: str, heads: Ranking, k: int, shape: HeadGeometry) -> list[Head]:
    """The heads of one source, checked."""
    check_names([name], "a set of heads")
    checks.whole_number("k", k)
    if isinstance(heads, HeadScores):
        if heads.unit != "query_head":
            raise ValueError(f"{name} scores kv heads: convert them with units.to_query_heads(scores, {shape.group})")
        shape.check_scores(heads, f"ranking {name!r}")
        checks.whole_number("k", k, 0, len(heads.flat), f", the number of heads that {heads.method} scores")
        return heads.ranking()[:k]
    found = shape.check_heads(heads)  # type: ignore[arg-type]  # no scores
    if not found:
        raise ValueError(f"{name!r} lists no heads: give at least one")
    return found


def _sets(sources: Mapping[str, list[Head]], shape: HeadGeometry, controls: Controls) -> list[HeadSet]:
    everyone = shape.every_head()
    sets = [NO_ABLATION, *(head_set(Condition.top(name, len(heads)), heads) for name, heads in sources.items())]
    for k in sorted({len(heads) for heads in sources.values()}):
        drawn = controls.random(everyone, k)
        sets += [head_set(Condition.random(k), heads, at, controls.trials) for at, heads in enumerate(drawn)]
    return sets
