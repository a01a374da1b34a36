"""pair: a trial with its counterfactual from two texts and an answer, checked before anything is run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lens_heads.runs.digests import digest
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.own import prompt_trial
from lens_heads.trials.pairs import check_special
from lens_heads.trials.tokenizing import token_words, tokenizer_of


def pair(
    model: Any,
    clean: str,
    corrupt: str,
    answer: str,
    *,
    wrong: str | None = None,
    id: str | None = None,
    chat: bool | None = False,
) -> EncodedTrial:
    """A trial with its counterfactual: two prompts of the same number of tokens, and the answer that follows the clean one.

    Args:
        model: a model, or its tokenizer. Prompts begin as its own do (with a BOS or without).
        clean, corrupt: the prompts without the answer. Patching copies position by position, so that they must correspond.
        answer: the answer after `clean`; both runs are forced through it. It follows after a space, unless there is whitespace
            on either side.
        wrong: what follows `corrupt` instead. The metric "first_token_logit_diff" then compares the first tokens of both.
        id: its name in results; by default one made from the texts.
        chat: as in `Trial`: whether the prompts are put into the chat template.

    ValueError for prompts that differ in their number of tokens or not at all, for a wrong answer that begins with the same
    token, and for a special token in a text.

    Example:
        >>> both = lh.pair(model, "(b=B)ijk?", "(c=C)ijk?", answer="B")
        >>> len(both.tokens) == len(both.corrupt)
        True
    """
    tokenizer = tokenizer_of(model)
    name = f"pair-{digest([clean, corrupt, answer, wrong])}" if id is None else id
    sides = {"clean": clean, "corrupt": corrupt}
    asked = {side: prompt_trial(tokenizer, text, answer, chat=chat, id=name) for side, text in sides.items()}
    tokens = [asked[side].tokens for side in sides]
    gold = asked["clean"].answer_tokens
    if not torch.equal(gold, asked["corrupt"].answer_tokens):
        raise ValueError(f"pair {name}: one prompt ends in whitespace and the other does not: end both alike")
    if len(tokens[0]) != len(tokens[1]):
        raise ValueError(
            f"pair {name}: the clean prompt has {len(tokens[0])} tokens and the corrupt one {len(tokens[1])}, but patching "
            f"copies position by position. They part at {_parting(tokenizer, *tokens)}: put in words of as many tokens"
        )
    if torch.equal(*tokens):
        raise ValueError(
            f"pair {name}: both prompts are {clean!r:.80}, so every head would score 0: change the corrupt one"
        )
    other = None
    if wrong is not None:
        other = prompt_trial(tokenizer, corrupt, wrong, chat=chat, id=name).answer_tokens
        if int(other[0]) == int(gold[0]):
            (word,) = token_words(tokenizer, [int(gold[0])]).values()
            raise ValueError(
                f"pair {name}: {answer!r} and {wrong!r} begin with the same token {word!r}, so their first tokens do not tell "
                "them apart: choose answers that begin differently"
            )
    made = replace(asked["clean"], corrupt=tokens[1], wrong=other)
    check_special(made, tokenizer)
    return made


def _parting(tokenizer: Any, clean: Tensor, corrupt: Tensor) -> str:
    """Where two prompts begin to differ, and how each goes on."""
    shorter = min(len(clean), len(corrupt))
    at = next((i for i in range(shorter) if clean[i] != corrupt[i]), shorter)
    said = [repr(tokenizer.decode(one[at : at + 4].tolist())) for one in (clean, corrupt)]
    return f"token {at} ({said[0]} and {said[1]})"
