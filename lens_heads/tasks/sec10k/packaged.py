"""Fictional annual reports, shipped with the package, so that the 10-K tasks run without a download.

Each has the sections of a 10-K and 4,000 to 5,000 words. Every fact is stated in one sentence of its usual section, and in
about one report in seven again elsewhere. Everything else is a distractor: part-time and last year's staff, beneficial
holders, plants, former headquarters, subsidiaries' states and years, other officers and other companies. A value occurs
only in the sentences that state it, with two exceptions: the registrant's name is also mentioned in passing, and if the
headquarters are in the state of incorporation, both sentences contain that state. All text is original; the patterns and
the usual sections are in `tasks/data/filings/`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from lens_heads.tasks.grammar import SLOT, Expander
from lens_heads.tasks.sampling import enough
from lens_heads.tasks.sec10k.companies import MOST, Company, companies
from lens_heads.tasks.sec10k.filings import Filing
from lens_heads.tasks.sec10k.settings import fiction

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_TWICE = 0.15
_DRAWN = {"int", "dec", "year", "mil"}


def packaged_filings(n: int = 240, seed: int = 0) -> list[Filing]:
    """Annual reports of n different fictional companies, 1 to 480; ValueError for more.

    Their id, such as "made-0-0017" (seed, number), doubles as the company's CIK; `facts` has all eight tasks, numbers in
    bare digits. Within a seed, a longer list starts with the shorter one; other seeds recombine the same names.
    """
    enough(n, MOST, "names for fictional companies")
    filings = []
    for i, company in enumerate(companies(n, seed)):
        name, registrant = f"made-{seed}-{i:04d}", company.facts["registrant_name"]
        sections = _Report(company, random.Random(name)).sections()
        filings.append(Filing(name, name, company.year, registrant, sections, company.facts))
    return filings


class _Report(Expander):
    """The text of one company's report."""

    def __init__(self, company: Company, rng: random.Random) -> None:
        industry = {name: value for name, value in company.industry.items() if isinstance(value, list)}
        patterns = {**fiction("phrases"), **fiction("statements"), **industry}
        self.known = {*company.fixed, *company.shown, *company.lists, *patterns, *_DRAWN}
        fitting = {name: self._fitting(options) for name, options in patterns.items()}
        super().__init__(rng, {**fitting, **company.lists}, company.fixed)
        self.company = company
        self.once = {name for names in company.lists.values() for name in names}
        parts = [part for section in fiction("sections").values() for part in section["parts"]]
        self.again = {part["again"] for part in parts if "again" in part and rng.random() < _TWICE}

    def _fitting(self, patterns: Sequence[str]) -> list[str]:
        """The patterns for whose slots the industry has all the words."""
        return [text for text in patterns if self.known.issuperset(found[1].lower() for found in SLOT.finditer(text))]

    def fill(self, slot: str, *bounds: int) -> str:
        """A capitalized slot capitalizes its text; slots for facts stay until the text has been checked."""
        if slot[0].isupper():
            text = self.fill(slot.lower())
            return text[0].upper() + text[1:]
        if slot in self.company.shown:
            return f"{{{slot}}}"
        if slot in _DRAWN:
            return self._number(slot, *bounds)
        return super().fill(slot)

    def _number(self, kind: str, low: int, high: int) -> str:
        """An integer, a decimal, a year relative to the fiscal year, or thousandths of sales in millions, from low to high."""
        if kind == "year":
            return str(self.company.year + self.rng.randint(low, high))
        if kind == "int":
            return f"{self.rng.randint(low, high):,}"
        unit = 1.0 if kind == "dec" else float(self.fixed["rev_now"].replace(",", "")) / 1000
        return f"{self.rng.uniform(low, high) * unit:,.1f}"

    def expand(self, pattern: str) -> str:
        """Resolves [one|or another] at random before the slots are filled."""
        return super().expand(_CHOICE.sub(lambda found: self.rng.choice(found[1].split("|")), pattern))

    def paragraph(self, pattern: str) -> str:
        """The pattern, re-expanded until facts occur only in their own slots. Only names stay used up afterwards."""
        self.used &= self.once
        for _ in range(500):
            text = self.expand(pattern)
            if not self.company.forbidden.search(text):
                stated = SLOT.sub(lambda found: self.company.shown[found[1]], text)
                return re.sub(r"(Inc|Corp|Co|Ltd)\.\.", r"\1.", stated)
        raise RuntimeError(
            f"{pattern!r} always contains one of the facts {self.company.facts}; remove it from the pattern"
        )

    def sections(self) -> dict[str, str]:
        """The sections by name, in document order."""
        found = {}
        for name, section in fiction("sections").items():
            parts = [self._part(part) for part in section["parts"] if part.get("again") in {None, *self.again}]
            found[name] = "\n".join([section["title"], *(line for part in parts for line in part)])
        return found

    def _part(self, part: dict[str, Any]) -> list[str]:
        """Heading and paragraphs."""
        fitting = self.lists[part["from"]] if isinstance(part["from"], str) else self._fitting(part["from"])
        taken = self.rng.sample(fitting, min(self.rng.randint(*part["take"]), len(fitting)))
        heading = [part["heading"]] if "heading" in part and taken else []
        return heading + [self.paragraph(pattern) for pattern in taken]
