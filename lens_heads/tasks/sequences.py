"""Sequences in which every word has a successor   (the tables of Successor Heads, arXiv 2312.09230)."""

from __future__ import annotations

from itertools import pairwise

_WRITTEN = {
    "days": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "months": "January February March April May June July August September October November December",
    "number words": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty",
    "ordinals": "first second third fourth fifth sixth seventh eighth ninth tenth",
    "letters": "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
}
CYCLES = ("days", "months")
SEQUENCES = {name: tuple(words.split()) for name, words in _WRITTEN.items()} | {
    "numbers": tuple(map(str, range(1, 201)))
}
"""The sequences by name. Those of `CYCLES` begin again after their last word."""


def successor_pairs() -> list[tuple[str, str]]:
    """Every word with its successor. Tokenizers know different ones as single tokens, so users drop the others."""
    pairs: list[tuple[str, str]] = []
    for name, words in SEQUENCES.items():
        pairs += pairwise(words)
        pairs += [(words[-1], words[0])] if name in CYCLES else []
    return pairs
