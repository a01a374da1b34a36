"""Two needles of one kind in a passage, and a question that chooses between them.

`data/packaged/choosing.json` holds, by split, relations (what people play, where a crop grows, which room is whose), each with
things, wordings of needles and of questions, and what answers: people, places, numbers or things. Splits share no relation, no
association, no template, no prose, and no answer but numbers. `check` is a sentence that a thing completes, to ask what a model
knows of it without a passage.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from lens_heads.runs.reading import read_json
from lens_heads.tasks import prose
from lens_heads.tasks.books import data
from lens_heads.tasks.sampling import check_known
from lens_heads.trials.trial import Distractor, Trial

QUESTIONS = ("onehop", "direct", "twohop")
STYLES = ("prose", "people", "journal")
"""What the needles are hidden in: prose without names, the same with other people's names, and a journal with dates."""
NUMBERS = range(31, 99)
"""Answers that are numbers: of two digits, above all days of a journal."""


class Relation(NamedTuple):
    """What several things have in common. `items`: a thing, what a one-hop question calls it, and a two-hop question, if any."""

    kind: str
    answers: str
    needles: tuple[str, ...]
    questions: dict[str, list[str]]
    check: str
    items: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ()

    def of(self, questions: str) -> list[tuple[str, ...]]:
        """The items that such a question can ask for."""
        return [item for item in self.items if len(item) > {"direct": 0, "onehop": 1, "twohop": 2}[questions]]


@lru_cache(maxsize=2)
def _packaged(split: str) -> dict[str, Any]:
    return read_json(data("packaged", "choosing.json"))[split]


def relations(split: str, questions: str = "direct") -> list[Relation]:
    """The relations of a split of which such questions can be asked."""
    found = [Relation(**{**row, "items": tuple(map(tuple, row["items"]))}) for row in _packaged(split)["relations"]]
    return [one for one in found if questions in one.questions and len(one.of(questions)) > 1]


def trials(
    split: str,
    n: int,
    context_length: int,
    seed: int,
    questions: str,
    depths: Sequence[float],
    distractors: int,
    chat: bool | None,
) -> list[Trial]:
    """Trials with so many distractors, one per depth of the needle: see `packaged`."""
    check_known("questions", questions, QUESTIONS, " (with distractors)")
    rng = random.Random(f"choosing-{split}-{seed}")
    known = relations(split, questions)
    turns = [rng.sample(known, len(known)) for _ in range(-(-n // len(known)))]
    chosen = [one for turn in turns for one in turn][:n]
    templates = _cycle(_packaged(split)["templates"], rng)
    styles = _cycle(STYLES, rng)
    # All relations of a kind of answer walk through one cycle, so that answers are used equally often.
    lists = {**_packaged(split)["answers"], "number": [str(number) for number in NUMBERS]}
    lists |= {relation.kind: relation.words for relation in known if relation.words}
    answers = {kind: _cycle(words, rng) for kind, words in lists.items()}
    seen: set[Any] = set()
    found = []
    for number, (relation, depth) in enumerate(zip(chosen, depths, strict=True)):
        source = answers[relation.kind if relation.words else relation.answers]
        facts = _new_facts(relation, questions, distractors + 1, source, seen, rng)
        style = next(styles)
        found.append(
            _trial(
                relation,
                facts,
                questions,
                rng,
                id=f"{split}-choose-{relation.kind}-{facts[0][1].replace(' ', '_')}-{number}-{seed}-{questions}",
                depth=depth,
                length=context_length,
                template=next(templates),
                haystack=_passage(split, style, context_length, rng),
                chat=chat,
                style=style,
            )
        )
    return found


def _trial(
    relation: Relation,
    facts: list[tuple[tuple[str, ...], str]],
    questions: str,
    rng: random.Random,
    *,
    id: str,
    depth: float,
    template: str,
    style: str,
    **fields: Any,
) -> Trial:
    """The first fact is asked for; the others are spread over the passage."""
    apart = [(depth + (at - 0.5 + rng.random()) / len(facts)) % 1 for at in range(1, len(facts))]
    # A direct question has the words of its own needle.
    wordings, asked = [rng.randrange(len(relation.needles)) for _ in facts], relation.questions[questions]
    texts = [_fill(relation.needles[at], item, word) for at, (item, word) in zip(wordings, facts, strict=True)]
    own = [_fill(asked[at % len(asked)], item, "") for at, (item, _) in zip(wordings, facts, strict=True)]
    others = [
        Distractor(text, question, word, at)
        for text, question, (_, word), at in zip(texts[1:], own[1:], facts[1:], apart, strict=True)
    ]
    words = [word for _, word in facts]
    return Trial(
        id=id,
        question=own[0],
        answer=words[0],
        needle=texts[0],
        depth=depth,
        template=template,
        choices=tuple(sorted(words)),
        distractors=tuple(others),
        corrupt=tuple(dict.fromkeys(own[1:])),
        group=(f"packaged {relation.kind}", f"template {template}"),
        meta={
            "kind": relation.kind,
            "answers": relation.answers,
            "association": f"{relation.kind}-{facts[0][0][0]}",
            "questions": questions,
            "style": style,
        },
        **fields,
    )


def _fill(text: str, item: tuple[str, ...], answer: str) -> str:
    slots = {"{A}": answer, **{f"{{{at}}}": part for at, part in enumerate(item, 1)}}
    for slot, part in slots.items():
        text = text.replace(slot, part)
    return text[:1].upper() + text[1:]


def _cycle(words: Sequence[str], rng: random.Random) -> Iterator[str]:
    """All words in random order, then all again in another."""
    while True:
        yield from rng.sample(list(words), len(words))


def _new_facts(
    relation: Relation, questions: str, count: int, answers: Iterator[str], seen: set[Any], rng: random.Random
) -> list[tuple[tuple[str, ...], str]]:
    """Things with answers, as long as there are any in an order not asked for and none stated before. ValueError for too many."""
    known = relation.of(questions)
    if count > len(known):
        raise ValueError(
            f"distractors={count - 1}: the relation {relation.kind!r} has {len(known)} things: use at most {len(known) - 1}"
        )
    for _ in range(TRIES):
        items = rng.sample(known, count)
        facts = [*zip(items, _apart(answers, count), strict=True)]
        new = {(relation.kind, *(item[0] for item in items)), *((relation.kind, item[0], word) for item, word in facts)}
        if not new & seen:
            break
    seen |= new
    return facts


TRIES = 100
"""After so many draws, a fact is stated again: there are more trials than facts."""


def _apart(answers: Iterator[str], count: int) -> list[str]:
    """The next answers that begin with different letters or digits, so that their first tokens differ."""
    found: dict[str, str] = {}
    while len(found) < count:
        word = next(answers)
        found.setdefault(word[0], word)
    return list(found.values())


def _passage(split: str, style: str, context_length: int, rng: random.Random) -> str:
    """Prose of a style, long enough to hide needles in."""
    people = tuple(map(tuple, _packaged(split)["others"])) if style == "people" else ()
    text = prose.haystack(words=max(400, 2 * context_length), seed=rng.randrange(2**20), split=split, people=people)
    if style != "journal":
        return text
    days = (f"{day} {month}: " for month in _MONTHS for day in range(1 + rng.randrange(20), 29))
    return "\n\n".join(next(days) + paragraph for paragraph in text.split("\n\n"))


_MONTHS = ("May", "June", "July", "August", "September", "October", "November", "December") * 20
