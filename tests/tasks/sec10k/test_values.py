"""What counts as a written form of a value, and what only looks like one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_heads.tasks.sec10k.values import abbreviated, clean_name, core_name, number, state_name, variants, written


def found(kind: str, value: str, text: str) -> list[str]:
    return re.findall(written(kind, value), text)


@pytest.mark.parametrize(
    ("kind", "value", "text", "expected"),
    [
        ("state", "Delaware", "in Delaware, DELAWARE or Dover, DE 19901", ["Delaware", "DELAWARE", "DE"]),
        ("state", "Delaware", "the DE facto model, MODE 19901, Delawareans", []),
        ("state", "California", "Milpitas, CA 95035; CA 94303; ICA, CAB", ["CA", "CA"]),
        ("state", "Virginia", "West Virginia and Virginia", ["Virginia"]),
        ("state", "Washington", "Washington, D.C. 20549, Washington DC, Seattle, Washington", ["Washington"]),
        ("state", "New York", "New\nYork and NEW YORK and NEWYORK", ["New\nYork", "NEW YORK"]),
        ("number", "1480", "1,480 or 1480 of 11,480, 1,480,000, 14801, 1480.5 and 2,1480", ["1,480", "1480"]),
        ("number", "1,480", "employs 1480people.", ["1480"]),
        ("number", "389", "389. 389, $.389 and 1,389", ["389", "389"]),
        ("year", "1988", "June 1988, 11988, 1,988 and 1988.", ["1988", "1988"]),
        ("person", "Iger", "Mr. Iger's plan, IGER, Igers, iger, Smith-Iger", ["Iger", "IGER"]),
        ("city", "St. Louis", "in St. Louis and ST. LOUIS", ["St. Louis", "ST. LOUIS"]),
        ("city", "Wayne", "in Waynesboro", []),
    ],
)
def test_written_forms(kind: str, value: str, text: str, expected: list[str]) -> None:
    assert found(kind, value, text) == expected


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        ("SANDISK CORP", "SanDisk Corporation, a maker", ["SanDisk Corporation"]),
        ("SANDISK CORP", "sandisk and SunDisk Corp.", ["sandisk"]),
        ("WAL MART STORES INC", "at Wal-Mart Stores, Inc. today", ["Wal-Mart Stores, Inc."]),
        ("ESTEE LAUDER COMPANIES INC", "The Estée Lauder Companies Inc. sells", ["The Estée Lauder Companies Inc."]),
        ("HOME HEALTH CORP OF AMERICA INC", "Home Health Corporation of America, Inc.", None),
        ("COMMUNICATIONS & POWER INC", "Communications and Power, Incorporated", None),
        ("Acme Co., Inc.", "Acme Company, Inc.", None),
        ("NEXT INC", "The next day, Nextel called", ["The next"]),
    ],
)
def test_names_with_and_without_legal_form(value: str, text: str, expected: list[str] | None) -> None:
    assert found("name", value, text) == ([text] if expected is None else expected)


def test_edgars_marks_are_no_part_of_a_name() -> None:
    given_names = [
        "HOME HEALTH CORP OF AMERICA INC \\PA\\",
        "WALT DISNEY CO/",
        "ASTROTECH Corp \\WA\\",
        "ACME CORP /DE/",
    ]
    assert [clean_name(name) for name in given_names] == [
        "HOME HEALTH CORP OF AMERICA INC",
        "WALT DISNEY CO",
        "ASTROTECH Corp",
        "ACME CORP",
    ]
    assert [core_name(name) for name in ("WALT DISNEY CO/", "The Acme Holding Co., Inc.", "Smith & Co", "Inc")] == [
        "WALT DISNEY",
        "Acme Holding",
        "Smith",
        "Inc",
    ]


def test_states_of_edgar() -> None:
    assert [state_name(code) for code in ("DE", "ca ", "PR", "DC", "A1", "X0", "")] == [
        "Delaware",
        "California",
        "Puerto Rico",
        "District of Columbia",
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("name", "SANDISK CORP", ("SANDISK CORP", "SANDISK", "SANDISK Corporation")),
        ("name", "Nuance Communications, Inc.", None),
        ("state", "Delaware", ("Delaware", "DE")),
        ("number", "4342", ("4342", "4,342")),
        ("number", "4,342.0", ("4,342.0", "4342", "4,342")),
        ("year", "1929", ("1929",)),
        ("city", "San Dimas", ("San Dimas",)),
    ],
)
def test_variants(kind: str, value: str, expected: tuple[str, ...] | None) -> None:
    assert variants(kind, value) == (
        expected or ("Nuance Communications, Inc.", "Nuance Communications", "Nuance Communications Incorporated")
    )


@given(st.integers(0, 10_000_000))
def test_a_number_is_found_in_both_forms_and_in_no_larger_one(count: int) -> None:
    for text in (f"{count}", f"{count:,}"):
        assert found("number", str(count), f"had {text} employees.") == [text]
        assert found("number", f"{count:,}", f"had {text}, all told") == [text]
        assert not found("number", str(count), f"had 7{text} or {text}8")
        assert number(text) == str(count)


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'about 50' is not an integer: write it as 4342 or 4,342"):
        number("about 50")


def test_abbreviated_forms() -> None:
    assert abbreviated("state", "Maine", "ME")
    assert not abbreviated("state", "Maine", "Maine")
    assert abbreviated("name", "Acme Inc", "Acme")
    assert not abbreviated("name", "Acme Inc", "Acme, Inc.")
    assert not abbreviated("name", "Acme Institution", "Acme Institution")
