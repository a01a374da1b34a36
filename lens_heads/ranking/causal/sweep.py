"""The loop that all methods of this package share: pairs in, one score per head and pair out, stored and resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from lens_heads.answering.pair_runs import PairScore
from lens_heads.answering.patch_metrics import UNITS, Measure, check_measure, warn_of_reversed
from lens_heads.heads.scores import HeadScores, settings_of
from lens_heads.interventions.checked_kind import Reference
from lens_heads.interventions.independence import check_reference
from lens_heads.interventions.vectors import HeadVectors
from lens_heads.model.geometry import Model
from lens_heads.model.identity import identified
from lens_heads.model.run_folders import folder_for
from lens_heads.model.support import require
from lens_heads.runs import engine
from lens_heads.runs.code import labelled
from lens_heads.runs.options import LoopOptions, Run
from lens_heads.runs.shards import Result
from lens_heads.trials.checked_tokens import several
from lens_heads.trials.pairs import (
    Corruption,
    Positions,
    TokenPair,
    check_positions,
    chosen_corruption,
    pairs_digest,
    token_pairs,
)
from lens_heads.trials.trial import AnyTrial


def sweep(
    model: Model,
    method: str,
    trials: Iterable[AnyTrial] | AnyTrial,
    score: Callable[[TokenPair], PairScore],
    metric: str | Measure,
    positions: Positions,
    corruption: Corruption | None,
    run: LoopOptions,
    distinct: bool = True,
    replacement: Reference | None = None,
    **more: Any,
) -> HeadScores:
    """HeadScores of `score` over all pairs. `more` holds settings of the method that identify its run folder.

    `distinct`: a trial whose corruption changes nothing is omitted; ValueError if no other is left. `replacement`: what heads get
    in place of their own; ValueError if it was made on these pairs.
    """
    options, name = Run.of(run), check_measure(metric)
    check_positions(positions)
    shape, identity = require(model, method, "writes"), identified(model, "scores")
    trials = list(several(trials))
    corruption = chosen_corruption(trials, corruption)
    made = token_pairs(trials, model.tokenizer, shape, corruption, distinct)
    check_reference(replacement, [pair.made_on for pair in made], "pairs that are measured", "compute it on others")
    settings = {
        "method": method,
        **identity.settings,
        "metric": name if isinstance(metric, str) else labelled(name, metric, options.out is not None),
        "positions": positions,
        "corruption": corruption if isinstance(corruption, str) else getattr(corruption, "__name__", "function"),
        "pairs": pairs_digest(made),
        "n_pairs": len(made),
        **more,
    }

    def work(batch: list[TokenPair]) -> list[Result]:
        values, record = score(batch[0])
        return [Result({"score": values.float().cpu()}, {"needle": batch[0].needle, **record})]

    folder = folder_for(model, options.out, settings)
    results = engine.run(made, work, folder=folder, progress=options.progress, description=method)
    both = [(pair.id, result.record) for pair, result in zip(made, results, strict=True) if result.keep]
    if distinct:
        warn_of_reversed(name, ((id, one["clean"], one["corrupt"]) for id, one in both))
    kept = {pair.id: result.arrays["score"] for pair, result in zip(made, results, strict=True) if result.keep}
    found = HeadScores.from_trials(
        method,
        torch.stack(list(kept.values())),
        list(kept),
        meta={
            **settings,
            "trials": [{**result.record, "id": pair.id} for pair, result in zip(made, results, strict=True)],
        },
        settings=settings_of(settings),
        signed=True,
        score_unit=UNITS.get(name, ""),
        model=identity,
        made_on=(
            *(pair.made_on for pair in made),
            *(replacement.made_on if isinstance(replacement, HeadVectors) else ()),
        ),
    )
    if folder is not None:
        found.save(folder.score_file(method))
    return found
