"""Influence: how much a set of heads does for each document, and for each of its tokens   (AttentionInfluence)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.head import AnyHeads
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.interventions.independence import check_reference
from lens_heads.interventions.options import AblationRun, ablation_run
from lens_heads.interventions.spans import parts_of
from lens_heads.model.forward import Cache, advance, fast_attention
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.identity import identified
from lens_heads.model.modes import evaluating
from lens_heads.model.run_folders import folder_for
from lens_heads.model.workers import shared
from lens_heads.runs import engine
from lens_heads.runs.digests import digest
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.shards import Result
from lens_heads.runs.typed import typed, typed_methods
from lens_heads.trials.digests import made_on
from lens_heads.trials.encoded import placed
from lens_heads.trials.texts import AnyText, EncodedText, plain_texts

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROWS = 128
"""Rows at a time, whose logits over the whole vocabulary are held."""
LEAST_LOSS = 1e-6


@typed_methods
@dataclass(frozen=True, eq=False)
class Influence(Drawn):
    """`tokens`: a row per token that was predicted: document, position, token, loss, loss_without, difference (nats).

    `heads`: those that were ablated, as names.

    `meta`: the settings.

    Example:
        >>> found = lh.influence(model, ["ijk (a=A) lmn ?A"], heads, kind="uniform")
        >>> found.tokens.columns.tolist()
        ['document', 'position', 'token', 'loss', 'loss_without', 'difference']
    """

    tokens: pd.DataFrame
    heads: tuple[str, ...]
    meta: dict[str, Any]

    @property
    def frame(self) -> pd.DataFrame:
        """A row per document, most influenced first: document, tokens, loss, loss_without, difference, influence.

        influence = (loss_without - loss) / loss, of mean losses: the paper's AI. ValueError for a document whose loss is 0.
        """
        found = self.tokens.groupby("document", sort=False)
        frame = found[["loss", "loss_without", "difference"]].mean().assign(tokens=found.size()).reset_index()
        sure = frame[frame["loss"] < LEAST_LOSS]
        if len(sure):
            raise ValueError(
                f"{sure['document'].iloc[0]}: the model predicts it without loss, so the ratio is not defined"
            )
        frame["influence"] = frame["difference"] / frame["loss"]
        return frame.sort_values("influence", ascending=False, ignore_index=True)

    def plot(self, document: str | None = None, *, title: str | None = None) -> go.Figure:
        """The difference over one document's tokens (the most influenced one's, if None)."""
        from lens_heads import plots

        name = self.frame["document"].iloc[0] if document is None else document
        rows = self.tokens[self.tokens["document"] == name]
        if rows.empty:
            raise ValueError(f"document={document!r}: the documents are {', '.join(self.frame['document'])}")
        values = rows["difference"].to_numpy()
        return plots.token_curve(
            "loss without the heads, minus loss (nats)", list(rows["token"]), values, title=title or name
        )


@typed
@shared
def influence(
    model: Model,
    texts: Iterable[AnyText] | AnyText,
    heads: AnyHeads,
    *,
    kind: str | Ablation,
    **options: Unpack[AblationRun],
) -> Influence:
    """How much worse each document, and each of its tokens, is predicted without the heads.

    Args:
        texts: strings, (prompt, response) pairs of which the response is predicted, or token ids.
        heads: as in `ablate`. The paper's are the best 5 % by `copy` on look-ups (`tasks.key_value`), with uniform attention;
            compare with random heads, and rank documents of one domain only.
        kind, **options: as in `ablate`, and `out` and `progress`.

    Raises ValueError as `ablate` does, and for no documents.

    `model`: in which the heads are.

    Cost: two passes over each document, with and without the heads.

    Example:
        >>> found = lh.influence(model, ["ijk (a=A) lmn ?A"], heads, kind="uniform")
        >>> found.tokens.sort_values("difference")["token"].iloc[-1]
        'A'
    """
    ablation, run = ablation_run(model, kind, options)
    shape = head_geometry(model)
    chosen = shape.check_heads(heads)
    encoded = placed(plain_texts(texts).encode(model.tokenizer, shape))
    ablation.check_spans(encoded, what="documents")
    check_reference(ablation.reference, made_on(encoded), "documents", "compute it on others")
    settings = {
        **identified(model, "losses").settings,
        **ablation.settings,
        "heads": ",".join(map(str, sorted(chosen))),
    }
    settings["documents"] = digest([one.settings for one in encoded])

    def work(batch: list[EncodedText]) -> list[Result]:
        (one,) = batch
        whole = losses(model, one)
        with ablate(model, chosen, kind=ablation):
            without = losses(model, one)
        return [Result({"loss": whole, "loss_without": without}, {})]

    folder = folder_for(model, run.out, settings)
    results = engine.run(encoded, work, folder=folder, progress=run.progress, description="influence")
    tables = [_table(model, one, result.arrays) for one, result in zip(encoded, results, strict=True) if result.keep]
    return Influence(pd.concat(tables, ignore_index=True), tuple(map(str, chosen)), settings)


@torch.no_grad()
def losses(model: Model, one: EncodedText) -> Float[Tensor, " token"]:
    """Cross-entropy of every counted token given those before it, in nats."""
    tokens, cache = one.tokens[None].to(model.W_U.device), Cache(model, 1)
    cache.assign(1, 1, parts_of([one]))  # type: ignore[list-item]  # only its tokens are read
    found: list[Tensor] = []
    with evaluating(model), fast_attention(model):
        for start in range(0, len(one) - 1, ROWS):
            rows = tokens[:, start : min(start + ROWS, len(one) - 1)]
            logits = advance(model, rows, cache, logits=rows.shape[1])[0].float()
            following = tokens[0, start + 1 : start + 1 + rows.shape[1]].to(logits.device)
            found.append(torch.nn.functional.cross_entropy(logits, following, reduction="none").cpu())
    return torch.cat(found)[one.first - 1 :]


def _table(model: Model, one: EncodedText, arrays: dict[str, Tensor]) -> pd.DataFrame:
    frame = pd.DataFrame({name: arrays[name].numpy() for name in ("loss", "loss_without")})
    frame["difference"] = frame["loss_without"] - frame["loss"]
    positions = range(one.first, len(one))
    frame.insert(0, "token", [model.tokenizer.decode([int(one.tokens[at])]) for at in positions])
    frame.insert(0, "position", list(positions))
    frame.insert(0, "document", one.id)
    return frame
