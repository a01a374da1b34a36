"""Pairs as tests state them, by their two runs, and as users give them: trials with a counterfactual."""

from __future__ import annotations

from collections.abc import Iterable

from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.pairs import TokenPair


def trial_of(pair: TokenPair) -> EncodedTrial:
    """The trial whose runs these are."""
    start, end = pair.answer
    clean, corrupt = pair.clean[:start], pair.corrupt[:start]
    gold = pair.clean[start:end]
    return EncodedTrial(clean, None, "x", gold, pair.id, group=pair.group, corrupt=corrupt, wrong=pair.wrong)


def trials_of(pairs: Iterable[TokenPair]) -> list[EncodedTrial]:
    return [trial_of(pair) for pair in pairs]
