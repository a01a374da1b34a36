"""Trials into tokens, all of them checked before any work is done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial, Trial


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
