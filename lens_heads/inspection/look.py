"""look: one pass over one trial that keeps what every head read and wrote where the answer is produced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from lens_heads.heads.head import AnyHeads, Head
from lens_heads.inspection.look_results import Look
from lens_heads.model.directions import Directions
from lens_heads.model.forward import CHUNK, advance, fast_attention
from lens_heads.model.geometry import Model, head_geometry, require_raw_weights
from lens_heads.model.identity import warn_of_change
from lens_heads.model.modes import evaluating
from lens_heads.model.readout import extreme_tokens
from lens_heads.model.support import require
from lens_heads.ranking.one_pass.batch import Batch, prepared
from lens_heads.ranking.one_pass.capture import Views, read_outs, watch
from lens_heads.runs import checks
from lens_heads.runs.typed import LISTED, typed
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.tokenizing import token_words
from lens_heads.trials.trial import AnyTrial


@typed
def look(
    model: Model,
    trial: Annotated[AnyTrial, LISTED],
    heads: AnyHeads | None = None,
    *,
    steps: Sequence[int] | int | None = None,
    direction: str | Path = "exact",
    k: int = 8,
    generated: bool = False,
    max_new_tokens: int = 50,
    chunk: int = CHUNK,
) -> Look:
    """What heads read and write where the model produces an answer: attention, contributions, writes, and tokens they promote.

    Args:
        model: a TransformerBridge or HookedTransformer with raw weights.
        trial: a `Trial` or `EncodedTrial`; it needs no needle.
        steps: which tokens of the answer to look at; None: all.
        heads: which heads; None: all.
        direction: of `phi`: "exact" (norms frozen: over all heads, MLPs and the embedding, contributions sum to the logit), "raw"
            (the LOCOS paper's), or a tuned-lens safetensors file, as in `score_heads`.
        k: how many tokens that a head raises, and lowers, to keep.
        generated: look at the model's own greedy answer (at most `max_new_tokens`) instead of the gold answer.
        chunk: prompt tokens per prefill step; changes memory, not results.

    Memory: attention and phi take 4 bytes per head, step and position.

    Raises ValueError for processed weights, a head or step that does not exist, and a prompt longer than the context window;
    TypeError for anything but one trial.

    Cost: a pass over the prompt and the answer, which is decoded first if `generated`.

    Example:
        >>> seen = lh.look(model, trials[0], heads)
        >>> row = seen.attention[0, 0]
        >>> seen.words[int(row.argmax())], trials[0].answer
        ('A', 'A')
    """
    require_raw_weights(model)
    if not isinstance(trial, AnyTrial):
        raise TypeError(f"look takes one trial, got {type(trial).__name__}: call it once for each")
    warn_of_change(model, "what is seen")
    shape = head_geometry(model)
    checks.whole_number("k", k, 1, shape.d_vocab, ", the size of the vocabulary")
    checks.whole_number("chunk", chunk)
    chosen = shape.every_head() if heads is None else shape.check_heads(heads)
    if not chosen:
        raise ValueError("heads is empty: name some, or None for all")
    room = checks.whole_number("max_new_tokens", max_new_tokens) if generated else 0
    (encoded,) = encode_all(trial, model.tokenizer, shape.n_ctx, room, shape.d_vocab, judged=False)
    # A view wants a needle, which nothing here reads.
    stand_in = replace(encoded, needle=encoded.needle or (0, 1))
    directions = Directions(model, shape, direction)
    require(model, "look", "weights", "values", "writes", "unembedding", *(("closing",) if directions.exact else ()))
    with torch.no_grad(), evaluating(model):
        batch = prepared(model, [stand_in], teacher_forced=not generated, max_new_tokens=room, chunk=chunk)
        if not batch.rows[0].steps:
            raise ValueError(f"trial {encoded.id}: the model writes nothing after this prompt: use generated=False")
        places = _steps(steps, len(batch.rows[0].steps))
        logprobs = _logprobs(model, batch)
        read_outs(model, batch, {"run": directions})
        seen = _Seen(chosen, places, shape.d_head)
        watch(model, batch, {"run": directions}, [0], seen)
        tops = [extreme_tokens(model, writes.flatten(0, 1), layer, k) for layer, writes in seen.writes.items()]
    return _made(model, encoded, batch, seen, logprobs, tops, directions.identity)


@dataclass
class _Seen:
    """Keeps the chosen heads and steps of every layer that passes."""

    heads: Sequence[Head]
    steps: Sequence[int]
    width: int
    """Of z: that of the widest heads, which fills up those of other layers with zeros."""
    attention: list[Tensor] = field(default_factory=list)
    phi: list[Tensor] = field(default_factory=list)
    z: list[Tensor] = field(default_factory=list)
    writes: dict[int, Float[Tensor, "head step d_model"]] = field(default_factory=dict)
    order: list[Head] = field(default_factory=list)

    def __call__(self, layer: int, row: int, views: Views) -> None:
        here = [head for head in self.heads if head.layer == layer]
        if not here:
            return
        view, index = views["generated", "run"], [head.head for head in here]
        view = view.rows(torch.tensor(self.steps, device=view.z.device))
        self.order += here
        self.attention.append(view.pattern[index].half().cpu())
        self.phi.append(_small(view.phi[index]))
        z = view.z[:, index].transpose(0, 1)
        self.z.append(pad(z, (0, self.width - z.shape[-1])).cpu())
        self.writes[layer] = einsum(z, view.W_O[index].to(z), "head step e, head e d -> head step d")


def _made(
    model: Model,
    trial: EncodedTrial,
    batch: Batch,
    seen: _Seen,
    logprobs: Float[Tensor, " step"],
    tops: Sequence[tuple[Tensor, Tensor]],
    direction: str,
) -> Look:
    """The look, in the order in which the heads were asked for."""
    row = batch.rows[0]
    tokens, produced = batch.tokens[0].cpu(), torch.tensor([row.steps[step] for step in seen.steps])
    order = [seen.order.index(head) for head in seen.heads]

    def joined(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts))[order]

    if not all(bool(part.isfinite().all()) for part in (*seen.phi, *seen.z)):
        raise ValueError(f"trial {trial.id}: what heads write is not finite: load the model in float32 or bfloat16")
    sides = [joined([part[side].unflatten(0, (-1, len(seen.steps))) for part in tops]) for side in (0, 1)]
    words = token_words(model.tokenizer, [*tokens.tolist(), *produced.tolist(), *sides[0].flatten().tolist()])
    return Look(
        model=head_geometry(model).name,
        trial=trial.id,
        answer=trial.answer,
        direction=direction,
        heads=tuple(seen.heads),
        rows=tuple(len(trial) - 1 + step for step in seen.steps),
        words=tuple(words[token] for token in tokens.tolist()),
        produced_words=tuple(words[token] for token in produced.tolist()),
        needle=trial.needle,
        question=trial.question,
        tokens=tokens,
        produced=produced,
        logprobs=logprobs[list(seen.steps)],
        attention=joined(seen.attention),
        phi=joined(seen.phi),
        z=_small(joined(seen.z)),
        writes=_small(joined([write.cpu() for write in seen.writes.values()])),
        top_ids=sides[0].int(),
        top_logits=_small(sides[1]),
        vocabulary={token: words[token] for token in sides[0].unique().tolist()},
    )


def _logprobs(model: Model, batch: Batch) -> Float[Tensor, " step"]:
    """The log-probability of every step's token. The cache is left as it was."""
    steps = torch.tensor(batch.rows[0].steps, device=batch.tokens.device)
    with fast_attention(model):
        logits = advance(model, batch.chunk, batch.cache, batch.pads, logits=len(steps))[0].float()
    batch.cache.crop(batch.start)
    return (logits.gather(-1, steps.to(logits.device)[:, None])[:, 0] - logits.logsumexp(-1)).cpu()


def _small(x: Tensor) -> Tensor:
    """On the CPU in float16, if that holds the numbers; else in float32."""
    half = x.half()
    return (half if bool(half.isfinite().all()) else x.float()).cpu()


def _steps(given: Any, steps: int) -> list[int]:
    """The chosen steps. ValueError for one that the answer does not have."""
    one = not isinstance(given, Iterable) or checks.whole(given) is not None
    listed: list[Any] = list(range(steps)) if given is None else [given] if one else list(given)
    for step in listed:
        checks.whole_number("steps", step, 0, steps - 1, f": the answer has {steps} tokens, counted from 0")
    if not listed:
        raise ValueError("steps is empty: name some of the answer's tokens, counted from 0, or None for all")
    return list(dict.fromkeys(listed))
