"""Needle trials from the packaged needle sets, which were written for this package in NoLiMa's schema: no download."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter

from lens_heads.runs import checks
from lens_heads.tasks import prose
from lens_heads.tasks.books import LONGEST, data
from lens_heads.tasks.sampling import SPLITS, balanced, check_known, depths_grid, enough
from lens_heads.tasks.schema import Entry, cases, read_entries
from lens_heads.trials.trial import Trial

_CHARACTERS_PER_TOKEN = 8
"""Above any tokenizer's average for English, so that every passage is long enough."""

_EVENLY = tuple(attrgetter(*names) for names in (["entry.kind"], ["entry.id"], ["character"], ["entry.id", "test.id"]))
"""What the trials are spread over, by case: needle kinds first, tests last."""


def packaged(
    split: str = "select",
    n: int = 60,
    context_length: int = 400,
    seed: int = 0,
    questions: str = "onehop",
    chat: bool | None = False,
    depths: int | Sequence[float] | None = None,
) -> list[Trial]:
    """Short needle trials for small models, each in a different passage of synthetic prose.

    Args, besides those of `lens_heads.tasks`:
        split: "select" or "test", which share no needle, name or first argument.
        n: number of trials, spread evenly over needle kinds, entries, names and tests.
        context_length: length of the whole prompt, in tokens.
        questions: "onehop" (shares no word with the needle) or "direct".
        depths: used equally often; None spreads them uniformly over 0 to 1.

    Returns:
        Trials with ids such as "select-S03-T01-Megan-0" (entry, test, name, seed; ids of direct questions end in
        "-direct"); `meta` holds entry, test, kind, questions, character and book. The entry is the group.
    """
    every = [case for entry in entries(split) for case in cases(entry)]
    n = enough(n, len(every), f"distinct needles (entry, test, name) in the {split} split")
    checks.whole_number("context_length", context_length, 1, LONGEST)
    rng = random.Random(f"{split}-{checks.seed(seed)}")
    chosen = balanced(every, n, _EVENLY, rng)
    passages = _passages(n, context_length, rng)
    ending = "" if questions == "onehop" else f"-{questions}"
    return [
        case.trial(
            questions,
            book="prose",
            id=f"{split}-{case.id}-{seed}{ending}",
            haystack=passage,
            depth=depth,
            length=context_length,
            chat=chat,
            group=f"packaged {case.entry.id}",
        )
        for case, passage, depth in zip(chosen, passages, _depths(n, depths, rng), strict=True)
    ]


def entries(split: str) -> list[Entry]:
    """The packaged needles of a split; ValueError for an unknown one."""
    check_known("split", split, SPLITS)
    return read_entries(data("packaged", "needlesets", f"needle_set_{split}.json"))


def _depths(n: int, depths: int | Sequence[float] | None, rng: random.Random) -> list[float]:
    """One depth per trial, in random order: the given depths equally often, or one from each of n equal parts of 0..1."""
    given = None if depths is None else depths_grid(depths)
    spread = [given[i % len(given)] if given else (i + rng.random()) / n for i in range(n)]
    rng.shuffle(spread)
    return spread


def _passages(n: int, context_length: int, rng: random.Random) -> list[str]:
    """Passages of prose, each starting at a different paragraph until all have been used."""
    paragraphs = prose.haystack(words=max(45_000, 2 * context_length)).split("\n\n")
    rounds = -(-n // len(paragraphs))
    starts = [start for _ in range(rounds) for start in rng.sample(range(len(paragraphs)), len(paragraphs))]
    return [_passage(paragraphs, start, context_length * _CHARACTERS_PER_TOKEN) for start in starts[:n]]


def _passage(paragraphs: list[str], start: int, characters: int) -> str:
    """Whole paragraphs from `start` on, wrapping around at the end, until they have enough characters."""
    wrapped = [*paragraphs[start:], *paragraphs[:start]]
    before = accumulate(map(len, wrapped), initial=0)
    return "\n\n".join(paragraph for paragraph, have in zip(wrapped, before, strict=False) if have < characters)
