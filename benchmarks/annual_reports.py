"""The made-up annual reports that ship with the package, as `lens_heads/tasks/data/annual_reports.jsonl.xz`: how they were made.

Each has the sections of a 10-K and 4,000 to 5,000 words. Every fact is stated in one sentence of its usual section, and in
about one report in seven again elsewhere. Everything else is a distractor: part-time and last year's staff, beneficial
holders, plants, former headquarters, subsidiaries' states and years, other officers and other companies. A value occurs
only in the sentences that state it, with two exceptions: the registrant's name is also mentioned in passing, and if the
headquarters are in the state of incorporation, both sentences contain that state. All text is original; the patterns and
the usual sections are in `benchmarks/annual_reports/`.

Names of companies are composed of syllables; cities are in their real states. Anything that is not a fact is redrawn until it
contains no written form of a fact, so that a value occurs only where the filing states it.

Run: python benchmarks/annual_reports.py [--to FILE]
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import lens_heads
from lens_heads.tasks.prose import SLOT, Expander
from lens_heads.tasks.sampling import enough
from lens_heads.tasks.sec10k.filings import Filing

FILE = Path(lens_heads.__file__).parent / "tasks" / "data" / "annual_reports.jsonl.xz"


@lru_cache(maxsize=8)
def fiction(name: str) -> Any:
    """One of the files of `annual_reports`: "words" (names, cities), "industries", "sections", "statements", "phrases"."""
    return json.loads((Path(__file__).parent / "annual_reports" / f"{name}.json").read_text(encoding="utf-8"))


MOST = 480
"""Number of available company names; the rest are for competitors, customers, lenders and subsidiaries."""
_CHARTERS = ["Delaware"] * 9 + ["at home"] * 8 + ["elsewhere"] * 8
"""Where the companies are incorporated, with repetitions as weights."""
_PRONOUNS = {"men": ("he", "his", "Mr."), "women": ("she", "her", "Ms.")}
_NAMED = ("sales", "turnover", "cost", "goods", "accounts", "craft")
_OFFICERS = ("cfo", "counsel", "coo", "founder")
_YEAR_ENDS = (("December 31", "March", 1), ("June 30", "September", 0), ("September 30", "December", 0))
_YEARLIKE = range(1900, 2100)
_WHEN = ("now", "last", "before")


@dataclass(frozen=True)
class Company:
    """A registrant, with the fiscal `year` of its filing and its `industry`, an entry in industries.json.

    `facts` are true values by task, numbers in bare digits; `shown` is how the slots for facts are written in the filing,
    `fixed` the other slots that are constant throughout it. `lists` are words redrawn at each occurrence: states, places,
    people, other companies. `forbidden` matches every written form of a fact.
    """

    year: int
    industry: dict[str, Any]
    facts: dict[str, str]
    shown: dict[str, str]
    fixed: dict[str, str]
    lists: dict[str, list[str]]
    forbidden: re.Pattern[str]


def companies(n: int, seed: int) -> Iterator[Company]:
    """The first n companies of a seed; a longer list starts with the shorter one."""
    rng = random.Random(f"filings-{seed}")
    lists = fiction("words")
    stems = [start + end for start in lists["stem_starts"] for end in lists["stem_ends"]]
    places = [(city, state) for state, cities in lists["cities"].items() for city in cities]
    lasts, industries, charters = list(lists["last"]), list(fiction("industries")), list(_CHARTERS)
    for values in (stems, places, lasts, industries, charters):
        rng.shuffle(values)
    for i in range(n):
        own = random.Random(f"filings-{seed}-{i}")
        place, industry = places[i % len(places)], industries[i % len(industries)]
        facts = _facts(stems[i], lasts[i % len(lasts)], place, charters[i % len(charters)], industry, own)
        yield _company(stems[i], facts, industry, stems[MOST:], own)


def _facts(
    stem: str, last: str, place: tuple[str, str], charter: str, industry: dict[str, Any], rng: random.Random
) -> dict[str, str]:
    employees, holders = count(rng, 400, 9_800), count(rng, 130, 9_500)
    while holders == employees:
        holders = count(rng, 130, 9_500)
    lists = fiction("words")
    elsewhere = rng.choice(lists["charter_states"])
    return {
        "registrant_name": rng.choice(lists["forms"]).format(stem=stem, second=rng.choice(industry["second"])),
        "headquarters_city": place[0],
        "headquarters_state": place[1],
        "incorporation_state": {"at home": place[1], "elsewhere": elsewhere}.get(charter, charter),
        "incorporation_year": str(rng.randint(1946, 2000)),
        "employees_count_total": str(employees),
        "ceo_lastname": last,
        "holder_record_amount": str(holders),
    }


def _company(
    stem: str, facts: dict[str, str], industry: dict[str, Any], other_stems: list[str], rng: random.Random
) -> Company:
    year = rng.randint(max(2005, int(facts["incorporation_year"]) + 20), 2022)
    forbidden = _forbidden(stem, facts)
    sex, ceo = _person(facts["ceo_lastname"], rng)
    he, his, _ = _PRONOUNS[sex]
    fixed = {"he": he, "his": his, "symbol": stem[:4].upper(), "industry": industry["name"]}
    fixed |= {slot: industry[slot] for slot in _NAMED if slot in industry}
    others, lists = _others(facts["ceo_lastname"], forbidden, other_stems, rng)
    employees, holders = int(facts["employees_count_total"]), int(facts["holder_record_amount"])
    while True:
        drawn = dates(year, int(facts["incorporation_year"]), rng)
        drawn |= counts(employees, holders, rng) | amounts(year, employees, rng)
        if not any(forbidden.search(value) for value in drawn.values()):
            return Company(year, industry, facts, _shown(facts, ceo), fixed | others | drawn, lists, forbidden)


def _shown(facts: dict[str, str], ceo: str) -> dict[str, str]:
    state = facts["incorporation_state"]
    return {
        "company": facts["registrant_name"],
        "hq_city": facts["headquarters_city"],
        "hq_state": facts["headquarters_state"],
        "inc_state": state,
        "an_inc_state": _an(state),
        "inc_year": facts["incorporation_year"],
        "employees": f"{int(facts['employees_count_total']):,}",
        "ceo": ceo,
        "holders": f"{int(facts['holder_record_amount']):,}",
    }


def _an(state: str) -> str:
    return f"{'an' if state[0] in 'AIO' else 'a'} {state}"


def _forbidden(stem: str, facts: dict[str, str]) -> re.Pattern[str]:
    """Matches the values as whole words; numbers with or without separators, but not inside a longer number."""
    numbers = [f"{int(facts[task]):,}" for task in ("employees_count_total", "holder_record_amount")]
    digits = "|".join([facts["incorporation_year"], *(number.replace(",", ",?") for number in numbers)])
    tasks = ("headquarters_city", "headquarters_state", "incorporation_state", "ceo_lastname")
    names = [stem, *(facts[task] for task in tasks)]
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b|(?<![\d.,])(?:{digits})(?![.,]?\d)")


def _person(last: str, rng: random.Random) -> tuple[str, str]:
    """The key of the list that the first name is from, and the full name."""
    sex = rng.choice(tuple(_PRONOUNS))
    initial = f"{rng.choice('ABCDEFGHJKLMNPRSTVW')}. " if rng.random() < 0.7 else ""
    return sex, f"{rng.choice(fiction('words')[sex])} {initial}{last}"


def _others(
    last: str, forbidden: re.Pattern[str], stems: list[str], rng: random.Random
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The fixed people, companies and states of the filing, and the lists from which all others are drawn."""
    lists = fiction("words")
    lasts = [name for name in lists["last"] if name != last]
    rng.shuffle(lasts)
    fixed: dict[str, str] = {}
    for slot in _OFFICERS:
        sex, name = _person(lasts[-1], rng)
        fixed |= {slot: name, f"{slot}_he": _PRONOUNS[sex][0], f"{slot}_mr": f"{_PRONOUNS[sex][2]} {lasts.pop()}"}
    fixed["auditor"] = f"{lasts.pop()}, {lasts.pop()} & {lasts.pop()} LLP"
    others = [rng.choice(lists["other_forms"]).format(stem=stem) for stem in rng.sample(stems, len(stems))]
    fixed |= {slot: others.pop() for slot in ("subsidiary", "second_subsidiary", "predecessor")}
    fixed["lender"] = f"First {others.pop().split()[0]} Bank"
    states = [state for state in [*lists["cities"], "Delaware"] if not forbidden.search(state)]
    fixed |= {"subsidiary_state": rng.choice(states), "second_state": _an(rng.choice(states))}
    places = [f"{city}, {state}" for state in states for city in lists["cities"].get(state, ())]
    people = [_person(name, rng)[1] for name in lasts]
    return fixed, {"state": states, "place": places, "person": people, "other": others}


def count(rng: random.Random, low: int, high: int) -> int:
    """A log-uniform count from low to high, sometimes rounded, never one that looks like a year."""
    exact = round(math.exp(rng.uniform(math.log(low), math.log(high))))
    value = round(exact, -1 if exact < 1000 else -2) if rng.random() < 0.3 else exact
    return count(rng, low, high) if value in _YEARLIKE else value


def dates(year: int, inc_year: int, rng: random.Random) -> dict[str, str]:
    """Fiscal years, the filing's date, and the years of past events, none of which is the year of incorporation."""
    year_end, month, later = rng.choice(_YEAR_ENDS)
    joined = rng.randint(year - 18, year - 8)
    named = {"ceo_joined": joined, "ceo_named": rng.randint(max(joined + 1, year - 10), year - 1)}
    past = {"founded": inc_year - rng.randint(4, 40), "ipo": rng.randint(inc_year + 2, year - 9)}
    past["bought"] = rng.randint(year - 8, year - 3)
    fiscal = {"fy": year, "last": year - 1, "before": year - 2, "next": year + 1}
    years = {slot: str(value) for slot, value in (fiscal | past | named).items()}
    filed = f"{month} {rng.randint(1, 28)}, {year + later}"
    return years | {"fye": year_end, "filed": filed, "ceo_age": str(rng.randint(48, 66))}


def counts(employees: int, holders: int, rng: random.Random) -> dict[str, str]:
    """Distractor counts of people and shares, close to the true ones but different."""
    few = {"part_time": (0.05, 0.30), "union": (0.04, 0.18), "subsidiary_staff": (0.15, 0.40), "seasonal": (0.05, 0.20)}
    people = {slot: employees * rng.uniform(*share) for slot, share in few.items()}
    people["staff_before"] = employees * rng.choice((rng.uniform(0.85, 0.97), rng.uniform(1.03, 1.15)))
    people["beneficial_holders"] = holders * rng.uniform(4, 20)
    shares = {
        "shares": f"{rng.randint(4_000_000, 90_000_000):,}",
        "authorized": rng.choice(("100", "120", "150", "200")),
    }
    return {slot: f"{round(value):,}" for slot, value in people.items()} | shares


def amounts(year: int, employees: int, rng: random.Random) -> dict[str, str]:
    """Three years of results in millions, the changes and ratios that follow from them, and stock prices."""
    sales = [round(employees * rng.uniform(0.12, 0.40), 1)]
    for _ in range(2):
        sales.append(round(sales[-1] / (1 + rng.choice((1, 1, -1)) * rng.uniform(0.02, 0.14)), 1))
    level = rng.uniform(0.62, 0.80)
    cost = [level + rng.uniform(-0.012, 0.012) for _ in sales]
    overhead = [round(value * rng.uniform(0.095, 0.105), 1) for value in sales]
    operating = [round(sold * (1 - share) - spent, 1) for sold, share, spent in zip(sales, cost, overhead, strict=True)]
    tax = rng.randint(34, 39) if year < 2018 else rng.randint(22, 27)
    net = [(value - 0.02 * sold) * (1 - tax / 100) for value, sold in zip(operating, sales, strict=True)]
    series = {"rev": sales, "op": operating, "net": net, "sga": overhead}
    money = {f"{slot}_{when}": values[i] for slot, values in series.items() for i, when in enumerate(_WHEN)}
    shares = {"debt": 0.24, "line": 0.40, "assets": 0.85, "capex": 0.05, "cash_flow": 0.11, "paid": 0.06}
    money |= {slot: sales[0] * share * rng.uniform(0.9, 1.1) for slot, share in shares.items()}
    money["interest"] = 0.02 * sales[0]
    written = {slot: f"{value:,.1f}" for slot, value in money.items()} | {"tax": str(tax)}
    written["good"] = "good" if operating[0] > operating[1] else "difficult"
    for i, when in enumerate(_WHEN[:2]):
        written[f"growth_{when}"] = f"{100 * abs(sales[i] / sales[i + 1] - 1):.1f}"
        written[f"rose_{when}"] = "increased" if sales[i] > sales[i + 1] else "decreased"
        written[f"cost_share_{when}"] = f"{100 * cost[i]:.1f}"
    price = rng.uniform(7, 60)
    around = {"low_now": 0.8, "mid_now": 1.0, "high_now": 1.2, "low_last": 0.7, "high_last": 1.1}
    return written | {slot: f"{price * factor * rng.uniform(0.95, 1.05):.2f}" for slot, factor in around.items()}


_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_TWICE = 0.15
_DRAWN = {"int", "dec", "year", "mil"}


def made_filings(n: int = 240, seed: int = 0) -> list[Filing]:
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


def packed(filings: Sequence[Filing]) -> bytes:
    """A line of JSON per report, compressed."""
    lines = [json.dumps(asdict(filing), ensure_ascii=False) + "\n" for filing in filings]
    return lzma.compress("".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=FILE)
    to = parser.parse_args().to
    to.write_bytes(packed(made_filings()))
    print(f"{to}: {to.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
