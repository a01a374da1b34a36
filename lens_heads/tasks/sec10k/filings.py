"""One annual report: its sections, and what is known to be true of the company."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Filing:
    """One annual report: sections by name in document order ("item_1", "item_1A", ...), and the facts known to be true."""

    id: str
    cik: str
    year: int
    company: str
    sections: dict[str, str]
    facts: dict[str, str]
