"""Every method's ranking of one model on one task, stored, with what it cost; and on planted models."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

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
from lens_heads.sanity.planted import planted_model
from lens_heads.studies.ranking_methods.presets import Preset
from lens_heads.trials.digests import trials_digest
from lens_heads.trials.pairs import make_pairs


@dataclass(frozen=True, eq=False)
class MethodRankings:
    """What the methods found on one model and task.

    `scores`: by method. `halves`: of methods whose trials cannot be halved, two rankings from half of the trials each. `passes`
    and `seconds`: the cost of each, relative to one plain pass over the same trials. `left_out`: why a method did not run.
    """

    scores: dict[str, HeadScores]
    halves: dict[str, tuple[HeadScores, HeadScores]]
    passes: dict[str, float]
    seconds: dict[str, float]
    left_out: dict[str, str]


def rank_all(methods: Sequence[Method], material: Material, plan: Preset, folder: Path | None) -> MethodRankings:
    """The rankings of all methods that apply."""
    found = MethodRankings({}, {}, {}, {}, {})
    plain, shape = _plain(material, plan, folder), head_geometry(material.model)
    for method in methods:
        about, why = method.passes(shape, material.masks, material.k), method.missing(material)
        if not why and about > plan.searched:
            why = f"takes about {about:.0f} passes, more than {plan.searched}"
        if why:
            found.left_out[method.name] = why
            continue
        try:
            scores, cost = stored_ranking(method, material, folder)
        except Exception as error:  # One method's failure must not end hours of others'.
            warnings.warn(f"method {method.name} failed and is left out: {error}", stacklevel=users_line())
            found.left_out[method.name] = f"failed: {error}"
            continue
        if ranks_nothing(scores):  # Its heads would be the first of layer 0, whatever they are.
            warnings.warn(f"{said(method.name, scores)}: left out", stacklevel=users_line())
            found.left_out[method.name] = "ranks nothing: all heads score the same"
            continue
        found.scores[method.name] = scores
        found.passes[method.name] = cost.work / plain.work
        found.seconds[method.name] = cost.seconds / plain.seconds
        if method.halves and method.name in plan.rerun:
            halves = [stored_ranking(method, material.half(i), folder, f", half {i + 1}")[0] for i in (0, 1)]
            found.halves[method.name] = halves[0], halves[1]
    return found


def stored_ranking(
    method: Method, material: Material, folder: Path | None = None, part: str = ""
) -> tuple[HeadScores, Cost]:
    """One method's ranking, stored or new, and what it cost. A file beside it keeps the cost, and what was ranked by what.

    TypeError if a method of your own returns no HeadScores, ValueError if they are of another model.
    """
    file = None if folder is None else folder / "scores" / f"{plain_name(method.name, 'method')}{part}.json"
    label: list[Any] = []
    if file is not None:  # What is not stored need not be identified.
        label = [identity(method), trials_digest(list(material.trials)), material.masks, material.k, material.seed]
    beside = None if file is None else file.with_suffix(".cost")
    if file is not None and beside is not None and file.exists() and beside.exists():
        noted = read_json(beside)
        if noted["label"] == label:
            return HeadScores.load(file), Cost(**noted["cost"])
    with counted(material.model) as cost, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # About ties and weak fits, whose price the table shows.
        scores = ranked(method, material)
    if file is not None and beside is not None:
        scores.save(file)
        noted = {"label": label, "cost": {"work": cost.work, "seconds": cost.seconds}}
        write_atomic(beside, json.dumps(noted, indent=1) + "\n")
    return scores, cost


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


TRIALS, LENGTH = 8, 40
NEEDED = ("copier", "writer", "feeder", "reader")
"""The roles without which the model answers less surely. Suppressors also matter, the other way round."""


def planted_quality(methods: Sequence[Method], seeds: int, masks: int) -> pd.DataFrame:
    """AUROC, average precision and precision of every method on models of 4 layers x 4 heads: a row per method and seed.

    The heads to find are those that the answer needs (`NEEDED`), among suppressors, decoys and noise. There are no stand-ins,
    since methods differ about them by what they mean by needed. A method that does not apply, or fails, has no rows.
    """
    rows = []
    for seed in range(seeds):
        truth = planted_model(backups=0, seed=seed)
        trials, others = truth.trials(TRIALS, length=LENGTH), truth.trials(TRIALS, length=LENGTH, seed=1)
        pairs = make_pairs(trials, truth.model.tokenizer, head_geometry(truth.model), corruption="remove")
        material = Material.of(truth.model, trials, pairs, others, masks=masks, k=len(truth.of(*NEEDED)))
        for method in methods:
            if method.missing(material):
                continue
            try:
                scores = ranked(method, material)
            except Exception as error:  # Your own method's; the table has a gap then.
                warnings.warn(f"method {method.name} failed on a planted model: {error}", stacklevel=users_line())
                continue
            rows.append({"method": method.name, "seed": seed, **truth.quality(scores, truth=truth.of(*NEEDED))})
    return pd.DataFrame(rows, columns=["method", "seed", "auroc", "average_precision", "precision"])
