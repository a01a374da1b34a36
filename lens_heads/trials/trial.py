"""Trial: a question about a needle in a haystack, as text, whose prompt is composed in token space.

`[BOS] [chat prefix] [template up to the haystack] [haystack, needle] [rest of the template, question] [chat suffix]`:
each piece is tokenized once and the pieces are joined, so spans are known by construction and never searched for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from typing import Any, NamedTuple, TypeAlias

from lens_heads.runs import checks
from lens_heads.runs.typed import held
from lens_heads.trials.bos import opening
from lens_heads.trials.encoded import EncodedTrial, check_id, check_parts, checked_choices
from lens_heads.trials.fields import groups, text, texts
from lens_heads.trials.judges import DEFAULT, Judge
from lens_heads.trials.tokenizing import (
    adds_space,
    char_span,
    chat_frame,
    first_piece,
    markers,
    piece,
    prompt_start,
    special_tokens,
    vocabulary,
)

RESERVE = 200
"""Tokens reserved for template, question and answer, as in the LOCOS grid."""

_QUOTES = "\"'\u201d\u2019)"


@dataclass(frozen=True)
class Distractor:
    """Another needle of the same passage.

    `text`: its sentence. `question`, `answer`: which question it answers, and how; empty where it only stands there. `depth`: as
    a trial's.

    Example:
        >>> other = lh.trials.Distractor("The coin is in the jar.", "Where is the coin?", "in the jar", depth=0.2)
        >>> other.answer in other.text
        True
    """

    text: str
    question: str = ""
    answer: str = ""
    depth: float = 0.5

    def __post_init__(self) -> None:
        for what in ("text", "question", "answer"):
            text("distractor", what, getattr(self, what), empty=what != "text")
        checks.finite("distractor: depth", self.depth, 0, 1)


@dataclass(frozen=True)
class Trial:
    """One question whose answer is in a needle hidden in a haystack.

    `template` contains `{haystack}` and `{question}`. The haystack is cut so that the whole prompt has about `length`
    tokens, and the needle is inserted at the last sentence end at or below `depth` (0 to 1). A trial without haystack and
    needle (parametric recall, arithmetic) leaves both empty and needs only `{question}`.
    `chat`: True wraps the prompt in the tokenizer's chat template, False does not, None does if there is one.
    `aliases` are other correct answers. `needle_focus` is the part of the needle whose span is reported, by default all of
    it. `judge` extracts the answer from a generated text and decides whether it is correct.
    `distractors`: further needles of the passage, with answers of their own, so that the question decides.
    `corrupt`: the question of its counterfactual, which has another answer, for runs that compare the two; of several, the first
    with as many tokens is taken. If none has, the haystack ends as many tokens sooner or later, so that the runs align.
    `choices`: the options of a multiple-choice question, one of them `answer`; the model chooses the likeliest.
    `joined`: the answer goes on with the prompt's last word or number, without a space: "the year 17", "32".
    `group`: trials of one group (a company, a needle, a name) share what their answers depend on. They are never split
    between selection and evaluation, and intervals resample them whole. A tuple names groups of two kinds that cross.
    Without a group, trials count as dependent only if they share the needle.

    `id`: unique among the trials of a call. `meta`: what to group results by.

    Example:
        >>> trial = lh.Trial("key", "Where is the key?", "under the mat", "It rained. Ann slept.", "The key is under the mat.")
        >>> trial.answer in trial.needle
        True
    """

    id: str
    question: str
    answer: str
    haystack: str = ""
    needle: str = ""
    template: str = "{haystack}\n\n{question}"
    depth: float = 0.5
    length: int = 0
    chat: bool | None = None
    aliases: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    needle_focus: str = ""
    judge: Judge = DEFAULT
    choices: tuple[str, ...] = ()
    group: str | tuple[str, ...] = ""
    corrupt: str | tuple[str, ...] = ()
    distractors: tuple[Distractor, ...] = ()
    joined: bool = False

    def __post_init__(self) -> None:
        check_id(self.id)
        owner = f"trial {self.id}"
        for what in ("question", "haystack", "needle", "template", "needle_focus"):
            text(owner, what, getattr(self, what))
        object.__setattr__(self, "group", groups(owner, self.group))
        corrupt = (self.corrupt,) if isinstance(self.corrupt, str) else self.corrupt
        object.__setattr__(self, "corrupt", texts(owner, "corrupt", corrupt))
        if self.question.strip() in [one.strip() for one in corrupt]:
            raise ValueError(f"{owner}: corrupt is the question itself, so that every head would score 0: change it")
        text(owner, "answer", self.answer, empty=False)
        check_parts(owner, self.meta, self.judge)
        held(f"{owner}: chat", self.chat, bool | None)
        held(f"{owner}: joined", self.joined, bool)
        object.__setattr__(self, "aliases", texts(owner, "aliases", self.aliases))
        object.__setattr__(self, "choices", checked_choices(self.choices, self.answer, self.id))
        checks.finite(f"{owner}: depth", self.depth, 0, 1)
        checks.whole_number(f"{owner}: length", self.length, 0)
        for what in ("{haystack}", "{question}"):
            if self.template.count(what) > 1:
                raise ValueError(f"{owner}: the template has {what} more than once: {self.template!r}")
        held(f"{owner}: distractors", self.distractors, tuple[Distractor, ...])
        object.__setattr__(self, "distractors", tuple(self.distractors))
        if (self.needle or self.distractors) and "{haystack}" not in self.template:
            raise ValueError(f"trial {self.id}: the template has no {{haystack}} to hide the needle in")
        if self.needle_focus and (self.needle.count(self.needle_focus) != 1 or not self.needle_focus.strip()):
            raise ValueError(f"trial {self.id}: the needle_focus {self.needle_focus!r} must occur once in the needle")
        if "{question}" not in self.template:
            raise ValueError(f"trial {self.id}: the template has no {{question}}: {self.template!r}")

    def encode(self, tokenizer: Any) -> EncodedTrial:
        """The trial in tokens.

        The haystack is cut to `length - 200 - len(needle)` tokens (not at all if `length` is 0), and the needle inserted
        after the last sentence end at or below `depth`: at 1 at the very end; at 0, or without such a sentence end, at the
        start. The reported span is that of the needle, or of its `needle_focus`, which is then tokenized separately.

        Raises ValueError for `chat=True` without a chat template, and for a `length` that leaves no room for the haystack.
        """
        parts = self.template.partition("{haystack}")
        before, _, after = (part.replace("{question}", self.question) for part in parts)
        prefix, suffix = chat_frame(tokenizer, self.chat, self.id)
        before = prefix + before
        begin = opening(tokenizer, before)
        tokens = begin + first_piece(tokenizer, before)
        needle: tuple[int, int] | None = None
        distractors: tuple[tuple[int, int], ...] = ()
        body: list[int] = []
        hay = _Hay()
        if "{haystack}" in self.template and (self.haystack or self.needle or self.distractors):
            # A tokenizer that begins every text with a space begins a prompt with it, too.
            unspaced = before[-1].isspace() if before else not adds_space(tokenizer)
            body, spans, hay = _hide(self, tokenizer, first=unspaced)
            placed = [(len(tokens) + start, len(tokens) + end) for start, end in spans]
            needle, distractors = (placed[0], tuple(placed[1:])) if self.needle else (None, tuple(placed))
            tokens = tokens + body
        bare = not before and not body
        tail = (first_piece if bare else piece)(tokenizer, after + suffix)
        question = _question_span(self, tokenizer, len(tokens), after, suffix, first=bare)
        if question is None and "{haystack}" not in self.template:
            question = _question_span(self, tokenizer, len(begin), before, "", first=True)
        typed = typed_marker(self, tokenizer, tokens + tail) if prefix or suffix else None
        if typed is not None:
            raise ValueError(
                f"trial {self.id}: its text holds {typed!r}, a special token, and the chat template would be put around it: use "
                "chat=False for a text that has its frame already, or take the token out"
            )
        ending = after + suffix or tokenizer.decode(body[-8:]) or before
        spaced = self.joined or ending[-1:].isspace()
        return EncodedTrial(
            tokens=tokens + tail,  # type: ignore[arg-type]  # lists are converted
            needle=needle,
            answer=self.answer,
            answer_tokens=_answer(tokenizer, self.answer, spaced),  # type: ignore[arg-type]
            id=self.id,
            question=question,
            aliases=self.aliases,
            meta={**self.meta, "depth": self.depth, "length": self.length},
            judge=self.judge,
            choices=self.choices,
            choice_tokens=tuple(_answer(tokenizer, choice, spaced) for choice in self.choices),  # type: ignore[arg-type]
            group=self.group,
            corrupt=_counterfactual(self.corrupt, tokenizer, tokens + tail, question, hay._replace(end=len(tokens))),  # type: ignore[arg-type]
            wrong=_wrong(self, tokenizer, spaced),  # type: ignore[arg-type]
            distractors=distractors,
            vocabulary=vocabulary(tokenizer),
        )

    def _repr_html_(self) -> str:
        """The prompt with the needle marked, about where `encode` hides it; a long haystack is shown near the needle."""
        at = int(len(self.haystack) * self.depth)
        sides = ("…" * (at > SHOWN) + self.haystack[max(0, at - SHOWN) : at], self.haystack[at : at + SHOWN])
        hay = escape(sides[0]) + f"<mark>{escape(self.needle)}</mark>" + escape(sides[1])
        hay += "…" * (len(self.haystack) > at + SHOWN)
        parts = [escape(part.replace("{question}", self.question)) for part in self.template.split("{haystack}")]
        prompt = (hay if self.needle else escape(self.haystack[:SHOWN])).join(parts)
        return f"<b>{escape(self.id)}</b><pre style='white-space: pre-wrap'>{prompt}</pre>answer: <b>{escape(self.answer)}</b>"


SHOWN = 300
"""Characters of the haystack that a notebook shows on either side of a needle."""

AnyTrial: TypeAlias = Trial | EncodedTrial


def typed_marker(trial: Trial, tokenizer: Any, tokens: Sequence[int]) -> str | None:
    """The first special token among the tokens that a trial's texts hold, and not its frame: chat template, or own template."""
    prefix, suffix = chat_frame(tokenizer, trial.chat, trial.id)
    if not (prefix or suffix):
        prefix, _, suffix = trial.template.replace("{question}", "").partition("{haystack}")
    frame = [*prompt_start(tokenizer, prefix), *piece(tokenizer, suffix)]
    typed = markers(tokenizer, tokens) - markers(tokenizer, frame)
    return special_tokens(tokenizer)[next(iter(typed))] if typed else None


def _answer(tokenizer: Any, text: str, spaced: bool) -> list[int]:
    """An answer as it follows the prompt: after a space, unless there is whitespace on either side."""
    return piece(tokenizer, text if spaced or text[:1].isspace() else " " + text)


def _counterfactual(
    corrupt: Sequence[str], tokenizer: Any, tokens: list[int], question: tuple[int, int] | None, hay: _Hay
) -> list[int] | None:
    """The prompt with another question in the place of its own: the first with as many tokens, or else the first.

    Where none has as many, the haystack before the question takes up the difference, if it can.
    """
    if not corrupt or question is None:
        return None
    start, end = question
    others = [piece(tokenizer, one) for one in corrupt]
    chosen = next((one for one in others if len(one) == end - start), others[0])
    before, longer = tokens[:start], len(chosen) - (end - start)
    if start >= hay.end:
        if 0 < longer <= hay.spare:
            before = tokens[: hay.end - longer] + tokens[hay.end : start]
        elif 0 < -longer <= len(hay.beyond):
            before = [*tokens[: hay.end], *hay.beyond[:-longer], *tokens[hay.end : start]]
    return before + chosen + tokens[end:]


def _wrong(trial: Trial, tokenizer: Any, spaced: bool) -> list[int] | None:
    """The first distractor's answer in the place of the answer, if the two begin with different tokens."""
    others = [_answer(tokenizer, one.answer, spaced) for one in trial.distractors if one.answer]
    first = _answer(tokenizer, trial.answer, spaced)[:1]
    return others[0] if others and others[0][:1] != first else None


class _Hay(NamedTuple):
    """Where the haystack ends in the prompt, how many of its tokens stand behind all needles, and how it would go on."""

    end: int = 0
    spare: int = 0
    beyond: Sequence[int] = ()


def _hide(trial: Trial, tokenizer: Any, first: bool) -> tuple[list[int], list[tuple[int, int]], _Hay]:
    """Haystack tokens with the needle and its distractors inside, their spans in them, and what there is of it.

    The first span is that of the needle's focus, if there is a needle.
    """
    hidden = [(trial.needle, trial.needle_focus, trial.depth)] if trial.needle else []
    hidden += [(one.text, "", one.depth) for one in trial.distractors]
    spaced = trial.haystack if first or not trial.haystack else " " + trial.haystack
    hay, ends = _haystack(tokenizer, spaced)
    made = [_needle(text, focus, tokenizer, " ") for text, focus, _ in hidden]
    keep = len(hay)
    if trial.length:
        taken = sum(len(inside) for inside, _ in made)
        keep = trial.length - RESERVE - taken
        if keep < 1:
            raise ValueError(
                f"trial {trial.id}: a length of {trial.length} tokens leaves no room for the haystack: "
                f"{RESERVE} are reserved for template and answer, and the needle takes {taken}"
            )
    kept = min(keep, len(hay))
    places = [_place(ends, kept, depth) for _, _, depth in hidden]
    order = sorted(range(len(hidden)), key=lambda i: (places[i], hidden[i][2]))
    if order and places[order[0]] == 0 and first:
        made[order[0]] = _needle(*hidden[order[0]][:2], tokenizer, "")
        if hay:
            hay = _haystack(tokenizer, " " + trial.haystack)[0]
            kept = min(keep, len(hay)) if trial.length else len(hay)
    body: list[int] = []
    spans: dict[int, tuple[int, int]] = {}
    done = 0
    for i in order:
        body += hay[done : places[i]]
        inside, (start, end) = made[i]
        spans[i] = (len(body) + start, len(body) + end)
        body += inside
        done = places[i]
    return body + hay[done:kept], [spans[i] for i in range(len(hidden))], _Hay(0, kept - done, hay[kept:])


def _place(ends: Sequence[int], length: int, depth: float) -> int:
    """The last sentence end at or below a depth: at 1 the very end, at 0 or without such an end the start."""
    if depth >= 1:
        return length
    below = bisect_right(ends, int(length * depth))
    return ends[below - 1] if below else 0


def _needle(needle: str, focus: str, tokenizer: Any, lead: str) -> tuple[list[int], tuple[int, int]]:
    """A needle's tokens and the span of its focus (by default all of it), including a space before it."""
    text, focus = lead + needle, focus or needle
    start = len(lead) + needle.index(focus)
    end = start + len(focus)
    if text[:start].endswith(" "):
        start -= 1
    before, inside, after = (piece(tokenizer, part) for part in (text[:start], text[start:end], text[end:]))
    return before + inside + after, (len(before), len(before) + len(inside))


@lru_cache(maxsize=32)
def _haystack(tokenizer: Any, text: str) -> tuple[list[int], list[int]]:
    """A haystack's tokens and the position after each sentence end.

    A sentence ends with a stop before whitespace, so not inside 3.5; closing quotes belong to it.
    """
    tokens = piece(tokenizer, text)
    texts = {i: tokenizer.decode([i]) for i in set(tokens)}
    ends: list[int] = []
    closing = {i for i, text in texts.items() if text.strip().rstrip(_QUOTES)[-1:] in (".", "!", "?")}
    for at in (i for i, token in enumerate(tokens) if token in closing):
        end, follows = at + 1, " "
        while end < len(tokens):
            follows = tokenizer.decode(tokens[end - 1 : end + 1])[len(texts[tokens[end - 1]]) :]
            if not follows or follows.strip(_QUOTES):
                break
            end, follows = end + 1, " "
        if follows[:1].isspace() or texts[tokens[end - 1]][-1:].isspace():
            ends.append(end)
    return tokens, ends


def _question_span(
    trial: Trial, tokenizer: Any, start: int, after: str, suffix: str, first: bool
) -> tuple[int, int] | None:
    """The span of the question in a piece, the last one or the only one, by the character offsets of its tokenization."""
    at = after.find(trial.question)
    found = char_span(tokenizer, after + suffix, at, at + len(trial.question), first) if at >= 0 else None
    return (start + found[0], start + found[1]) if found is not None else None
