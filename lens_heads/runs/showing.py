"""Texts from anywhere as plain text: nothing in them moves a cursor, colours a terminal or turns a line around."""

from __future__ import annotations

import re
import reprlib

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
"""Control characters, marks that change the direction of writing, and halves of characters that no file can hold."""

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 120
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxtuple, _SHORT.maxdict = 3, 8, 8, 8


def visible(text: object, keep: str = "") -> str:
    """The text with invisible characters as escapes (a terminal's escape becomes \\x1b), except those in `keep`."""

    def seen(found: re.Match[str]) -> str:
        return found[0] if found[0] in keep else found[0].encode("unicode_escape", "backslashreplace").decode()

    return _UNSEEN.sub(seen, str(text))


def one_line(text: object) -> str:
    """The text on one line, with invisible characters as escapes."""
    return visible(" ".join(part for line in str(text).splitlines() if (part := line.strip())))


def shown(value: object) -> str:
    """The value as Python writes it, shortened to what an error message can hold."""
    return _SHORT.repr(value)
