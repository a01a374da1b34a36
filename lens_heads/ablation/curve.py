"""ablation_curve: ablate more and more of each ranking's heads, with controls, on trials the rankings never saw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from lens_heads.ablation.conditions import CONTROLS, Condition, Controls, head_set
from lens_heads.ablation.curves import MAIN_TASK, AblationCurve
from lens_heads.ablation.grid import Grid, Tasks
from lens_heads.ablation.plan import capped, check_names, limited, named_rankings, named_scores, plan_sets, warn_of_ties
from lens_heads.heads.head import Head
from lens_heads.heads.one_model import check_weights
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.ablation import Ablation
from lens_heads.interventions.options import AblationRun, ablation_run
from lens_heads.model.geometry import Model, geometry
from lens_heads.model.identity import identify
from lens_heads.trials.trial import AnyTrial


def ablation_curve(
    model: Model,
    trials: Iterable[AnyTrial] | Tasks,
    rankings: Mapping[str, HeadScores] | Sequence[HeadScores] | HeadScores,
    ks: Sequence[int] = (1, 5, 10, 20, 50, 100),
    kind: str | Ablation = "mean",
    controls: Controls | Sequence[str] | str = CONTROLS,
    specificity: Tasks | None = None,
    specificity_for: str | Sequence[str] | None = None,
    sets: Mapping[str, Iterable[Head | str | Sequence[int]] | Head | str] | None = None,
    generate: bool = True,
    **options: Unpack[AblationRun],
) -> AblationCurve:
    """Evaluate the model with the top k heads of every ranking ablated, for every k, and with controls.

    Args:
        trials: trials that no ranking was made on; `{name: trials}` names the task in tables and figures.
        rankings: scores by method; the first is the lead, the baseline of paired differences.
        ks: numbers of heads, capped at the number of heads in the model.
        kind: as in `ablate`.
        controls: names of controls, or `Controls(names, draws, of)`: "bottom" (the k lowest of a ranking), "random" (among
            heads outside every ranking's top k), "random_like" (as many heads per layer as the ranking's top k).
        specificity: other tasks under the same ablations: {"parametric": trials, ...}.
        specificity_for: the rankings whose ablations also run on those ("random" always does): names, or None for all.
        sets: further sets of heads by name, each ablated as a whole (set "given", k = its size).
        generate: also decode and judge the text; without it only teacher-forced metrics are measured.
        **options: run options (`runs.options.RunOptions`), and `reference` and the options of the ablation, as in `ablate`.

    Raises ValueError for trials shared between selection and evaluation, rankings of another model's shape, an unknown
    control, k below 1, and everything `ablate` rejects, all before anything runs.
    """
    shape = geometry(model)
    chosen, sizes = named_scores(rankings, shape), capped(ks, shape)
    ablation, run = ablation_run(model, kind, options)
    main, tasks = _named_tasks(trials, specificity or {})
    grid = Grid.of(model, tasks, ablation, run, generate)
    grid.check_independent(chosen, [main])
    check_weights(chosen, identify(model))
    warn_of_ties(chosen, sizes)
    controls = controls if isinstance(controls, Controls) else Controls(controls)
    planned = plan_sets(chosen, sizes, controls)
    check_names(sets or {}, "a set of heads")
    for name, listed in (sets or {}).items():
        heads = shape.check_heads(listed)
        planned.append(head_set(Condition.given(name, len(heads)), heads))
    if specificity_for is not None:
        planned = limited(planned, named_rankings(specificity_for, chosen, "specificity_for"), main)
    table = grid.run(planned)
    meta = {**grid.settings, "task": main, "rankings": list(chosen), "ks": sizes, "draws": controls.draws}
    curve = AblationCurve(table, meta)
    if grid.folder is not None:
        curve.save(grid.folder.path)
    return curve


def _named_tasks(trials: Any, others: Tasks) -> tuple[str, dict[str, Any]]:
    """The main task's name, and all tasks by name, the main one first."""
    if isinstance(trials, Mapping) and len(trials) != 1:
        raise ValueError(f"trials names {len(trials)} tasks: pass one here, and others as specificity={{name: trials}}")
    ((main, own),) = trials.items() if isinstance(trials, Mapping) else ((MAIN_TASK, trials),)
    if main in others:
        raise ValueError(f"specificity task {main!r} has the name of the main task: choose another name")
    return main, {main: own, **others}
