"""Where the answer stands in a prompt that marks no needle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.tokenizing import piece


def answer_forms(trial: EncodedTrial, tokenizer: Any) -> list[Tensor]:
    """The answer's tokens as they follow the prompt, and encoded with and without a leading space."""
    texts = (" " + trial.answer, trial.answer)
    return [trial.answer_tokens, *(torch.tensor(piece(tokenizer, text), dtype=torch.long) for text in texts)]


def with_needle(trial: EncodedTrial, tokenizer: Any) -> EncodedTrial | None:
    """The trial with a needle: its own; else the answer's first place in the prompt; else the question, after examples.

    None for a trial whose prompt is nothing but a question that does not hold the answer.
    """
    if trial.needle is not None:
        return trial
    shown = trial.question or (0, len(trial))
    prompt = trial.tokens[shown[0] : shown[1]].tolist()
    for form in (one.tolist() for one in answer_forms(trial, tokenizer)):
        at = next((i for i in range(len(prompt) - len(form) + 1) if prompt[i : i + len(form)] == form), None)
        if at is not None and form:
            return replace(trial, needle=(shown[0] + at, shown[0] + at + len(form)))
    return replace(trial, needle=shown) if shown[1] - shown[0] < len(trial) - 1 else None
