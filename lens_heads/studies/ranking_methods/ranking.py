"""Rank the heads by every method, note what each cost, and store it: an interrupted run continues with the next method."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lens_heads.answering.evaluation import evaluate
from lens_heads.heads.ranks import ranks_nothing, said
from lens_heads.heads.scores import HeadScores
from lens_heads.model.cost import Cost, counted, plain_work
from lens_heads.model.geometry import head_geometry
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method
from lens_heads.ranking.rank import ranked
from lens_heads.ranking.registry import identity
from lens_heads.runs.files import plain_name, write_atomic
from lens_heads.runs.reading import read_json
from lens_heads.runs.warned import users_line
from lens_heads.studies.ranking_methods.presets import Preset
from lens_heads.trials.digests import trials_digest


@dataclass(frozen=True, eq=False)
class Rankings:
    """What the methods found on one model and task.

    `scores`: by method. `halves`: of methods whose trials cannot be halved, two rankings from half of the trials each. `passes`
    and `seconds`: the cost of each, relative to one plain pass over the same trials. `left_out`: why a method did not run.
    """

    scores: dict[str, HeadScores]
    halves: dict[str, tuple[HeadScores, HeadScores]]
    passes: dict[str, float]
    seconds: dict[str, float]
    left_out: dict[str, str]


def rank_all(methods: Sequence[Method], material: Material, plan: Preset, folder: Path | None) -> Rankings:
    """The rankings of all methods that apply."""
    found = Rankings({}, {}, {}, {}, {})
    plain, shape = _plain(material, plan, folder), head_geometry(material.model)
    for method in methods:
        about, why = method.passes(shape, material.masks, material.k), method.missing(material)
        if not why and about > plan.searched:
            why = f"takes about {about:.0f} passes, more than {plan.searched}"
        if why:
            found.left_out[method.name] = why
            continue
        try:
            scores = stored_ranking(method, material, folder)
        except Exception as error:  # One method's failure must not end hours of others'.
            warnings.warn(f"method {method.name} failed and is left out: {error}", stacklevel=users_line())
            found.left_out[method.name] = f"failed: {error}"
            continue
        if ranks_nothing(scores):  # Its heads would be the first of layer 0, whatever they are.
            warnings.warn(f"{said(method.name, scores)}: left out", stacklevel=users_line())
            found.left_out[method.name] = "ranks nothing: all heads score the same"
            continue
        found.scores[method.name] = scores
        cost = scores.meta.get("cost", {})
        found.passes[method.name] = cost.get("work", 0) / plain.work
        found.seconds[method.name] = cost.get("seconds", 0.0) / plain.seconds
        if method.halves and method.name in plan.rerun:
            one, other = (
                stored_ranking(method, material.half(which), folder, f", half {which + 1}") for which in (0, 1)
            )
            found.halves[method.name] = one, other
    return found


def stored_ranking(method: Method, material: Material, folder: Path | None = None, part: str = "") -> HeadScores:
    """One method's ranking, stored or new, with what it cost in `meta["cost"]`.

    TypeError if a method of your own returns no HeadScores, ValueError if they are of another model.
    """
    file = None if folder is None else folder / "scores" / f"{plain_name(method.name, 'method')}{part}.json"
    label: list[Any] = []
    if file is not None:  # What is not stored need not be identified.
        label = [identity(method), trials_digest(list(material.trials)), material.masks, material.k, material.seed]
    if file is not None and file.exists():
        stored = HeadScores.load(file)
        if stored.meta.get("label") == label:
            return stored
    with counted(material.model) as cost, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # About ties and weak fits, whose price the table shows.
        found = ranked(method, material)
    noted = {"label": label, "cost": {"work": cost.work, "seconds": cost.seconds}}
    scores = replace(found, meta={**found.meta, **noted})
    if file is not None:
        scores.save(file)
    return scores


def _plain(material: Material, plan: Preset, folder: Path | None) -> Cost:
    """The cost of one plain pass over the selection trials. Seconds are the second time's, when all is warm."""
    file = None if folder is None else folder / "plain_pass.json"
    work = plain_work(material.trials, head_geometry(material.model).n_layers)
    if file is not None and file.exists():
        return Cost(work, float(read_json(file)["seconds"]))
    for _ in range(2):
        with counted(material.model) as cost:
            evaluate(material.model, material.trials, generate=False, batch_size=plan.batch_size, progress=False)
    if file is not None:
        write_atomic(file, json.dumps({"seconds": cost.seconds}))
    return Cost(work, cost.seconds)
