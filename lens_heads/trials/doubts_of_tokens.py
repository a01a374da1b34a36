"""What a user's own tokens may have wrong, which a function that makes them from texts has right."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from lens_heads.trials.bos import beginning, begins
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.tokenizing import chat_frame, piece, prompt_start

UNSPACED = 0x2E80
"""From here on, letters are of scripts that put no space between words."""
_WORD = re.compile(r"\w+")
_STOPS = tuple(".,:;?!")


def of_tokens(trial: EncodedTrial, tokenizer: Any) -> Iterator[tuple[str, str]]:
    """The kind of each doubt about a trial in tokens, and what to say of it."""
    own, ids, bos = begins(tokenizer), trial.tokens.tolist(), tokenizer.bos_token_id
    prefix, suffix = frame(tokenizer)
    if own and ids[: len(own)] != own and bos != ids[0]:
        yield (
            "begins",
            f"the prompt begins with {tokenizer.decode(ids[:4])!r}, and this model's prompts with {beginning(tokenizer)!r}: put "
            "that before the tokens, or let prompt_trial make them",
        )
    elif ids[:2] == [bos] * 2 or (own and ids[len(own) : 2 * len(own)] == own):
        yield (
            "begins twice",
            f"the prompt begins twice, with {tokenizer.decode(ids[:4])!r}: take one away (text of a chat template has it), or "
            "let prompt_trial make the tokens",
        )
    elif not own and bos == ids[0] and not (prefix and prompt_start(tokenizer, prefix)[0] == bos):
        yield (
            "begins otherwise",
            f"the prompt begins with {tokenizer.bos_token!r}, and this model's prompts with no BOS: take it away, or load the "
            "model with prepend_bos=True if that is meant",
        )
    ends = {tokenizer.pad_token_id, tokenizer.eos_token_id} - {None, *piece(tokenizer, suffix)[-1:]}
    if ids[-1] in ends:
        yield (
            "ending",
            f"the prompt ends in {tokenizer.decode(ids[-1:])!r}, after which no answer is expected: take padding and the end of "
            "the text away",
        )
    if (
        trial.needle
        and trial.question
        and max(trial.needle[0], trial.question[0]) < min(trial.needle[1], trial.question[1])
    ):
        yield (
            "needle and question",
            f"the needle {trial.needle} and the question {trial.question} overlap, so that what is read from the question counts "
            "as read from the needle: correct one of them",
        )
    parts = [(trial.answer, trial.answer_tokens), *zip(trial.choices, trial.choice_tokens, strict=True)]
    for text, tokens in parts:
        read = tokenizer.decode(tokens.tolist())
        one, other = ("".join(plain(each).split()) for each in (text, read))
        within = {*_WORD.findall(plain(text))} <= {*_WORD.findall(plain(read))}  # An answer in a sentence.
        if not (one.startswith(other) or other.startswith(one) or (within and _WORD.search(text))):
            yield (
                "answer tokens",
                f"the answer is {text!r}, but its tokens read {read!r}: answers are judged by the text and scored by the tokens, "
                "so correct one of them",
            )
            return
    if not trial.vocabulary and _joins(trial, tokenizer):
        yield (
            "joined",
            f"the tokens of the answer {trial.answer!r} begin without a space, and the prompt ends in "
            f"{tokenizer.decode(ids[-3:])!r}, so that none would stand between them: encode it as {' ' + trial.answer!r}, or "
            "let prompt_trial do it",
        )


def _joins(trial: EncodedTrial, tokenizer: Any) -> bool:
    """Whether a word would be written at once after another or a stop, where a space stands between words."""
    ending = tokenizer.decode(trial.tokens[-3:].tolist())[-1:]
    letters = (ending.isalnum() or ending in _STOPS) and trial.answer[0].isalpha()
    letters = letters and max(map(ord, (ending, trial.answer[0]))) < UNSPACED
    bare, spaced = (piece(tokenizer, before + trial.answer)[:1] for before in ("", " "))
    return letters and bare != spaced and trial.answer_tokens[:1].tolist() == bare


def frame(tokenizer: Any) -> tuple[str, str]:
    """What the chat template puts before and behind a prompt; empty texts where there is none, or none that can be filled."""
    try:
        return chat_frame(tokenizer, None)
    except ValueError:
        return "", ""


def plain(text: str) -> str:
    """A text without differences of case, spacing and Unicode form."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def count(words: str, text: str, end: bool = False) -> int:
    """How often a plain text holds words as whole words, or has them at its end."""
    return len(re.findall(rf"(?<!\w){re.escape(words)}(?!\w)" + ("$" if end else ""), text))
