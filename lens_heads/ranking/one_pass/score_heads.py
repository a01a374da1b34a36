"""score_heads: scores by every method, from one pass per trial."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.named import Rankings
from lens_heads.model.directions import Directions
from lens_heads.model.forward import CHUNK
from lens_heads.model.geometry import Model, head_geometry, require_raw_weights
from lens_heads.model.support import require
from lens_heads.model.workers import shared
from lens_heads.ranking.one_pass.capture import run_pass
from lens_heads.ranking.one_pass.collecting import PassResult, score_trials
from lens_heads.ranking.one_pass.definition import Probe, Scorer, lacking
from lens_heads.ranking.one_pass.documents import score_documents
from lens_heads.ranking.one_pass.nulls import check_draws
from lens_heads.ranking.one_pass.pairing import score_pairs
from lens_heads.ranking.one_pass.repeated import RepeatedProbe
from lens_heads.ranking.one_pass.scorers import needs_of, resolve_scorers
from lens_heads.ranking.one_pass.text_pass import score_texts
from lens_heads.ranking.one_pass.token_maps import WeightsProbe
from lens_heads.ranking.one_pass.weighing import score_weights
from lens_heads.runs import checks
from lens_heads.runs.options import LoopOptions, Run, RunOptions
from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import encode_all, several
from lens_heads.trials.context_pairs import PairProbe
from lens_heads.trials.digests import trials_digest
from lens_heads.trials.documents import AnyDocuments, DocumentTrial, EncodedDocuments
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.texts import TextProbe
from lens_heads.trials.trial import AnyTrial

AnyProbe: TypeAlias = RepeatedProbe | TextProbe | PairProbe | WeightsProbe
_PASSES: dict[type, Callable[..., Rankings]] = {
    RepeatedProbe: score_texts,
    TextProbe: score_texts,
    PairProbe: score_pairs,
    WeightsProbe: score_weights,
}
_PROBES: dict[type, Probe] = {
    DocumentTrial: "documents",
    EncodedDocuments: "documents",
    RepeatedProbe: "repeated",
    TextProbe: "text",
    PairProbe: "pair",
    WeightsProbe: "weights",
}


@typed
@shared
def score_heads(
    model: Model,
    trials: Iterable[AnyTrial | AnyDocuments | AnyProbe] | AnyTrial | AnyDocuments | AnyProbe,
    methods: Iterable[str | Scorer] | str | Scorer | None = None,
    *,
    teacher_forced: bool = False,
    direction: str | Path = "raw",
    null_spans: int = 0,
    chunk: int = CHUNK,
    **run: Unpack[RunOptions],
) -> Rankings:
    """Score every head by every method, with one pass per trial for all methods.

    Args:
        model: a TransformerBridge or HookedTransformer with raw weights.
        trials: `Trial`s, or your own `EncodedTrial`s. `DocumentTrial`s are passed on to `score_documents`. Or a probe, which
            `lh.repeated_blocks`, `lh.plain_texts`, `lh.context_pairs` and `lh.token_maps` make, or several of one kind: it has
            methods of its own (`scorers.TABLES`), nothing is decoded, and only `methods`, `out` and `progress` apply.
        methods: names from `scorers.SCORERS`, or your own `Scorer`s; None for all of them.
        teacher_forced: use the gold answer's tokens as the answer steps; no decoding, no gate.
        direction: "raw" (the paper's), "exact" (true linear read-out, norms frozen), or a tuned-lens safetensors file. The
            methods `locos_exact` and `dla_exact` are always exact.
        null_spans: how many other spans of each prompt are scored as if they were the needle, for `HeadScores.p_values`
            (99 resolves p to .01). They have the needle's length and do not overlap it; see `nulls.draw_spans`.
        chunk: prompt tokens per prefill step; changes memory, not results.
        **run: see `runs.options.RunOptions`.

    Returns:
        One HeadScores per method, over the trials that count for it (those that pass the gate; all for `headkv`). Its
        `null` [draw, layer, head] is the mean over the same trials of every trial's draw-th span; None without
        `null_spans`, and for methods that do not read where the needle is (`dla`, `dla_exact`).
        `outcomes` counts passed / gate_failed / no_answer_step / ungated / error, `meta["trials"]` lists them.

    Raises:
        ValueError: no trials, an unknown method, a needle outside the prompt, a prompt longer than the context window,
            processed weights, no other span beside a needle or more `null_spans` than the prompts have, or no trial that
            counts for any method; a method that is computed on something else, naming what.

    Example:
        >>> found = lh.score_heads(model, trials, ["locos", "attention_mass"], teacher_forced=True)
        >>> found["locos"].top(2) == heads
        True
    """
    listed, probe = probed(trials)
    if probe != "needle":
        check_unused(teacher_forced, direction, null_spans, run)
        return _of_another_kind(model, listed, {type(one) for one in listed}, methods, chunk, run)
    options, scorers = Run.of(run), resolve_scorers(methods)
    checks.whole_number("chunk", chunk)
    checks.count("null_spans", null_spans, 0)
    require_raw_weights(model)
    shape, room = head_geometry(model), 0 if teacher_forced else options.max_new_tokens
    encoded = _encode(model, shape, listed, room, teacher_forced, null_spans)
    directions = Directions(model, shape, direction)
    for scorer in scorers:
        require(model, f"method {scorer.name!r}", *needs_of(scorer, directions.exact))
        if lacks := lacking(scorer, encoded):
            raise ValueError(f"method {scorer.name!r}: {lacks}")
    settings: dict[str, Any] = {"trials": trials_digest(encoded), "teacher_forced": teacher_forced}
    settings |= {"direction": directions.identity, "max_new_tokens": room or None}
    settings |= {"null_spans": null_spans} if null_spans else {}

    def work(batch: list[EncodedTrial]) -> list[PassResult]:
        return run_pass(model, batch, scorers, directions, teacher_forced, room, null_spans, chunk)

    return score_trials(model, encoded, work, scorers, options, settings)


def probed(given: Any) -> tuple[list[Any], Probe]:
    """What is given, listed, and what it is: "needle" for trials. Of a mixture, the first that is no trial."""
    listed: list[Any] = [given] if isinstance(given, tuple(_PROBES)) else list(several(given))
    others: list[Probe] = [_PROBES[type(one)] for one in listed if type(one) in _PROBES]
    return listed, others[0] if others else "needle"


def _of_another_kind(
    model: Model,
    listed: list[Any],
    kinds: set[type],
    methods: Iterable[str | Scorer] | str | Scorer | None,
    chunk: int,
    run: RunOptions,
) -> Rankings:
    """Scores of document trials or probes, which have a pass of their own. ValueError for a mixture."""
    if kinds.isdisjoint(_PASSES):
        loop: LoopOptions = {name: run[name] for name in LoopOptions.__annotations__ if name in run}  # type: ignore[assignment]
        return score_documents(model, listed, methods, chunk=chunk, **loop)
    if len(kinds) > 1:
        raise ValueError(f"{' and '.join(sorted(kind.__name__ for kind in kinds))}: score different probes separately")
    (kind,) = kinds
    return _PASSES[kind](model, listed, methods, Run.of(run))


def check_unused(teacher_forced: bool, direction: str | Path, null_spans: int, run: RunOptions) -> None:
    """ValueError for arguments of needle trials: document trials and probes are not decoded and run one by one."""
    given = {"teacher_forced": teacher_forced, "direction": direction != "raw", "null_spans": null_spans}
    given |= dict.fromkeys(run, True)
    unused = next((name for name, value in given.items() if value and name not in LoopOptions.__annotations__), None)
    if unused is not None:
        raise ValueError(f"{unused}= applies to trials with a needle, not to document trials or probes: omit it")


def _encode(
    model: Model, shape: HeadGeometry, trials: list[AnyTrial], room: int, teacher_forced: bool, null_spans: int
) -> list[EncodedTrial]:
    """The trials in tokens, each with a needle, other tokens to compare it with, and room for `null_spans` other spans."""
    if not teacher_forced:
        checks.whole_number("max_new_tokens", room, remedy="; use teacher_forced=True to generate nothing")
    encoded = encode_all(trials, model.tokenizer, shape.n_ctx, room, shape.d_vocab, judged=False)
    check_needles(encoded)
    for trial in encoded:
        assert trial.needle is not None
        if trial.needle[1] - trial.needle[0] >= len(trial):
            raise ValueError(f"trial {trial.id}: the needle is the whole prompt, so nothing is left to compare it with")
    check_draws(encoded, null_spans)
    return encoded


def check_needles(trials: Iterable[AnyTrial]) -> None:
    """ValueError for a trial without a needle."""
    without = next((trial.id for trial in trials if not trial.needle), None)
    if without is not None:
        raise ValueError(
            f"trial {without} has no needle, but head scores compare the needle with the rest: use a task with needles, or "
            "causal methods"
        )
