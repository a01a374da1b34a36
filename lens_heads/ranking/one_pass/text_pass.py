"""The pass over texts: every row of every layer, a few rows at a time, so that no whole pattern is ever held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.named import Rankings
from lens_heads.model.forward import Cache, prefill
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.hooks import hooked
from lens_heads.model.modes import evaluating
from lens_heads.model.support import require
from lens_heads.ranking.one_pass.collecting import PassResult, score_trials
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.repeated import RepeatedProbe, blind_layers
from lens_heads.ranking.one_pass.row_view import RowView
from lens_heads.ranking.one_pass.scorers import resolve_scorers, scored
from lens_heads.ranking.one_pass.totals import QueriesAndKeys, Received, TextTotals
from lens_heads.runs import checks
from lens_heads.runs.digests import digest
from lens_heads.runs.options import Run
from lens_heads.trials.checked_tokens import check_unique
from lens_heads.trials.texts import EncodedText, TextProbe

ROWS = 64
"""Rows at a time: 32 heads x 64 rows x 10,000 keys take 80 MB in float32."""


def score_texts(
    model: Model, probes: Sequence[TextProbe | RepeatedProbe], methods: Any, options: Run, chunk: int = ROWS
) -> Rankings:
    """`score_heads` for texts, which it documents. Repeated probes and texts are not mixed: their scores mean other things."""
    kinds = {type(probe) for probe in probes}
    if len(kinds) > 1:
        raise ValueError("score repeated probes and texts separately: their scores have different meanings")
    checks.whole_number("chunk", chunk)
    shape, repeats = require(model, "reading texts", "pattern"), isinstance(probes[0], RepeatedProbe)
    scorers = resolve_scorers(methods, "repeated" if repeats else "text")
    encoded = [one for probe in probes for one in probe.encode(model.tokenizer, shape)]
    if not repeats:  # Texts of several probes are numbered through.
        encoded = [EncodedText(**{**vars(one), "id": f"text-{number}"}) for number, one in enumerate(encoded)]
    check_unique(one.id for one in encoded)
    settings: dict[str, Any] = {
        "probe": "repeated" if repeats else "text",
        "trials": digest([one.settings for one in encoded]),
    }
    reach = {scorer: max(_reach(scorer, one) for one in encoded) for scorer in scorers}
    blind = blind_layers(shape, {scorer: back for scorer, back in reach.items() if back})
    settings |= {"blind_layers": blind} if blind else {}

    def work(batch: list[EncodedText]) -> list[PassResult]:
        return [PassResult(one.id, "ungated", scores=read_text(model, one, scorers, chunk)) for one in batch]

    return score_trials(model, encoded, work, scorers, options, settings)


def _reach(scorer: Scorer, one: EncodedText) -> int:
    """How many tokens back a method has to look, 0 where it may look anywhere."""
    if "received" in scorer.needs:
        return one.min_distance
    return 0 if one.block is None or scorer.after_copy is None else one.block - scorer.after_copy


@torch.no_grad()
def stream_rows(
    model: Model,
    text: EncodedText,
    see: Callable[[RowView], None],
    chunk: int = ROWS,
    more: Sequence[tuple[str, Callable[..., None]]] = (),
) -> None:
    """Run a text, and let `see` have every layer's attention as a RowView, `chunk` rows at a time. `more`: further hooks."""
    cache = Cache(model, 1)

    def keep(pattern: Tensor, hook: Any, layer: int) -> None:
        rows, keys = pattern.shape[-2:]
        positions = torch.arange(keys - rows, keys, device=pattern.device)
        tokens = text.tokens[:keys].to(pattern.device)
        see(RowView(layer, pattern[0].float(), positions, tokens, text.first, text.block, text.start))

    hooks = [
        (f"blocks.{layer}.attn.hook_pattern", partial(keep, layer=layer)) for layer in head_geometry(model).attending
    ]
    with evaluating(model), hooked(model, [*hooks, *more]):
        prefill(model, text.tokens[None].to(model.W_U.device), cache, chunk=chunk)


def read_text(
    model: Model, text: EncodedText, scorers: Sequence[Scorer], chunk: int = ROWS
) -> dict[str, Float[Tensor, "layer head"]]:
    """The scores of one text by method, from one pass."""
    shape = head_geometry(model)
    by_row = [scorer for scorer in scorers if scorer.rows == "every"]
    of_sums = [scorer for scorer in scorers if scorer.rows == "totals"]
    sums = {scorer.name: shape.table().double() for scorer in by_row}
    rows = dict.fromkeys(sums, 0)
    totals = _Totals(model, shape, text, frozenset().union(*(scorer.needs for scorer in of_sums)))

    def see(view: RowView) -> None:
        totals.see(view)
        for scorer in by_row:
            counted = getattr(view, scorer.counted).cpu()
            n = shape.layers[view.layer].n_heads
            found = scored(scorer, view, n, len(view.row_positions))
            sums[scorer.name][view.layer, :n] += found[:, counted].double().sum(-1)
            rows[scorer.name] += int(counted.sum()) if view.layer == shape.attending[0] else 0

    stream_rows(model, text, see, chunk, totals.hooks())
    for scorer in by_row:
        if not rows[scorer.name]:
            raise ValueError(f"{text.id}: no row counts for {scorer.name} ({scorer.counted}): pass a longer text")
    found = {name: (sums[name] / rows[name]).float() for name in sums}
    for scorer in of_sums:
        found[scorer.name] = shape.table()
        for layer in shape.attending:
            n = shape.layers[layer].n_heads
            found[scorer.name][layer, :n] = scored(scorer, totals.of(layer), n)
    return found


class _Totals:
    """What scorers of totals need of one text, and nothing else."""

    def __init__(self, model: Model, shape: HeadGeometry, text: EncodedText, needs: frozenset[str]) -> None:
        self.shape, self.text = shape, text
        device = model.W_U.device
        self.received = Received(shape, len(text), text.min_distance, device) if "received" in needs else None
        self.queries = QueriesAndKeys(model, shape) if "q_mean" in needs else None

    def see(self, view: RowView) -> None:
        if self.received is not None:
            self.received.see(view)

    def hooks(self) -> list[tuple[str, Callable[..., None]]]:
        return [] if self.queries is None else self.queries.hooks()

    def of(self, layer: int) -> TextTotals:
        empty = torch.empty(0)
        fields: dict[str, Any] = dict.fromkeys(("received", "receiving", "q_mean", "k_mean", "cos", "sin"), empty)
        if self.received is not None:
            fields["received"], fields["receiving"] = self.received.mean(layer)
        if self.queries is not None:
            fields |= self.queries.of(layer, len(self.text))
        shape = self.shape
        return TextTotals(
            layer, self.text.min_distance, **fields, softcap=shape.attn_softcap, window=shape.windows[layer]
        )
