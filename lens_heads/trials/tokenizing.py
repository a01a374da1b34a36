"""How a tokenizer writes a prompt: its beginning, the pieces inside it, the chat frame around it, and where characters are."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from lens_heads.runs.digests import digest
from lens_heads.runs.reading import reason
from lens_heads.runs.warned import users_line
from lens_heads.trials.bos import beginning, opening
from lens_heads.trials.thinking import closing, unclosed

DATE = date(2025, 1, 1)
"""The day that a chat template with a date (Llama 3, Mistral, gpt-oss) is given: with today's, tomorrow's prompt is another."""

WITHOUT_SPECIAL = (
    "tokenize with add_special_tokens=False, and an answer with the space before it, or let prompt_trial and pair do it"
)
"""The remedy for a special token amid a text: most come from `tokenizer(" Mary")`, which begins with a BOS."""
_SENTINEL = "\u241f0\u241f"  # Visible symbols no template or tokenizer treats specially.
_ANCHORS = ("\n", ":", "(", "0", "a")
"""Texts to put before a piece, so that a tokenizer takes it for the inside of a prompt. One that merges with it is no good."""
# The directives of `strftime`, filled in by a macro: a template sees no function that it is passed, only data.
_DIRECTIVES = [f"%{flag}{letter}" for flag in ("-", "") for letter in "aAbBdmyYjHIMSpfwuUWVGzZcxXDFTRe"]
_STRFTIME = (
    "{%- macro strftime_now(format) -%}{%- set ns = namespace(text=format) -%}{%- for mark, value in fixed_date.items() -%}"
    "{%- set ns.text = ns.text.replace(mark, value) -%}{%- endfor -%}{{- ns.text -}}{%- endmacro -%}"
)


def prompt_rules(tokenizer: Any) -> dict[str, str]:
    """What decides how texts become prompts, for the settings of a run: what they begin with, and a chat template's date."""
    dated = "strftime_now" in str(getattr(tokenizer, "chat_template", None))
    return {"begins": beginning(tokenizer), **({"template_date": DATE.isoformat()} if dated else {})}


def tokenizer_of(model: Any) -> Any:
    """The tokenizer of a model, or the tokenizer that was passed. TypeError for anything else."""
    found = getattr(model, "tokenizer", model)
    if not (callable(found) and hasattr(found, "decode")):
        raise TypeError(f"{type(model).__name__} is no model with a tokenizer and no tokenizer: pass load_model(name)")
    return found


def prompt_start(tokenizer: Any, text: str) -> list[int]:
    """A text at the beginning of a prompt in tokens, with all that the model's own tokenizer puts before it (BOS, a space)."""
    return opening(tokenizer, text) + first_piece(tokenizer, text)


def first_piece(tokenizer: Any, text: str) -> list[int]:
    """A text at the beginning of a prompt in tokens: no special tokens, but the space that some tokenizers put before it."""
    ids = _plain(tokenizer, text)
    written = _written(tokenizer, ids) if ids else ""
    if not (_same(written, text) or (adds_space(tokenizer) and _same(written, " " + text))):
        _warn(tokenizer, text, written)
    return ids


def prompt_offsets(tokenizer: Any, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """A whole prompt in tokens, and the characters of each; a BOS that is not in the text covers none. Fast tokenizers only."""
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    start = opening(tokenizer, text)
    return start + list(found.input_ids), [(0, 0)] * len(start) + [tuple(pair) for pair in found.offset_mapping]


def piece(tokenizer: Any, text: str) -> list[int]:
    """A piece of text inside a prompt in tokens, without special tokens or a space that the tokenizer would put before it.

    Warns of a tokenizer that cannot write it, so that the tokens are not this text (unknown characters, spaces it drops).
    """
    return _inside(tokenizer, text)[1]


def char_span(tokenizer: Any, text: str, start: int, end: int, first: bool = False) -> tuple[int, int] | None:
    """The tokens of `piece(text)` that hold any of the characters start to end (half-open both).

    `first`: the text begins the prompt; spans count from its first token, after any BOS. None for a tokenizer that does not say
    where its tokens begin, and for characters that no token holds.
    """
    if not getattr(tokenizer, "is_fast", False):
        return None
    anchor = "" if first else _inside(tokenizer, text)[0]
    before = len(_plain(tokenizer, anchor))
    offsets = tokenizer(anchor + text, add_special_tokens=False, return_offsets_mapping=True).offset_mapping
    start, end = start + len(anchor), end + len(anchor)
    inside = [i for i, (a, b) in enumerate(offsets[before:]) if b > start and a < end and b > a]
    return (inside[0], inside[-1] + 1) if inside else None


@lru_cache(maxsize=32)
def special_tokens(tokenizer: Any) -> dict[int, str]:
    """The tokens that stand for no text (BOS, EOS, padding, turns of a chat), by id."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    found = {number: str(token) for number, token in added.items() if token.special}
    named = getattr(tokenizer, "all_special_ids", [])
    return found | dict(zip(named, getattr(tokenizer, "all_special_tokens", []), strict=False))


def name_of(tokenizer: Any) -> str:
    """The name of a tokenizer's model, without the folder that it lies in."""
    name = str(getattr(tokenizer, "name_or_path", "") or "the model")
    return Path(name).name if Path(name).is_absolute() else name


@lru_cache(maxsize=32)
def vocabulary(tokenizer: Any) -> str:
    """A hash of a tokenizer's words by their ids, without added ones: where it is equal, tokens mean the same."""
    added = {str(token) for token in getattr(tokenizer, "added_tokens_decoder", {}).values()}
    words = getattr(tokenizer, "get_vocab", dict)()
    return digest(sorted((number, word) for word, number in words.items() if word not in added))


def markers(tokenizer: Any, ids: Iterable[Any]) -> Counter[int]:
    """The special tokens among ids, each as often as it occurs, without the one that stands for unknown text."""
    special, unknown = special_tokens(tokenizer), getattr(tokenizer, "unk_token_id", None)
    return Counter(number for number in map(int, ids) if number in special and number != unknown)


def first_special(ids: Iterable[Any], special: Mapping[int, str]) -> int | None:
    """The first special token among ids."""
    return next((number for number in map(int, ids) if number in special), None)


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


def chat_frame(tokenizer: Any, chat: bool | None, trial: str = "") -> tuple[str, str]:
    """(prefix, suffix) of one user turn, thinking off; empty strings without chat.

    ValueError if `chat` is True but the tokenizer has no chat template, and for a template that cannot be filled.
    """
    template = getattr(tokenizer, "chat_template", None)
    name = name_of(tokenizer)
    if chat and not template:
        raise ValueError(
            f"trial {trial}: chat=True, but the tokenizer of {name} has no chat template: use chat=False, or set "
            "tokenizer.chat_template"
        )
    if chat is False or not template:
        return "", ""
    owner = f"trial {trial}: " if trial else ""
    try:
        parts = _chat_frame(tokenizer, str(template))
    except Exception as error:  # of jinja2, of transformers, or of the template's own
        raise ValueError(
            f"{owner}the chat template of {name} cannot be filled with one user turn ({reason(error)}): use chat=False, "
            "or set tokenizer.chat_template"
        ) from error
    if len(parts) != 2:
        raise ValueError(
            f"{owner}the chat template does not contain the user's text exactly once: use chat=False ({template!r})"
        )
    return parts[0], parts[1]


@lru_cache(maxsize=32)
def adds_space(tokenizer: Any) -> bool:
    """Whether the tokenizer puts a space before every text, as SentencePiece tokenizers of the Llama 2 kind do."""
    return _written(tokenizer, _plain(tokenizer, "b") + _plain(tokenizer, "a")) == "b a"


def _plain(tokenizer: Any, text: str) -> list[int]:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"the text {text!r:.60} holds half of a character, which no tokenizer reads: decode it as UTF-8"
        ) from None
    return list(tokenizer(text, add_special_tokens=False).input_ids) if text else []


def _written(tokenizer: Any, ids: list[int]) -> str:
    # Cleaning up is for readers: it takes the space out of " ,".
    cleans = getattr(tokenizer, "clean_up_tokenization_spaces", False)
    return tokenizer.decode(ids, **({"clean_up_tokenization_spaces": False} if cleans else {}))


def _follows(tokenizer: Any, before: list[int], ids: list[int]) -> str:
    """What tokens say after others: alone, some decoders drop the space that begins them."""
    return _written(tokenizer, before + ids)[len(_written(tokenizer, before)) :]


def _inside(tokenizer: Any, text: str) -> tuple[str, list[int]]:
    """The text after which a piece is tokenized as it stands inside a prompt ("" if nothing is needed), and its tokens."""
    if not text:
        return "", []
    found: list[tuple[str, list[int], str]] = []
    for anchor in _ANCHORS if adds_space(tokenizer) else ("",):
        before, joined = _plain(tokenizer, anchor), _plain(tokenizer, anchor + text)
        if joined[: len(before)] == before:
            ids = joined[len(before) :]
            found.append((anchor, ids, _follows(tokenizer, before or _plain(tokenizer, _ANCHORS[1]), ids)))
            if _same(found[-1][2], text):
                break
    else:
        found = found[:1] or [("", _plain(tokenizer, text), "")]
        _warn(tokenizer, text, found[0][2])
    return found[-1][:2]


def _same(written: str, text: str) -> bool:
    """Whether a tokenizer gives a text back, in whatever normal form of Unicode it keeps."""
    return written == text or unicodedata.normalize("NFKC", written) == unicodedata.normalize("NFKC", text)


def _warn(tokenizer: Any, text: str, written: str) -> None:
    same = next((i for i, pair in enumerate(zip(text, written, strict=False)) if len(set(pair)) > 1), len(written))
    at = max(0, same - 8)
    warnings.warn(
        f"the tokenizer of {name_of(tokenizer)} cannot write a text as it is: it turns "
        f"{text[at : at + 24]!r} into {written[at : at + 24]!r}. The model reads the "
        "latter: change the text, or use another model's tokenizer",
        stacklevel=users_line(),
    )


@lru_cache(maxsize=32)
def _chat_frame(tokenizer: Any, template: str) -> tuple[str, ...]:
    """What `template` writes around the user's text. Users may change the tokenizer's template, so the cache key has it."""
    turn = [{"role": "user", "content": _SENTINEL}]
    # Families name the switch differently; a template ignores what it does not know.
    options: dict[str, Any] = {"add_generation_prompt": True, "enable_thinking": False, "thinking": False}
    if "strftime_now" in template:
        fixed = {directive: DATE.strftime(directive) for directive in _DIRECTIVES}
        options |= {"chat_template": _STRFTIME + tokenizer.get_chat_template(), "fixed_date": fixed}
    prefix, *suffix = tokenizer.apply_chat_template(turn, tokenize=False, **options).split(_SENTINEL)
    return (prefix, *suffix[:-1], suffix[-1] + _closing(suffix[-1], template)) if suffix else (prefix,)


def _closing(suffix: str, template: str) -> str:
    """What closes the block of thinking that a frame leaves open, if the family has empty ones: if its template writes one.

    gpt-oss's frame opens none, but ends before the channel is named: that of the answer.
    """
    opened, closes = unclosed(suffix), closing(suffix)
    empty = re.escape(opened) + r"(?:\\n|\s)*" + re.escape(closes.strip())
    return closes if not opened or re.search(empty, template) else ""
