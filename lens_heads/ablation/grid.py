"""ablation_curve: ablate ever more of each ranking's heads, with its controls, on trials the ranking never saw."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lens_heads.ablation.curves import MAIN_TASK, AblationCurve, Observation
from lens_heads.ablation.evaluation import METRICS, answer_batch
from lens_heads.ablation.plan import CONTROLS, Plan, Unit, named_rankings, plan_sets
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.ablate import ablate, check_ablation
from lens_heads.interventions.activations import MeanActivations, TrialActivations
from lens_heads.interventions.replay import Prefilled, prefilled
from lens_heads.model.geometry import HeadGeometry, Model, geometry
from lens_heads.model.identity import fingerprint, folder_for
from lens_heads.runs import engine
from lens_heads.runs.store import Result, RunFolder, digest
from lens_heads.trials.digests import needle_digest, prompt_digest, trials_digest
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.encoding import encode_all
from lens_heads.trials.trial import AnyTrial


def ablation_curve(
    model: Model,
    trials: Iterable[AnyTrial],
    rankings: Mapping[str, HeadScores] | Sequence[HeadScores] | HeadScores,
    ks: Sequence[int] = (1, 5, 10, 20, 50, 100),
    kind: str = "mean",
    reference: MeanActivations | TrialActivations | None = None,
    controls: Sequence[str] = CONTROLS,
    controls_for: str | Sequence[str] | None = None,
    seeds: int = 3,
    specificity: Mapping[str, Iterable[AnyTrial]] | None = None,
    specificity_for: str | Sequence[str] | None = None,
    sets: Mapping[str, Iterable[Head | str | Sequence[int]] | Head | str] | None = None,
    generate: bool = True,
    max_new_tokens: int = 50,
    batch_size: int = 1,
    progress: bool = True,
    out: str | Path | None = None,
    **options: float,
) -> AblationCurve:
    """Evaluate the model with the top k heads of every ranking ablated, for every k, beside its controls.

    Args:
        trials: trials that no ranking was made on.
        rankings: scores by method; the first is the lead, which paired differences are taken against.
        ks: numbers of heads; those beyond the number of heads in the model become that number.
        kind, reference, **options: as in `ablate`.
        controls: "bottom" (the k lowest of a ranking), "random" (`seeds` draws among heads outside every ranking's top
            k), "random_like" (`seeds` draws with as many heads per layer as the ranking's top k).
        controls_for: the rankings whose bottom and layer-matched heads are evaluated: names, "all", or None for the
            lead. "random" belongs to no ranking.
        specificity: other tasks under the same ablations: {"parametric": trials, ...}.
        specificity_for: the rankings whose ablations they are run under ("random" always is): names, or None for all.
        sets: further sets of heads by name, each ablated as it is (set "given", k = its size).
        generate: also decode and judge the text; without it only `logprob` and `greedy_match` are measured.
        out: a run folder: every finished trial is stored at once, and the same call continues it.

    Raises ValueError for shared trials between selection and evaluation, rankings of another model's shape, an unknown
    control, k below 1, and whatever `ablate` refuses, all before anything is run.
    """
    shape = geometry(model)
    chosen, room = _rankings(rankings, shape), max_new_tokens if generate else 0
    check_ablation(model, kind, reference, **options)
    tasks = _encode(model, shape, trials, specificity, room)
    check_disjoint(chosen, reference, tasks[MAIN_TASK])
    warn_of_ties(chosen, sizes := capped(ks, shape))
    plan = plan_sets(chosen, sizes, [controls] if isinstance(controls, str) else controls, controls_for, seeds)
    for name, heads in (sets or {}).items():
        plan.add(given := shape.check_heads(heads), method=name, set="given", k=len(given), seed=0)
    settings = run_settings(model, shape, kind, options, reference, room, tasks)
    folder = folder_for(model, out, settings)
    everywhere = None if specificity_for is None else named_rankings(specificity_for, chosen, "specificity_for")
    units = plan.units(tasks, everywhere, batch_size)
    how = {"kind": kind, "reference": reference, **options}
    meta = {**settings, "rankings": list(chosen), "ks": sizes, "seeds": seeds}
    curve = AblationCurve.from_observations(run_plan(model, plan, units, how, room, folder, batch_size, progress), meta)
    if folder is not None:
        curve.save(folder.path)
    return curve


def run_settings(
    model: Model,
    shape: HeadGeometry,
    kind: str,
    options: dict[str, float],
    reference: Any,
    room: int,
    tasks: dict[str, list[EncodedTrial]],
) -> dict[str, Any]:
    """What a stored result depends on; which heads, its key says."""
    return {
        "model": shape.name,
        "weights": fingerprint(model),
        "dtype": str(model.cfg.dtype),
        "kind": kind,
        "options": options,
        "reference": reference_digest(reference),
        "max_new_tokens": room,
        "tasks": {name: trials_digest(encoded) for name, encoded in tasks.items()},
    }


def run_plan(
    model: Model,
    plan: Plan,
    units: list[Unit],
    how: dict[str, Any],
    room: int,
    folder: RunFolder | None,
    batch_size: int,
    progress: bool,
) -> list[Observation]:
    """Every unit under its ablation (`how`: the arguments of `ablate`), laid out by the plan's conditions."""
    last: dict[tuple[Any, ...], Prefilled | None] = {}

    def work(batch: list[Unit]) -> list[Result]:
        trials, heads = [unit.trial for unit in batch], batch[0].heads
        key = (batch[0].task, *(trial.id for trial in trials))  # Ids are unique inside a task.
        if key not in last:
            last.clear()  # One at a time: they are large.
            last[key] = prefilled(model, trials)
        lowest = min((head.layer for head in heads), default=model.cfg.n_layers)
        with ablate(model, heads, **how):
            return answer_batch(model, trials, room, filled=last[key], layer=lowest)

    results = engine.run(
        units,
        work,
        key=lambda unit: unit.key,
        group=lambda unit: (unit.task, unit.block, unit.heads),
        folder=folder,
        batch_size=batch_size,
        size=lambda unit: len(unit.trial),
        progress=progress,
        description="ablating",
    )
    return _observed(plan, units, results)


def _rankings(rankings: Any, shape: HeadGeometry) -> dict[str, HeadScores]:
    """The rankings by name, each of this model's shape."""
    if isinstance(rankings, HeadScores):
        rankings = [rankings]
    if not isinstance(rankings, Mapping):
        names = [getattr(ranking, "method", "?") for ranking in rankings]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two rankings are called {twice!r}: give a mapping of names to rankings")
        rankings = dict(zip(names, rankings, strict=True))
    named = dict(rankings)
    if not named:
        raise ValueError("there are no rankings: give the result of score_heads, or one HeadScores")
    for name, scores in named.items():
        if not isinstance(scores, HeadScores):
            raise ValueError(
                f"ranking {name!r} is a {type(scores).__name__}: rankings are HeadScores, as score_heads gives"
            )
        shape.check_scores(scores, f"ranking {name!r}")
    return named


def _encode(
    model: Model, shape: HeadGeometry, trials: Any, specificity: Mapping[str, Any] | None, room: int
) -> dict[str, list[EncodedTrial]]:
    """The trials of every task in tokens; the main task is called "retrieval"."""
    if MAIN_TASK in (specificity or {}):
        raise ValueError(f"specificity task {MAIN_TASK!r} has the name of the main task: call it something else")
    every = {MAIN_TASK: trials, **(specificity or {})}
    return {name: encode_all(some, model.tokenizer, shape.n_ctx, room, shape.d_vocab) for name, some in every.items()}


def capped(ks: Sequence[int], shape: HeadGeometry) -> list[int]:
    """The numbers of heads to ablate, smallest first, capped at the model's. ValueError for what is none."""
    listed = [ks] if isinstance(ks, int) else list(ks)
    if not listed or any(isinstance(k, str) or int(k) != k or k < 1 for k in listed):
        raise ValueError(
            f"ks={ks!r}: numbers of heads from 1 on are needed, whole ones (k = 0, no ablation, is always included)"
        )
    return sorted({min(int(k), shape.n_layers * shape.n_heads) for k in listed})


def warn_of_ties(rankings: Mapping[str, HeadScores], sizes: Sequence[int]) -> None:
    """Say where a ranking does not choose among its heads."""
    for name, scores in rankings.items():
        tied = {k: len(scores.ties(k)) for k in sizes if k < scores.values.numel()}
        if any(tied.values()):
            found = ", ".join(f"{count} of the top {k}" for k, count in tied.items() if count)
            warnings.warn(
                f"ranking {name!r} does not choose its heads: {found} score the same as the next head below and are taken "
                "in order of layer and head; more trials would tell them apart",
                stacklevel=3,
            )


def check_disjoint(rankings: Mapping[str, HeadScores], reference: Any, trials: list[EncodedTrial]) -> None:
    """Selection and evaluation never share trials, nor needles; nor does the reference come from evaluation trials."""
    for name, scores in rankings.items():
        check_made_on(name, [*scores.meta.get("trials", []), *({"id": trial} for trial in scores.trial_ids)], trials)
    check_reference(reference, trials, "evaluation trials", "compute it on the selection trials")


def check_reference(reference: Any, trials: Sequence[EncodedTrial], what: str, remedy: str) -> None:
    """ValueError where the reference comes from these trials, which would know what it stands for."""
    ids = {trial.id for trial in trials}
    shared = sorted(ids & set(getattr(reference, "trial_ids", None) or [getattr(reference, "id", None)]))
    if shared:
        raise ValueError(f"the reference was computed on {len(shared)} of the {what} ({shared[0]!r}, ...): {remedy}")


def check_made_on(name: str, made_on: Iterable[Mapping[str, Any]], trials: Sequence[EncodedTrial]) -> None:
    """ValueError where trials that a ranking lists share an id, needle, prompt or company with those to evaluate it on."""
    ids = {trial.id for trial in trials}
    needles = {needle_digest(trial) for trial in trials} - {None}
    companies = {trial.meta.get("cik") for trial in trials} - {None}
    prompts = {prompt_digest(trial) for trial in trials}
    shared = sorted(
        {
            str(trial["id"])
            for trial in made_on
            if str(trial["id"]) in ids
            or trial.get("needle") in needles
            or trial.get("cik") in companies
            or trial.get("prompt") in prompts
        }
    )
    if shared:
        raise ValueError(
            f"ranking {name!r} was made on {len(shared)} of the trials, needles or companies it is to be evaluated on "
            f"({shared[0]!r}, ...): evaluate on others, e.g. tasks.packaged(split='test') for scores made on split='select'"
        )


def reference_digest(reference: Any) -> str:
    if reference is None:
        return "none"
    # Spread over all of z: the first positions of two trials may well be the same text.
    means = reference.z.double().mean(-1).flatten()
    spread = means[:: max(1, len(means) // 4096)]
    ids = getattr(reference, "trial_ids", None) or [reference.id]
    return digest([list(ids), [round(float(x), 5) for x in spread]])


def _observed(plan: Plan, units: list[Unit], results: list[Result]) -> list[Observation]:
    """Every condition's observations; a set of heads that stands for several conditions is counted in each."""
    found: dict[tuple[Head, ...], list[tuple[Unit, Result]]] = {}
    for unit, result in zip(units, results, strict=True):
        if result.keep:
            found.setdefault(unit.heads, []).append((unit, result))
    return [
        Observation(
            condition,
            ",".join(str(head) for head in heads),
            unit.task,
            unit.trial.id,
            unit.trial.answer,
            str(result.record["text"]),
            {name: float(result.record[name]) for name in METRICS if name in result.record},
        )
        for condition, heads in plan.conditions
        for unit, result in found.get(tuple(sorted(heads)), [])
    ]
