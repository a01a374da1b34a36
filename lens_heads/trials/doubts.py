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
from lens_heads.trials.judges import PassesTests
from lens_heads.trials.thinking import TAIL, unclosed
from lens_heads.trials.tokenizing import chat_frame, piece, prompt_start, special_tokens
from lens_heads.trials.trial import RESERVE, AnyTrial, Trial, typed_marker

SHORT, OFF = 80, 0.3
"""A haystack of more tokens has room for sentences, and a needle farther off than this is not where it was asked to be."""
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
    elif ending.endswith(" ") and not _framed(ending, frame(tokenizer)[1]):
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
        yield from _of_texts(trial, encoded, tokenizer)
    else:
        yield from of_tokens(trial, tokenizer)
    spaced = next((one for one in (trial.answer, *trial.choices) if one != one.rstrip()), None)
    if spaced is not None:
        yield (
            "answer's end",
            f"the answer {spaced!r} ends in whitespace, which has tokens of its own that are scored with it: take it away",
        )
    accepted = (trial.answer, *trial.aliases)
    if (
        not trial.choices
        and not isinstance(trial.judge, PassesTests)
        and not trial.judge.correct(trial.answer, accepted)
    ):
        yield (
            "judge",
            f"its judge ({type(trial.judge).__name__}, rule {trial.judge.rule!r}) calls the answer {trial.answer!r} itself "
            "wrong, so that no text is right: use another judge, or correct the answer",
        )
    prefix = next(
        (one for one in trial.choices for other in trial.choices if one != other and other.startswith(one)), None
    )
    if prefix is not None:
        yield (
            "choices",
            f"the choice {prefix!r} is how another one begins, so that it is likelier whatever the prompt: end both alike",
        )
    answers = [plain(one) for one in (trial.answer, *trial.aliases)]
    given, read = encoded.tokens.tolist(), lambda ids: plain(tokenizer.decode(ids))
    if trial.choices:
        return
    if count(answers[0], read(given[-len(encoded.answer_tokens) - TAIL :]), end=True):
        yield (
            "ends",
            f"the prompt ends in the answer {trial.answer!r} already, so that what is scored is its being said again: end the "
            "prompt before it",
        )
    if encoded.needle is None:
        return
    start, end = encoded.needle
    if len(set(given[start:end])) == 1 < end - start:  # Filler, where the needle was taken away.
        return
    within = (trial.needle_focus or trial.needle) if isinstance(trial, Trial) else tokenizer.decode(given[start:end])
    if not any(answer in plain(within) for answer in answers):
        yield (
            "answer",
            f"the answer {trial.answer!r} stands nowhere in the needle {within!r:.60}, so no head can copy it from "
            "there: correct one of them, unless that is meant (a control, an answer to be inferred)",
        )
    elif not twice and _elsewhere(trial, encoded, tokenizer):
        yield (
            "copies",
            f"the answer {trial.answer!r} stands outside the needle too, and a head that copies it from there counts as "
            "one that reads no needle: use another haystack, question or answer",
        )


def _of_texts(trial: Trial, encoded: EncodedTrial, tokenizer: Any) -> Iterator[tuple[str, str]]:
    """What a trial's texts and lengths may have wrong."""
    typed = typed_marker(trial, tokenizer, encoded.tokens.tolist())
    if typed is not None:
        yield (
            "typed",
            f"its text holds {typed!r}, which the model reads as a special token: take it out, or, if it is part of "
            "the prompt's frame, write it into the template",
        )
    texts = (trial.template, trial.haystack, trial.needle, trial.question)
    foreign = next((found for text in texts for found in _MARKERS.findall(text)), None)
    own = (*special_tokens(tokenizer).values(), str(getattr(tokenizer, "chat_template", "")))
    if foreign is not None and not any(foreign in text for text in own):
        yield (
            "foreign",
            f"its text holds {foreign!r}, a marker of other models' chats, which this one reads as plain text: take the frame "
            "out of the text, and let chat=True make this model's own",
        )
    if "{{" in trial.template or "}}" in trial.template:
        yield (
            "braces",
            "its template has doubled braces, which stay in the prompt as they are: write {question} with single ones",
        )
    field = next((found for found in _FIELD.findall(trial.template) if found not in ("{haystack}", "{question}")), None)
    if field is not None:
        yield (
            "field",
            f"its template holds {field!r}, which stays in the prompt as it is: the fields are {{haystack}} and {{question}}",
        )
    if encoded.needle is not None and trial.haystack and 0 < trial.depth < 1:
        at = _depth(trial, encoded, tokenizer)
        if at is not None and abs(at - trial.depth) > OFF:
            yield (
                "depth",
                f"its needle stands at {at:.2f} of the haystack, not at depth={trial.depth:g}, since it is hidden after the last "
                "sentence end (a stop before a space) at or below that: use a haystack with sentences",
            )
    if trial.haystack and len(encoded) < trial.length - RESERVE:
        yield (
            "short",
            f"its prompt has {len(encoded)} tokens, not about length={trial.length}, since its haystack has no more: give a "
            "longer haystack, or length=0 for all of it",
        )


def _depth(trial: Trial, encoded: EncodedTrial, tokenizer: Any) -> float | None:
    """Where the needle stands in the haystack, as a share of it; None for a short one."""
    prefix, suffix = chat_frame(tokenizer, trial.chat, trial.id)
    before, _, after = trial.template.replace("{question}", trial.question).partition("{haystack}")
    start, end = encoded.needle or (0, 0)
    first, last = len(piece(tokenizer, prefix + before)), len(piece(tokenizer, after + suffix))
    hay = len(encoded) - first - last - (end - start)
    return min(max((start - first) / hay, 0.0), 1.0) if hay > SHORT else None


_MARKERS = re.compile(r"<\|[a-z_]+\|>|<(?:start|end)_of_turn>|\[/?INST\]|</?s>|<[be]os>")
"""How chat templates mark turns, and tokenizers the ends of texts."""
_FIELD = re.compile(r"\{[A-Za-z_]+\}")


def _elsewhere(trial: AnyTrial, encoded: EncodedTrial, tokenizer: Any) -> bool:
    """Whether the haystack, as far as it is in the prompt, or the question holds the answer as whole words."""
    answer, ids = plain(trial.answer), encoded.tokens.tolist()
    if isinstance(trial, Trial):
        if count(answer, plain(trial.question)):
            return True
        if not count(answer, plain(trial.haystack)):
            return False
        # The haystack may be cut before it.
        known = sum(count(answer, plain(part)) for part in (trial.needle, trial.template))
        return count(answer, plain(tokenizer.decode(ids))) > known
    start, end = encoded.needle or (0, 0)
    return any(count(answer, plain(tokenizer.decode(part))) for part in (ids[:start], ids[end:]))


def _framed(ending: str, suffix: str) -> bool:
    """Whether a prompt ends in a space as the chat template has it end."""
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
