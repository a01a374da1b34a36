"""Encoding of trials, which checks all of them before any work begins."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from lens_heads.runs.warned import users_line
from lens_heads.trials.dependent import join_dependent
from lens_heads.trials.doubts import warn_of_doubts
from lens_heads.trials.encoded import EncodedTrial, placed
from lens_heads.trials.tokenizing import WITHOUT_SPECIAL, first_special, name_of, special_tokens, vocabulary
from lens_heads.trials.trial import RESERVE, AnyTrial, Trial

_REMEDY = "pass lens_heads.Trial(id=..., question=..., answer=...) or an EncodedTrial"


def several(trials: Iterable[AnyTrial] | AnyTrial) -> Iterable[AnyTrial]:
    """The trials; a single one becomes a list. TypeError for anything that cannot contain trials."""
    if isinstance(trials, Trial | EncodedTrial):
        return [trials]
    if isinstance(trials, str) or not isinstance(trials, Iterable):
        raise TypeError(f"expected a list of Trials, got {type(trials).__name__}: {_REMEDY}")
    return trials


def trial_list(trials: Iterable[AnyTrial] | AnyTrial) -> list[AnyTrial]:
    """One trial or more as a list. ValueError for none and for repeated ids, TypeError for anything but trials."""
    listed = list(several(trials))
    if not listed:
        raise ValueError("there are no trials: pass at least one, as a list (a generator is empty after one use)")
    for trial in listed:
        if not isinstance(trial, Trial | EncodedTrial):
            raise TypeError(f"expected Trial or EncodedTrial, got {type(trial).__name__}: {_REMEDY}")
    check_unique(trial.id for trial in listed)
    return listed


def encode_all(
    trials: Iterable[AnyTrial] | AnyTrial,
    tokenizer: Any,
    n_ctx: int,
    room: int = 0,
    d_vocab: int | None = None,
    judged: bool = True,
    answered: bool = True,
) -> list[EncodedTrial]:
    """All trials in tokens, checked before any work begins: unique ids, prompt and answer inside the context window.

    `room` is the number of tokens that may be generated. With `judged`, the trial's judge will read them, and one that runs
    them as code needs permission. Token ids must be below `d_vocab`, and no answer may contain a special token. Each knows its
    place (`EncodedTrial.place`). Warns of what is probably not meant (`doubts`), unless answers are not read (`answered`).
    Trials without a group that have a needle or prompt in common become a group.
    Raises ValueError naming the first trial at fault, TypeError for anything but trials.
    """
    listed = trial_list(trials)
    for trial in listed:
        if isinstance(trial, Trial):
            _check_length(trial, n_ctx)
    encoded = placed([trial if isinstance(trial, EncodedTrial) else trial.encode(tokenizer) for trial in listed])
    join_dependent(encoded)
    special = special_tokens(tokenizer)
    for trial in encoded:
        if room and judged:
            trial.judge.check_allowed(f"trial {trial.id}")
        _check_tokens(trial, d_vocab)
        _check_special(trial, special)
        _check_vocabulary(trial, tokenizer)
        longest = max(len(ids) for ids in (trial.answer_tokens, *trial.choice_tokens))
        needed = len(trial) + max(room, longest)
        if needed > n_ctx:
            raise ValueError(
                f"trial {trial.id}: {len(trial)} prompt tokens and {needed - len(trial)} to come exceed the context "
                f"window of {n_ctx} tokens: use a shorter prompt (length= of a Trial, context_length= of a task) or a smaller "
                "max_new_tokens"
            )
    late = [one for one in encoded if 0 < room < len(one.answer_tokens)]
    if late:
        warnings.warn(
            f"trial {late[0].id}: the answer {late[0].answer!r} has {len(late[0].answer_tokens)} tokens, and no more than {room} "
            f"are generated ({len(late)} of {len(encoded)} trials), so that no text can hold it: use a larger max_new_tokens",
            stacklevel=users_line(),
        )
    if answered:
        warn_of_doubts(listed, encoded, tokenizer)
    return encoded


def _check_length(trial: Trial, n_ctx: int) -> None:
    """ValueError before anything is composed for a haystack that cannot fit; a token rarely holds two words."""
    kept = trial.length - RESERVE if trial.length else math.inf
    if min(kept, len(trial.haystack.split()) / 2) > n_ctx:
        asked = f"a length of {trial.length} tokens" if trial.length else "its whole haystack"
        raise ValueError(
            f"trial {trial.id}: {asked} exceeds the context window of {n_ctx} tokens: use a smaller context_length"
        )


def check_unique(ids: Iterable[str]) -> None:
    """ValueError for trials with the same id."""
    for name, count in Counter(ids).items():
        if count > 1:
            raise ValueError(
                f"two trials have the id {name!r}: ids must be unique, since results are stored under them"
            )


def _check_tokens(trial: EncodedTrial, d_vocab: int | None) -> None:
    choices = (("choice_tokens", ids) for ids in trial.choice_tokens)
    for what, ids in (("tokens", trial.tokens), ("answer_tokens", trial.answer_tokens), *choices):
        bad = ids[(ids < 0) | (ids >= d_vocab)] if d_vocab is not None else ids[ids < 0]
        if len(bad):
            known = f"the model's ids are 0 to {d_vocab - 1}" if d_vocab is not None else "ids start at 0"
            raise ValueError(
                f"trial {trial.id}: {what} contain the id {int(bad[0])}, but {known}: encode with this model's tokenizer"
            )


def _check_vocabulary(trial: EncodedTrial, tokenizer: Any) -> None:
    if trial.vocabulary and trial.vocabulary != vocabulary(tokenizer):
        raise ValueError(
            f"trial {trial.id}: its tokens are from another vocabulary than that of {name_of(tokenizer)}, where they read "
            f"{tokenizer.decode(trial.tokens[:8].tolist())!r}: make it again with this model's tokenizer, or pass a Trial"
        )


def _check_special(trial: EncodedTrial, special: Mapping[int, str]) -> None:
    """ValueError for an answer or choice that contains a BOS or another special token, which no text stands for."""
    written = (trial.answer, *trial.choices)
    for text, ids in zip(written, (trial.answer_tokens, *trial.choice_tokens), strict=True):
        found = first_special(ids, special)
        if found is not None:
            raise ValueError(
                f"trial {trial.id}: the tokens of the answer {text!r} contain the special token {special[found]!r} (id {found}), "
                f"which is no part of it: {WITHOUT_SPECIAL}"
            )
