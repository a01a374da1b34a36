"""ablation_curve: ablate more and more of each ranking's heads, with controls, on trials the rankings never saw."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Unpack

import pandas as pd

from lens_heads.evidence.curve_results import MAIN_TASK, AblationCurve
from lens_heads.evidence.grid import Grid, Tasks
from lens_heads.evidence.head_sets import capped, check_names, limited, named_rankings, named_scores, plan_sets
from lens_heads.evidence.verdicts import judge
from lens_heads.heads.conditions import BARE, NO_ABLATION, NO_NEEDLE, TOP_NO_NEEDLE, Condition, HeadSet, head_set
from lens_heads.heads.controls import CONTROLS, AnyControls, Controls
from lens_heads.heads.head import Head
from lens_heads.heads.named import AnyRankings
from lens_heads.heads.ranks import check_ranks
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.activations import MeanActivations, mean_activations
from lens_heads.interventions.checked_kind import Ablation, Reference
from lens_heads.interventions.kinds import KINDS
from lens_heads.interventions.options import AblationRun, ablation_run
from lens_heads.model.belonging import check_scores_of
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.workers import shared
from lens_heads.runs import checks
from lens_heads.runs.typed import Default, typed
from lens_heads.stats import Precision
from lens_heads.trials.checked_tokens import several
from lens_heads.trials.exchanges import without_needle
from lens_heads.trials.trial import AnyTrial

BESIDE = Controls(CONTROLS, trials=20)
"""The controls by default."""
WITHOUT = (NO_NEEDLE, TOP_NO_NEEDLE)
"""What runs on prompts without needles."""
JUDGED = Controls(("random", "random_like", *WITHOUT), draws=40, trials=20)
"""The controls by default where a verdict is asked for; of trials without needles, those that need none."""


class CurveRun(AblationRun, total=False):
    """`AblationRun`, whose options `ablate` explains, and when to stop.

    precision: evaluate the main task block after block, until the lead's damage has the wanted half-width at every k, or the
        trials (or `at_most` of them) are used up; other tasks run whole. The sign of the damage plays no part. A `Precision`,
        or its half-width in nats. Default: all trials.
    selecting: the trials may be those that the rankings were made on, because they only select further (a k, a baseline).
        No verdict is given on such a curve.
    """

    precision: Precision | float | None
    selecting: Annotated[bool, Default(False)]


@typed
@shared
def ablation_curve(
    model: Model,
    trials: Iterable[AnyTrial] | Tasks,
    rankings: AnyRankings,
    *,
    ks: Sequence[int] | int = (1, 5, 10, 20, 50, 100),
    verdict: int | None = None,
    kind: str | Ablation = "mean",
    controls: AnyControls | None = None,
    specificity: Tasks | None = None,
    specificity_for: str | Sequence[str] | None = None,
    sets: Mapping[str, Iterable[Head | str | Sequence[int]] | Head | str] | None = None,
    generate: bool = True,
    **options: Unpack[CurveRun],
) -> AblationCurve:
    """Evaluate the model with the top k heads of every ranking ablated, for every k, and with controls.

    Args:
        trials: trials that no ranking was made on; `{name: trials}` names the task in tables and figures.
        rankings: scores by method; the first is the lead, the baseline of paired differences.
        ks: numbers of heads, capped at the number of heads in the model.
        verdict: a number of heads that was fixed beforehand. It joins `ks`, and `curve.verdicts` are those of `verdicts.judge`
            on the lead's top heads of this number.
        kind: as in `ablate`.
        controls: names of controls, or `Controls(names, draws, seed, of, trials)`, which explains them. Default: `BESIDE`, or
            `JUDGED` with a verdict.
        specificity: other tasks under the same ablations: {"parametric": trials, ...}.
        specificity_for: the rankings whose ablations also run on those ("random" always does): names, or None for all.
        sets: further sets of heads by name, each ablated as a whole (set "given", k = its size).
        generate: also decode and judge the text; without it only teacher-forced metrics are measured.
        **options: run options (`runs.options.RunOptions`), `precision` (`CurveRun`), and `reference` and the options of the
            ablation, as in `ablate`. Kinds that take means have, without a `reference`, those of the first 50 trials that the
            rankings were made on; rankings read from files no longer know theirs.

    Cost: a prefill per trial, and for every set of heads the decoding of its trials. Raises ValueError for trials shared
    between selection and evaluation, rankings of another model's shape, an unknown control, k below 1, a missing reference, and
    everything `ablate` rejects, all before anything is ablated.

    Example:
        >>> found = lh.ablation_curve(model, others[:5], scores, ks=[2], kind="zero", generate=False)
        >>> costs = found.difference(lh.Condition.top("locos", 2), lh.Condition.none(), "logprob")
        >>> costs.high < 0
        True
    """
    shape = head_geometry(model)
    chosen, sizes = named_scores(rankings, shape), capped(ks, shape.size)
    if verdict is not None:
        sizes = sorted({*sizes, checks.whole_number("verdict", verdict, 1, shape.size)})
    precision, selecting = options.pop("precision", None), options.pop("selecting", False)
    if verdict is not None and selecting:
        raise ValueError("verdict= and selecting=True: trials that select prove nothing: run the verdict on others")
    precision = precision if precision is None or isinstance(precision, Precision) else Precision(precision)
    main, tasks = _named_tasks(trials, specificity or {})
    default = default_controls(tasks[main], verdict is not None)
    controls = Controls.given(default if controls is None else controls, default, (*CONTROLS, *WITHOUT))
    if verdict is not None and "random" not in controls.names:
        named = ", ".join(controls.names) or "none"
        raise ValueError(f"controls: {named}: a verdict needs random heads: leave controls= out, or add 'random'")
    check_scores_of(model, chosen)
    check_ranks(chosen, sizes)
    options["reference"] = _reference(model, kind, options.get("reference"), chosen, options.get("progress", True))
    ablation, run = ablation_run(model, kind, options)
    if ablation.of_trials and TOP_NO_NEEDLE in controls.names:
        if controls is not default:
            raise ValueError(
                f"controls={TOP_NO_NEEDLE!r}: spans and donors belong to prompts with their needles: leave that control out"
            )
        controls = replace(controls, names=[name for name in controls.names if name != TOP_NO_NEEDLE])
    bare = _bare(tasks) if {*WITHOUT} & {*controls.names} else {}
    grid = Grid.of(model, {**tasks, **bare}, ablation, run, generate)
    if not selecting:
        grid.check_independent(chosen)
    planned = plan_sets(chosen, sizes, controls)
    check_names(sets or {}, "a set of heads")
    for name, listed in (sets or {}).items():
        heads = shape.check_heads(listed)
        planned.append(head_set(Condition.given(name, len(heads)), heads))
    if specificity_for is not None:
        planned = limited(planned, named_rankings(specificity_for, chosen, "specificity_for"), main)
    planned = [one if one.tasks is not None else replace(one, tasks=tuple(tasks)) for one in planned]
    if bare:
        planned.append(replace(NO_ABLATION, condition=Condition.no_needle(), tasks=tuple(bare)))
    if TOP_NO_NEEDLE in controls.names:
        planned += [_without(one, bare) for one in planned if one.condition.set == "top"]
    meta = {
        **grid.settings,
        "task": main,  # Of a stored curve.
        "rankings": list(chosen),
        "ks": sizes,
        "draws": controls.draws,
        "seed": controls.seed,
    }
    curve = replace(_until(precision, grid, planned, main, meta), model=grid.identity, selecting=selecting)
    if grid.folder is not None:
        curve.save(grid.folder.path)
    return curve if verdict is None else replace(curve, verdicts=tuple(judge(curve, k=verdict)))


def default_controls(trials: Sequence[AnyTrial], judged: bool) -> Controls:
    """`BESIDE`, or `JUDGED` for a verdict; a needle can be left out only where every trial has one."""
    if not judged:
        return BESIDE
    needles = all(getattr(trial, "needle", None) for trial in trials)
    return JUDGED if needles else replace(JUDGED, names=[name for name in JUDGED.names if name not in WITHOUT])


def _reference(
    model: Model, kind: str | Ablation, given: Reference | None, rankings: Mapping[str, HeadScores], progress: bool
) -> Reference | None:
    """What was given; else, for kinds that take means, those of the trials that chose the heads."""
    if (
        given is not None
        or not isinstance(kind, str)
        or kind not in KINDS
        or KINDS[kind].reference is not MeanActivations
    ):
        return given
    chose = {one.id: one.trial for scores in rankings.values() for one in scores.made_on if one.trial is not None}
    if not chose:
        raise ValueError(
            f"kind={kind!r} needs a reference, and {', '.join(rankings)} no longer has the trials that it was made on, since "
            "files keep none: pass reference=lh.mean_activations(model, trials)"
        )
    return mean_activations(model, list(chose.values()), progress=progress)


def _until(
    precision: Precision | None, grid: Grid, planned: Sequence[HeadSet], main: str, meta: dict[str, Any]
) -> AblationCurve:
    """The curve of all trials, or of as many blocks of the main task's as the precision takes."""
    if precision is None:
        return AblationCurve(_named(grid.run(planned)), meta)
    own = (main, _bare_name(main))
    most, tables, done = min(precision.at_most, len(grid.tasks[main])), [], 0
    while True:
        end = min(most, done + precision.next_block(done))
        tables.append(_named(grid.run(_on(planned, own), done, end)))
        curve, done = AblationCurve(pd.concat(tables, ignore_index=True), {**meta, "trials": end}), end
        if done >= most or precision.enough(_half_width(curve), done):
            break
    others = [task for task in grid.tasks if task not in own]
    table = pd.concat([curve.per_trial, _named(grid.run(_on(planned, others)))], ignore_index=True) if others else None
    return curve if table is None else AblationCurve(table, curve.meta)


def _on(planned: Sequence[HeadSet], tasks: Sequence[str]) -> list[HeadSet]:
    """The sets that run on any of the tasks, on those alone."""
    kept = [replace(one, tasks=tuple(task for task in one.tasks or () if task in tasks)) for one in planned]
    return [one for one in kept if one.tasks]


def _half_width(curve: AblationCurve) -> float:
    """Half of the widest interval of the lead's damage, in nats."""
    lead = [one for one in curve.conditions() if one.set == "top" and one.method == curve.rankings[0]]
    widths = [curve.difference(Condition.none(), one, "logprob").half_width for one in lead]
    return math.inf if any(math.isnan(width) for width in widths) else max(widths)


def _bare(tasks: Mapping[str, Sequence[AnyTrial]]) -> dict[str, list[AnyTrial]]:
    """The prompts without needles, of every task whose trials have some. ValueError if the main task has none."""
    return {
        _bare_name(name): without_needle(trials)
        for place, (name, trials) in enumerate(tasks.items())
        if place == 0 or all(trial.needle for trial in trials)
    }


def _without(one: HeadSet, bare: Mapping[str, Sequence[AnyTrial]]) -> HeadSet:
    """The heads of a ranking's top set, on the prompts without needles of the same tasks."""
    tasks = [_bare_name(task) for task in one.tasks or () if _bare_name(task) in bare]
    return replace(one, condition=replace(one.condition, set=TOP_NO_NEEDLE), tasks=tuple(tasks))


def _bare_name(task: str) -> str:
    return f"{task}{BARE}"


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """The table with prompts without needles as a condition of their task."""
    bare = table["set"].isin(WITHOUT)
    return table.assign(task=table["task"].mask(bare, table["task"].str.removesuffix(BARE)))


def _named_tasks(trials: Any, others: Tasks) -> tuple[str, dict[str, list[AnyTrial]]]:
    """The main task's name, and all tasks by name, the main one first."""
    if isinstance(trials, Mapping) and len(trials) != 1:
        raise ValueError(f"trials names {len(trials)} tasks: pass one here, and others as specificity={{name: trials}}")
    ((main, own),) = trials.items() if isinstance(trials, Mapping) else ((MAIN_TASK, trials),)
    if main in others:
        raise ValueError(f"specificity task {main!r} has the name of the main task: choose another name")
    return main, {name: list(several(listed)) for name, listed in {main: own, **others}.items()}
