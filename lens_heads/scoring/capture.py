"""The pass: prefill, decode, then one short hooked chunk whose layers are handed to the scorers one at a time.

Only answer rows (and the last 8 prompt rows, if a scorer reads them) are ever hooked, and no layer's pattern outlives its
layer. All scorers of a run share the pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.model.decoding import greedy, text_of
from lens_heads.model.directions import Directions
from lens_heads.model.forward import CHUNK, Cache, advance, fast_attention, left_pad, prefill
from lens_heads.model.geometry import Model, geometry
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
    """What one trial gave: outcome, scores [layer, head] per method, and what was generated.

    `outcome`: "passed", "gate_failed", "no_answer_step", or "ungated" where nothing was decoded because no method asks for
    it (a trial that raised is an "error" of the engine). A method that needs no gate has scores whatever the outcome is,
    where there are the rows it reads.
    """

    id: str
    outcome: str
    text: str = ""
    answer_steps: list[int] = field(default_factory=list)
    scores: dict[str, Float[Tensor, "layer head"]] = field(default_factory=dict)


@dataclass
class _Row:
    """One trial of a batch on its way through the pass."""

    trial: EncodedTrial
    pad: int
    steps: list[int]
    answer: list[int]
    result: PassResult
    u: Tensor | None = None


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
    """Score every head on a batch of trials (left-padded when their lengths differ) in one pass.

    With `teacher_forced` the gold answer's tokens are the steps and nothing is decoded or gated. The model runs in eval
    mode and is left as it was found, also on an exception.
    """
    with evaluating(model):
        return _run(model, trials, scorers, directions, teacher_forced, max_new_tokens, chunk)


def _run(
    model: Model,
    trials: Sequence[EncodedTrial],
    scorers: Sequence[Scorer],
    directions: Directions,
    teacher_forced: bool,
    max_new_tokens: int,
    chunk: int,
) -> list[PassResult]:
    decode = not teacher_forced and any(scorer.gated or scorer.rows != "prompt" for scorer in scorers)
    device = model.W_U.device
    tokens, pads = left_pad([trial.tokens for trial in trials], device)
    back = PROMPT_ROWS if any(scorer.rows == "prompt" for scorer in scorers) else 1
    start = max(0, tokens.shape[1] - back)
    cache = Cache(model, len(trials))
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
        longest = max(len(row.steps) for row in rows)
        more = torch.zeros(len(rows), max(longest - 1, 0), dtype=torch.long)
        for i, row in enumerate(rows):
            fed = row.steps[:-1]
            more[i, : len(fed)] = torch.tensor(fed, dtype=torch.long)
        last = torch.cat([tokens[:, start:], more.to(device)], 1)
        _read_outs(model, last, cache, pads, rows, directions, tokens.shape[1] - 1 - start)
        _score(model, last, cache, pads, rows, wanted, directions, torch.cat([tokens, more.to(device)], 1), start)
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
    outcome = "passed" if answers.passes(trial, text) else "gate_failed"
    if outcome == "passed" and not steps:
        outcome = "no_answer_step"
    return _Row(trial, pad, generated, steps, PassResult(trial.id, outcome, text, steps))


def _counts(scorer: Scorer, row: _Row) -> bool:
    """Whether the trial counts for the method: it passed or need not, and has the rows the method reads."""
    there = {"prompt": True, "generated": bool(row.steps), "answer": bool(row.answer)}
    return there[scorer.rows] and (row.result.outcome == "passed" or not scorer.gated)


def _read_outs(
    model: Model,
    last: Int[Tensor, "batch position"],
    cache: Cache,
    pads: Int[Tensor, " batch"],
    rows: list[_Row],
    directions: Directions,
    first: int,
) -> None:
    """Each row's answer directions; `exact` ones need one unhooked run of the rows for the final norm's scales."""
    seen: list[Tensor] = []
    if directions.exact and any(row.steps for row in rows):
        name = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
        length = len(cache)
        with fast_attention(model), hooked(model, [(name, lambda x, hook: seen.append(x.detach()))]):
            advance(model, last, cache, pads)
        cache.crop(length)
    for i, row in enumerate(rows):
        if row.steps:
            resid = seen[0][i, first : first + len(row.steps)].float() if seen else None
            row.u = directions.unembedding(torch.tensor(row.steps, dtype=torch.long), resid)


def _score(
    model: Model,
    last: Int[Tensor, "batch position"],
    cache: Cache,
    pads: Int[Tensor, " batch"],
    rows: list[_Row],
    scorers: Sequence[Scorer],
    directions: Directions,
    all_tokens: Int[Tensor, "batch position"],
    start: int,
) -> None:
    """Run the short chunk with hooks and let every scorer see each layer as it passes."""
    shape = geometry(model)
    for row in rows:
        names = [scorer.name for scorer in scorers if _counts(scorer, row)]
        row.result.scores = {name: torch.zeros(shape.n_layers, shape.n_heads) for name in names}
    held: dict[str, Tensor] = {}

    def keep_pattern(pattern: Tensor, hook: Any) -> None:
        held["pattern"] = pattern

    def layer_done(layer: int) -> Any:
        def see(z: Tensor, hook: Any) -> None:
            pattern, values = held.pop("pattern"), cache.values(layer)
            W_O = model.blocks[layer].attn.W_O.detach().float().reshape(shape.n_heads, shape.d_head, shape.d_model)
            for i, row in enumerate(rows):
                if row.result.scores:
                    parts = _Layer(layer, pattern[i], values[i], z[i], W_O)
                    views = _views(model, row, parts, directions, all_tokens[i], start)
                    for scorer in scorers:
                        if scorer.name in row.result.scores:
                            row.result.scores[scorer.name][layer] = checked(
                                scorer, scorer.score(views[scorer.rows]), shape.n_heads
                            )

        return see

    hooks: list[tuple[str, Any]] = []
    for layer in range(shape.n_layers):
        hooks.append((f"blocks.{layer}.attn.hook_pattern", keep_pattern))
        hooks.append((f"blocks.{layer}.attn.hook_z", layer_done(layer)))
    with hooked(model, hooks):
        advance(model, last, cache, pads)


@dataclass(frozen=True)
class _Layer:
    """One layer's raw activations of one batch row, still with its padding."""

    layer: int
    pattern: Float[Tensor, "head row key"]
    values: Float[Tensor, "kv_head key d_head"]
    z: Float[Tensor, "row head d_head"]
    W_O: Float[Tensor, "head d_head d_model"]


def _views(
    model: Model, row: _Row, raw: _Layer, directions: Directions, tokens: Int[Tensor, " position"], start: int
) -> dict[Rows, LayerView]:
    """The rows of each kind as views in absolute positions, padding taken off."""
    trial, n, steps = row.trial, len(row.trial), len(row.steps)
    z, device = raw.z.float(), raw.z.device
    tokens = tokens.to(device)  # A model spread over devices has its layers elsewhere than its embedding.
    first = n - 1 + row.pad - start  # The chunk's row of the last prompt token, which produces the first step.
    prompt = torch.arange(max(0, first + 1 - PROMPT_ROWS, row.pad - start), first + 1, device=device)
    generated = torch.arange(first, first + steps, device=device)
    keys = slice(row.pad, row.pad + n + max(steps - 1, 0))
    shared = {
        "layer": raw.layer,
        "values": raw.values[:, keys].float(),
        "W_O": raw.W_O.to(device),
        "tokens": tokens[keys],
        "needle": trial.needle,
        "question": trial.question,
    }

    def view(index: Tensor, produced: Tensor, u: Tensor | None, is_answer: Tensor) -> LayerView:
        picked = z[index]
        constant = z.new_zeros(len(index))
        if u is not None:
            written = einsum(picked, shared["W_O"], "row head e, head e d -> row d")
            bias = getattr(model.blocks[raw.layer].attn, "b_O", None)
            written = written if bias is None else written + bias.detach().float()
            u, constant = directions.at_layer(u.to(device), raw.layer, written)
        return LayerView(
            pattern=raw.pattern[:, index, keys].float(),
            z=picked,
            u=u,
            constant=constant,
            next_tokens=produced,
            row_positions=index + start - row.pad,
            is_answer=is_answer,
            **shared,
        )

    views: dict[Rows, LayerView] = {}
    produced = torch.cat([tokens[row.pad + 1 : row.pad + n], tokens.new_tensor(row.steps[:1] or [-1])])
    at = (prompt + start - row.pad).long()
    views["prompt"] = view(prompt, produced[at], None, torch.zeros_like(at).bool())
    if steps:
        assert row.u is not None
        is_answer = torch.zeros(steps, dtype=torch.bool, device=device)
        is_answer[row.answer] = True
        views["generated"] = view(generated, torch.tensor(row.steps, device=device), row.u, is_answer)
        views["answer"] = views["generated"].rows(is_answer.nonzero()[:, 0])
    return views
