"""What a tokenizer adds to a text (special tokens, spaces, a chat frame), and pieces of text without these."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

_SENTINEL = "\u241f0\u241f"  # Visible symbols no template or tokenizer treats specially.


def piece(tokenizer: Any, text: str) -> list[int]:
    """A piece of text in tokens, without special tokens or a space that the tokenizer would put before it."""
    if not text:
        return []
    if adds_space(tokenizer):
        anchor = list(tokenizer("\n", add_special_tokens=False).input_ids)
        joined = list(tokenizer("\n" + text, add_special_tokens=False).input_ids)
        if joined[: len(anchor)] == anchor:
            return joined[len(anchor) :]
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def char_span(tokenizer: Any, text: str, start: int, end: int) -> tuple[int, int] | None:
    """The tokens of `piece(text)` that hold any of the characters start to end (half-open both).

    None for a tokenizer that does not say where its tokens begin, and for characters that no token holds.
    """
    if not getattr(tokenizer, "is_fast", False) or adds_space(tokenizer):
        return None
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True).offset_mapping
    inside = [i for i, (a, b) in enumerate(offsets) if b > start and a < end and b > a]
    return (inside[0], inside[-1] + 1) if inside else None


def token_words(tokenizer: Any, ids: Iterable[int]) -> dict[int, str]:
    """The text of tokens by id, with the space that begins it, which some tokenizers drop from a token that stands alone."""
    anchor = piece(tokenizer, "a")[-1:] if adds_space(tokenizer) else []
    skip = len(tokenizer.decode(anchor)) if anchor else 0
    return {token: tokenizer.decode([*anchor, token])[skip:] for token in dict.fromkeys(ids)}


@lru_cache(maxsize=1 << 14)
def space_twin(tokenizer: Any, token: int) -> int:
    """The token whose text differs from this one's only by the space before it ("Oslo" and " Oslo"); -1 if there is none."""
    if tokenizer is None or token < 0:
        return -1
    text = token_words(tokenizer, [token])[token]
    other = text[1:] if text.startswith(" ") else f" {text}"
    if not other.strip() or "\ufffd" in other:  # Spaces, and parts of characters, which all look alike.
        return -1
    found = piece(tokenizer, other)
    # A tokenizer may also change what it reads (normalise, drop): the text decides.
    return found[0] if len(found) == 1 and token_words(tokenizer, found)[found[0]] == other else -1


def opening(tokenizer: Any, text: str) -> list[int]:
    """The BOS that a prompt beginning with `text` still needs.

    Empty if the tokenizer adds none, or the text already begins with it, as in many chat frames.
    """
    return [] if tokenizer.bos_token and text.startswith(tokenizer.bos_token) else list(_bos_ids(tokenizer))


def chat_frame(tokenizer: Any, chat: bool | None, trial: str = "") -> tuple[str, str]:
    """(prefix, suffix) of one user turn, thinking off; empty strings without chat.

    ValueError if `chat` is True but the tokenizer has no chat template.
    """
    template = getattr(tokenizer, "chat_template", None)
    if chat and not template:
        name = tokenizer.name_or_path or "the model"
        raise ValueError(
            f"trial {trial}: chat=True, but the tokenizer of {name} has no chat template: use chat=False, or set "
            "tokenizer.chat_template"
        )
    return ("", "") if chat is False or not template else _chat_frame(tokenizer, str(template))


@lru_cache(maxsize=32)
def adds_space(tokenizer: Any) -> bool:
    """Whether the tokenizer puts a space before every text, as SentencePiece tokenizers of the Llama 2 kind do."""
    ids = tokenizer("a", add_special_tokens=False).input_ids
    return tokenizer.decode(tokenizer("b", add_special_tokens=False).input_ids + ids) == "b a"


@lru_cache(maxsize=32)
def _bos_ids(tokenizer: Any) -> tuple[int, ...]:
    ids = list(tokenizer("").input_ids)
    return tuple(ids[:1]) if ids and ids[0] == tokenizer.bos_token_id else ()


@lru_cache(maxsize=32)
def _chat_frame(tokenizer: Any, template: str) -> tuple[str, str]:
    """The frame of `template`, a parameter because users may change the tokenizer's: it must be in the cache key."""
    turn = [{"role": "user", "content": _SENTINEL}]
    text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    if text.count(_SENTINEL) != 1:
        raise ValueError(
            f"the chat template does not contain the user's text exactly once: use chat=False ({template!r})"
        )
    prefix, suffix = text.split(_SENTINEL)
    return prefix, suffix
