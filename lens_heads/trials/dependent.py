"""Trials that are no independent witnesses: those that share a needle or a prompt count as one group."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from lens_heads.heads.grouping import named_groups
from lens_heads.runs.digests import digest
from lens_heads.runs.warned import users_line
from lens_heads.trials.encoded import EncodedTrial


def repeats(keys: Iterable[Hashable | None]) -> list[list[int]]:
    """The places of every key that stands more than once; None is no key."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        if key is not None:
            places[key].append(place)
    return [found for found in places.values() if len(found) > 1]


def warn_of_repeats(ids: Sequence[str], contents: Iterable[Hashable]) -> bool:
    """Whether two trials have the same content under other ids: a warning that names the first."""
    same = repeats(contents)
    if same:
        warnings.warn(
            f"trials {', '.join(ids[at] for at in same[0][:3])} have the same prompt and are no independent trials: give each "
            "trial once",
            stacklevel=users_line(),
        )
    return bool(same)


def join_dependent(encoded: Sequence[EncodedTrial]) -> None:
    """Put trials without a group that share a needle, or a prompt, into one. The trials are copies (`placed`).

    Warns of a prompt and answer given twice, and of a needle whose trials all have groups of their own.
    """
    prompts = [one.tokens.numpy().tobytes() for one in encoded]
    needles = [one.tokens[slice(*one.needle)].numpy().tobytes() if one.needle else None for one in encoded]
    shared = repeats(needles)
    labelled = [[label for at in places for label in named_groups(encoded[at])] for places in shared]
    # Of trials without a group, one is made below.
    apart = [
        places
        for places, labels in zip(shared, labelled, strict=True)
        if len({*labels}) == len(labels) and all(named_groups(encoded[at]) for at in places)
    ]
    for what, found in (("needle", shared), ("prompt", repeats(prompts))):
        for places in found:
            group = f"{what} {digest([encoded[places[0]].tokens.tolist(), encoded[places[0]].needle])}"
            for at in places:
                if not encoded[at].group:
                    object.__setattr__(encoded[at], "group", group)
    answered = zip(prompts, [one.answer_tokens.numpy().tobytes() for one in encoded], strict=True)
    if not warn_of_repeats([one.id for one in encoded], answered) and apart:
        warnings.warn(
            f"trials {', '.join(encoded[at].id for at in apart[0][:3])} share a needle, but each has a group of its own, so that "
            "intervals take them for independent: give them one group, or none",
            stacklevel=users_line(),
        )
