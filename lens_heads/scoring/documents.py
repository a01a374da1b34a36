"""Query-focused scores: two short passes over the query's rows, the documents' keys and values shared.

The documents are read once without hooks; then the query's rows and, from the same cache, those of the query "N/A" run with
their patterns hooked. Attention is averaged over the rows inside the pass, so that no pattern outlives its layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.heads.scores import HeadScores
from lens_heads.model.forward import CHUNK, Cache, advance, fast_attention, prefill
from lens_heads.model.geometry import HeadGeometry, Model, geometry, require_raw_weights
from lens_heads.model.hooks import hooked
from lens_heads.model.identity import fingerprint, folder_for
from lens_heads.model.modes import evaluating
from lens_heads.runs import engine
from lens_heads.runs.store import Result, digest
from lens_heads.scoring.collecting import collect, finite, identity
from lens_heads.scoring.document_view import DocumentView
from lens_heads.scoring.scorers import Scorer, checked
from lens_heads.trials.documents import AnyDocuments, DocumentTrial, EncodedDocuments


def score_documents(
    model: Model,
    trials: Sequence[AnyDocuments],
    scorers: list[Scorer],
    frame: str | None = None,
    progress: bool = True,
    out: str | Path | None = None,
    chunk: int = CHUNK,
) -> dict[str, HeadScores]:
    """`score_heads` of document trials; see there. `meta["rule"]` says which published rule a method follows."""
    require_raw_weights(model)
    shape = geometry(model)
    encoded = encode_documents(trials, model.tokenizer, shape, frame)
    settings = {
        "model": shape.name,
        "weights": fingerprint(model),
        "dtype": str(model.cfg.dtype),
        "trials": digest([[t.id, t.tokens.tolist(), t.null_tokens.tolist(), t.documents, t.gold] for t in encoded]),
        "n_trials": len(encoded),
        "methods": sorted(identity(scorer) for scorer in scorers),
        "frame": frame,
    }
    folder = folder_for(model, out, settings)
    results = engine.run(
        encoded,
        lambda batch: [_score(model, batch[0], scorers, shape, chunk)],
        key=lambda trial: trial.id,
        folder=folder,
        progress=progress,
        description="scoring",
    )
    about = [{"id": t.id, "needle": None, "cik": t.meta.get("cik")} for t in encoded]
    return collect(about, results, scorers, settings, folder)


def encode_documents(
    trials: Sequence[AnyDocuments], tokenizer: Any, shape: HeadGeometry, frame: str | None = None
) -> list[EncodedDocuments]:
    """All trials in tokens, checked before any work: unique ids, prompts inside the context window."""
    encoded: list[EncodedDocuments] = []
    for trial in trials:
        found = trial if isinstance(trial, EncodedDocuments) else trial.encode(tokenizer, frame)
        if trial.id in {other.id for other in encoded}:
            raise ValueError(f"two trials have the id {trial.id!r}: ids must be unique, results are stored under them")
        check_fits(found, shape)
        encoded.append(found)
    return encoded


def check_fits(trial: EncodedDocuments, shape: HeadGeometry) -> None:
    """ValueError when the prompt exceeds the context window."""
    if len(trial) > shape.n_ctx:
        raise ValueError(
            f"trial {trial.id}: {len(trial.documents)} documents make a prompt of {len(trial)} tokens, the context window of "
            f"{shape.name} is {shape.n_ctx}: give fewer or shorter documents"
        )


def _score(model: Model, trial: EncodedDocuments, scorers: list[Scorer], shape: HeadGeometry, chunk: int) -> Result:
    others = len(trial.gold) < len(trial.documents)
    scorers = [scorer for scorer in scorers if others or not scorer.contrastive]
    scores = {scorer.name: torch.zeros(shape.n_layers, shape.n_heads) for scorer in scorers}
    for layer, (attention, null) in enumerate(query_attention(model, trial, chunk)):
        view = DocumentView(layer, attention, null, trial.documents, trial.tags, trial.gold)
        for scorer in scorers:
            scores[scorer.name][layer] = checked(scorer, scorer.score(view), shape.n_heads)
    return finite(trial.id, scores, {"outcome": "ungated", "text": "", "answer_steps": []})


@torch.no_grad()
def query_attention(
    model: Model, trial: EncodedDocuments, chunk: int = CHUNK
) -> Iterator[tuple[Float[Tensor, "head key"], Float[Tensor, "head key"]]]:
    """Layer by layer, the mean attention of the query's rows to every position before them: the query's, the null query's."""
    device = model.W_U.device
    with evaluating(model):
        pads = torch.zeros(1, dtype=torch.long, device=device)
        cache = Cache(model, 1)
        with fast_attention(model):
            prefill(model, trial.tokens[None, : trial.ask].to(device), cache, pads, chunk)
        asked, null = (
            _row_means(model, tokens[trial.ask :], cache, pads) for tokens in (trial.tokens, trial.null_tokens)
        )
    yield from zip(asked, null, strict=True)


def _row_means(
    model: Model, rows: Int[Tensor, " row"], cache: Cache, pads: Int[Tensor, " batch"]
) -> list[Float[Tensor, "head key"]]:
    """Per layer the mean over these rows of their attention to what the cache holds; the cache is left as it was."""
    before, means = len(cache), []

    def see(pattern: Tensor, hook: Any) -> None:
        means.append(pattern[0, :, :, :before].float().mean(1))

    hooks = [(f"blocks.{layer}.attn.hook_pattern", see) for layer in range(model.cfg.n_layers)]
    with hooked(model, hooks):
        advance(model, rows[None].to(pads.device), cache, pads, logits=0)
    cache.crop(before)
    return means


def documents_only(trials: Iterable[Any]) -> list[AnyDocuments]:
    """The trials, all of them document trials. TypeError for a mixture."""
    listed = list(trials)
    for trial in listed:
        if not isinstance(trial, DocumentTrial | EncodedDocuments):
            raise TypeError(f"{trial!r} is no DocumentTrial: score trials with needles and those with documents apart")
    return listed
