"""The pass: prefill, decode, then one short hooked chunk whose layers are passed to the scorers one at a time.

Hooks only ever see the answer rows (and the last 8 prompt rows, if a scorer reads them), and no layer's pattern outlives
its layer. All scorers of a run share the pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.model.decoding import greedy, text_of
from lens_heads.model.directions import Directions
from lens_heads.model.forward import CHUNK, Cache, advance, fast_attention, left_pad, prefill
from lens_heads.model.geometry import Model, attention_out, geometry, output_weights
from lens_heads.model.hooks import hooked
from lens_heads.model.modes import evaluating
from lens_heads.scoring.scorers import Rows, Scorer, checked
from lens_heads.scoring.view import LayerView
from lens_heads.trials import answers
from lens_heads.trials.encoded import EncodedTrial

PROMPT_ROWS = 8
"""How many of the last prompt rows a "prompt" scorer sees (HeadKV's observation window)."""


@dataclass
class PassResult:
    """What the pass found for one trial: outcome, scores [layer, head] per method, and the generated text.

    `outcome`: "passed", "gate_failed", "no_answer_step", or "ungated" if nothing was decoded because no method needs it
    (for a trial that raises, the engine records "error"). A method without gate scores every trial that has the rows it
    reads, whatever the outcome.
    """

    id: str
    outcome: str
    text: str = ""
    answer_steps: list[int] = field(default_factory=list)
    scores: dict[str, Float[Tensor, "layer head"]] = field(default_factory=dict)


@dataclass
class _Row:
    """One trial of a batch: its padding, its steps, those among them that write the answer, and its result."""

    trial: EncodedTrial
    pad: int
    steps: list[int]
    answer: list[int]
    result: PassResult
    u: Float[Tensor, "step d_model"] | None = None


@dataclass(frozen=True)
class _Batch:
    """The input of the short chunk: the prompts and all steps but the last, of which the cache holds the first `start`."""

    rows: list[_Row]
    tokens: Int[Tensor, "batch position"]
    pads: Int[Tensor, " batch"]
    cache: Cache
    start: int
    first: int
    """The chunk's row of the last prompt token, which produces the first step."""

    @property
    def chunk(self) -> Int[Tensor, "batch row"]:
        return self.tokens[:, self.start :]


@torch.no_grad()
def run_pass(
    model: Model,
    trials: Sequence[EncodedTrial],
    scorers: Sequence[Scorer],
    directions: Directions,
    teacher_forced: bool = False,
    max_new_tokens: int = 50,
    chunk: int = CHUNK,
) -> list[PassResult]:
    """Score every head on a batch of trials (left-padded if their lengths differ) in one pass.

    With `teacher_forced` the gold answer's tokens are the steps, and nothing is decoded or gated. The model runs in eval
    mode and is restored afterwards, also on an exception.
    """
    decode = not teacher_forced and any(scorer.gated or scorer.rows != "prompt" for scorer in scorers)
    tokens, pads = left_pad([trial.tokens for trial in trials], model.W_U.device)
    back = PROMPT_ROWS if any(scorer.rows == "prompt" for scorer in scorers) else 1
    start = max(0, tokens.shape[1] - back)
    cache = Cache(model, len(trials))
    with evaluating(model):
        with fast_attention(model):
            prefill(model, tokens[:, :start], cache, pads, chunk)
            generated = [[] for _ in trials]
            if decode:
                generated = greedy(model, tokens[:, start:], cache, pads, max_new_tokens)
                cache.crop(start)
        rows = [
            _outcome(model, trial, int(pad), steps, teacher_forced, decode)
            for trial, pad, steps in zip(trials, pads, generated, strict=True)
        ]
        wanted = [scorer for scorer in scorers if any(_counts(scorer, row) for row in rows)]
        if wanted:
            fed = torch.zeros(len(rows), max(max(len(row.steps) for row in rows) - 1, 0), dtype=torch.long)
            for i, row in enumerate(rows):
                fed[i, : max(len(row.steps) - 1, 0)] = torch.tensor(row.steps[:-1], dtype=torch.long)
            first = tokens.shape[1] - 1 - start
            batch = _Batch(rows, torch.cat([tokens, fed.to(tokens.device)], 1), pads, cache, start, first)
            _read_outs(model, batch, directions)
            _score(model, batch, wanted, directions)
    return [row.result for row in rows]


def _outcome(
    model: Model, trial: EncodedTrial, pad: int, generated: list[int], teacher_forced: bool, decoded: bool
) -> _Row:
    """Which steps count, and whether the trial passed."""
    if teacher_forced:
        gold = trial.answer_tokens.tolist()
        every = list(range(len(gold)))
        return _Row(trial, pad, gold, every, PassResult(trial.id, "passed", trial.answer, every))
    if not decoded:
        return _Row(trial, pad, [], [], PassResult(trial.id, "ungated"))
    text = text_of(model, generated)
    steps = answers.answer_steps(trial, generated, model.tokenizer)
    outcome = "gate_failed"
    if answers.passes(trial, text):
        outcome = "passed" if steps else "no_answer_step"
    return _Row(trial, pad, generated, steps, PassResult(trial.id, outcome, text, steps))


def _counts(scorer: Scorer, row: _Row) -> bool:
    """Whether the trial counts for the method: it passed or need not, and has the rows that the method reads."""
    there = {"prompt": True, "generated": bool(row.steps), "answer": bool(row.answer)}
    return there[scorer.rows] and (row.result.outcome == "passed" or not scorer.gated)


def _read_outs(model: Model, batch: _Batch, directions: Directions) -> None:
    """Set each row's answer directions; `exact` ones need an unhooked run of the chunk for the final norm's scales."""
    seen: list[Tensor] = []
    if directions.exact and any(row.steps for row in batch.rows):
        name = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
        with fast_attention(model), hooked(model, [(name, lambda x, hook: seen.append(x.detach()))]):
            advance(model, batch.chunk, batch.cache, batch.pads)
        batch.cache.crop(batch.start)
    for i, row in enumerate(batch.rows):
        if row.steps:
            resid = seen[0][i, batch.first : batch.first + len(row.steps)].float() if seen else None
            row.u = directions.unembedding(torch.tensor(row.steps, dtype=torch.long), resid)


def _score(model: Model, batch: _Batch, scorers: Sequence[Scorer], directions: Directions) -> None:
    """Run the short chunk with hooks and let every scorer see each layer as it passes."""
    shape = geometry(model)
    for row in batch.rows:
        names = [scorer.name for scorer in scorers if _counts(scorer, row)]
        row.result.scores = {name: torch.zeros(shape.n_layers, shape.n_heads) for name in names}
    held: dict[str, Tensor] = {}

    def keep_pattern(pattern: Tensor, hook: Any) -> None:
        held["pattern"] = pattern

    def layer_done(layer: int) -> Any:
        def see(z: Tensor, hook: Any) -> None:
            pattern, values, W_O = held.pop("pattern"), batch.cache.values(layer), output_weights(model, layer)
            for i, row in enumerate(batch.rows):
                if row.result.scores:
                    views = _views(model, batch, i, _Layer(layer, pattern[i], values[i], z[i], W_O), directions)
                    for scorer in scorers:
                        if scorer.name in row.result.scores:
                            score = checked(scorer, scorer.score(views[scorer.rows]), shape.n_heads)
                            row.result.scores[scorer.name][layer] = score

        return see

    hooks: list[tuple[str, Any]] = []
    for layer in range(shape.n_layers):
        hooks.append((f"blocks.{layer}.attn.hook_pattern", keep_pattern))
        hooks.append((f"blocks.{layer}.attn.hook_z", layer_done(layer)))
    with hooked(model, hooks):
        advance(model, batch.chunk, batch.cache, batch.pads)


@dataclass(frozen=True)
class _Layer:
    """One layer's raw activations of one batch row, still with its padding."""

    layer: int
    pattern: Float[Tensor, "head row key"]
    values: Float[Tensor, "kv_head key d_head"]
    z: Float[Tensor, "row head d_head"]
    W_O: Float[Tensor, "head d_head d_model"]


def _views(model: Model, batch: _Batch, i: int, raw: _Layer, directions: Directions) -> dict[Rows, LayerView]:
    """One trial's rows of each kind as views in absolute positions, without padding."""
    row, first = batch.rows[i], batch.first
    trial, n, steps = row.trial, len(row.trial), len(row.steps)
    z, device = raw.z.float(), raw.z.device
    keys = slice(row.pad, row.pad + n + max(steps - 1, 0))
    tokens = batch.tokens[i].to(device)[
        keys
    ]  # A model spread over devices has its layers elsewhere than its embedding.
    offset = batch.start - row.pad  # From rows of the chunk to absolute positions.
    shared: dict[str, Any] = {
        "layer": raw.layer,
        "values": raw.values[:, keys].float(),
        "W_O": raw.W_O.to(device),
        "tokens": tokens,
        "needle": trial.needle,
        "question": trial.question,
    }

    def view(index: Tensor, produced: Tensor, u: Tensor | None, is_answer: Tensor) -> LayerView:
        picked = z[index]
        constant = z.new_zeros(len(index))
        if u is not None:
            written = attention_out(model, raw.layer, picked, shared["W_O"])
            u, constant = directions.at_layer(u.to(device), raw.layer, written)
        return LayerView(
            pattern=raw.pattern[:, index, keys].float(),
            z=picked,
            u=u,
            constant=constant,
            next_tokens=produced,
            row_positions=index + offset,
            is_answer=is_answer,
            **shared,
        )

    views: dict[Rows, LayerView] = {}
    prompt = torch.arange(max(0, first + 1 - PROMPT_ROWS, -offset), first + 1, device=device)
    produced = torch.cat([tokens[1:n], tokens.new_tensor(row.steps[:1] or [-1])])
    views["prompt"] = view(prompt, produced[prompt + offset], None, torch.zeros_like(prompt).bool())
    if steps:
        is_answer = torch.zeros(steps, dtype=torch.bool, device=device)
        is_answer[row.answer] = True
        generated = torch.arange(first, first + steps, device=device)
        views["generated"] = view(generated, torch.tensor(row.steps, device=device), row.u, is_answer)
        views["answer"] = views["generated"].rows(is_answer.nonzero()[:, 0])
    return views
