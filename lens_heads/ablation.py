"""ablation_curve: ablate ever more of each ranking's heads, with its controls, on trials the ranking never saw."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lens_heads import engine
from lens_heads.activations import MeanActivations, TrialActivations
from lens_heads.curves import AblationCurve, Condition, Observation
from lens_heads.evaluation import METRICS, answer_batch
from lens_heads.heads import Head, HeadScores
from lens_heads.interventions import ablate
from lens_heads.models import HeadGeometry, Model, geometry
from lens_heads.scoring import fingerprint, trials_digest
from lens_heads.store import Result, RunFolder, digest
from lens_heads.trials import AnyTrial, EncodedTrial, encode_all

CONTROLS = ("bottom", "random", "random_like")


@dataclass(frozen=True)
class _Unit:
    """One trial of one task under one set of ablated heads."""

    task: str
    trial: EncodedTrial
    heads: tuple[Head, ...]

    @property
    def key(self) -> str:
        return f"{self.task}|{self.trial.id}|{','.join(head.key for head in sorted(self.heads))}"


@dataclass
class _Plan:
    """Which sets of heads are evaluated, and what each stands for (one set may stand for several conditions)."""

    conditions: list[tuple[Condition, tuple[Head, ...]]] = field(default_factory=list)

    def add(self, heads: Sequence[Head], **condition: Any) -> None:
        self.conditions.append((Condition(**condition), tuple(heads)))


def ablation_curve(
    model: Model,
    trials: Iterable[AnyTrial],
    rankings: Mapping[str, HeadScores] | HeadScores,
    ks: Sequence[int] = (1, 5, 10, 20, 50, 100),
    kind: str = "mean",
    reference: MeanActivations | TrialActivations | None = None,
    controls: Sequence[str] = CONTROLS,
    controls_for: str | Sequence[str] | None = None,
    seeds: int = 3,
    specificity: Mapping[str, Iterable[AnyTrial]] | None = None,
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
        generate: also decode and judge the text; without it only `logprob` is measured.
        out: a run folder: every finished trial is stored at once, and the same call continues it.

    Raises ValueError for shared trials between selection and evaluation, rankings of another model's shape, an unknown
    control, k below 1, and whatever `ablate` refuses, all before anything is run.
    """
    shape = geometry(model)
    rankings = {rankings.method: rankings} if isinstance(rankings, HeadScores) else dict(rankings)
    _check(rankings, shape, ks, controls)
    with ablate(model, [], kind, reference, **options):
        pass  # Refuse a wrong kind, option or reference now.
    room = max_new_tokens if generate else 0
    tasks = {"retrieval": encode_all(trials, model.tokenizer, shape.n_ctx, room)}
    for name, others in (specificity or {}).items():
        if name in tasks:
            raise ValueError(f"specificity task {name!r} has the name of the main task: call it something else")
        tasks[name] = encode_all(others, model.tokenizer, shape.n_ctx, room)
    _check_disjoint(rankings, tasks["retrieval"])
    _warn_of_ties(rankings, ks)
    plan = _plan(rankings, sorted({min(k, shape.n_layers * shape.n_heads) for k in ks}), controls, controls_for, seeds)
    sets = list(dict.fromkeys(tuple(sorted(heads)) for _, heads in plan.conditions))
    units = [_Unit(task, trial, heads) for heads in sets for task, encoded in tasks.items() for trial in encoded]
    settings = {
        "model": shape.name,
        "weights": fingerprint(model),
        "kind": kind,
        "options": options,
        "reference": _reference_digest(reference),
        "max_new_tokens": room,
        "tasks": {name: trials_digest(encoded) for name, encoded in tasks.items()},
    }

    def work(batch: list[_Unit]) -> list[Result]:
        with ablate(model, batch[0].heads, kind, reference, **options):
            return answer_batch(model, [unit.trial for unit in batch], room)

    folder = RunFolder(out, settings) if out is not None else None
    results = engine.run(
        units,
        work,
        key=lambda unit: unit.key,
        group=lambda unit: (unit.heads, unit.task),
        folder=folder,
        batch_size=batch_size,
        size=lambda unit: len(unit.trial),
        progress=progress,
        description="ablating",
    )
    meta = {**settings, "rankings": list(rankings), "ks": list(ks), "seeds": seeds}
    curve = _collect(plan, units, results, meta)
    if folder is not None:
        curve.save(folder.path)
    return curve


def _check(rankings: dict[str, HeadScores], shape: HeadGeometry, ks: Sequence[int], controls: Sequence[str]) -> None:
    if not rankings:
        raise ValueError("there are no rankings: give the result of score_heads, or one HeadScores")
    for name, scores in rankings.items():
        shape.check_scores(scores, f"ranking {name!r}")
    if not ks or min(ks) < 1:
        raise ValueError(
            f"ks={tuple(ks)}: numbers of heads from 1 on are needed (k = 0, no ablation, is always included)"
        )
    for control in controls:
        if control not in CONTROLS:
            raise ValueError(f"unknown control {control!r}: the controls are {', '.join(CONTROLS)}")


def _warn_of_ties(rankings: dict[str, HeadScores], ks: Sequence[int]) -> None:
    for name, scores in rankings.items():
        tied = {k: len(scores.ties(k)) for k in ks if k < scores.values.numel()}
        if any(tied.values()):
            listed = ", ".join(f"{count} of the top {k}" for k, count in tied.items() if count)
            warnings.warn(
                f"ranking {name!r} does not choose its heads: {listed} score the same as the next head below and are taken "
                "in order of layer and head; more trials would tell them apart",
                stacklevel=3,
            )


def _check_disjoint(rankings: dict[str, HeadScores], trials: list[EncodedTrial]) -> None:
    """Selection and evaluation never share trials."""
    ids = {trial.id for trial in trials}
    for name, scores in rankings.items():
        shared = sorted(ids & (set(scores.trial_ids) | {str(t["id"]) for t in scores.meta.get("trials", [])}))
        if shared:
            raise ValueError(
                f"ranking {name!r} was made on {len(shared)} of the trials it is to be evaluated on "
                f"({shared[0]!r}, ...): evaluate on others, e.g. "
                "tasks.packaged(split='test') for scores made on split='select'"
            )


def _plan(
    rankings: dict[str, HeadScores],
    ks: list[int],
    controls: Sequence[str],
    controls_for: str | Sequence[str] | None,
    seeds: int,
) -> _Plan:
    lead = next(iter(rankings))
    named = [lead] if controls_for is None else list(rankings) if controls_for == "all" else controls_for
    named = [named] if isinstance(named, str) else list(named)
    for name in named:
        if name not in rankings:
            raise ValueError(f"controls_for: there is no ranking {name!r}: the rankings are {', '.join(rankings)}")
    plan = _Plan()
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


def _random(rankings: dict[str, HeadScores], k: int, seed: int) -> list[Head]:
    """k random heads outside every ranking's top k, while there are enough of them; else outside the lead's."""
    lead = next(iter(rankings.values()))
    taken = {head for scores in rankings.values() for head in scores.top(k)}
    drawn = [head for head in lead.random(lead.values.numel(), seed) if head not in taken]
    return drawn[:k] if len(drawn) >= k else lead.random(k, seed)


def _reference_digest(reference: Any) -> str:
    if reference is None:
        return "none"
    # Spread over all of z: the first positions of two trials may well be the same text.
    means = reference.z.double().mean(-1).flatten()
    spread = means[:: max(1, len(means) // 4096)]
    ids = getattr(reference, "trial_ids", None) or [reference.id]
    return digest([list(ids), [round(float(x), 5) for x in spread]])


def _collect(plan: _Plan, units: list[_Unit], results: list[Result], meta: dict[str, Any]) -> AblationCurve:
    """Every condition's observations; a set of heads that stands for several conditions is counted in each."""
    found: dict[tuple[Head, ...], list[tuple[_Unit, Result]]] = {}
    for unit, result in zip(units, results, strict=True):
        if result.keep:
            found.setdefault(unit.heads, []).append((unit, result))
    observations = [
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
    return AblationCurve.from_observations(observations, meta)
