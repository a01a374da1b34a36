"""The part that `score_heads` and `score_documents` share: the run over the trials, and one HeadScores per method."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lens_heads.heads.named import Rankings
from lens_heads.heads.scores import HeadScores, settings_of
from lens_heads.heads.sets import best_of_each_layer
from lens_heads.interventions.ablate import warn_of_leaks
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.identity import identified
from lens_heads.model.rope import batched
from lens_heads.model.run_folders import folder_for
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.scorers import NAMED_SCORERS, TABLES, is_ours
from lens_heads.runs import engine
from lens_heads.runs.code import labelled
from lens_heads.runs.options import Run
from lens_heads.runs.shards import Result
from lens_heads.runs.warned import users_line
from lens_heads.trials.digests import made_on


@dataclass
class PassResult:
    """What a pass found for one trial: outcome, scores [layer, head] per method, and the generated text.

    `null` holds the scores at other spans than the needle, for the methods that have any.

    `outcome`: "passed", "gate_failed", "no_answer_step", or "ungated" if nothing was decoded because no method needs it
    (for a trial that raises, the engine records "error"). A method without gate scores every trial that has the rows it
    reads, whatever the outcome.
    """

    id: str
    outcome: str
    text: str = ""
    answer_steps: list[int] = field(default_factory=list)
    scores: dict[str, Float[Tensor, "layer head"]] = field(default_factory=dict)
    null: dict[str, Float[Tensor, "draw layer head"]] = field(default_factory=dict)

    def stored(self, there: Bool[Tensor, "layer head"]) -> Result:
        """The form stored in run folders. ValueError for scores that are not finite where there is a head."""
        both = [*self.scores.items(), *self.null.items()]
        bad = list(dict.fromkeys(name for name, score in both if (there & ~torch.isfinite(score)).any()))
        if bad:
            own = [name for name in bad if not any(name in table for table in (*TABLES.values(), NAMED_SCORERS))]
            remedy = "your scorer must return finite scores" if own else "load the model in float32 or bfloat16"
            raise ValueError(f"trial {self.id}: {', '.join(own or bad)} is not finite: {remedy}")
        arrays = self.scores | {_null_of(name): null for name, null in self.null.items()}
        return Result(arrays, {"outcome": self.outcome, "text": self.text, "answer_steps": self.answer_steps})


def _null_of(method: str) -> str:
    """The name of a null in a shard. No score file can be called so, hence no method of a run folder is."""
    return f"null/{method}"


def score_trials(
    model: Model,
    trials: Sequence[Any],
    work: Callable[[list[Any]], list[PassResult]],
    scorers: Sequence[Scorer],
    options: Run,
    settings: dict[str, Any],
) -> Rankings:
    """The scores that `work` gives for the encoded trials, stacked per method, with every trial's outcome.

    With a run folder, results are stored there under `settings`, and the scores saved. ValueError if no trial counts, or for
    a method whose name no file can have.
    """
    identity = identified(model, "scores")
    warn_of_leaks(made_on(trials))
    about = {**identity.settings, "n_trials": len(trials), **settings}
    methods = sorted(_method_identity(scorer, options.out is not None) for scorer in scorers)
    folder = folder_for(model, options.out, {**about, "methods": methods})
    files = {scorer.name: folder.score_file(scorer.name) for scorer in scorers} if folder is not None else {}
    there = ~head_geometry(model).holes
    results = engine.run(
        trials,
        lambda batch: [found.stored(there) for found in work(batch)],
        folder=folder,
        batch_size=batched(model, options.batch_size),
        size=len,
        progress=options.progress,
        description="scoring",
    )
    outcomes = dict(Counter(result.record["outcome"] for result in results))
    listed = [{"id": trial.id, **result.record} for trial, result in zip(trials, results, strict=True)]
    scores = Rankings()
    for scorer in scorers:
        name = scorer.name
        kept = {t.id: found.arrays[name] for t, found in zip(trials, results, strict=True) if name in found.arrays}
        if not kept:
            continue
        meta = {**about, "paper": scorer.paper, "trials": listed}
        meta |= {"rule": scorer.rule} if scorer.rule else {}
        meta |= {"direction": "exact"} if scorer.direction == "exact" else {}
        belongs: dict[str, Any] = {
            "signed": scorer.signed,
            "score_unit": scorer.unit,
            "model": identity,
            "made_on": made_on(trials),
            "outcomes": outcomes,
            "settings": settings_of(meta),
        }
        nulls = [found.arrays[_null_of(name)] for found in results if _null_of(name) in found.arrays]
        belongs |= {"null": torch.stack(nulls).mean(0)} if nulls else {}
        per_trial = torch.stack(list(kept.values()))
        belongs |= {"order": best_of_each_layer(per_trial.float().mean(0))} if scorer.within_layers else {}
        scores[name] = HeadScores.from_trials(name, per_trial, list(kept), meta=meta, **belongs)
        if name in files:
            scores[name].save(files[name])
    _check_any(scorers, scores, outcomes, len(trials))
    return scores


def _method_identity(scorer: Scorer, stored: bool) -> str:
    """What identifies a method in a run folder: its name, and for users' own scorers also their code."""
    if is_ours(scorer):
        return scorer.name
    about: list[str] = [scorer.name, scorer.rows, "gated" * scorer.gated, "exact" * (scorer.direction == "exact")]
    about += [f"of {scorer.counted}"] * (scorer.counted != "counted")
    about.append(f"last {scorer.prompt_rows}" * (scorer.rows == "prompt" and scorer.prompt_rows != 8))
    about.append("without null" * (not scorer.reads_needle))
    return labelled(", ".join(filter(None, about)), scorer.score, stored)


def _check_any(scorers: Sequence[Scorer], scores: dict[str, HeadScores], outcomes: dict[str, int], trials: int) -> None:
    """ValueError if no trial counts for any method; a warning if none counts for some."""
    missing = [scorer.name for scorer in scorers if scorer.name not in scores]
    summary = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    if missing and scores:
        warnings.warn(
            f"no trial counts for {', '.join(missing)} ({summary}): omitted from the result", stacklevel=users_line()
        )
    elif missing and missing == [scorer.name for scorer in scorers if scorer.contrastive]:
        raise ValueError(
            f"{', '.join(missing)} compares gold documents with others, but all are gold: add documents, or use qr"
        )
    elif missing:
        raise ValueError(
            f"no trial counts for {', '.join(missing)}: of {trials} trials {summary}; use easier trials (a shorter "
            "context_length, question='direct'), or teacher_forced=True, which has no gate"
        )
