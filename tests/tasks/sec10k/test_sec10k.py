"""The entries: which facts of which companies become trials, and every refusal."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_heads.tasks.sec10k import find_statement, half, read_filings, sec10k, sec10k_documents, survey
from lens_heads.tasks.sec10k.filings import packaged_filings
from lens_heads.tasks.sec10k.settings import settings
from lens_heads.tasks.sec10k.statements import Statement
from tests.tasks.sec10k.handmade import FILING, SECTIONS

TASKS = tuple(settings()["tasks"])
COMPANIES = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two reports each of twelve companies, their headquarters in Maine; every third does not say so."""
    for at in range(COMPANIES):
        for year in (1996, 1997):
            item_2 = "We own a mill." if at % 3 == 0 else SECTIONS["item_2"]
            sections = {**SECTIONS, "item_2": item_2, "item_8": f"Note {at}. " + "Leases are for ten years. " * 40}
            known = {"cik": str(100 + at), "company": FILING.company, "state_of_inc": "DE", "state_location": "ME"}
            (tmp_path / f"{100 + at}_10K_{year}.json").write_text(json.dumps({**known, **sections}))
    return tmp_path


def test_all_tasks_of_all_filings(folder: Path) -> None:
    trials = sec10k(folder)
    counts = Counter(trial.meta["task"] for trial in trials)
    assert counts == {task: 16 if task.startswith("headquarters") else 24 for task in TASKS}
    assert len({trial.id for trial in trials}) == len(trials)
    assert {trial.meta["extracted"] for trial in trials if trial.meta["task"] == "ceo_lastname"} == {True}
    assert {trial.meta["extracted"] for trial in trials if trial.meta["task"] == "incorporation_state"} == {False}
    assert [trial.id for trial in sec10k_documents(folder)] == [trial.id for trial in trials]
    with pytest.raises(
        ValueError, match=r"task 'headquarters_city': no sentence in the filings .*\(24 x value unknown"
    ):
        sec10k(folder, extract=False)


def test_a_draw_is_spread_over_the_tasks_and_fixed_by_its_seed(folder: Path) -> None:
    drawn = sec10k(folder, n=19, seed=4)
    assert sorted(Counter(trial.meta["task"] for trial in drawn).values()) == [2, 2, 2, 2, 2, 3, 3, 3]
    assert drawn == sec10k(folder, n=19, seed=4)
    assert {trial.id for trial in drawn} != {trial.id for trial in sec10k(folder, n=19, seed=5)}
    two = sec10k(folder, task=["ceo_lastname", "registrant_name"], n=6)
    assert Counter(trial.meta["task"] for trial in two) == {"ceo_lastname": 3, "registrant_name": 3}
    assert all(90 <= trial.meta["words"] < 120 for trial in sec10k(folder, task="ceo_lastname", words=90))


@pytest.mark.slow
def test_no_company_is_in_both_splits_whatever_else_is_asked(folder: Path) -> None:
    test = {trial.meta["cik"] for trial in sec10k(folder, split="test", seed=7, task="ceo_lastname")}
    select = {trial.meta["cik"] for trial in sec10k_documents(folder, split="select", seed=0, n=40, n_documents=1)}
    assert test | select <= {str(100 + at) for at in range(COMPANIES)}
    assert test
    assert select
    assert not test & select
    assert len(sec10k(folder, split="test")) + len(sec10k(folder, split="select")) == len(sec10k(folder))
    other = {trial.meta["cik"] for trial in sec10k(folder, split="test", split_seed=1)}
    assert other != test


@given(st.sets(st.integers(1, 10**7), min_size=60, max_size=60), st.integers(0, 3))
def test_a_company_keeps_its_split_and_both_get_some(ciks: set[int], seed: int) -> None:
    halves = {cik: half(str(cik), seed) for cik in ciks}
    assert halves == {cik: half(f"{cik:010d}", seed) for cik in ciks}
    assert 5 < Counter(halves.values())["test"] < 55


def test_a_survey_counts_every_filing_once_per_task(folder: Path) -> None:
    table = survey(read_filings(folder)).set_index("task")
    assert list(table.index) == list(TASKS)
    hq = {"filings": 24, "known": 24, "stated": 16, "extracted": 0, "only": 16, "no sentence states it": 8}
    assert dict(table.loc["headquarters_state", list(hq)]) == hq
    city = {"known": 0, "stated": 16, "extracted": 16, "value unknown": 8}
    assert dict(table.loc["headquarters_city", list(city)]) == city
    reasons = ["value unknown", "several values in the text", "no sentence states it"]
    assert (table["stated"] + table[reasons].sum(axis=1) == table["filings"]).all()


def test_without_a_path_the_packaged_reports_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["lens_heads.tasks.sec10k"], "packaged_filings", lambda: [FILING])
    assert [trial.meta["task"] for trial in sec10k()] == list(TASKS)
    assert not any(trial.meta["extracted"] for trial in sec10k())


@pytest.mark.slow
def test_the_packaged_reports_state_their_facts() -> None:
    """All of them: trials are drawn before the sentences of those drawn are looked for."""
    filings = packaged_filings()
    for task in TASKS:
        found = [find_statement(filing, task) for filing in filings]
        assert all(isinstance(each, Statement) and not each.extracted for each in found), task
    assert len(sec10k(words=20)) == len(filings) * len(TASKS)


def test_the_corpus_with_its_truth(tmp_path: Path) -> None:
    row = {"filename": "7_1993.txt", "cik": "7", "year": "1993"}
    row |= {name.replace("item_", "section_"): text for name, text in SECTIONS.items()}
    (tmp_path / "c.json").write_text(json.dumps([row]))
    (tmp_path / "t.csv").write_text(
        "filename,registrant_name_truth,ceo_lastname_truth\n7_1993.txt,Halvorsen Paper Mills,Quist\n"
    )
    trials = sec10k(tmp_path / "c.json", source={"truth": tmp_path / "t.csv"}, task=["registrant_name", "ceo_lastname"])
    assert {trial.meta["task"]: trial.meta["extracted"] for trial in trials} == dict.fromkeys(
        ("registrant_name", "ceo_lastname"), False
    )
    assert len(sec10k(tmp_path / "c.json", source="corpus", task="holder_record_amount")) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "revenue"}, "unknown task 'revenue': use 'registrant_name', .*or None for all"),
        ({"split": "train"}, "unknown split 'train': use 'select' or 'test', or None for both"),
        ({"source": "sec"}, "unknown source 'sec': use 'packaged', 'filings' or 'corpus'"),
        ({"source": "packaged"}, "path= requires source='filings' or 'corpus'"),
        ({"source": {"year": 1993}}, "unknown option of source 'year': use 'years' or 'truth', those of `read_corpus`"),
        ({"n": 177}, r"n=177 is out of range: there are 176 trials to draw from; use 1 to 176"),
        ({"words": 0}, "words=0: must be a positive integer, the number of words around the needle"),
    ],
)
def test_what_cannot_be_had_is_refused(folder: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sec10k(folder, **arguments)


def test_other_faults_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="source='filings' requires path="):
        sec10k(source="filings")
    with pytest.raises(ValueError, match="chunk_words=0: must be a positive integer"):
        sec10k_documents(folder, chunk_words=0)
    with pytest.raises(FileNotFoundError, match=r"none is neither a folder nor a \.zip"):
        sec10k(tmp_path / "none")
    lone = tmp_path / "lone"
    lone.mkdir()
    (lone / "5_10K_1996.json").write_text(json.dumps({"cik": "5", "company": "Acme Inc", "item_5": SECTIONS["item_5"]}))
    with pytest.raises(ValueError, match=r"no sentence in the filings states it \(1 x no other section\)"):
        sec10k(lone, task="holder_record_amount")
    missing = "select" if half("5") == "test" else "test"
    with pytest.raises(ValueError, match=rf"in the {missing} half of the filings states it \(there are no filings\)"):
        sec10k(lone, task="holder_record_amount", split=missing)
