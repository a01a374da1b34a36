"""A batch of trials whose prompts were read and whose answers were written or given: all that its rows are scored from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lens_heads.interventions.spans import parts_of
from lens_heads.model.decoding import greedy, opened, text_of
from lens_heads.model.forward import CHUNK, Cache, advance, fast_attention, left_pad, notes_queries, prefill
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.last_rows import keeping_last_rows
from lens_heads.model.noted_queries import NotedQueries
from lens_heads.ranking.one_pass.collecting import PassResult
from lens_heads.ranking.one_pass.definition import Reading
from lens_heads.trials import answers
from lens_heads.trials.encoded import EncodedTrial


@dataclass
class Row:
    """One trial of a batch: its padding, its steps, its result, and the read-outs of the steps by reading; of its first answer
    step also that of the right minus that of the wrong answer."""

    trial: EncodedTrial
    pad: int
    steps: list[int]
    result: PassResult
    u: dict[Reading, Float[Tensor, "step d_model"]] = field(default_factory=dict)
    choice: dict[Reading, Float[Tensor, "1 d_model"]] = field(default_factory=dict)

    @property
    def choosing(self) -> bool:
        """Whether it has a row in which a right and a wrong answer part."""
        return bool(self.result.answer_steps) and self.trial.wrong is not None


@dataclass(frozen=True)
class Batch:
    """The input of the short chunk: the prompts and all steps but the last, of which the cache holds the first `start`."""

    rows: list[Row]
    tokens: Int[Tensor, "batch position"]
    pads: Int[Tensor, " batch"]
    cache: Cache
    start: int
    first: int
    """The chunk's row of the last prompt token, which produces the first step."""
    final: Float[Tensor, "batch row d_model"] | None = None
    """The residual stream after the last layer in the chunk's rows, if the model has run them."""
    noted: NotedQueries | None = None
    """What the rows' patterns follow from, if the model has run them and can tell (`forward.notes_queries`)."""
    z: Sequence[Float[Tensor, "batch row head d_head"]] = ()
    """Each attending layer's z in these rows, likewise."""

    @property
    def chunk(self) -> Int[Tensor, "batch row"]:
        return self.tokens[:, self.start :]


def prepared(
    model: Model,
    trials: Sequence[EncodedTrial],
    teacher_forced: bool,
    max_new_tokens: int,
    chunk: int = CHUNK,
    back: int = 1,
) -> Batch:
    """Read the prompts, and decode up to `max_new_tokens` steps unless the answers are forced.

    The last `back` prompt tokens and the steps are the rows that are looked at. A model that can note their queries runs them
    here, the first ones with the rest of the prompt; for any other they are left to `capture.watch`.
    """
    tokens, pads = left_pad([trial.tokens for trial in trials], model.W_U.device)
    start = max(0, tokens.shape[1] - back)
    cache, decode = Cache(model, len(trials)), max_new_tokens > 0 and not teacher_forced
    cache.assign(1, len(trials), parts_of(trials, max_new_tokens))
    given = _fed(tokens, [trial.answer_tokens.tolist() if teacher_forced else [] for trial in trials])
    looked_at = given.shape[1] - start
    cache.whole = given.shape[1] + (max_new_tokens - 1 if decode else 0)
    noted = NotedQueries(looked_at) if notes_queries(model) else None
    begin = start if noted is None or head_geometry(model).stateful else start // chunk * chunk
    with fast_attention(model):
        prefill(model, tokens[:, :begin], cache, pads, chunk)
    if begin == start:
        cache.mark()
    generated: list[list[int]] = [[] for _ in trials]
    end, *zs = _names(model, noted is not None)
    with fast_attention(model, attend=noted), keeping_last_rows(model, [end, *zs], looked_at) as seen:
        if decode:
            generated = greedy(model, given[:, begin:], cache, pads, max_new_tokens, leads=opened(model, trials))
        elif noted is not None:
            advance(model, given[:, begin:], cache, pads, logits=0)
    cache.crop(start)
    rows = [
        _outcome(model, trial, int(pad), steps, teacher_forced, decode)
        for trial, pad, steps in zip(trials, pads, generated, strict=True)
    ]
    final = seen[end].get() if len(seen[end]) else None
    z = [seen[name].get() for name in zs]
    return Batch(
        rows,
        _fed(tokens, [row.steps for row in rows]),
        pads,
        cache,
        start,
        tokens.shape[1] - 1 - start,
        final,
        noted,
        z,
    )


def _fed(tokens: Int[Tensor, "batch position"], steps: Sequence[list[int]]) -> Int[Tensor, "batch position_or_step"]:
    """The prompts followed by all steps but the last, which nothing reads."""
    read = pad_sequence([torch.tensor(row[:-1], dtype=torch.long) for row in steps], batch_first=True)
    return torch.cat([tokens, read.to(tokens.device)], 1)


def _names(model: Model, z: bool) -> list[str]:
    """The hooks on the residual stream after the last layer and, if asked, on each layer's z."""
    shape = head_geometry(model)
    return [
        f"blocks.{shape.n_layers - 1}.hook_resid_post",
        *(f"blocks.{layer}.attn.hook_z" for layer in shape.attending if z),
    ]


def _outcome(
    model: Model, trial: EncodedTrial, pad: int, generated: list[int], teacher_forced: bool, decoded: bool
) -> Row:
    """Which steps count, and whether the trial passed."""
    if teacher_forced:
        gold = trial.answer_tokens.tolist()
        return Row(trial, pad, gold, PassResult(trial.id, "passed", trial.answer, list(range(len(gold)))))
    if not decoded:
        return Row(trial, pad, [], PassResult(trial.id, "ungated"))
    text = text_of(model, generated, lead=opened(model, [trial])[0])
    steps = answers.answer_steps(trial, generated, model.tokenizer)
    answered = "passed" if steps else "no_answer_step"
    outcome = answered if answers.passes(trial, text) else "gate_failed"
    return Row(trial, pad, generated, PassResult(trial.id, outcome, text, steps))
