"""generality: what ablating a capability's heads costs that capability, another set of its trials, and unrelated ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from lens_heads.ablation.choices import CHOICE_METRICS, without_choices
from lens_heads.ablation.curves import AblationCurve
from lens_heads.ablation.evaluation import FORCED_METRICS, check_metric
from lens_heads.ablation.grid import check_disjoint, run_plan, run_settings, warn_of_ties
from lens_heads.ablation.plan import Plan
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import check_draws, every_head, random_heads
from lens_heads.interventions.ablate import check_ablation
from lens_heads.interventions.activations import MeanActivations, TrialActivations
from lens_heads.model.geometry import HeadGeometry, Model, geometry
from lens_heads.model.identity import folder_for
from lens_heads.runs.store import write_atomic
from lens_heads.trials.encoding import encode_all
from lens_heads.trials.trial import AnyTrial

if TYPE_CHECKING:
    import plotly.graph_objects as go

Heads = HeadScores | Iterable[Head | str | Sequence[int]]


@dataclass(frozen=True, eq=False)
class Generality:
    """The result of `generality`: every set of heads (source) on every task, beside random sets of the same size.

    `curve` holds every trial under every set (sources as set "top"), `metrics` the metric that each task is judged by.
    """

    curve: AblationCurve
    metrics: dict[str, str]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per source and task: k (heads), metric, base, value, damage (base - value, paired, with low and high),
        random_damage, and beyond_random = damage less that of random heads, with beyond_low and beyond_high.

        Intervals are 95 % percentile bootstraps over trials, and over the draws of random heads.
        """
        rows: list[dict[str, Any]] = []
        sizes = {name: int(k) for name, k in self.curve.meta["sizes"].items()}
        for task, metric in self.metrics.items():
            table = self.curve.frame
            table = table[(table["task"] == task) & (table["metric"] == metric)]
            found = {(row["method"], row["k"]): row for row in table.to_dict("records")}
            for source, k in sizes.items():
                here = found[source, k]
                row = {"source": source, "task": task, "k": k, "metric": metric, "base": found["none", 0]["value"]}
                row |= {
                    "value": here["value"],
                    "damage": here["drop"],
                    "low": here["drop_low"],
                    "high": here["drop_high"],
                }
                if ("any", k) in found:
                    gap = self.curve.difference(("any", "random", k), (source, "top", k), metric, task)
                    row |= {"random_damage": found["any", k]["drop"]}
                    row |= dict(zip(("beyond_random", "beyond_low", "beyond_high"), gap, strict=True))
                rows.append(row)
        return pd.DataFrame(rows)

    def matrix(self, column: str = "damage") -> pd.DataFrame:
        """A column of `frame` as a table, sources down, tasks across."""
        if column not in self.frame:
            raise ValueError(f"no column {column!r}: the frame has {', '.join(map(str, self.frame.columns))}")
        wide = self.frame.pivot(index="source", columns="task", values=column)
        return wide.loc[list(self.curve.meta["sizes"]), list(self.metrics)]

    def plot(self, column: str = "damage", title: str | None = None) -> go.Figure:
        """Heat map of `matrix`."""
        from lens_heads import plots

        return plots.generality_map(self, column, title)

    def save(self, folder: str | Path) -> Path:
        """Write every trial (Parquet) and the frame (`generality.json`)."""
        self.curve.save(folder)
        write_atomic(Path(folder) / "generality.json", self.frame.to_json(orient="records", indent=1) + "\n")
        return Path(folder)

    def __repr__(self) -> str:
        return f"Generality({', '.join(self.curve.meta['sizes'])} on {', '.join(self.metrics)})"

    def _repr_html_(self) -> str:
        return self.frame.to_html(index=False, float_format=lambda x: f"{x:.3f}", na_rep="–")


def generality(
    model: Model,
    heads: Mapping[str, Heads] | Heads,
    tasks: Mapping[str, Iterable[AnyTrial]],
    metric: str | Mapping[str, str] = "logprob",
    k: int = 5,
    kind: str = "zero",
    reference: MeanActivations | TrialActivations | None = None,
    random_draws: int = 5,
    max_new_tokens: int = 50,
    batch_size: int = 8,
    progress: bool = True,
    out: str | Path | None = None,
    seed: int = 0,
    **options: float,
) -> Generality:
    """Ablate a capability's heads on tasks: its own, other data of the same capability, unrelated ones.

    Args:
        heads: scores (their k best) or lists of heads (all of them), one or several by name. Nothing says what chose a list.
        tasks: trials by name, none of which a ranking was made on.
        metric: one of `evaluate`'s for all tasks, or one for each by name.
        k: heads of each ranking; lists are taken whole.
        kind, reference, **options: as in `ablate`.
        random_draws: random sets of each size, of any heads: those outside all sets would be heads that nobody needs.
        out: a run folder: every finished trial is stored at once, and the same call continues it.

    Raises ValueError before anything is run: trials shared between selection and evaluation, scores of another shape or of kv
    heads (`units.to_query_heads`), a list without heads, a metric that is not measured, what `ablate` refuses.
    """
    shape, how = geometry(model), {"kind": kind, "reference": reference, **options}
    check_ablation(model, **how)
    check_draws(random_draws)
    if not tasks:
        raise ValueError("there are no tasks: give {name: trials}")
    named = _named(heads)
    metrics = _metrics(metric, list(tasks))
    room = max_new_tokens if any(name not in FORCED_METRICS for name in metrics.values()) else 0
    encoded = {
        name: encode_all(trials, model.tokenizer, shape.n_ctx, room, shape.d_vocab) for name, trials in tasks.items()
    }
    for task, name in metrics.items():
        check_metric(name, encoded[task], generate=room > 0)
        if name not in CHOICE_METRICS:  # They would cost more than the answers.
            encoded[task] = without_choices(encoded[task])
    scored = {name: found for name, found in named.items() if isinstance(found, HeadScores)}
    sets = {name: _cut(name, found, k, shape) for name, found in named.items()}
    check_disjoint(scored, reference, [trial for trials in encoded.values() for trial in trials])
    warn_of_ties(scored, [k])
    settings = run_settings(model, shape, kind, options, reference, room, encoded)
    folder = folder_for(model, out, settings)
    plan = _plan(sets, shape, random_draws, seed)
    observations = run_plan(model, plan, plan.units(encoded, None, batch_size), how, room, folder, batch_size, progress)
    listed = {name: [str(head) for head in found] for name, found in sets.items()}
    sizes = {name: len(found) for name, found in sets.items()}
    meta = {**settings, "rankings": list(sets), "sizes": sizes, "heads": listed, "seed": seed}
    found = Generality(AblationCurve.from_observations(observations, meta), metrics)
    if folder is not None:
        found.save(folder.path)
    return found


def _named(heads: Any) -> dict[str, Heads]:
    """The sets of heads by name, also when there is a single one."""
    if isinstance(heads, Mapping):
        if not heads:
            raise ValueError("there are no heads: give scores, a list of heads, or several by name")
        return dict(heads)
    return {heads.method if isinstance(heads, HeadScores) else "heads": heads}


def _metrics(metric: str | Mapping[str, str], tasks: list[str]) -> dict[str, str]:
    """The metric of every task, in the order of the tasks."""
    if isinstance(metric, str):
        return dict.fromkeys(tasks, metric)
    if set(metric) != set(tasks):
        raise ValueError(f"metric names {', '.join(metric)}, but the tasks are {', '.join(tasks)}: give each its own")
    return {task: metric[task] for task in tasks}


def _cut(name: str, heads: Heads, k: int, shape: HeadGeometry) -> list[Head]:
    """The heads of one source, checked."""
    if name in ("none", "any"):
        raise ValueError(
            f"a set of heads cannot be called {name!r}, which stands for a control: call it something else"
        )
    if k < 1:
        raise ValueError(f"k={k}: at least 1 head is ablated")
    if isinstance(heads, HeadScores):
        if heads.unit != "query_head":
            raise ValueError(
                f"{name}: these are scores of kv heads: units.to_query_heads(scores, {shape.group}) spreads them"
            )
        shape.check_scores(heads, f"ranking {name!r}")
        return heads.top(k)
    found = shape.check_heads(heads)  # type: ignore[arg-type]  # no scores
    if not found:
        raise ValueError(f"{name!r} lists no heads: list at least one")
    return found


def _plan(sets: Mapping[str, list[Head]], shape: HeadGeometry, random_draws: int, seed: int) -> Plan:
    plan = Plan()
    everyone = every_head(shape.n_layers, shape.n_heads)
    plan.add([], method="none", set="none", k=0, seed=0)
    for name, heads in sets.items():
        plan.add(heads, method=name, set="top", k=len(heads), seed=0)
    for k in sorted({len(heads) for heads in sets.values()}):
        for draw in range(random_draws):
            plan.add(random_heads(everyone, (), k, seed + draw), method="any", set="random", k=k, seed=draw)
    return plan
