"""TokenPair: a clean and a corrupt prompt, aligned token by token, made from trials or from your own tokens."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.made_on import MadeOn
from lens_heads.runs.digests import digest
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.trials.bos import begins
from lens_heads.trials.digests import needle_digest
from lens_heads.trials.encoded import EncodedTrial, token_ids
from lens_heads.trials.encoding import encode_all, several
from lens_heads.trials.fields import span
from lens_heads.trials.needles import answer_forms
from lens_heads.trials.tokenizing import WITHOUT_SPECIAL, first_special, piece, special_tokens
from lens_heads.trials.trial import AnyTrial

FILLER = "."
"""The token that "remove" substitutes for each token of the needle."""

Corruption: TypeAlias = str | Callable[[EncodedTrial], Sequence[int] | Tensor]
"""`"remove"`, `"swap"`, `"counterfactual"`, or a function from a trial to the corrupt prompt's token ids."""


@dataclass(frozen=True, eq=False)
class TokenPair:
    """A clean and a corrupt run of equal length that end in the same gold answer, aligned position by position.

    `clean` and `corrupt` [position] are token ids including the answer. `answer` is the answer's half-open span (start, end)
    in both: row start-1 produces its first token. Tokens after `end` are not run. `meta` is copied to the results. `group`:
    as in `Trial`. `wrong` [step]: the tokens of the answer that the corrupt prompt has instead, if known. `lens_heads.pair` makes
    one from texts.

    Raises ValueError if the lengths differ, the answer span does not fit or leaves no prompt token, or the answers differ.
    """

    clean: Int[Tensor, " position"]
    corrupt: Int[Tensor, " position"]
    answer: tuple[int, int]
    id: str
    meta: dict[str, Any] = field(default_factory=dict)
    group: str | tuple[str, ...] = ""
    wrong: Int[Tensor, " step"] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise ValueError(f"pair id {self.id!r}: must be a string, e.g. {str(self.id)!r}")
        for name in ("clean", "corrupt"):
            object.__setattr__(self, name, token_ids(getattr(self, name), f"pair {self.id}", name))
        if len(self.clean) != len(self.corrupt):
            raise ValueError(
                f"pair {self.id}: clean has {len(self.clean)} tokens and corrupt {len(self.corrupt)}. Patching copies "
                "position by position: replace tokens by the same number of others."
            )
        start, end = span(f"pair {self.id}", "answer", self.answer, len(self.clean), least=1)
        object.__setattr__(self, "answer", (start, end))
        if not torch.equal(self.clean[start:end], self.corrupt[start:end]):
            raise ValueError(
                f"pair {self.id}: clean and corrupt end in different answers, but both runs are forced through the gold "
                f"answer. Copy clean[{start}:{end}] into corrupt."
            )
        if self.wrong is not None:
            wrong = token_ids(self.wrong, f"pair {self.id}", "wrong")
            if not len(wrong) or int(wrong[0]) == int(self.clean[start]):
                raise ValueError(
                    f"pair {self.id}: the wrong answer {wrong.tolist()} must begin with another token than the answer "
                    f"{self.clean[start:end].tolist()}"
                )
            object.__setattr__(self, "wrong", wrong)

    @property
    def made_on(self) -> MadeOn:
        """Identifies the pair, so that a ranking made on it is not evaluated on the same trial."""
        prompt = digest(self.clean[: self.answer[0]].tolist())
        return MadeOn(self.id, self.group, str(self.meta.get("needle") or ""), prompt)

    @property
    def gold(self) -> Int[Tensor, " step"]:
        """The answer's tokens."""
        return self.clean[slice(*self.answer)]

    @property
    def divergence(self) -> int:
        """The first position where the runs differ, at most the row that produces the answer. All before it is shared."""
        differs = (self.clean != self.corrupt).nonzero()
        return min(int(differs[0]) if len(differs) else len(self.clean), self.answer[0] - 1)

    def __len__(self) -> int:
        return len(self.clean)


AnyPair: TypeAlias = TokenPair | AnyTrial


@typed
def make_pairs(
    pairs: Iterable[AnyPair] | AnyPair,
    tokenizer: Any,
    shape: HeadGeometry,
    corruption: Corruption = "remove",
    distinct: bool = True,
) -> list[TokenPair]:
    """Turn trials into pairs of the prompt and its corruption; TokenPairs stay as they are. Checks all before any run.

    `corruption`: "remove" replaces every token of the needle by a full stop. "swap" replaces the answer inside the needle by
    another given trial's answer with the same number of tokens. "counterfactual" takes the question of the trial's
    `meta["corrupt"]`, which has another answer (of several, the first with as many tokens). A function maps the
    EncodedTrial to the corrupt prompt's token ids, as many as the prompt has. `distinct`: refuse a corruption that changes
    nothing, so that every head would score 0.

    Omits a trial that cannot be aligned, with a warning that gives the reason. Raises ValueError if none is left, and for
    repeated ids, token ids outside the vocabulary, special tokens amid a text, and runs longer than the context window.
    """
    listed = [pairs] if isinstance(pairs, TokenPair) else list(several(pairs))  # type: ignore[arg-type]  # pairs, too
    check_corruption(corruption)
    trials = [one for one in listed if not isinstance(one, TokenPair)]
    encoded = encode_all(trials, tokenizer, shape.n_ctx, d_vocab=shape.d_vocab) if trials or not listed else []
    at = iter(encoded)
    made: list[TokenPair] = []
    refused: list[str] = []
    for one in listed:
        try:
            pair = one if isinstance(one, TokenPair) else _pair(next(at), corruption, tokenizer, encoded)
            if distinct and not isinstance(one, TokenPair):  # Your own pairs may be equal on purpose.
                _check_distinct(pair, corruption)
            made.append(pair)
        except ValueError as error:
            refused.append(str(error))
    if not made:
        raise ValueError(refused[0])
    if refused:
        warnings.warn(
            f"{len(refused)} of {len(listed)} trials make no pair; the first: {refused[0]}", stacklevel=users_line()
        )
    _check(made, shape)
    for pair in listed:
        if isinstance(pair, TokenPair):
            check_special(pair, tokenizer)
    return made


def pairs_digest(pairs: Sequence[TokenPair]) -> str:
    """A hash of what the pairs run, for the settings of a run folder."""
    rows = [[pair.id, pair.clean.tolist(), pair.corrupt.tolist(), pair.answer] for pair in pairs]
    wrong = [None if pair.wrong is None else pair.wrong.tolist() for pair in pairs]
    return digest(rows if not any(wrong) else [rows, wrong])


def check_special(pair: TokenPair, tokenizer: Any) -> None:
    """ValueError for an answer with a special token, and for one amid a prompt that is none of the tokenizer's chat template.

    A prompt may begin with its BOS, whatever the model's own do.
    """
    special, template = special_tokens(tokenizer), str(getattr(tokenizer, "chat_template", None))
    if not special:
        return
    start = pair.answer[0]
    begun = {tuple(begins(tokenizer)), (tokenizer.bos_token_id,)}
    parts = {"answer": pair.gold, "wrong answer": () if pair.wrong is None else pair.wrong}
    for side in ("clean", "corrupt"):
        tokens = getattr(pair, side)[:start].tolist()
        skip = max(len(one) for one in (*begun, ()) if tuple(tokens[: len(one)]) == one)
        parts[f"{side} prompt"] = [token for token in tokens[skip:] if special.get(token, "") not in template]
    for part, tokens in parts.items():
        found = first_special(tokens, special)
        if found is not None:
            raise ValueError(
                f"pair {pair.id}: the {part} contains the special token {special[found]!r} (id {found}), which is no text: "
                f"{WITHOUT_SPECIAL}"
            )


def check_corruption(corruption: Corruption) -> None:
    """ValueError for the name of a corruption that there is not."""
    if not callable(corruption) and corruption not in (known := (*_CORRUPTIONS, "counterfactual")):
        raise ValueError(f"corruption={corruption!r}: use {', '.join(known)}, or a function of the EncodedTrial")


def check_corruptible(trials: Iterable[AnyTrial], corruption: Corruption) -> None:
    """ValueError if no trial has what a corruption takes away, so that there will be no pair, whatever the model."""
    listed = list(trials)
    if callable(corruption) or not listed:
        return
    if corruption == "counterfactual" and not any("corrupt" in trial.meta for trial in listed):
        raise ValueError(
            f'trial {listed[0].id} has no meta["corrupt"], so no counterfactual: give a corruption function, or a TokenPair'
        )
    if corruption != "counterfactual" and not any(trial.needle for trial in listed):
        raise ValueError(
            f"trial {listed[0].id} has no needle to {corruption}: give a corruption function, or a TokenPair"
        )


def _check_distinct(pair: TokenPair, corruption: Corruption) -> None:
    if torch.equal(pair.clean, pair.corrupt):
        raise ValueError(
            f"trial {pair.id}: corruption {_named(corruption)} leaves the prompt as it is, so every head would score 0. Use "
            "another corruption."
        )


def _named(corruption: Corruption) -> str:
    return corruption if isinstance(corruption, str) else getattr(corruption, "__name__", type(corruption).__name__)


def _check(pairs: list[TokenPair], shape: HeadGeometry) -> None:
    seen: set[str] = set()
    for pair in pairs:
        if pair.id in seen:
            raise ValueError(f"two pairs have the id {pair.id!r}: ids must be unique")
        seen.add(pair.id)
        both = torch.cat([pair.clean, pair.corrupt])
        if both.min() < 0 or both.max() >= shape.d_vocab:
            raise ValueError(
                f"pair {pair.id}: a token id lies outside 0 to {shape.d_vocab - 1}. Encode with this model's own tokenizer."
            )
        if pair.answer[1] > shape.n_ctx:
            raise ValueError(f"pair {pair.id}: {pair.answer[1]} tokens exceed the context window of {shape.n_ctx}")


def _pair(trial: EncodedTrial, corruption: Corruption, tokenizer: Any, others: list[EncodedTrial]) -> TokenPair:
    if callable(corruption):
        corrupt = token_ids(corruption(trial), f"trial {trial.id}", f"the corrupt prompt of {_named(corruption)}")
    elif corruption == "counterfactual":
        corrupt = _counterfactual(trial, tokenizer)
    elif trial.needle is None:
        raise ValueError(f"trial {trial.id} has no needle to {corruption}: give a corruption function, or a TokenPair")
    else:
        corrupt = _CORRUPTIONS[corruption](trial, trial.needle, tokenizer, others)
    if len(corrupt) != len(trial):
        raise ValueError(
            f"trial {trial.id}: the corrupt prompt has {len(corrupt)} tokens and the clean one {len(trial)}. A corruption "
            "must keep the length, so that positions correspond."
        )
    clean, corrupt = (torch.cat([prompt, trial.answer_tokens]) for prompt in (trial.tokens, corrupt))
    meta = {"needle": needle_digest(trial)}
    return TokenPair(clean, corrupt, (len(trial), len(clean)), trial.id, meta, trial.group)


def _remove(trial: EncodedTrial, needle: tuple[int, int], tokenizer: Any, others: list[EncodedTrial]) -> Tensor:
    corrupt = trial.tokens.clone()
    corrupt[slice(*needle)] = piece(tokenizer, FILLER)[0]
    return corrupt


def _swap(trial: EncodedTrial, needle: tuple[int, int], tokenizer: Any, others: list[EncodedTrial]) -> Tensor:
    """Replace every occurrence of the answer in the needle by the next other answer of its length."""
    forms = answer_forms(trial, tokenizer)
    starts = range(*needle)
    found = [
        [i for i in starts if torch.equal(trial.tokens[i : min(i + len(form), needle[1])], form)] for form in forms
    ]
    number = next((number for number, places in enumerate(found) if places), None)
    if number is None:
        raise ValueError(
            f"trial {trial.id}: the tokens of the answer {trial.answer!r} do not occur in the needle, so nothing can be "
            "swapped. Use corruption='remove'."
        )
    form, own = forms[number], next(i for i, one in enumerate(others) if one is trial)
    answers = [answer_forms(one, tokenizer)[number] for one in [*others[own + 1 :], *others[:own]]]
    other = next((answer for answer in answers if len(answer) == len(form) and not torch.equal(answer, form)), None)
    if other is None:
        raise ValueError(
            f"trial {trial.id}: no other trial's answer has {len(form)} tokens like {trial.answer!r}. Give more trials, or "
            "use corruption='remove'."
        )
    corrupt = trial.tokens.clone()
    for place in found[number]:
        corrupt[place : place + len(form)] = other
    return corrupt


def _counterfactual(trial: EncodedTrial, tokenizer: Any) -> Tensor:
    """The prompt with the question that the trial's `meta["corrupt"]` gives; of several, the first with as many tokens."""
    if "corrupt" not in trial.meta or trial.question is None:
        missing = 'no meta["corrupt"]' if "corrupt" not in trial.meta else "no span of its question"
        raise ValueError(
            f"trial {trial.id} has {missing}, so no counterfactual: give a corruption function, or a TokenPair"
        )
    start, end = trial.question
    given = trial.meta["corrupt"]
    questions = [
        torch.tensor(piece(tokenizer, text), dtype=torch.long)
        for text in ([given] if isinstance(given, str) else given)
    ]
    chosen = next((one for one in questions if len(one) == end - start), questions[0])
    return torch.cat([trial.tokens[:start], chosen, trial.tokens[end:]])


_CORRUPTIONS: dict[str, Callable[[EncodedTrial, tuple[int, int], Any, list[EncodedTrial]], Tensor]] = {
    "remove": _remove,
    "swap": _swap,
}


Positions = Literal["answer", "all"]


def check_positions(positions: str) -> None:
    """ValueError for anything but "answer" and "all"."""
    if positions not in ("answer", "all"):
        raise ValueError(f"positions={positions!r}: use 'answer' (the rows that produce the answer) or 'all'")
