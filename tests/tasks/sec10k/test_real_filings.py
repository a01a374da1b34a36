"""Sixty-two real reports: enough of their facts are stated, and chosen sentences were read by eye."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from lens_heads.tasks.sec10k import find_statement, read_filings, sec10k, survey
from lens_heads.tasks.sec10k.filings import Filing
from lens_heads.tasks.sec10k.settings import settings
from lens_heads.tasks.sec10k.statements import Statement

DATA = Path(__file__).parents[4] / "shared" / "data" / "edgar_10k" / "10-K.zip"
TRUTH = DATA.parents[1] / "edgar_haystack" / "ground_truth.csv"

pytestmark = pytest.mark.skipif(not DATA.is_file(), reason=f"{DATA} is not there: real 10-K filings")


@lru_cache(maxsize=1)
def filings() -> list[Filing]:
    return read_filings(DATA)


def statement(name: str, task: str) -> Statement | str:
    return find_statement(next(filing for filing in filings() if filing.id.startswith(name)), task)


@pytest.mark.slow
def test_enough_facts_are_stated() -> None:
    table = survey(filings()).set_index("task")
    least = {
        "registrant_name": 50,
        "headquarters_city": 40,
        "headquarters_state": 40,
        "incorporation_state": 25,
        "incorporation_year": 28,
        "employees_count_total": 48,
        "ceo_lastname": 22,
        "holder_record_amount": 45,
    }
    assert (table["filings"] == 62).all()
    assert {task: int(table.loc[task, "stated"]) for task in least if table.loc[task, "stated"] < least[task]} == {}
    assert table.loc["registrant_name", "known"] == table.loc["incorporation_state", "known"] == 62
    assert table.loc["headquarters_state", "known"] == 61, "one company is in British Columbia"


@pytest.mark.parametrize(
    ("name", "task", "value", "text"),
    [
        ("1000180_10K_2010", "employees_count_total", "3,267", "As of January 3, 2010, we had 3,267 full-time"),
        ("1000180_10K_2010", "incorporation_year", "1988", "We were incorporated in Delaware in June 1988"),
        ("1000180_10K_2010", "ceo_lastname", "Harari", "Dr. Eli Harari, the founder of SanDisk, has"),
        ("1000180_10K_2010", "holder_record_amount", "389", "As of February 1, 2010, we had approximately 389"),
        ("1000564_10K_2002", "employees_count_total", "1,480", "As of September 27, 2002, the Company had appro"),
        ("1000685_10K_1997", "headquarters_city", "King of Prussia", "The Company leases its corporate office"),
        ("1001907_10K_2004", "employees_count_total", "192", "As of June 30, 2004, SPACEHAB and its wholly"),
        ("1005101_10K_2022", "employees_count_total", "101", "Across the Company and its subsidiaries the"),
        ("1001039_10K_2014", "holder_record_amount", "958,420", "As of September 27, 2014, the approximate number"),
        ("1048911_10K_2023", "incorporation_state", "Delaware", "FedEx Corporation (“FedEx”) was incorporated"),
        ("1003932_10K_1996", "incorporation_year", "1984", "XeTel was incorporated in Texas in 1984 and"),
        ("109378_10K_1995", "incorporation_state", "Utah", "(a) Zions Cooperative Mercantile Institution"),
        ("104169_10K_1995", "headquarters_state", "Arkansas", "The Company, a Delaware corporation, has its"),
        (
            "1001250_10K_2012",
            "registrant_name",
            "The Estée Lauder Companies Inc.",
            "The Estée Lauder Companies Inc., founded",
        ),
    ],
)
def test_sentences_read_by_eye(name: str, task: str, value: str, text: str) -> None:
    found = statement(name, task)
    assert isinstance(found, Statement), found
    assert found.value_text == value
    assert found.text.startswith(text)


@pytest.mark.skipif(not TRUTH.is_file(), reason=f"{TRUTH} is not there: published true values")
@pytest.mark.parametrize(
    ("name", "tasks"),
    [
        ("100240_10K_1993", ("employees_count_total", "incorporation_year", "headquarters_city")),
        ("100783_10K_1993", ("employees_count_total", "headquarters_city")),
    ],
)
def test_extracted_values_are_the_published_true_ones(name: str, tasks: tuple[str, ...]) -> None:
    filing = next(filing for filing in filings() if filing.id.startswith(name))
    columns = {task: column for column, task in settings()["truth_columns"].items()}
    with TRUTH.open(encoding="utf-8-sig") as file:
        (truth,) = (row for row in csv.DictReader(file) if row["cik"] == filing.cik)
    for task in ("registrant_name", *tasks, "headquarters_state", "incorporation_state"):
        known = truth[columns[task]]
        if task in tasks:
            found = find_statement(filing, task)
            assert isinstance(found, Statement)
            assert (found.value, found.extracted) == (known, True)
        found = find_statement(replace(filing, facts={task: known}), task)
        assert isinstance(found, Statement)
        assert not found.extracted


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("1002517_10K_2019", "employees_count_total"),  # Before and after a spin-off.
        ("1048911_10K_2023", "employees_count_total"),  # Only its subsidiaries'.
        ("1048911_10K_2023", "headquarters_state"),  # Only its subsidiaries'.
        ("109446_10K_1994", "headquarters_state"),  # EDGAR has today's.
        ("1001039_10K_2012", "incorporation_state"),
    ],
)
def test_what_is_not_said_is_not_found(name: str, task: str) -> None:
    assert isinstance(statement(name, task), str)


@pytest.mark.slow
def test_no_trial_gives_its_answer_away() -> None:
    trials = sec10k(DATA, task=["incorporation_state", "headquarters_city"], n=24, words=3000)
    for trial in trials:
        assert not re.search(rf"\b{re.escape(trial.answer)}\b", trial.haystack)
        assert trial.answer in trial.needle
        assert len(trial.haystack.split()) == trial.meta["words"] < 3200
