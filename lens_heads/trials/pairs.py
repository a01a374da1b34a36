"""Pairs: trials beside their counterfactuals, token by token, and the two runs that methods compare."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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
from lens_heads.trials.checked_tokens import encode_all, several
from lens_heads.trials.digests import needle_digest
from lens_heads.trials.encoded import EncodedTrial, token_ids
from lens_heads.trials.needles import answer_forms
from lens_heads.trials.tokenizing import WITHOUT_SPECIAL, first_special, piece, special_tokens
from lens_heads.trials.trial import AnyTrial

FILLER = "."
"""The token that "remove" substitutes for each token of the needle."""

Corruption: TypeAlias = str | Callable[[EncodedTrial], Sequence[int] | Tensor]
"""`"remove"`, `"swap"`, `"counterfactual"`, or a function from a trial to the corrupt prompt's token ids."""


@dataclass(frozen=True, eq=False)
class TokenPair:
    """A trial and its counterfactual as they are run: both with the gold answer behind them, aligned position by position.

    `clean` and `corrupt` [position] include the answer, whose half-open span (start, end) is `answer` in both: row start-1
    produces its first token. `wrong`: as in `EncodedTrial`. `needle`: the hash of the needle's tokens.
    """

    clean: Int[Tensor, " position"]
    corrupt: Int[Tensor, " position"]
    answer: tuple[int, int]
    id: str
    group: str | tuple[str, ...] = ""
    wrong: Int[Tensor, " step"] | None = None
    needle: str | None = None

    @classmethod
    def of(cls, trial: EncodedTrial) -> TokenPair:
        """The two runs of a trial. ValueError unless its counterfactual has as many tokens."""
        corrupt = trial.corrupt
        if corrupt is None:
            raise ValueError(f"trial {trial.id} has no counterfactual: {_REMEDY}")
        if len(corrupt) != len(trial):
            raise ValueError(
                f"trial {trial.id}: the corrupt prompt has {len(corrupt)} tokens and the clean one {len(trial)}. A corruption "
                "must keep the length, so that positions correspond."
            )
        clean, corrupt = (torch.cat([prompt, trial.answer_tokens]) for prompt in (trial.tokens, corrupt))
        span = (len(trial), len(clean))
        return cls(clean, corrupt, span, trial.id, trial.group, trial.wrong, needle_digest(trial))

    @property
    def made_on(self) -> MadeOn:
        """Identifies the pair, so that a ranking made on it is not evaluated on the same trial."""
        prompt = digest(self.clean[: self.answer[0]].tolist())
        return MadeOn(self.id, self.group, self.needle or "", prompt)

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


_REMEDY = "give the trial corrupt=, or corruption= a function of the EncodedTrial"


@typed
def make_pairs(
    trials: Iterable[AnyTrial] | AnyTrial,
    tokenizer: Any,
    shape: HeadGeometry,
    *,
    corruption: Corruption | None = None,
    distinct: bool = True,
) -> list[EncodedTrial]:
    """Trials beside their counterfactuals: in tokens, each with `corrupt`. Checks all before any run.

    `corruption`: "counterfactual" takes the trial's own `corrupt`. "remove" replaces every token of the needle by a full stop.
    "swap" replaces the answer inside the needle by another given trial's answer with the same number of tokens. A function
    maps the EncodedTrial to the corrupt prompt's token ids, as many as the prompt has. None: "counterfactual" if any trial has
    one, else "remove". `distinct`: refuse a corruption that changes nothing, so that every head would score 0; a trial in tokens
    may bring an equal one on purpose.

    Omits a trial that cannot be aligned, with a warning that gives the reason. Raises ValueError if none is left, and for
    repeated ids, token ids outside the vocabulary, special tokens amid a text, and runs longer than the context window.

    `trials`: with a needle or a counterfactual. `tokenizer`, `shape`: of the model.

    Example:
        >>> pairs = lh.trials.make_pairs(trials, model.tokenizer, lh.head_geometry(model), corruption="remove")
        >>> len(trials[0].tokens) == len(pairs[0].corrupt), model.tokenizer.decode(pairs[0].corrupt[slice(*trials[0].needle)])
        (True, '.........')
    """
    listed = list(several(trials))
    check_corruption(corruption)
    chosen = chosen_corruption(listed, corruption)
    encoded = encode_all(listed, tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
    made: list[EncodedTrial] = []
    refused: list[str] = []
    for given, trial in zip(listed, encoded, strict=True):
        own = given.corrupt if isinstance(given, EncodedTrial) and chosen == "counterfactual" else None
        try:
            pair = replace(trial, corrupt=_corrupt(trial, chosen, tokenizer, encoded))
            TokenPair.of(pair)  # Of one length.
            if distinct and own is None and torch.equal(pair.tokens, pair.corrupt):  # type: ignore[arg-type]  # it has one
                raise ValueError(
                    f"trial {trial.id}: corruption {_named(chosen)} leaves the prompt as it is, so every head would score 0. Use "
                    "another corruption."
                )
            made.append(pair)
        except ValueError as error:
            refused.append(str(error))
    if not made:
        raise ValueError(refused[0])
    if refused:
        warnings.warn(
            f"{len(refused)} of {len(listed)} trials make no pair; the first: {refused[0]}", stacklevel=users_line()
        )
    for pair in made:
        _check_pair(TokenPair.of(pair), shape)
        if any(pair.id == one.id and isinstance(one, EncodedTrial) and one.corrupt is not None for one in listed):
            check_special(pair, tokenizer)
    return made


def token_pairs(
    trials: Iterable[AnyTrial] | AnyTrial,
    tokenizer: Any,
    shape: HeadGeometry,
    corruption: Corruption | None,
    distinct: bool = True,
) -> list[TokenPair]:
    """The pairs of `make_pairs` as they are run."""
    made = make_pairs(trials, tokenizer, shape, corruption=corruption, distinct=distinct)
    return [TokenPair.of(one) for one in made]


def pairs_digest(pairs: Sequence[TokenPair]) -> str:
    """A hash of what the pairs run, for the settings of a run folder."""
    rows = [[pair.id, pair.clean.tolist(), pair.corrupt.tolist(), pair.answer] for pair in pairs]
    wrong = [None if pair.wrong is None else pair.wrong.tolist() for pair in pairs]
    return digest(rows if not any(wrong) else [rows, wrong])


def check_special(trial: EncodedTrial, tokenizer: Any) -> None:
    """ValueError for an answer with a special token, and for one amid a prompt that is none of the tokenizer's chat template.

    A prompt may begin with its BOS, whatever the model's own do.
    """
    special, template = special_tokens(tokenizer), str(getattr(tokenizer, "chat_template", None))
    if not special:
        return
    begun = {tuple(begins(tokenizer)), (tokenizer.bos_token_id,)}
    parts: dict[str, Any] = {"answer": trial.answer_tokens, "wrong answer": () if trial.wrong is None else trial.wrong}
    for side, prompt in (("clean", trial.tokens), ("corrupt", trial.corrupt)):
        tokens = [] if prompt is None else prompt.tolist()
        skip = max(len(one) for one in (*begun, ()) if tuple(tokens[: len(one)]) == one)
        parts[f"{side} prompt"] = [token for token in tokens[skip:] if special.get(token, "") not in template]
    for part, tokens in parts.items():
        found = first_special(tokens, special)
        if found is not None:
            raise ValueError(
                f"pair {trial.id}: the {part} contains the special token {special[found]!r} (id {found}), which is no text: "
                f"{WITHOUT_SPECIAL}"
            )


def check_corruption(corruption: Corruption | None) -> None:
    """ValueError for the name of a corruption that there is not."""
    if corruption is None or callable(corruption):
        return
    if corruption not in (known := (*_CORRUPTIONS, "counterfactual")):
        raise ValueError(f"corruption={corruption!r}: use {', '.join(known)}, or a function of the EncodedTrial")


def chosen_corruption(trials: Iterable[AnyTrial], corruption: Corruption | None) -> Corruption:
    """What None stands for with these trials: their counterfactuals where any has one, else removing the needle."""
    if corruption is not None:
        return corruption
    return "counterfactual" if any(_has_corrupt(trial) for trial in trials) else "remove"


def check_corruptible(trials: Iterable[AnyTrial], corruption: Corruption | None) -> None:
    """ValueError if no trial has what a corruption takes away, so that there will be no pair, whatever the model."""
    listed = list(trials)
    chosen = chosen_corruption(listed, corruption)
    if callable(chosen) or not listed:
        return
    if chosen == "counterfactual" and not any(_has_corrupt(trial) for trial in listed):
        raise ValueError(f"trial {listed[0].id} has no counterfactual: {_REMEDY}")
    if chosen != "counterfactual" and not any(trial.needle for trial in listed):
        raise ValueError(f"trial {listed[0].id} has no needle to {chosen}: {_REMEDY}")


def _has_corrupt(trial: AnyTrial) -> bool:
    return trial.corrupt is not None and len(trial.corrupt) > 0


def _named(corruption: Corruption) -> str:
    return corruption if isinstance(corruption, str) else getattr(corruption, "__name__", type(corruption).__name__)


def _check_pair(pair: TokenPair, shape: HeadGeometry) -> None:
    both = torch.cat([pair.clean, pair.corrupt])
    if both.min() < 0 or both.max() >= shape.d_vocab:
        raise ValueError(
            f"pair {pair.id}: a token id lies outside 0 to {shape.d_vocab - 1}. Encode with this model's own tokenizer."
        )
    if pair.answer[1] > shape.n_ctx:
        raise ValueError(f"pair {pair.id}: {pair.answer[1]} tokens exceed the context window of {shape.n_ctx}")


def _corrupt(
    trial: EncodedTrial, corruption: Corruption, tokenizer: Any, others: list[EncodedTrial]
) -> Int[Tensor, " position"] | None:
    """The corrupt prompt of a trial."""
    if callable(corruption):
        return token_ids(corruption(trial), f"trial {trial.id}", f"the corrupt prompt of {_named(corruption)}")
    if corruption == "counterfactual":
        return trial.corrupt
    if trial.needle is None:
        raise ValueError(f"trial {trial.id} has no needle to {corruption}: {_REMEDY}")
    return _CORRUPTIONS[corruption](trial, trial.needle, tokenizer, others)


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


_CORRUPTIONS: dict[str, Callable[[EncodedTrial, tuple[int, int], Any, list[EncodedTrial]], Tensor]] = {
    "remove": _remove,
    "swap": _swap,
}


Positions = Literal["answer", "all"]


def check_positions(positions: str) -> None:
    """ValueError for anything but "answer" and "all"."""
    if positions not in ("answer", "all"):
        raise ValueError(f"positions={positions!r}: use 'answer' (the rows that produce the answer) or 'all'")
