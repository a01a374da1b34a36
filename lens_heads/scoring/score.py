"""score_heads: every method on every trial, one pass each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lens_heads.heads.scores import HeadScores
from lens_heads.model.directions import Directions
from lens_heads.model.forward import CHUNK
from lens_heads.model.geometry import HeadGeometry, Model, geometry, require_raw_weights
from lens_heads.model.identity import fingerprint, folder_for
from lens_heads.runs import engine
from lens_heads.runs.store import Result, RunFolder
from lens_heads.scoring.capture import PassResult, run_pass
from lens_heads.scoring.collecting import collect, finite, identity
from lens_heads.scoring.scorers import Scorer, resolve
from lens_heads.trials.digests import needle_digest, trials_digest
from lens_heads.trials.documents import AnyDocuments, DocumentTrial, EncodedDocuments
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.encoding import encode_all, several
from lens_heads.trials.trial import AnyTrial


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
        methods: names from `lens_heads.scoring.scorers.SCORERS` (of document trials: `DOCUMENT_SCORERS`), or your own `Scorer`s;
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
        from lens_heads.scoring.documents import documents_only, score_documents

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


def _store(result: PassResult) -> Result:
    record = {"outcome": result.outcome, "text": result.text, "answer_steps": result.answer_steps}
    return finite(result.id, result.scores, record)


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
