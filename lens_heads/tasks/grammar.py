"""Sentences from patterns: every slot in braces is filled from a word list, preferring words not used before."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

SLOT = re.compile(r"\{([A-Za-z_]+)2?((?: -?\d+)*)\}")
"""`{name}`, or `{name 3 9}` with bounds for the number drawn; a trailing 2 only marks a second draw."""


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
