"""Needle trials from the packaged needle sets, which were written for this package in NoLiMa's schema: no download."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks import choosing, prose
from lens_heads.tasks.books import LONGEST, data
from lens_heads.tasks.sampling import SPLITS, check_known, depths_grid, enough
from lens_heads.tasks.schema import Case, Entry, read_entries
from lens_heads.trials.trial import Trial

_CHARACTERS_PER_TOKEN = 8
"""Above any tokenizer's average for English, so that every passage is long enough."""

_MOST_WORDS = 400_000
"""Of prose, written so that no paragraph is used twice; longer prose has ever shorter paragraphs."""


@typed
def packaged(
    *,
    split: str = "select",
    n: int | None = 60,
    context_length: int = 400,
    seed: int = 0,
    questions: str = "onehop",
    chat: bool | None = False,
    depths: int | Sequence[float] | None = None,
    distractors: int = 0,
) -> list[Trial]:
    """Short needle trials, each in a different passage of synthetic prose.

    Without distractors they do not need their question: the answer is the only first name of the passage, stands verbatim in the
    needle, and the prompt says that a person is named. Heads that matter there write the one name of a passage into the answer.
    With `distractors=1` the passage holds a second needle of the same kind with another answer, and the question chooses; ask
    first whether the model does (`tasks.exchange_questions` turns the right answer around).

    Args, besides those of `lens_heads.tasks`:
        split: "select" or "test", which share no needle, association, name, wording of a question, template or prose.
        n: number of trials. Kinds of needles, entries, associations (an entry with one of its tests) and names are each used
            equally often, give or take one, in any first part of the trials too; no association meets a name twice.
        context_length: length of the whole prompt, in tokens.
        questions: "onehop" (shares no word with the needle), "direct" (shares all but the answer) or "multitoken" (asks for
            several words of the needle: a full name, a place, a thing).
        depths: used equally often; None spreads them uniformly over 0 to 1.
        distractors: further needles of the same kind, with other answers. Then needles and questions are those of thirty
            relations (who plays what, where a crop grows, which room is whose), fifteen a split. Answers are people, places,
            numbers or things, and `choices`; questions "onehop", "direct" or "twohop"; six templates a split name no kind of
            answer; passages are prose, prose with other people's names, or a journal. `corrupt` is the distractor's question.
            Relation and template are the groups. What models know of the associations without a passage stands in
            benchmarks/RESULTS.md; small ones lack some, which stay in.

    Returns:
        Trials with ids such as "select-S03-T01-Laura-0" (entry, test, name, seed; those of other questions
        than "onehop" end in the questions' name); `meta` holds entry, test, association, kind, questions, character and book.
        The entry is the group.

    Example:
        >>> trial = lh.tasks.packaged(n=1, questions="direct")[0]
        >>> print(trial.needle, "->", trial.answer)
        A caterer, Thaddeus Brockway, prepared a halal platter for Melissa. -> Melissa
    """
    if checks.whole_number("distractors", distractors, 0):
        check_known("split", split, SPLITS)
        n = 60 if n is None else checks.count("n", n)
        checks.whole_number("context_length", context_length, 1, LONGEST)
        spread = _depths(n, depths, random.Random(f"{split}-{checks.seed(seed)}"))
        return choosing.trials(split, n, context_length, seed, questions, spread, distractors, chat)
    known = entries(split)
    have = sum(len(entry.tests) * len(entry.characters) for entry in known)
    n = enough(n, have, f"distinct needles (entry, test, name) in the {split} split")
    checks.whole_number("context_length", context_length, 1, LONGEST)
    rng = random.Random(f"{split}-{checks.seed(seed)}")
    chosen = _cases(known, n, rng)
    passages = _passages(split, n, context_length, rng)
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


def _cases(entries: list[Entry], n: int, rng: random.Random) -> list[Case]:
    """n different pairs of an association and a name.

    Both walk through a cycle of their own; whenever the two cycles end together, the names' moves on by one, so that no
    pair repeats before all have been used. All entries have the same names and equally many tests.
    """
    turns = _by_turns(entries, rng)
    tests = [rng.sample(entry.tests, len(entry.tests)) for entry in turns]
    associations = [pair for turn in zip(*tests, strict=True) for pair in zip(turns, turn, strict=True)]
    names = rng.sample(entries[0].characters, len(entries[0].characters))
    both = math.lcm(len(associations), len(names))
    return [Case(*associations[i % len(associations)], names[(i + i // both) % len(names)]) for i in range(n)]


def _by_turns(entries: list[Entry], rng: random.Random) -> list[Entry]:
    """The entries in random order, but so that each kind comes once before any comes again."""
    kinds: dict[str, list[Entry]] = {}
    for entry in rng.sample(entries, len(entries)):
        kinds.setdefault(entry.kind, []).append(entry)
    return [entry for turn in zip(*kinds.values(), strict=True) for entry in turn]


def _depths(n: int, depths: int | Sequence[float] | None, rng: random.Random) -> list[float]:
    """One depth per trial, in random order: the given depths equally often, or one from each of n equal parts of 0..1."""
    given = None if depths is None else depths_grid(depths)
    spread = [given[i % len(given)] if given else (i + rng.random()) / n for i in range(n)]
    rng.shuffle(spread)
    return spread


def _passages(split: str, n: int, context_length: int, rng: random.Random) -> list[str]:
    """Passages of the split's prose: paragraphs dealt from a shuffled pile, which starts again only when it is empty."""
    words = max(45_000, 2 * context_length, min(2 * n * context_length, _MOST_WORDS))
    paragraphs = prose.haystack(words=words, split=split).split("\n\n")
    wanted = context_length * _CHARACTERS_PER_TOKEN
    pile: list[str] = []
    passages: list[str] = []
    for _ in range(n):
        passage: dict[str, None] = {}
        have = 0
        while have < wanted:
            pile = pile or rng.sample(paragraphs, len(paragraphs))
            if (paragraph := pile.pop()) not in passage:
                passage[paragraph] = None
                have += len(paragraph)
        passages.append("\n\n".join(passage))
    return passages
