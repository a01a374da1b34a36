"""Greedy decoding from a KV cache until the answer has ended, and the decoded text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.model.forward import Cache, advance
from lens_heads.model.geometry import Model
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.judges import DEFAULT, Judge
from lens_heads.trials.thinking import TAIL, after_thinking, thoughts, unclosed


def stop_tokens(model: Model) -> set[int]:
    """The model's stop ids: the tokenizer's EOS and those of the generation config."""
    ids = {model.tokenizer.eos_token_id}
    settings = getattr(getattr(model, "original_model", None), "generation_config", None)
    listed = getattr(settings, "eos_token_id", None)
    ids |= set(listed) if isinstance(listed, list | tuple) else {listed}
    return {int(i) for i in ids if i is not None}


def opened(model: Model, trials: Sequence[EncodedTrial]) -> list[str]:
    """The thinking marker that each prompt leaves open at its end, or ""; what follows is thinking until it is closed."""
    return [unclosed(model.tokenizer.decode(trial.tokens[-TAIL:].tolist())) for trial in trials]


def greedy(
    model: Model,
    first: Int[Tensor, "batch position"],
    cache: Cache,
    pads: Int[Tensor, " batch"] | None,
    max_new_tokens: int,
    judges: Sequence[Judge] | None = None,
    leads: Sequence[str] | None = None,
) -> list[list[int]]:
    """Greedy continuation of each row after `first` (the prompt tokens not yet in the cache); see `decode`."""
    return decode(model, first, lambda tokens: advance(model, tokens, cache, pads), max_new_tokens, judges, leads)


def decode(
    model: Model,
    first: Int[Tensor, "batch position"],
    forward: Callable[[Int[Tensor, "batch position"]], Float[Tensor, "batch row d_vocab"]],
    max_new_tokens: int,
    judges: Sequence[Judge] | None = None,
    leads: Sequence[str] | None = None,
) -> list[list[int]]:
    """The continuation of each row after `first` by the likeliest token of `forward`, which is given the next tokens in turn.

    A row ends at a stop id, when its judge says that the answer has ended (by default at a token that contains a newline,
    but never before thinking is over), or after `max_new_tokens`. The stopping token is kept. `leads`: what the prompts
    left open, from `opened`.
    """
    stops, batch = stop_tokens(model), first.shape[0]
    steps: list[list[int]] = [[] for _ in range(batch)]
    done = [False] * batch
    tokens = first
    for step in range(max_new_tokens):
        logits = forward(tokens)
        best = logits[:, -1].argmax(-1)
        for row, token in enumerate(best.tolist()):
            if not done[row]:
                steps[row].append(token)
                judge, lead = judges[row] if judges else DEFAULT, leads[row] if leads else ""
                done[row] = token in stops or _ended(model, steps[row], judge, lead)
        if all(done) or step == max_new_tokens - 1:
            break
        tokens = best[:, None]
    return steps


def _ended(model: Model, steps: list[int], judge: Judge, lead: str) -> bool:
    if not judge.multiline and "\n" not in model.tokenizer.decode(steps[-1:]):
        return False
    text = lead + model.tokenizer.decode(steps)
    answer = after_thinking(text)
    return judge.ended(answer) and (bool(answer.strip()) or not thoughts(text))


def text_of(model: Model, steps: list[int], judge: Judge = DEFAULT, lead: str = "") -> str:
    """Generated tokens as text, without thinking and stop token, and cut at the first newline unless `judge.multiline`.

    `lead`: the thinking marker that the prompt left open, from `opened`.
    """
    kept = steps[:-1] if steps and steps[-1] in stop_tokens(model) else steps
    text = after_thinking(lead + (model.tokenizer.decode(kept, skip_special_tokens=False) if kept else ""))
    return text if judge.multiline else text.split("\n")[0]
