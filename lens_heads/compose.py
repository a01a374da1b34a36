"""Prompts composed in token space, so that spans are known by construction and never searched for.

`[BOS] [chat prefix] [template up to the haystack] [haystack, needle] [rest of the template, question] [chat suffix]`:
each piece is tokenized once and the pieces are joined.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import Any

from lens_heads.trials import EncodedTrial, Trial

RESERVE = 200
"""Tokens kept free of haystack for template, question and answer, as in the LOCOS grid."""

_QUOTES = "\"'\u201d\u2019)"
_SENTINEL = "\u241f0\u241f"  # Visible symbols no template or tokenizer treats specially.


def encode(trial: Trial, tokenizer: Any) -> EncodedTrial:
    """A trial in tokens.

    The haystack is cut to `length - 200 - len(needle)` tokens (the whole text when `length` is 0) and the needle
    inserted after the last sentence end at or below `depth` of it; at depth 1 it comes last; at 0, or without a
    sentence end below, first. The reported span is the needle's, or that of its `needle_focus`, which is then tokenized
    apart.

    Raises ValueError for a chat template that is asked for and missing, and for a `length` that leaves no haystack.
    """
    before, after = trial.template.replace("{question}", trial.question), ""
    if "{haystack}" in trial.template:
        left, right = trial.template.split("{haystack}", 1)
        before, after = left.replace("{question}", trial.question), right.replace("{question}", trial.question)
    prefix, suffix, add_bos = chat_frame(tokenizer, trial.chat, trial.id)
    tokens = bos(tokenizer) if add_bos else []
    tokens = tokens + piece(tokenizer, prefix + before)
    needle: tuple[int, int] | None = None
    body: list[int] = []
    if "{haystack}" in trial.template and (trial.haystack or trial.needle):
        body, span = _hide(trial, tokenizer, first=not (prefix + before) or (prefix + before)[-1].isspace())
        needle = (len(tokens) + span[0], len(tokens) + span[1]) if trial.needle else None
        tokens = tokens + body
    tail = piece(tokenizer, after + suffix) if after + suffix else []
    question = _question_span(trial, tokenizer, len(tokens), after, suffix, tail)
    tokens = tokens + tail
    ending = after + suffix or tokenizer.decode(body[-8:]) or prefix + before
    spaced = ending[-1:].isspace()
    return EncodedTrial(
        tokens=tokens,  # type: ignore[arg-type]  # lists are converted
        needle=needle,
        answer=trial.answer,
        answer_tokens=_answer(tokenizer, trial.answer, spaced),  # type: ignore[arg-type]
        id=trial.id,
        question=question,
        aliases=trial.aliases,
        meta={**trial.meta, "depth": trial.depth, "length": trial.length},
        judge=trial.judge,
        choices=trial.choices,
        choice_tokens=tuple(_answer(tokenizer, choice, spaced) for choice in trial.choices),  # type: ignore[arg-type]
    )


def _answer(tokenizer: Any, text: str, spaced: bool) -> list[int]:
    """An answer as it follows the prompt: after a space, unless there is white space on either side."""
    return piece(tokenizer, text if spaced or text[:1].isspace() else " " + text)


def _hide(trial: Trial, tokenizer: Any, first: bool) -> tuple[list[int], tuple[int, int]]:
    """Haystack tokens with the needle inside, and the span of the needle (of its focus) in them."""
    spaced = trial.haystack if first or not trial.haystack else " " + trial.haystack
    hay, ends = _haystack(tokenizer, spaced)
    inside, span = _needle(trial, tokenizer, " ")
    if trial.length:
        keep = trial.length - RESERVE - len(inside)
        if keep < 1:
            raise ValueError(
                f"trial {trial.id}: a length of {trial.length} tokens leaves no haystack: "
                f"{RESERVE} are reserved for template and answer and {len(inside)} are the needle's"
            )
        hay = hay[:keep]
    if trial.depth >= 1:
        at = len(hay)
    else:
        below = bisect_right(ends, int(len(hay) * trial.depth))
        at = ends[below - 1] if below else 0
    if at == 0 and first and trial.needle:
        inside, span = _needle(trial, tokenizer, "")
        if hay:
            hay = _haystack(tokenizer, " " + trial.haystack)[0][: len(hay) if trial.length else None]
    return hay[:at] + inside + hay[at:], (at + span[0], at + span[1])


def _needle(trial: Trial, tokenizer: Any, lead: str) -> tuple[list[int], tuple[int, int]]:
    """The needle's tokens and the span of its focus (all of it by default), which takes a space before it along."""
    text = lead + trial.needle if trial.needle else ""
    focus = trial.needle_focus or trial.needle
    start = len(lead) + trial.needle.index(focus) if text else 0
    end = start + len(focus)
    if text[:start].endswith(" "):
        start -= 1
    before, inside, after = (piece(tokenizer, part) for part in (text[:start], text[start:end], text[end:]))
    return before + inside + after, (len(before), len(before) + len(inside))


@lru_cache(maxsize=32)
def _haystack(tokenizer: Any, text: str) -> tuple[list[int], list[int]]:
    """A haystack's tokens and the positions right after each sentence end.

    A sentence ends with a stop before white space, so not inside 3.5; quotes that close there belong to it.
    """
    tokens = piece(tokenizer, text) if text else []
    texts = {i: tokenizer.decode([i]) for i in set(tokens)}
    ends: list[int] = []
    for at in (i for i, token in enumerate(tokens) if _closes(texts[token])):
        end, follows = at + 1, " "
        while end < len(tokens):
            follows = tokenizer.decode(tokens[end - 1 : end + 1])[len(texts[tokens[end - 1]]) :]
            if not follows or follows.strip(_QUOTES):
                break
            end, follows = end + 1, " "
        if follows[:1].isspace() or texts[tokens[end - 1]][-1:].isspace():
            ends.append(end)
    return tokens, ends


def _closes(text: str) -> bool:
    return text.strip().rstrip(_QUOTES)[-1:] in (".", "!", "?")


def piece(tokenizer: Any, text: str) -> list[int]:
    """A piece of text in tokens: no special tokens added, no space put before it by the tokenizer."""
    if not text:
        return []
    if not _adds_space(tokenizer):
        return list(tokenizer(text, add_special_tokens=False).input_ids)
    anchor = list(tokenizer("\n", add_special_tokens=False).input_ids)
    joined = list(tokenizer("\n" + text, add_special_tokens=False).input_ids)
    if joined[: len(anchor)] != anchor:
        return list(tokenizer(text, add_special_tokens=False).input_ids)
    return joined[len(anchor) :]


@lru_cache(maxsize=32)
def _adds_space(tokenizer: Any) -> bool:
    """SentencePiece tokenizers of the Llama 2 kind put a space before whatever they are given."""
    ids = tokenizer("a", add_special_tokens=False).input_ids
    return tokenizer.decode(tokenizer("b", add_special_tokens=False).input_ids + ids) == "b a"


@lru_cache(maxsize=32)
def _bos_ids(tokenizer: Any) -> tuple[int, ...]:
    ids = list(tokenizer("").input_ids)
    return tuple(ids[:1]) if ids and ids[0] == tokenizer.bos_token_id else ()


def bos(tokenizer: Any) -> list[int]:
    """BOS where the tokenizer itself puts one before a text, nothing elsewhere."""
    return list(_bos_ids(tokenizer))


def chat_frame(tokenizer: Any, chat: bool | None, trial: str = "") -> tuple[str, str, bool]:
    """(prefix, suffix, whether a BOS must still be added) of one user turn, thinking off; empty strings without chat.

    ValueError when chat is True and the tokenizer has no template.
    """
    template = getattr(tokenizer, "chat_template", None)
    if chat and not template:
        name = tokenizer.name_or_path or "the model"
        raise ValueError(
            f"trial {trial}: a chat template was asked for, but the tokenizer of {name} has none: use chat=False, "
            "or set tokenizer.chat_template"
        )
    return ("", "", True) if chat is False or not template else _chat_frame(tokenizer, str(template))


@lru_cache(maxsize=32)
def _chat_frame(tokenizer: Any, template: str) -> tuple[str, str, bool]:
    """The frame by the tokenizer's `template`, which is in the key because a user may set another."""
    turn = [{"role": "user", "content": _SENTINEL}]
    text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    if text.count(_SENTINEL) != 1:
        raise ValueError(f"the chat template does not show the user's text exactly once: use chat=False ({template!r})")
    prefix, suffix = text.split(_SENTINEL)
    bos = tokenizer.bos_token
    return prefix, suffix, not (bos and prefix.startswith(bos))


def _question_span(
    trial: Trial, tokenizer: Any, start: int, after: str, suffix: str, tail: list[int]
) -> tuple[int, int] | None:
    """The question's tokens inside the last piece, by the character offsets of that piece's own tokenization."""
    at = after.find(trial.question)
    if at < 0 or not getattr(tokenizer, "is_fast", False) or _adds_space(tokenizer):
        return None
    offsets = tokenizer(after + suffix, add_special_tokens=False, return_offsets_mapping=True).offset_mapping
    inside = [i for i, (a, b) in enumerate(offsets) if b > at and a < at + len(trial.question) and b > a]
    return (start + inside[0], start + inside[-1] + 1) if inside and len(offsets) == len(tail) else None
