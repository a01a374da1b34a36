"""EncodedTrial: a question about a needle in a haystack, in tokens. `trial.py` composes it from text."""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from lens_heads.trials.fields import groups, span, text, texts
from lens_heads.trials.judges import DEFAULT, Judge


@dataclass(frozen=True, eq=False)
class EncodedTrial:
    """A trial in tokens, ready for a model; or your own prompt.

    `tokens` [position] is the prompt without the answer, `needle` the half-open span (start, end) of the needle in it
    (None without a needle), `answer_tokens` [step] the gold answer as it would follow the prompt, `question` the span
    of the question if known, `choice_tokens` the tokens of each of `choices` in place of the answer. `corrupt` [position] is the
    prompt's counterfactual, which a pair of runs compares it with position by position, so it has as many tokens; `wrong` [step]
    what follows it instead of the answer, if known (`lens_heads.pair` makes both from texts). All token fields accept lists of
    ints. `distractors` are spans of further needles, with other answers. `group`: as in `Trial`. `place`: its place among the
    trials of a running call and their number, which the call sets (`placed`), so that a list of spans stays with its trials in
    whatever order and batch they run. `vocabulary`: a hash of the vocabulary that the tokens are from, where a function made them
    from texts; another model's is then refused.

    Raises ValueError unless the id is a string, the needle a pair of ints inside the prompt, and the answer one of the
    choices; if the prompt, the answer or a choice has no tokens; and for a wrong answer that begins as the answer does.

    `aliases`, `judge` and `meta`: as in `Trial`.

    Example:
        >>> trial = lh.EncodedTrial([1, 40, 41, 42, 50], needle=(1, 4), answer="x", answer_tokens=[42], id="own")
        >>> trial.tokens[slice(*trial.needle)].tolist()
        [40, 41, 42]
    """

    tokens: Int[Tensor, " position"]
    needle: tuple[int, int] | None
    answer: str
    answer_tokens: Int[Tensor, " step"]
    id: str
    question: tuple[int, int] | None = None
    aliases: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    judge: Judge = DEFAULT
    choices: tuple[str, ...] = ()
    choice_tokens: tuple[Int[Tensor, " step"], ...] = ()
    group: str | tuple[str, ...] = ""
    corrupt: Int[Tensor, " position"] | None = None
    wrong: Int[Tensor, " step"] | None = None
    distractors: tuple[tuple[int, int], ...] = ()
    place: tuple[int, int] | None = field(default=None, repr=False)
    vocabulary: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        check_id(self.id)
        owner = f"trial {self.id}"
        text(owner, "answer", self.answer, empty=False)
        object.__setattr__(self, "group", groups(owner, self.group))
        check_parts(owner, self.meta, self.judge)
        object.__setattr__(self, "aliases", texts(owner, "aliases", self.aliases))
        object.__setattr__(self, "choices", checked_choices(self.choices, self.answer, self.id))
        if len(self.choices) != len(self.choice_tokens):
            counts = f"{len(self.choices)} choices but {len(self.choice_tokens)} choice_tokens"
            raise ValueError(f"{owner}: {counts}: each choice needs its tokens")
        tokens = tuple(token_ids(ids, owner, "choice_tokens") for ids in self.choice_tokens)
        object.__setattr__(self, "choice_tokens", tokens)
        object.__setattr__(self, "tokens", token_ids(self.tokens, owner, "tokens"))
        object.__setattr__(self, "answer_tokens", token_ids(self.answer_tokens, owner, "answer_tokens"))
        for what in ("corrupt", "wrong"):
            if getattr(self, what) is not None:
                object.__setattr__(self, what, token_ids(getattr(self, what), owner, what))
        choices = (("choice", *each) for each in zip(self.choices, tokens, strict=True))
        for what, written, ids in (("answer", self.answer, self.answer_tokens), *choices):
            if len(ids) == 0:
                raise ValueError(f"{owner}: the {what} {written!r} tokenizes to nothing")
        if len(self.tokens) == 0:
            raise ValueError(f"{owner}: the prompt has no tokens")
        if self.wrong is not None and (not len(self.wrong) or int(self.wrong[0]) == int(self.answer_tokens[0])):
            raise ValueError(
                f"{owner}: the wrong answer {self.wrong.tolist()} must begin with another token than the answer "
                f"{self.answer_tokens.tolist()}"
            )
        spans = tuple(span(owner, "distractors", one, len(self.tokens), 0, "") for one in self.distractors)
        object.__setattr__(self, "distractors", spans)
        for what in ("needle", "question"):
            if getattr(self, what) is not None:
                object.__setattr__(self, what, span(owner, what, getattr(self, what), len(self.tokens), 0, ", or None"))

    def __len__(self) -> int:
        return len(self.tokens)


Placed = TypeVar("Placed")


def placed(encoded: Sequence[Placed]) -> list[Placed]:
    """Copies of trials or texts that know their place among them; a user's own objects stay as they are."""
    found = [copy.copy(one) for one in encoded]
    for at, one in enumerate(found):
        object.__setattr__(one, "place", (at, len(found)))  # They are frozen.
    return found


def checked_choices(choices: Sequence[str], answer: str, trial: str) -> tuple[str, ...]:
    """The choices as a tuple. ValueError unless they are distinct texts that include the answer, or there are none."""
    found = tuple(choices) if isinstance(choices, Iterable) and not isinstance(choices, str) else (choices,)
    written = {text.strip() for text in found if isinstance(text, str) and text.strip()}
    if found and (answer not in found or len(written) < len(found)):
        raise ValueError(f"trial {trial}: choices {found!r} must be distinct texts, one of them the answer {answer!r}")
    if len(found) == 1:
        raise ValueError(
            f"trial {trial}: the only choice {found[0]!r} is right whatever the model does: give others beside it"
        )
    return found


def check_parts(owner: str, meta: Any, judge: Any) -> None:
    """TypeError unless a trial's meta is a dictionary and its judge a Judge."""
    if not isinstance(meta, dict):
        raise TypeError(f"{owner}: meta {meta!r} must be a dictionary, not {type(meta).__name__}")
    if not isinstance(judge, Judge):
        raise TypeError(f"{owner}: judge {judge!r} must be a Judge, e.g. Judge() or judge_of('exact_match')")


def check_id(name: Any) -> None:
    """ValueError unless a trial's id is a string with any content."""
    if isinstance(name, str) and not name.strip():
        raise ValueError(f"trial id {name!r} is empty: results are stored under it")
    if not isinstance(name, str):
        raise ValueError(f"trial id {name!r} must be a string, e.g. {str(name)!r}: results are stored under it")


def token_ids(values: Tensor | Sequence[int], owner: str, what: str) -> Int[Tensor, " position"]:
    """Token ids as a long tensor on the CPU, from a tensor, a list or a batch of one. ValueError for anything else."""
    try:
        ids = torch.as_tensor(values)  # type: ignore[arg-type]  # whatever it is
    except (TypeError, ValueError, RuntimeError, OverflowError):
        ids = None
    if ids is None or isinstance(values, str) or ids.is_complex():
        raise ValueError(f"{owner}: {what} must be a list of token ids, e.g. [11, 42], got {reprlib.repr(values)}")
    if ids.ndim == 2 and ids.shape[0] == 1:
        ids = ids[0]
    if ids.ndim != 1 or (ids.numel() and (ids.is_floating_point() or ids.dtype == torch.bool)):
        raise ValueError(f"{owner}: {what} must be a list of token ids, got {ids.dtype} {tuple(ids.shape)}")
    return ids.to("cpu", torch.long)
