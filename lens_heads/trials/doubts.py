"""What is probably not meant about a trial: worth a warning with its name, since its scores would look like any others."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from lens_heads.runs.warned import users_line
from lens_heads.trials.bos import beginning, begins
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.thinking import TAIL, unclosed
from lens_heads.trials.tokenizing import chat_frame
from lens_heads.trials.trial import AnyTrial, Trial, typed_marker

LONG = 4
"""Tokens of a needle in tokens that stand twice by no accident."""


def warn_of_doubts(trials: Sequence[AnyTrial], encoded: Sequence[EncodedTrial], tokenizer: Any) -> None:
    """One warning for each kind of doubt, which names the first trial and counts the others."""
    found: dict[str, list[tuple[str, str]]] = {}
    for trial, tokens in zip(trials, encoded, strict=True):
        for kind, said in _doubts(trial, tokens, tokenizer):
            found.setdefault(kind, []).append((trial.id, said))
    for (name, said), *others in found.values():
        more = f" (and {len(others)} more)" if others else ""
        warnings.warn(f"trial {name}{more}: {said}", stacklevel=users_line())


def _doubts(trial: AnyTrial, encoded: EncodedTrial, tokenizer: Any) -> Iterator[tuple[str, str]]:
    ending = tokenizer.decode(encoded.tokens[-TAIL:].tolist())
    opened = unclosed(ending)
    if opened:
        yield (
            "thinking",
            f"the prompt ends inside a block of thinking ({opened!r}), where no answer is given: what is read at the answer is "
            "read there. Let the chat template close it (tokenizer.chat_template), or use chat=False",
        )
    elif ending.endswith(" ") and not _framed(ending, tokenizer):
        yield (
            "space",
            f"the prompt ends in a space ({ending[-12:]!r}), which most tokenizers join to the next word, so the answer begins "
            "in a way that the model rarely saw: take the space away",
        )
    twice = _stands_twice(trial, encoded, tokenizer)
    if twice:
        yield (
            "needle",
            "the needle stands elsewhere in the prompt too, where it counts as haystack, and stays when the needle is taken "
            "away: use another haystack or needle",
        )
    if isinstance(trial, Trial):
        typed = typed_marker(trial, tokenizer, encoded.tokens.tolist())
        if typed is not None:
            yield (
                "typed",
                f"its text holds {typed!r}, which the model reads as a special token: take it out, or, if it is part of "
                "the prompt's frame, write it into the template",
            )
    else:
        yield from _doubts_of_tokens(trial, tokenizer)
    if isinstance(trial, Trial) and trial.needle and not trial.choices:
        within = _plain(trial.needle)
        if not any(_plain(answer) in within for answer in (trial.answer, *trial.aliases)):
            yield (
                "answer",
                f"the answer {trial.answer!r} stands nowhere in the needle {trial.needle!r:.60}, so no head can copy it from "
                "there: correct one of them, unless that is meant (a control, an answer to be inferred)",
            )
        elif not twice and _elsewhere(trial, encoded, tokenizer):
            yield (
                "copies",
                f"the answer {trial.answer!r} stands outside the needle too, and a head that copies it from there counts as "
                "one that reads no needle: use another haystack or answer",
            )


def _doubts_of_tokens(trial: EncodedTrial, tokenizer: Any) -> Iterator[tuple[str, str]]:
    """What a user's own tokens may have wrong, which a function that makes them from texts has right."""
    own, ids = begins(tokenizer), trial.tokens.tolist()
    if own and ids[: len(own)] != own and tokenizer.bos_token_id != ids[0]:
        yield (
            "begins",
            f"the prompt begins with {tokenizer.decode(ids[:4])!r}, and this model's prompts with {beginning(tokenizer)!r}: put "
            "that before the tokens, or let prompt_trial make them",
        )
    elif ids[:2] == [tokenizer.bos_token_id] * 2 or (own and ids[len(own) : 2 * len(own)] == own):
        yield (
            "begins twice",
            f"the prompt begins twice, with {tokenizer.decode(ids[:4])!r}: take one away (text of a chat template has it), or "
            "let prompt_trial make the tokens",
        )
    parts = [(trial.answer, trial.answer_tokens), *zip(trial.choices, trial.choice_tokens, strict=True)]
    for text, tokens in parts:
        read = tokenizer.decode(tokens.tolist())
        one, other = ("".join(_plain(each).split()) for each in (text, read))
        if not (one.startswith(other) or other.startswith(one)):
            yield (
                "answer tokens",
                f"the answer is {text!r}, but its tokens read {read!r}: answers are judged by the text and scored by the tokens, "
                "so correct one of them",
            )
            return


def _elsewhere(trial: Trial, encoded: EncodedTrial, tokenizer: Any) -> bool:
    """Whether the haystack, as far as it is in the prompt, holds the answer as whole words."""
    words = re.compile(rf"(?<!\w){re.escape(_plain(trial.answer))}(?!\w)")
    if not words.search(_plain(trial.haystack)):
        return False
    known = sum(len(words.findall(_plain(part))) for part in (trial.needle, trial.template, trial.question))
    return (
        len(words.findall(_plain(tokenizer.decode(encoded.tokens.tolist())))) > known
    )  # The haystack may be cut before it.


def _framed(ending: str, tokenizer: Any) -> bool:
    """Whether a prompt ends as the chat template has it end."""
    try:
        suffix = chat_frame(tokenizer, None)[1]
    except ValueError:
        return False
    return suffix.endswith(" ") and ending.endswith(suffix[-len(ending) :])


def _stands_twice(trial: AnyTrial, encoded: EncodedTrial, tokenizer: Any) -> bool:
    if isinstance(trial, Trial):
        needle = trial.needle.strip()
        around = (trial.haystack, trial.template, trial.question)
        if not needle or not any(needle in text for text in around):
            return False
        return tokenizer.decode(encoded.tokens.tolist()).count(needle) > 1  # The haystack may be cut before it.
    start, end = encoded.needle or (0, 0)
    if end - start < LONG or len(encoded) < 2 * (end - start):
        return False
    if len(encoded.tokens[start:end].unique()) == 1:  # Filler, where the needle was taken away.
        return False
    needle = encoded.tokens[start + 1 : end]  # Without its first token, which a space or a line before it changes.
    return int((encoded.tokens.unfold(0, len(needle), 1) == needle).all(-1).sum()) > 1


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())
