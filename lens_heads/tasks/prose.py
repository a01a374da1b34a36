"""Original English filler prose, generated from a small grammar.

Needles are hidden in these paragraphs about harbours, workshops, gardens and the like, so they contain nothing that could
answer a question about one: no first names (people are "the ferryman", "she") and no content word of the packaged needles,
their arguments or their questions. No story continues from one paragraph to the next.

The words and sentence patterns are in `data/prose.json`. `{who}`, `{he}`, `{him}` and `{other}` are the two people of a
paragraph; `{do}`, `{did}`, `{done}` and `{doing}` are forms of an activity; every other slot draws from the list of that
name, first in the scene, then in the shared lists. No sentence occurs twice in one text. The prose of a split is made from
every other scene, pattern and shared word: that of the other split has none of them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from lens_heads.runs import checks
from lens_heads.runs.reading import read_json
from lens_heads.tasks.books import data
from lens_heads.tasks.sampling import half

SLOT = re.compile(r"\{([A-Za-z_]+)2?((?: -?\d+)*)\}")
"""`{name}`, or `{name 3 9}` with bounds for the number drawn; a trailing 2 only marks a second draw."""

_FORMS = ("do", "did", "done", "doing")


class Expander:
    """Fills the slots of patterns: with the fixed word of that name if there is one, else by drawing from the list."""

    def __init__(self, rng: random.Random, lists: Mapping[str, Sequence[str]], fixed: Mapping[str, str]) -> None:
        self.rng = rng
        self.lists = lists
        self.fixed = fixed
        self.used: set[str] = set()

    def draw(self, options: Sequence[str]) -> str:
        """A random option, one not drawn before if any is left."""
        fresh = [option for option in options if option not in self.used]
        chosen = self.rng.choice(fresh or options)
        self.used.add(chosen)
        return chosen

    def fill(self, slot: str, *bounds: int) -> str:
        """The text for one slot; list entries may contain slots themselves."""
        if slot in self.fixed:
            return self.fixed[slot]
        return self.expand(self.draw(self.lists[slot]))

    def expand(self, pattern: str) -> str:
        """The pattern with every slot filled."""
        return SLOT.sub(lambda found: self.fill(found[1], *map(int, found[2].split())), pattern)


@lru_cache(maxsize=3)
def _grammar(split: str | None) -> dict[str, Any]:
    """Scenes, shared lists and irregular verbs: of a split, or all of them for None."""
    whole = read_json(data("prose.json"))
    irregular = whole["shared"].pop("irregular")
    shared = {name: half(words, split) for name, words in whole["shared"].items()}
    return {"scenes": half(whole["scenes"], split), "shared": shared, "irregular": irregular}


def _inflect(base: str, irregular: dict[str, list[str]]) -> dict[str, str]:
    """The four forms of a verb: base, past, past participle and -ing."""
    if base in irregular:
        return dict(zip(_FORMS, [base, *irregular[base]], strict=True))
    if base.endswith("e"):
        past, ing = base + "d", base[:-1] + "ing"
    elif base.endswith("y") and base[-2] not in "aeiou":
        past, ing = base[:-1] + "ied", base + "ing"
    else:
        past, ing = base + "ed", base + "ing"
    return dict(zip(_FORMS, (base, past, past, ing), strict=True))


class _Paragraph(Expander):
    """One paragraph's scene, its two people, and the words already used."""

    def __init__(self, rng: random.Random, grammar: dict[str, Any], people: tuple[tuple[str, str], ...] = ()) -> None:
        scene = rng.choice(grammar["scenes"])
        scene = {**scene, "people": people or scene["people"]}
        who, he = rng.choice(scene["people"])
        other = rng.choice([name for name, pronoun in scene["people"] if pronoun != he])
        him = {"he": "him", "she": "her"}[he]
        self.irregular: dict[str, list[str]] = grammar["irregular"]
        super().__init__(rng, {**grammar["shared"], **scene}, {"who": who, "he": he, "him": him, "other": other})

    def fill(self, slot: str, *bounds: int) -> str:
        if slot not in _FORMS:
            return super().fill(slot)
        deeds = self.lists["handle" if self.rng.random() < 0.3 else "deed"]
        verb, rest = self.draw(deeds).split(" ", 1)
        return f"{_inflect(verb, self.irregular)[slot]} {self.expand(rest)}"

    def sentence(self, kind: str) -> str:
        text = self.expand(self.draw(self.lists[kind])).replace("?,", "?")
        first = 1 if text.startswith('"') else 0
        return text[:first] + text[first].upper() + text[first + 1 :]


@lru_cache(maxsize=8)
def haystack(
    words: int = 45_000, seed: int = 0, split: str | None = None, people: tuple[tuple[str, str], ...] = ()
) -> str:
    """At least `words` words of prose, with blank lines between paragraphs; deterministic per seed.

    `people`: names in the place of "the ferryman" and others, each with "he" or "she".

    Texts of "select" and "test" share no scene and no sentence pattern. ValueError for another split but None: all scenes.
    """
    checks.whole_number("words", words)
    rng = random.Random(checks.seed(seed))
    grammar = _grammar(split)
    seen: set[str] = set()
    paragraphs: list[str] = []
    count = 0
    while count < words:
        paragraph = _Paragraph(rng, grammar, people)
        kinds = ["open", *["middle"] * rng.randint(4, 8), "close"]
        if not (new := [text for text in dict.fromkeys(map(paragraph.sentence, kinds)) if text not in seen]):
            continue
        seen.update(new)
        paragraphs.append(" ".join(new))
        count += len(paragraphs[-1].split())
    return "\n\n".join(paragraphs)
