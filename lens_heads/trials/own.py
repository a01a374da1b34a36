"""prompt_trial: one's own prompt as a trial, with its needle and question marked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from lens_heads.runs.typed import typed
from lens_heads.trials.bos import opening
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.fields import text
from lens_heads.trials.tokenizing import char_span, chat_frame, piece, tokenizer_of
from lens_heads.trials.trial import Trial


@typed
def prompt_trial(
    model: Any,
    prompt: str,
    answer: str,
    *,
    needle: str | None = None,
    question: str | None = None,
    chat: bool | None = False,
    spaced: bool = True,
    id: str = "prompt",
) -> EncodedTrial:
    """A prompt, exactly as it is, and the answer that should follow it.

    `model`: a model, or its tokenizer. The tokens are those of the model's own tokenizer, with a BOS if that adds one.
    `needle` and `question` are texts inside the prompt, each of which must occur there once; their spans are the tokens that
    hold any of their characters. `chat`: as in `Trial`; False feeds the bare prompt. `spaced`: the answer follows after a space,
    unless there is whitespace on either side; False lets it follow at once.

    Raises ValueError for an empty prompt or answer, a needle or question that occurs never or twice, and a tokenizer that does
    not say which characters a token stands for. TypeError for what is neither a model nor a tokenizer.

    `id`: its name in results.

    Example:
        >>> trial = lh.prompt_trial(model, "xyz (b=B) xyz ?", "B", needle="(b=B)")
        >>> model.tokenizer.decode(trial.tokens[slice(*trial.needle)])
        '(b=B)'
    """
    tokenizer = tokenizer_of(model)
    check_prompt_texts(prompt, answer, needle=needle, question=question)
    found = Trial(id=id, question=prompt, answer=answer, template="{question}", chat=chat).encode(tokenizer)
    prefix, _ = chat_frame(tokenizer, chat, id)
    given = {"needle": needle, "question": question}
    spans = {
        name: _span(tokenizer, prefix, prompt, part, name) if part is not None else None for name, part in given.items()
    }
    tokens = found.answer_tokens if spaced else torch.tensor(piece(tokenizer, answer), dtype=torch.long)
    return replace(found, **spans, answer_tokens=tokens)  # type: ignore[arg-type]  # two spans


def check_prompt_texts(prompt: str, answer: str | None, **parts: str | None) -> None:
    """ValueError for an empty text, and for a part that does not occur once in the prompt."""
    text("prompt_trial", "prompt", prompt, empty=False)
    if answer is not None:
        text("prompt_trial", "answer", answer, empty=False)
    for name, part in parts.items():
        times = 1 if part is None else prompt.count(text("prompt_trial", name, part, empty=False))
        if times != 1:
            raise ValueError(
                f"the {name} {part!r:.80} occurs {times} times in the prompt, and must occur once: "
                + ("give more of the text around it" if times else "copy it from the prompt, character by character")
            )


def _span(tokenizer: Any, prefix: str, prompt: str, part: str, name: str) -> tuple[int, int]:
    start = len(prefix) + prompt.index(part)
    found = char_span(tokenizer, prefix + prompt, start, start + len(part), first=True)
    if found is None:
        raise ValueError(
            f"the tokenizer {type(tokenizer).__name__} does not say which characters its tokens stand for: pass "
            f"EncodedTrial(tokens=..., {name}=(start, end), ...) with your own spans"
        )
    before = len(opening(tokenizer, prefix + prompt))
    return before + found[0], before + found[1]
