"""Original English filler prose, generated from a small grammar.

`haystack` strings together paragraphs about harbours, workshops, gardens, markets and the like.
The text is the background in which a needle is hidden, so it leaves out what could answer a
question about a needle: it holds no first names of people (they are "the ferryman", "the clerk",
"she") and no content word of the packaged needles, their arguments or their questions. It is made
up, it quotes no book, and it tells no story that goes on from one paragraph to the next.

The words and sentence patterns are in `data/prose.json`. A pattern names its slots in braces:
`{who}`, `{he}`, `{him}` and `{other}` are the two people of the paragraph, `{do}`, `{did}`,
`{done}` and `{doing}` are forms of something one does there, and every other slot draws from the
list of that name (a trailing 2 only marks a second draw), first in the scene, then in the shared
lists. No sentence comes twice in one text.
"""

from __future__ import annotations

import json
import random
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parent / "data" / "prose.json"
_SLOT = re.compile(r"\{([a-z]+)2?\}")
_FORMS = ("do", "did", "done", "doing")


@lru_cache(maxsize=1)
def _grammar() -> dict[str, Any]:
    grammar: dict[str, Any] = json.loads(_DATA.read_text(encoding="ascii"))
    return grammar


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


class _Paragraph:
    """One paragraph's scene, its two people, and what it has already used."""

    def __init__(self, rng: random.Random, scene: dict[str, Any], shared: dict[str, Any]) -> None:
        self.rng = rng
        self.scene = scene
        self.shared = shared
        self.used: set[str] = set()
        who, he = rng.choice(scene["people"])
        other = rng.choice([name for name, pronoun in scene["people"] if pronoun != he])
        him = {"he": "him", "she": "her"}[he]
        self.fixed = {"who": who, "he": he, "him": him, "other": other}

    def _draw(self, options: list[str]) -> str:
        fresh = [option for option in options if option not in self.used]
        chosen = self.rng.choice(fresh or options)
        self.used.add(chosen)
        return chosen

    def _fill(self, slot: str) -> str:
        if slot in self.fixed:
            return self.fixed[slot]
        if slot in _FORMS:
            verb, rest = self._draw(self._deeds()).split(" ", 1)
            return f"{_inflect(verb, self.shared['irregular'])[slot]} {self.expand(rest)}"
        return self.expand(self._draw(self.scene.get(slot) or self.shared[slot]))

    def _deeds(self) -> list[str]:
        name = "handle" if self.rng.random() < 0.3 else "deed"
        deeds: list[str] = self.scene.get(name) or self.shared[name]
        return deeds

    def expand(self, pattern: str) -> str:
        return _SLOT.sub(lambda found: self._fill(found[1]), pattern)

    def sentence(self, kind: str) -> str:
        text = self.expand(self._draw(self.shared[kind])).replace("?,", "?")
        first = 1 if text.startswith('"') else 0
        return text[:first] + text[first].upper() + text[first + 1 :]


@lru_cache(maxsize=8)
def haystack(words: int = 45_000, seed: int = 0) -> str:
    """At least `words` words of prose, paragraphs apart by blank lines; the same for one seed."""
    rng = random.Random(seed)
    grammar = _grammar()
    seen: set[str] = set()
    paragraphs: list[str] = []
    count = 0
    while count < words:
        paragraph = _Paragraph(rng, rng.choice(grammar["scenes"]), grammar["shared"])
        kinds = ["open", *["middle"] * rng.randint(4, 8), "close"]
        sentences: list[str] = []
        for kind in kinds:
            text = paragraph.sentence(kind)
            if text not in seen:
                seen.add(text)
                sentences.append(text)
        paragraphs.append(" ".join(sentences))
        count += sum(len(text.split()) for text in sentences)
    return "\n\n".join(paragraphs)
