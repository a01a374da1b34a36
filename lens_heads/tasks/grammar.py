"""Sentences from patterns: every slot in braces is filled from a word list, with words not used before while there are any."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

SLOT = re.compile(r"\{([A-Za-z_]+)2?((?: -?\d+)*)\}")
"""`{name}` or, where numbers bound what is drawn, `{name 3 9}`; a trailing 2 only marks a second draw."""


class Expander:
    """Fills the slots of patterns: with the fixed word of that name, else with a draw from the list of that name."""

    def __init__(self, rng: random.Random, lists: Mapping[str, Sequence[str]], fixed: Mapping[str, str]) -> None:
        self.rng = rng
        self.lists = lists
        self.fixed = fixed
        self.used: set[str] = set()

    def draw(self, options: Sequence[str]) -> str:
        """One of the options, one not drawn before if there is any."""
        fresh = [option for option in options if option not in self.used]
        chosen = self.rng.choice(fresh or options)
        self.used.add(chosen)
        return chosen

    def fill(self, slot: str, *bounds: int) -> str:
        """The text for one slot; words of a list may have slots themselves."""
        if slot in self.fixed:
            return self.fixed[slot]
        return self.expand(self.draw(self.lists[slot]))

    def expand(self, pattern: str) -> str:
        """The pattern with every slot filled."""
        return SLOT.sub(lambda found: self.fill(found[1], *map(int, found[2].split())), pattern)
