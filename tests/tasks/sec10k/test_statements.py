"""The sentence that states a fact, among sentences that only look like it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lens_heads.tasks.sec10k.settings import settings
from lens_heads.tasks.sec10k.statements import LONGEST, NOT_STATED, SEVERAL, UNKNOWN, Statement, find_statement, names
from tests.tasks.sec10k.handmade import FACTS, FILING, NEEDLES, SECTIONS, only

TASKS = tuple(settings()["tasks"])


def stated(text: str, task: str, value: str | None = None) -> tuple[str, str, int] | str:
    """Needle, value as written and number of other statements in a filing of one section; without value, extracted."""
    section = settings()["tasks"][task]["sections"][0]
    filing = replace(only(**{section: text}), facts={} if value is None else {task: value})
    found = find_statement(filing, task)
    return (found.text, found.value_text, len(found.others)) if isinstance(found, Statement) else found


@pytest.mark.parametrize("task", TASKS)
def test_each_fact_is_stated_by_its_sentence(task: str) -> None:
    found = find_statement(FILING, task)
    assert isinstance(found, Statement)
    assert found.text == NEEDLES[task]
    assert FILING.sections[found.section][found.start : found.end] == found.text
    assert found.value == FACTS[task]
    assert found.value_text in found.text
    assert found.only, found.others
    assert not found.extracted


@pytest.mark.parametrize("task", ["headquarters_city", "incorporation_year", "employees_count_total", "ceo_lastname"])
def test_a_fact_that_is_not_given_is_extracted_and_marked(task: str) -> None:
    unknown = replace(FILING, facts={})
    found = find_statement(unknown, task)
    assert isinstance(found, Statement)
    assert (found.text, found.value, found.extracted) == (NEEDLES[task], FACTS[task], True)
    assert find_statement(unknown, task, extract=False) == UNKNOWN


@pytest.mark.parametrize("task", ["registrant_name", "incorporation_state", "headquarters_state"])
def test_names_and_states_are_never_extracted(task: str) -> None:
    assert find_statement(replace(FILING, facts={}), task) == UNKNOWN


@pytest.mark.parametrize(
    ("task", "text", "value"),
    [
        (
            "employees_count_total",
            "As of January 3, 2010, we had 3,267 full-time employees, 9 of them in Rome.",
            "3,267",
        ),
        ("employees_count_total", "The Company employs 101people.", "101"),
        ("employees_count_total", "We employed 192 regular full-time employees.", "192"),
        ("employees_count_total", "The Company has approximately 622,000 full- and part-time associates.", "622,000"),
        ("employees_count_total", "At year end the number of persons employed by the Company was 77.", "77"),
        ("holder_record_amount", "We had approximately 389 stockholders of record.", "389"),
        ("holder_record_amount", "The approximate number of common shareholders of record was 958,420.", "958,420"),
        ("holder_record_amount", "There were 217 record holders for the Common Stock.", "217"),
        ("holder_record_amount", "The stock was held of record by approximately 1,102 persons.", "1,102"),
        ("incorporation_year", "We were incorporated in Delaware in June 1988 under another name.", "1988"),
        ("incorporation_year", "Halvorsen was incorporated under the laws of Nevada on April 12, 1995.", "1995"),
        (
            "incorporation_year",
            "XYZ changed. The Company was incorporated in Ohio in 1984 and reincorporated in 1995.",
            "1984",
        ),
        ("ceo_lastname", "Jane Q. Smith, Chief Executive Officer, is 50 years old.", "Smith"),
        ("ceo_lastname", "Mr. Iger was appointed Chairman and Chief Executive Officer in March 2012.", "Iger"),
        ("ceo_lastname", "Dr. Eli Harari, our founder, has served as Chief Executive Officer since 1988.", "Harari"),
        ("headquarters_city", "Our corporate headquarters are located in San Jose, California.", "San Jose"),
        (
            "headquarters_city",
            "The Company leases its corporate office in King of Prussia, Pennsylvania.",
            "King of Prussia",
        ),
        ("headquarters_city", "We are headquartered at 200 Bridge Road, Columbus, OH 43085.", "Columbus"),
    ],
)
def test_sentences_whose_form_leaves_no_doubt_give_the_value(task: str, text: str, value: str) -> None:
    found = stated(text, task)
    assert not isinstance(found, str), found
    assert found[1:] == (value, 0)


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("employees_count_total", "We had approximately 500 employees engaged in research."),
        ("employees_count_total", "The Bank of Ohio had 25 employees."),
        ("employees_count_total", "We paid $300 to employees."),
        ("holder_record_amount", "Dividends are payable to holders of record on May 1, 1997."),
        ("holder_record_amount", "There were 3,724 shareholders of record and beneficial holders."),
        ("incorporation_year", "A division of the Company, Cyber, was incorporated in 1993."),
        ("incorporation_year", "The Company formed a new division in May 1997."),
        ("ceo_lastname", "Paul Ruiz was formerly Chief Executive Officer."),
        ("ceo_lastname", "Mr. Adams has been Chief Executive Officer of Endowment Inc. for years."),
        ("ceo_lastname", "Ida Chang, Chief Financial Officer, reports to the Chief Executive Officer."),
        ("headquarters_city", "The World Headquarters of Acme Express are located in Memphis, Tennessee."),
        ("headquarters_city", "Our former headquarters were in Akron, Ohio."),
    ],
)
def test_sentences_that_only_look_like_it_give_none(task: str, text: str) -> None:
    assert stated(text, task) == UNKNOWN


def test_two_values_in_the_text_are_none() -> None:
    assert stated("We had 8,100 employees. As of May 1, we had 6,700 employees.", "employees_count_total") == SEVERAL
    assert stated("We had 8,100 employees. As of May 1, we had 8100 employees.", "employees_count_total") == (
        "We had 8,100 employees.",
        "8,100",
        1,
    )


@pytest.mark.parametrize(
    ("task", "value", "text", "expected"),
    [
        ("incorporation_state", "Virginia", "The Company is a West Virginia corporation.", None),
        ("incorporation_state", "Delaware", "Its subsidiary, X Corp., was incorporated in Delaware.", None),
        ("incorporation_state", "Delaware", "In 1974 the Company acquired X Corp., a Delaware corporation.", None),
        ("incorporation_state", "Maine", "We were incorporated in 1992 and are headquartered in Bangor, Maine.", None),
        ("incorporation_state", "Delaware", "Halvorsen, which makes paper, is a Delaware corporation.", "Delaware"),
        ("incorporation_state", "Delaware", "The Company, a Delaware corporation, has a mill in Ohio.", "Delaware"),
        ("incorporation_state", "Utah", "The Company was organized as a Utah corporation in 1868.", "Utah"),
        ("incorporation_state", "Delaware", "We were incorporated in Ohio and reincorporated in Delaware.", "Delaware"),
        ("headquarters_state", "Maine", "A mill is leased in Bangor, Maine.", None),
        ("headquarters_state", "Ohio", "The headquarters of Dover Pulp Corp. are located in Akron, Ohio.", None),
        ("headquarters_state", "Maine", "We own a building in Bangor, Maine, which houses our headquarters.", "Maine"),
        ("headquarters_state", "Maine", "Our principal executive offices are at 4 Mill St., Bangor, ME 04401.", "ME"),
        ("incorporation_year", "1988", "Sales were first reported in 1988.", None),
        ("incorporation_year", "1988", "The Company was incorporated on May 1, 1988.", "1988"),
        ("employees_count_total", "1480", "As of May 1, we had 11,480 employees.", None),
        ("holder_record_amount", "389", "There were 1,389 holders of record.", None),
        ("ceo_lastname", "Quist", "Mr. Quist declined to comment.", None),
        ("registrant_name", "Halvorsen Mills Inc", "Halvorsen Mills sold its forest.", None),
        ("registrant_name", "Halvorsen Mills Inc", "We refer to Halvorsen Mills, Inc. as us.", "Halvorsen Mills, Inc."),
    ],
)
def test_stating_and_mentioning(task: str, value: str, text: str, expected: str | None) -> None:
    found = stated(text, task, value)
    assert (found[1] if not isinstance(found, str) else None) == expected
    if expected is None:
        assert found == NOT_STATED


def test_a_heading_is_no_part_of_the_statement() -> None:
    found = stated("EMPLOYEES As of October 3, 2015, we employed 612 persons. More follows.", "employees_count_total")
    assert found == ("As of October 3, 2015, we employed 612 persons.", "612", 0)


def test_the_full_form_is_preferred_and_the_other_statements_are_told() -> None:
    text = "Our executive offices are in Bangor, ME 04401. Our executive offices are located in Bangor, Maine."
    assert stated(text, "headquarters_state", "Maine") == (
        "Our executive offices are located in Bangor, Maine.",
        "Maine",
        1,
    )
    twice = {**SECTIONS, "item_8": "Notes. Halvorsen was incorporated in the State of Delaware in May 1931."}
    found = find_statement(replace(FILING, sections=twice), "incorporation_state")
    assert isinstance(found, Statement)
    assert (found.text, found.only) == (NEEDLES["incorporation_state"], False)
    (section, start, end) = found.others[0]
    assert twice[section][start:end] == "Halvorsen was incorporated in the State of Delaware in May 1931."


def test_a_table_whose_lines_were_joined_is_no_sentence() -> None:
    names_and_ages = "John Doe 64 Director " * (LONGEST // 4)
    assert stated(f"Ann Quist, Chief Executive Officer, {names_and_ages}", "ceo_lastname") == UNKNOWN
    assert stated(f"Ann Quist, Chief Executive Officer, {names_and_ages[:200]}", "ceo_lastname") != UNKNOWN


def test_what_a_filing_calls_its_company() -> None:
    assert names(FILING) == ("HALVORSEN PAPER MILLS", "HALVORSEN PAPER", "HALVORSEN")
    union = replace(FILING, company="Union Camp Corp", sections={"item_1": "The labor union struck at Union Camp."})
    assert names(union) == ("Union Camp",)
    assert names(replace(union, company="FEDEX CORP", sections={"item_1": "See fedex.com."})) == ("FEDEX",)
    assert names(replace(union, company="")) == ()


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown task 'revenue': use 'registrant_name', 'headquarters_city'"):
        find_statement(FILING, "revenue")
