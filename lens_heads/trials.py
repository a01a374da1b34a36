"""Trial and EncodedTrial: a question about a needle in a haystack, as text and as tokens.

How text becomes tokens (templates, BOS, chat, the needle's place) is in `compose.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from lens_heads.judges import DEFAULT, Judge


@dataclass(frozen=True)
class Trial:
    """One question whose answer stands in a needle, hidden in a haystack.

    `template` holds `{haystack}` and `{question}`. The haystack is cut so that the whole prompt stays near
    `length` tokens and the needle goes to the sentence end nearest below `depth` (0 to 1) of it. A trial without
    haystack and needle (parametric recall, arithmetic) leaves both empty and needs only `{question}`.
    `chat`: True wraps the prompt in the tokenizer's chat template, False does not, None does if there is one.
    `aliases` are other answers that count as right. `needle_focus` is the part of the needle whose span is reported,
    where that is not all of it. `judge` says what of a generated text is the answer, and whether it is right.
    `choices`: the answers of a multiple-choice question, one of them `answer`; how likely the model finds each of them in
    that place says which it would choose.
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

    def __post_init__(self) -> None:
        _check_id(self.id)
        object.__setattr__(self, "choices", _checked_choices(self.choices, self.answer, self.id))
        if not 0 <= self.depth <= 1:
            raise ValueError(f"trial {self.id}: depth {self.depth} is outside 0 to 1 (a share of the haystack)")
        if not self.answer.strip():
            raise ValueError(f"trial {self.id}: the answer is empty")
        if self.needle and "{haystack}" not in self.template:
            raise ValueError(f"trial {self.id}: the template has no {{haystack}} to hide the needle in")
        if self.needle_focus and (self.needle.count(self.needle_focus) != 1 or not self.needle_focus.strip()):
            raise ValueError(f"trial {self.id}: the needle_focus {self.needle_focus!r} must stand once in the needle")
        if "{question}" not in self.template:
            raise ValueError(f"trial {self.id}: the template has no {{question}}: {self.template!r}")

    def encode(self, tokenizer: Any) -> EncodedTrial:
        """Compose the prompt in token space; see `lens_heads.compose.encode`."""
        from lens_heads import compose

        return compose.encode(self, tokenizer)


@dataclass(frozen=True, eq=False)
class EncodedTrial:
    """A trial in tokens, ready for a model; or your own prompt.

    `tokens` [position] is the prompt without the answer, `needle` the half-open span (start, end) of the needle in it
    (None when there is none), `answer_tokens` [step] the gold answer as it would follow the prompt, `question` the span
    of the question where it is known, `choice_tokens` the tokens of every one of `choices` in place of the answer. Lists of
    ints are accepted for all token fields.

    Raises ValueError when the id is no string, the needle no pair of ints inside the prompt, the prompt, the answer or a
    choice has no token, or the answer is not among the choices.
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

    def __post_init__(self) -> None:
        _check_id(self.id)
        object.__setattr__(self, "choices", _checked_choices(self.choices, self.answer, self.id))
        if len(self.choices) != len(self.choice_tokens):
            raise ValueError(
                f"trial {self.id}: {len(self.choices)} choices but {len(self.choice_tokens)} choice_tokens: give both, one each"
            )
        tokens = tuple(token_ids(ids, f"trial {self.id}", "choice_tokens") for ids in self.choice_tokens)
        object.__setattr__(self, "choice_tokens", tokens)
        empty = next((text for text, ids in zip(self.choices, tokens, strict=True) if len(ids) == 0), None)
        if empty is not None:
            raise ValueError(f"trial {self.id}: the choice {empty!r} tokenizes to nothing")
        object.__setattr__(self, "tokens", token_ids(self.tokens, f"trial {self.id}", "tokens"))
        object.__setattr__(self, "answer_tokens", token_ids(self.answer_tokens, f"trial {self.id}", "answer_tokens"))
        if len(self.answer_tokens) == 0:
            raise ValueError(f"trial {self.id}: the answer {self.answer!r} tokenizes to nothing")
        if len(self.tokens) == 0:
            raise ValueError(f"trial {self.id}: the prompt has no tokens")
        if self.needle is not None:
            start, end = _span(self.needle, self.id)
            if not 0 <= start < end <= len(self.tokens):
                raise ValueError(
                    f"trial {self.id}: the needle [{start}, {end}) lies outside the prompt of {len(self.tokens)} tokens"
                )
            object.__setattr__(self, "needle", (start, end))

    def __len__(self) -> int:
        return len(self.tokens)


AnyTrial: TypeAlias = Trial | EncodedTrial


def _checked_choices(choices: Sequence[str], answer: str, trial: str) -> tuple[str, ...]:
    """The choices, if there are any: texts that differ, and the answer among them."""
    found = tuple([choices] if isinstance(choices, str) else choices)
    texts = all(isinstance(text, str) and text.strip() for text in found)
    if found and (not texts or answer not in found or len(set(found)) < len(found)):
        raise ValueError(f"trial {trial}: choices {found!r} must be different texts, one of them the answer {answer!r}")
    return found


def _check_id(name: Any) -> None:
    if not isinstance(name, str):
        raise ValueError(f"trial id {name!r} is no string: write {str(name)!r}, results are stored under it")


def _span(needle: Any, trial: str) -> tuple[int, int]:
    try:
        start, end = (operator.index(i) for i in needle)
    except (TypeError, ValueError):
        raise ValueError(f"trial {trial}: the needle {needle!r} must be a pair of ints (start, end), or None") from None
    return start, end


def token_ids(values: Tensor | Sequence[int], owner: str, what: str) -> Int[Tensor, " position"]:
    """Token ids as a long tensor on the CPU, also from a list or a batch of one. ValueError naming owner and field."""
    ids = torch.as_tensor(values)
    if ids.ndim == 2 and ids.shape[0] == 1:
        ids = ids[0]
    if ids.ndim != 1 or (ids.numel() and (ids.is_floating_point() or ids.dtype == torch.bool)):
        raise ValueError(f"{owner}: {what} must be a list of token ids, got {ids.dtype} {tuple(ids.shape)}")
    return ids.to("cpu", torch.long)


def several(trials: Iterable[AnyTrial] | AnyTrial) -> Iterable[AnyTrial]:
    """The trials, also when it is a single one. TypeError for text and for what holds no trials."""
    if isinstance(trials, Trial | EncodedTrial):
        return [trials]
    if isinstance(trials, str) or not isinstance(trials, Iterable):
        raise TypeError(f"{trials!r} is no list of trials: give lens_heads.Trial(id=..., question=..., answer=...)")
    return trials


def encode_all(
    trials: Iterable[AnyTrial] | AnyTrial,
    tokenizer: Any,
    n_ctx: int,
    room: int = 0,
    d_vocab: int | None = None,
    judged: bool = True,
) -> list[EncodedTrial]:
    """All trials in tokens, checked before any work is done: unique ids, prompt and answer inside the context window.

    `room` is how many tokens may still be generated, `judged` whether the trial's judge will read them: one that runs them as
    code must be allowed to. Token ids must lie below `d_vocab`. Raises ValueError naming the first trial at fault,
    TypeError for what is no trial.
    """
    trials = list(several(trials))
    if not trials:
        raise ValueError("there are no trials: give at least one (a generator is empty once it was used: keep a list)")
    for trial in trials:
        if not isinstance(trial, Trial | EncodedTrial):
            raise TypeError(
                f"{trial!r} is no trial: give lens_heads.Trial(id=..., question=..., answer=...), or an EncodedTrial"
            )
    encoded = [trial if isinstance(trial, EncodedTrial) else trial.encode(tokenizer) for trial in trials]
    seen: set[str] = set()
    for trial in encoded:
        if trial.id in seen:
            raise ValueError(f"two trials have the id {trial.id!r}: ids must be unique, results are stored under them")
        seen.add(trial.id)
        if room and judged:
            trial.judge.check_allowed(f"trial {trial.id}")
        _check_tokens(trial, d_vocab)
        longest = max(len(ids) for ids in (trial.answer_tokens, *trial.choice_tokens))
        needed = len(trial) + max(room, longest)
        if needed > n_ctx:
            raise ValueError(
                f"trial {trial.id}: {len(trial)} prompt tokens and {needed - len(trial)} to come exceed the context "
                f"window of {n_ctx} tokens: use a smaller context_length, or fewer max_new_tokens"
            )
    return encoded


def _check_tokens(trial: EncodedTrial, d_vocab: int | None) -> None:
    choices = (("choice_tokens", ids) for ids in trial.choice_tokens)
    for what, ids in (("tokens", trial.tokens), ("answer_tokens", trial.answer_tokens), *choices):
        bad = ids[(ids < 0) | (ids >= d_vocab)] if d_vocab is not None else ids[ids < 0]
        if len(bad):
            known = f"the model knows 0 to {d_vocab - 1}" if d_vocab is not None else "ids start at 0"
            raise ValueError(
                f"trial {trial.id}: {what} hold the id {int(bad[0])}, {known}: encode with this model's own tokenizer"
            )
