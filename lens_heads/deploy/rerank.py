"""rerank: selected heads as a retriever, by where they look from a query   (QRRetriever; Zhang et al., EMNLP 2025)"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from lens_heads.heads.head import AnyHeads
from lens_heads.heads.sets import by_layer
from lens_heads.model.forward import CHUNK
from lens_heads.model.geometry import Model
from lens_heads.model.identity import warn_of_change
from lens_heads.model.support import require
from lens_heads.ranking.one_pass.documents import check_fits, query_attention
from lens_heads.ranking.one_pass.layer_view import masked_sums
from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.trials import documents as composing
from lens_heads.trials.documents import Document
from lens_heads.trials.fields import text


@typed
def rerank(
    model: Model,
    query: str,
    documents: Iterable[Document | str],
    heads: AnyHeads,
    *,
    frame: str | None = None,
    chunk: int = CHUNK,
) -> pd.DataFrame:
    """Documents ordered by how much the heads look at them for this query, best first.

    Differs from the detection score `qr`: the calibrated attention is first summed over heads, then masked per document
    (tokens at or below the document's mean - 2 unbiased standard deviations are dropped), then summed over tokens.

    Args:
        query: what is asked of the documents.
        documents: texts, or `Document`s with titles and ids.
        heads: e.g. the best of `score_heads(..., methods="qr")`; the paper uses 16.
        frame: as in `score_documents`.

    Returns one row per document, best first: rank (from 1), id, title, score (attention mass summed over heads), position (in
    the input, from 0).

    Raises ValueError for no heads, a head that the model does not have, an empty query, no, empty or duplicate documents,
    and a prompt that exceeds the context window.

    `chunk`: prompt tokens of a step.

    Cost: one pass over the documents, and one over the rows of the query and of an empty one.

    Example:
        >>> lh.rerank(model, "a?", ["ij(a=A)kl", "mnopqr"], heads)["position"].tolist()
        [0, 1]
    """
    checks.whole_number("chunk", chunk)
    shape = require(model, "rerank", "pattern")
    warn_of_change(model, "rankings of documents")
    chosen = shape.check_heads(heads)
    if not chosen:
        raise ValueError(
            "there are no heads to rank by: pass some, e.g. score_heads(model, trials, methods='qr')['qr'].top(16)"
        )
    text("rerank", "query", query, empty=False)
    given = composing.numbered(documents, "rerank")
    trial = composing.encode("rerank", query, given, model.tokenizer, frame=frame)
    check_fits(trial, shape)
    at = by_layer(chosen)
    curve = sum(
        (attention - null)[at[layer]].sum(0).cpu()
        for layer, (attention, null) in enumerate(query_attention(model, trial, chunk))
        if layer in at
    )
    scores = masked_sums(curve, trial.documents)  # type: ignore[arg-type]  # there is a head, so it is no plain 0
    order = scores.argsort(descending=True, stable=True).tolist()
    rows = [(rank, given[i].id, given[i].title, float(scores[i]), i) for rank, i in enumerate(order, 1)]
    return pd.DataFrame(rows, columns=["rank", "id", "title", "score", "position"])
