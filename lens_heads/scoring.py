"""score_heads: every method on every trial, one pass each."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lens_heads import engine
from lens_heads.capture import PassResult, run_pass
from lens_heads.directions import Directions
from lens_heads.documents import AnyDocuments, DocumentTrial, EncodedDocuments
from lens_heads.forward import CHUNK
from lens_heads.heads import HeadScores
from lens_heads.models import HeadGeometry, Model, geometry, has_hooks, is_bridge, require_raw_weights
from lens_heads.scorers import DOCUMENT_SCORERS, SCORERS, Scorer, resolve
from lens_heads.store import Result, RunFolder, code_of, digest
from lens_heads.trials import AnyTrial, EncodedTrial, encode_all, several


def score_heads(
    model: Model,
    trials: Iterable[AnyTrial | AnyDocuments] | AnyTrial | AnyDocuments,
    methods: Iterable[str | Scorer] | str | Scorer | None = None,
    teacher_forced: bool = False,
    direction: str | Path = "raw",
    batch_size: int = 1,
    progress: bool = True,
    out: str | Path | None = None,
    max_new_tokens: int = 50,
    chunk: int = CHUNK,
    frame: str | None = None,
) -> dict[str, HeadScores]:
    """Score every head by every method, with one pass per trial for all of them.

    Args:
        model: a TransformerBridge or HookedTransformer with raw weights.
        trials: `Trial`s, or `EncodedTrial`s of your own; or `DocumentTrial`s, for the query-focused methods.
        methods: names from `lens_heads.scorers.SCORERS` (of document trials: `DOCUMENT_SCORERS`), or your own `Scorer`s;
            None for all of them.
        teacher_forced: take the gold answer's tokens as the answer steps; no decoding, no gate.
        direction: "raw" (the paper's), "exact" (true linear read-out, norms frozen), or a tuned-lens safetensors file.
        batch_size: trials per pass; results equal those of one at a time to rounding.
        out: a run folder: finished trials are stored there at once, and the same call continues it.
        max_new_tokens: greedy decoding ends there, at a newline, or at a stop token.
        chunk: prompt tokens per prefill step; changes memory, not results.
        frame: what stands around a document prompt: "llama3", "qwen2.5", or None for what the tokenizer has.

    Document trials take no part in decoding: `teacher_forced`, `direction`, `max_new_tokens` and `batch_size` mean nothing to
    them (they run one by one).

    Returns:
        One HeadScores per method, over the trials that count for it (those passing the gate; all for `headkv`).
        `meta["outcomes"]` counts passed / gate_failed / no_answer_step / ungated / error, `meta["trials"]` lists them.

    Raises:
        ValueError: no trials, an unknown method, a needle outside the prompt, a prompt longer than the context window,
            processed weights, or no trial at all that counts for any method.
    """
    trials = [trials] if isinstance(trials, DocumentTrial | EncodedDocuments) else list(several(trials))  # type: ignore[arg-type]  # either kind
    if any(isinstance(trial, DocumentTrial | EncodedDocuments) for trial in trials):
        from lens_heads.document_scoring import documents_only, score_documents

        chosen = resolve(methods, documents=True)
        return score_documents(model, documents_only(trials), chosen, frame, progress, out, chunk)
    scorers = resolve(methods)
    require_raw_weights(model)
    shape, room = geometry(model), 0 if teacher_forced else max_new_tokens
    encoded = _encode(model, shape, trials, room, teacher_forced)
    directions = Directions(model, shape, direction)
    settings = _settings(model, shape, encoded, scorers, directions.identity, room)
    folder = folder_for(model, out, settings)

    def passed(batch: list[EncodedTrial]) -> list[PassResult]:
        return run_pass(model, batch, scorers, directions, teacher_forced, max_new_tokens, chunk)

    results = _run(encoded, passed, folder, batch_size, progress)
    return collect([{"id": t.id, "needle": needle_digest(t)} for t in encoded], results, scorers, settings, folder)


def _run(
    trials: list[EncodedTrial],
    passed: Callable[[list[EncodedTrial]], list[PassResult]],
    folder: RunFolder | None,
    batch_size: int,
    progress: bool,
) -> list[Result]:
    return engine.run(
        trials,
        lambda batch: [_store(result) for result in passed(batch)],
        key=lambda trial: trial.id,
        folder=folder,
        batch_size=batch_size,
        size=len,
        progress=progress,
        description="scoring",
    )


def _encode(model: Model, shape: HeadGeometry, trials: Any, room: int, teacher_forced: bool) -> list[EncodedTrial]:
    """The trials in tokens, each with a needle and something beside it."""
    if room < 1 and not teacher_forced:
        raise ValueError(f"max_new_tokens={room}: at least 1 is generated; teacher_forced=True generates none")
    encoded = encode_all(trials, model.tokenizer, shape.n_ctx, room, shape.d_vocab, judged=False)
    for trial in encoded:
        if trial.needle is None:
            raise ValueError(f"trial {trial.id} has no needle: head scores compare the needle with the rest")
        if trial.needle[1] - trial.needle[0] >= len(trial):
            raise ValueError(f"trial {trial.id}: the needle is the whole prompt, there is nothing to compare it with")
    return encoded


def folder_for(model: Model, out: str | Path | None, settings: dict[str, Any]) -> RunFolder | None:
    """The run folder, None without `out`. ValueError when something is hooked onto the model: it cannot know what."""
    if out is not None and has_hooks(model):
        raise ValueError(
            f"something is hooked onto {geometry(model).name} (an ablation?), and a run folder cannot know what: leave out= "
            "away, or end the context first"
        )
    return RunFolder(out, settings) if out is not None else None


def _store(result: PassResult) -> Result:
    record = {"outcome": result.outcome, "text": result.text, "answer_steps": result.answer_steps}
    return finite(result.id, result.scores, record)


def finite(trial: str, scores: dict[str, Tensor], record: dict[str, Any]) -> Result:
    """One trial's scores as a result to be stored. ValueError for NaN or infinity."""
    bad = [name for name, score in scores.items() if not torch.isfinite(score).all()]
    if bad:
        raise ValueError(f"trial {trial}: {', '.join(bad)} is not finite: load the model in float32 or bfloat16")
    return Result(scores, record)


def _settings(
    model: Model, shape: HeadGeometry, trials: list[EncodedTrial], scorers: list[Scorer], direction: str, room: int
) -> dict[str, Any]:
    """What a stored trial depends on, apart from package versions. No room to generate is teacher forcing."""
    return {
        "model": shape.name,
        "weights": fingerprint(model),
        "dtype": str(model.cfg.dtype),
        "trials": trials_digest(trials),
        "n_trials": len(trials),
        "methods": sorted(identity(scorer) for scorer in scorers),
        "teacher_forced": room == 0,
        "direction": direction,
        "max_new_tokens": room or None,
    }


def fingerprint(model: Model) -> str:
    """A cheap identity of the weights: sum and norm of up to 65,536 evenly spaced elements of every parameter."""
    seen = hashlib.sha256()
    for name, parameter in (model.original_model if is_bridge(model) else model).named_parameters():
        flat = parameter.detach().reshape(-1)
        sample = flat[:: max(1, flat.numel() // 65_536)].double()
        seen.update(f"{name} {tuple(parameter.shape)} {float(sample.sum()):.8g} {float(sample.norm()):.8g}".encode())
    return seen.hexdigest()[:16]


def trials_digest(trials: list[EncodedTrial]) -> str:
    """Hash of ids, tokens, needles, answers, judges and choices of all trials."""
    return digest(
        [
            [
                *(t.id, t.tokens.tolist(), t.needle, t.answer, t.answer_tokens.tolist(), t.aliases, asdict(t.judge)),
                *(t.choices, [ids.tolist() for ids in t.choice_tokens]),
            ]
            for t in trials
        ]
    )


def needle_digest(trial: EncodedTrial) -> str | None:
    """Hash of the needle's tokens: trials with the same needle are not independent, whatever their ids."""
    return digest(trial.tokens[slice(*trial.needle)].tolist()) if trial.needle is not None else None


def prompt_digest(trial: EncodedTrial) -> str:
    """Hash of the prompt's tokens: the same question under another id is no other trial."""
    return digest(trial.tokens.tolist())


def identity(scorer: Scorer) -> str:
    """A method as a run folder knows it: the name, and for one's own scorers also what it does."""
    if {**SCORERS, **DOCUMENT_SCORERS}.get(scorer.name) is scorer:
        return scorer.name
    return f"{scorer.name} ({digest([code_of(scorer.score), scorer.rows, scorer.gated])})"


def collect(
    about: list[dict[str, Any]],
    results: list[Result],
    scorers: list[Scorer],
    settings: dict[str, Any],
    folder: RunFolder | None,
) -> dict[str, HeadScores]:
    """Per-trial scores stacked per method, with what is known `about` every trial and its outcome in the meta; saved."""
    outcomes = dict(Counter(result.record["outcome"] for result in results))
    listed = [{**trial, **result.record} for trial, result in zip(about, results, strict=True)]
    scores: dict[str, HeadScores] = {}
    for scorer in scorers:
        kept = [
            (t["id"], r.arrays[scorer.name]) for t, r in zip(about, results, strict=True) if scorer.name in r.arrays
        ]
        if kept:
            meta = {
                **settings,
                "method": scorer.name,
                "paper": scorer.paper,
                "signed": scorer.signed,
                "outcomes": outcomes,
                "trials": listed,
            }
            meta |= {"rule": scorer.rule} if scorer.rule else {}
            del meta["methods"]
            stacked = torch.stack([score for _, score in kept])
            scores[scorer.name] = HeadScores.from_trials(scorer.name, stacked, [name for name, _ in kept], meta)
            if folder is not None:
                scores[scorer.name].save(folder.path / f"{scorer.name}.json")
    missing = [scorer.name for scorer in scorers if scorer.name not in scores]
    contrastive = [scorer.name for scorer in scorers if scorer.contrastive]
    summary = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    if not scores:
        raise ValueError(
            f"no trial counts for {', '.join(missing)}: of {len(about)} trials {summary}; use easier trials (a shorter "
            "context_length, question='direct'), or teacher_forced=True, which has no gate"
            if missing != contrastive
            else f"{', '.join(missing)} compares gold documents with others, and all are gold: add documents, or use qr"
        )
    if missing:
        warnings.warn(f"no trial counts for {', '.join(missing)} ({summary}): left out of the result", stacklevel=3)
    return scores
