"""Fictional companies: the eight facts of each, and every other person, place and thing that its filing names.

Names are composed of syllables; cities are in their real states. Anything that is not a fact is redrawn until it contains
no written form of a fact, so that a value occurs only where the filing states it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lens_heads.tasks.sec10k.amounts import amounts, count, counts, dates
from lens_heads.tasks.sec10k.settings import fiction

MOST = 480
"""Number of available company names; the rest are for competitors, customers, lenders and subsidiaries."""
_CHARTERS = ["Delaware"] * 9 + ["at home"] * 8 + ["elsewhere"] * 8
"""Where the companies are incorporated, with repetitions as weights."""
_PRONOUNS = {"men": ("he", "his", "Mr."), "women": ("she", "her", "Ms.")}
_NAMED = ("sales", "turnover", "cost", "goods", "accounts", "craft")
_OFFICERS = ("cfo", "counsel", "coo", "founder")


@dataclass(frozen=True)
class Company:
    """A registrant.

    Attributes:
        year: the fiscal year of its filing.
        industry: its entry in industries.json.
        facts: task -> true value; numbers are bare digits.
        shown: slot for a fact -> its written form in the filing.
        fixed: the other slots that are constant throughout the filing.
        lists: words redrawn at each occurrence: states, places, people, other companies.
        forbidden: matches every written form of a fact.
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
    elsewhere = rng.choice(fiction("words")["charter_states"])
    return {
        "registrant_name": rng.choice(fiction("words")["forms"]).format(
            stem=stem, second=rng.choice(industry["second"])
        ),
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
