"""Query-focused scores: two short passes over the query's rows, on shared keys and values of the documents.

The documents run once, without hooks. Then the query's rows and, from the same cache, those of the query "N/A" run with
hooked patterns. Attention is averaged over the rows within the pass, so that no pattern outlives its layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.named import Rankings
from lens_heads.model.forward import CHUNK, Cache, advance, fast_attention, prefill
from lens_heads.model.geometry import Model, head_geometry, require_raw_weights
from lens_heads.model.hooks import recording
from lens_heads.model.modes import evaluating
from lens_heads.model.support import require
from lens_heads.model.workers import shared
from lens_heads.ranking.one_pass.collecting import PassResult, score_trials
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import DocumentView
from lens_heads.ranking.one_pass.scorers import resolve_scorers, scored
from lens_heads.runs import checks
from lens_heads.runs.digests import digest
from lens_heads.runs.options import LoopOptions, Run
from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import check_unique
from lens_heads.trials.dependent import warn_of_repeats
from lens_heads.trials.documents import AnyDocuments, EncodedDocuments


@typed
@shared
def score_documents(
    model: Model,
    trials: Iterable[AnyDocuments] | AnyDocuments,
    methods: Iterable[str | Scorer] | str | Scorer | None = None,
    *,
    frame: str | None = None,
    chunk: int = CHUNK,
    **run: Unpack[LoopOptions],
) -> Rankings:
    """Score every head by where it looks from a query over documents, with two short passes per trial for all methods.

    Args:
        model: a TransformerBridge or HookedTransformer with raw weights.
        trials: `DocumentTrial`s, or your own `EncodedDocuments`. Trials run one by one, and nothing is decoded.
        methods: names from `scorers.DOCUMENT_SCORERS`, or your own `Scorer`s with rows="query"; None for all of them.
        frame: the text around the prompt: "llama3", "qwen2.5", or None for that of the tokenizer.
        chunk: prompt tokens per prefill step; changes memory, not results.
        **run: `out` and `progress`, see `runs.options.LoopOptions`.

    Returns one HeadScores per method; `meta["rule"]` names the published rule it follows. Every trial counts, except that
    contrastive methods skip those whose documents are all gold.

    Raises ValueError for no trials, an unknown method, a prompt longer than the context window, or processed weights.

    Example:
        >>> trial = lh.DocumentTrial("a", "A?", ("ij(a=A)kl", "mnopqr", "stuvwx"), gold=("1",))
        >>> list(lh.score_documents(model, [trial]))
        ['qr', 'qr_ndcg', 'core', 'summed_attention']
    """
    checks.whole_number("chunk", chunk)
    require_raw_weights(model)
    options, scorers = Run.of(run), resolve_scorers(methods, "documents")
    shape = require(model, "score_documents", "pattern")
    encoded = _encode(trials, model.tokenizer, shape, frame)
    settings = {
        "trials": digest([[t.id, t.tokens.tolist(), t.null_tokens.tolist(), t.documents, t.gold] for t in encoded]),
        "frame": frame,
    }

    def work(batch: list[EncodedDocuments]) -> list[PassResult]:
        return [_score(model, trial, scorers, shape, chunk) for trial in batch]

    return score_trials(model, encoded, work, scorers, options, settings)


def _encode(trials: Any, tokenizer: Any, shape: HeadGeometry, frame: str | None) -> list[EncodedDocuments]:
    """All trials in tokens. TypeError for anything but document trials; ValueError for none, and for repeated ids."""
    listed = [trials] if isinstance(trials, AnyDocuments) else list(trials)
    if not listed:
        raise ValueError("there are no trials: pass at least one DocumentTrial")
    for trial in listed:
        if not isinstance(trial, AnyDocuments):
            raise TypeError(
                f"expected a DocumentTrial, got {type(trial).__name__}: score trials with needles and trials with "
                "documents separately"
            )
    check_unique(trial.id for trial in listed)
    encoded = [
        trial if isinstance(trial, EncodedDocuments) else trial.encode(tokenizer, frame=frame) for trial in listed
    ]
    for trial in encoded:
        if not trial.gold:
            raise ValueError(f"trial {trial.id} has no gold document: pass the indices of those with the answer")
        check_fits(trial, shape)
    warn_of_repeats([one.id for one in encoded], [one.tokens.numpy().tobytes() for one in encoded])
    return encoded


def check_fits(trial: EncodedDocuments, shape: HeadGeometry) -> None:
    """ValueError if the prompt exceeds the context window."""
    if len(trial) > shape.n_ctx:
        raise ValueError(
            f"trial {trial.id}: {len(trial.documents)} documents make a prompt of {len(trial)} tokens, but the context "
            f"window of {shape.name} is {shape.n_ctx}: pass fewer or shorter documents"
        )


def _score(model: Model, trial: EncodedDocuments, scorers: list[Scorer], shape: HeadGeometry, chunk: int) -> PassResult:
    others = len(trial.gold) < len(trial.documents)
    scorers = [scorer for scorer in scorers if others or not scorer.contrastive]
    scores = {scorer.name: shape.table() for scorer in scorers}
    for layer, (attention, null) in zip(shape.attending, query_attention(model, trial, chunk), strict=True):
        view = DocumentView(layer, attention, null, trial.documents, trial.tags, trial.gold)
        for scorer in scorers:
            scores[scorer.name][layer, : len(attention)] = scored(scorer, view, len(attention))
    return PassResult(trial.id, "ungated", scores=scores)


@torch.no_grad()
def query_attention(
    model: Model, trial: EncodedDocuments, chunk: int = CHUNK
) -> Iterator[tuple[Float[Tensor, "head key"], Float[Tensor, "head key"]]]:
    """By attending layer, the mean attention to every position before the query rows: (from the query, from the null query)."""
    with evaluating(model):
        cache = Cache(model, 1)
        with fast_attention(model):
            prefill(model, trial.tokens[None, : trial.ask].to(model.W_U.device), cache, chunk=chunk)
        asked, null = (_row_means(model, tokens[trial.ask :], cache) for tokens in (trial.tokens, trial.null_tokens))
    yield from zip(asked, null, strict=True)


def _row_means(model: Model, rows: Int[Tensor, " row"], cache: Cache) -> list[Float[Tensor, "head key"]]:
    """Per layer, the mean over these rows of their attention to the cached positions; the cache is left unchanged."""
    before = len(cache)
    cache.mark()
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in head_geometry(model).attending]
    with recording(model, names, lambda pattern: pattern[0, :, :, :before].float().mean(1)) as means:
        advance(model, rows[None].to(model.W_U.device), cache, logits=0)
    cache.crop(before)
    return [mean for (mean,) in means.values()]
