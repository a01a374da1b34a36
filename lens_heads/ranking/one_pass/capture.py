"""The pass: prefill, decode, then the layers of the answer's rows are passed to the scorers one at a time.

Only the answer's rows (and the last prompt rows, if a scorer reads them) are ever looked at, and no layer's pattern outlives
its layer. All scorers of a run share the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from lens_heads.model.delegated import gate_of
from lens_heads.model.directions import Directions
from lens_heads.model.forward import CHUNK, advance, fast_attention
from lens_heads.model.geometry import Model, attention_out, head_geometry, output_weights
from lens_heads.model.hooks import hooked, recording
from lens_heads.model.modes import evaluating
from lens_heads.model.support import support
from lens_heads.ranking.one_pass.batch import Batch, Row, prepared
from lens_heads.ranking.one_pass.collecting import PassResult
from lens_heads.ranking.one_pass.definition import Reading, Rows, Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView
from lens_heads.ranking.one_pass.nulls import draw_spans, null_scores
from lens_heads.ranking.one_pass.scorers import scored
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.tokenizing import space_twin

Views: TypeAlias = dict[tuple[Rows, Reading], LayerView]
"""One layer of one trial by the rows that are seen and the reading of their directions."""


@torch.no_grad()
def run_pass(
    model: Model,
    trials: Sequence[EncodedTrial],
    scorers: Sequence[Scorer],
    directions: Directions,
    teacher_forced: bool = False,
    max_new_tokens: int = 50,
    null_spans: int = 0,
    chunk: int = CHUNK,
) -> list[PassResult]:
    """Score every head on a batch of trials (left-padded if their lengths differ) in one pass.

    With `teacher_forced` the gold answer's tokens are the steps, and nothing is decoded or gated. `null_spans` other spans
    of each prompt are scored as the needle is. The model runs in eval mode and is restored afterwards, also on an exception.
    """
    decode = not teacher_forced and any(scorer.gated or scorer.rows != "prompt" for scorer in scorers)
    back = max((scorer.prompt_rows for scorer in scorers if scorer.rows == "prompt"), default=1)
    with evaluating(model):
        batch = prepared(model, trials, teacher_forced, max_new_tokens if decode else 0, chunk, back)
        wanted = [scorer for scorer in scorers if any(_counts(scorer, row) for row in batch.rows)]
        if wanted:
            readings = _readings(wanted, directions)
            read_outs(model, batch, readings)
            _score(model, batch, wanted, readings, null_spans)
    return [row.result for row in batch.rows]


def _counts(scorer: Scorer, row: Row) -> bool:
    """Whether the trial counts for the method: it passed or need not, and has the rows that the method reads."""
    there = {"prompt": True, "generated": bool(row.steps), "answer": bool(row.result.answer_steps)}
    there["choice"] = row.choosing
    return there[scorer.rows] and (row.result.outcome == "passed" or not scorer.gated)


def _readings(scorers: Sequence[Scorer], directions: Directions) -> dict[Reading, Directions]:
    """The directions that the scorers read. A run that is exact itself has only those, so that `phi` is computed once."""
    used = {"exact" if directions.exact else scorer.direction for scorer in scorers}
    both: dict[Reading, Directions] = {"run": directions, "exact": directions.made_exact}
    return {reading: both[reading] for reading in both if reading in used}


def read_outs(model: Model, batch: Batch, readings: Mapping[Reading, Directions]) -> None:
    """Set each row's answer directions; `exact` ones need the final norm's scales, else from an unhooked run of the chunk."""
    final, exact = batch.final, any(directions.exact for directions in readings.values())
    if final is None and exact and any(row.steps for row in batch.rows):
        name = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
        with fast_attention(model), recording(model, [name]) as seen:
            advance(model, batch.chunk, batch.cache, batch.pads, logits=0)
        (final,) = seen[name]
        batch.cache.crop(batch.start)
    for i, row in enumerate(batch.rows):
        if row.steps:
            resid = None if final is None else final[i, batch.first : batch.first + len(row.steps)].float()
            steps = torch.tensor(row.steps, dtype=torch.long)
            row.u = {name: directions.unembedding(steps, resid) for name, directions in readings.items()}
            if row.choosing:
                at = slice(row.result.answer_steps[0], row.result.answer_steps[0] + 1)
                wrong = {
                    name: directions.unembedding(row.trial.wrong[:1], None if resid is None else resid[at])  # type: ignore[index]
                    for name, directions in readings.items()
                }
                row.choice = {name: row.u[name][at] - wrong[name] for name in readings}


def _score(
    model: Model, batch: Batch, scorers: Sequence[Scorer], readings: Mapping[Reading, Directions], null_spans: int
) -> None:
    """Let every scorer see each layer as it passes."""
    shape = head_geometry(model)
    for row in batch.rows:
        counting = [scorer for scorer in scorers if _counts(scorer, row)]
        row.result.scores = {scorer.name: shape.table() for scorer in counting}
        placed = [scorer.name for scorer in counting if null_spans and scorer.reads_needle]
        row.result.null = {name: shape.table().repeat(null_spans, 1, 1) for name in placed}
    spans = [draw_spans(row.trial, null_spans) for row in batch.rows]
    named = {scorer.name: scorer for scorer in scorers}

    def see(layer: int, i: int, views: Views) -> None:
        result = batch.rows[i].result
        for name, scores in result.scores.items():
            scorer = named[name]
            view = views[scorer.rows, scorer.direction if scorer.direction in readings else "exact"]
            view = view.last(scorer.prompt_rows) if scorer.rows == "prompt" else view
            n = shape.layers[layer].n_heads
            scores[layer, :n] = scored(scorer, view, n)
            if name in result.null:
                result.null[name][:, layer, :n] = null_scores(scorer, view, spans[i], n)

    watch(model, batch, readings, [i for i, row in enumerate(batch.rows) if row.result.scores], see)


def watch(
    model: Model,
    batch: Batch,
    readings: Mapping[Reading, Directions],
    rows: Sequence[int],
    see: Callable[[int, int, Views], None],
) -> None:
    """As each layer passes, call `see(layer, row, views)` for these rows of the batch.

    Layers come from what the rows' own forwards have left, or else from a run of the short chunk with hooks.
    """
    held: dict[str, Tensor] = {}
    known, shape = support(model), head_geometry(model)

    def layer_done(layer: int, pattern: Tensor, values: Tensor, z: Tensor) -> None:
        z = shape.by_head(z, layer)
        W_O, gated = output_weights(model, layer), layer in known.gated
        for i in rows:
            raw = _Layer(layer, pattern[i], values[i], z[i], W_O, gated)
            see(layer, i, _views(model, batch, i, raw, readings))

    def keep_pattern(pattern: Tensor, hook: Any) -> None:
        held["pattern"] = pattern

    def keep_z(z: Tensor, hook: Any, layer: int) -> None:
        layer_done(layer, held.pop("pattern"), batch.cache.values(layer), z)

    layers = shape.attending
    if batch.noted is not None:
        for layer, z in zip(layers, batch.z, strict=True):
            layer_done(layer, batch.noted.pattern(layer), batch.noted.values(layer), z)
        return
    patterns = [(f"blocks.{layer}.attn.hook_pattern", keep_pattern) for layer in layers]
    zs = [(f"blocks.{layer}.attn.hook_z", partial(keep_z, layer=layer)) for layer in layers]
    with hooked(model, [*patterns, *zs]):
        advance(model, batch.chunk, batch.cache, batch.pads, logits=0)


@dataclass(frozen=True)
class _Layer:
    """One layer's raw activations of one batch row, still with its padding."""

    layer: int
    pattern: Float[Tensor, "head row key"]
    values: Float[Tensor, "kv_head key d_head"]
    z: Float[Tensor, "row head d_head"]
    W_O: Float[Tensor, "head d_head d_model"]
    gated: bool


def _views(model: Model, batch: Batch, i: int, raw: _Layer, readings: Mapping[Reading, Directions]) -> Views:
    """One trial's rows of each kind and reading as views in absolute positions, without padding."""
    row, first = batch.rows[i], batch.first
    trial, n, steps = row.trial, len(row.trial), len(row.steps)
    z, device = raw.z.float(), raw.z.device
    keys = slice(row.pad, row.pad + n + max(steps - 1, 0))
    # A model spread over devices has its layers elsewhere than its embedding.
    tokens, W_O, values = batch.tokens[i, keys].to(device), raw.W_O.to(device), raw.values[:, keys].float()
    offset = batch.start - row.pad  # From rows of the chunk to absolute positions.
    needle = trial.needle
    assert needle is not None

    def view(index: Tensor, produced: Tensor, is_answer: Tensor) -> LayerView:
        pattern = raw.pattern[:, index, keys].float()
        return LayerView(
            layer=raw.layer,
            pattern=pattern,
            values=values,
            z=z[index],
            W_O=W_O,
            u=None,
            constant=z.new_zeros(len(index)),
            tokens=tokens,
            next_tokens=produced,
            row_positions=index + offset,
            is_answer=is_answer,
            needle=needle,
            question=trial.question,
            distractors=trial.distractors,
            gate=_gate(pattern, values, z[index], model.cfg.dtype) if raw.gated else None,
        )

    views: Views = {}
    prompt = torch.arange(max(0, -offset), first + 1, device=device)
    produced = torch.cat([tokens[1:n], tokens.new_tensor(row.steps[:1] or [-1])])
    asking = view(prompt, produced[prompt + offset], torch.zeros_like(prompt).bool())
    views |= {("prompt", reading): asking for reading in readings}
    if steps:
        is_answer = torch.zeros(steps, dtype=torch.bool, device=device)
        is_answer[row.result.answer_steps] = True
        generated = torch.arange(first, first + steps, device=device)
        answering = view(generated, torch.tensor(row.steps, device=device), is_answer)
        written = attention_out(model, raw.layer, answering.z, W_O)
        twins = torch.tensor([space_twin(model.tokenizer, token) for token in row.steps], device=device)
        for reading, directions in readings.items():
            u, constant = directions.at_layer(row.u[reading].to(device), raw.layer, written)
            views["generated", reading] = replace(answering, u=u, constant=constant, next_twins=twins)
            views["answer", reading] = views["generated", reading].rows(is_answer.nonzero()[:, 0])
            if row.choosing:
                first = is_answer.nonzero()[:1, 0]
                u, constant = directions.at_layer(row.choice[reading].to(device), raw.layer, written[first])
                views["choice", reading] = replace(views["generated", reading].rows(first), u=u, constant=constant)
    return views


def _gate(
    pattern: Float[Tensor, "head row key"],
    values: Float[Tensor, "kv_head key d_head"],
    z: Float[Tensor, "row head d_head"],
    dtype: torch.dtype,
) -> Float[Tensor, "row head d_head"] | None:
    """What multiplies A v in these rows, of a model that computes in this dtype."""
    grouped = rearrange(pattern, "(kv group) row key -> kv group row key", kv=len(values))
    read = einsum(grouped, values, "kv group row key, kv key e -> row kv group e")
    return gate_of(z, rearrange(read, "row kv group e -> row (kv group) e"), dtype)
