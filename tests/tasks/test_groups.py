"""Groups: what the answers of several trials depend on is one group, and selection shares none with evaluation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from lens_heads import tasks
from lens_heads.tasks.rhyme import rhyme_groups
from lens_heads.tasks.rows import packaged_rows
from tests import zoo
from tests.tasks import nolima_files
from tests.tasks.row_files import write
from tests.tasks.sec10k.handmade import FILING
from tests.tasks.test_multiple_choice import ARC, BOOLQ, HELLASWAG, MMLU, WMDP
from tests.tasks.test_musique import HUB_ROWS
from tests.tasks.test_niah import folder as novels
from tests.tasks.test_qrhead import ROWS as DOCUMENTS
from tests.tasks.test_qrhead import file

UNGROUPED = (
    *("capitals", "induction", "continuation", "swearing", "key_value", "colored_objects", "copy_colors"),
    *("succession", "greater_than"),
)
"""Tasks whose trials share nothing."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Twelve companies' reports; edgar-crawler writes a CIK with or without its leading zeros."""
    for at in range(12):
        known = {
            "cik": f"{100 + at:010d}" if at % 2 else str(100 + at),
            "company": FILING.company,
            "state_of_inc": "DE",
            "state_location": "ME",
        }
        (tmp_path / f"{100 + at}_10K_1996.json").write_text(json.dumps({**known, **FILING.sections}))
    return tmp_path


@pytest.fixture
def arguments(reports: Path, tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Those that a task needs; the packaged reports take long to read."""
    (words := tmp_path / "words.txt").write_text("drat\nbother\n")
    return {"swearing": {"words": words}, "sec10k": {"path": reports}, "sec10k_documents": {"path": reports}}


@pytest.mark.parametrize("name", tasks.HALVES)
def test_selection_and_evaluation_share_no_trial_needle_or_group(
    name: str, arguments: dict[str, dict[str, Any]]
) -> None:
    more = arguments.get(name, {"seed": 1})
    select, test = (tasks.load(name, split=split, **more) for split in ("select", "test"))
    # These reports are copies of one.
    for field in ("id", "group", "needle") if not name.startswith("sec10k") else ("id", "group"):
        found = {getattr(trial, field, "") for trial in select} - {""}
        assert not found & {getattr(trial, field, "") for trial in test}
    groups = {trial.group for trial in [*select, *test]}
    if name in UNGROUPED:
        assert groups == {""}
        return
    assert all(group.startswith(f"{name.removesuffix('_documents')} ") for group in groups)
    whole = (
        tasks.load(name, **more)
        if name not in ("packaged", "ioi", "colored_objects", "copy_colors", "greater_than")
        else tasks.load(name, split="select", **more)
    )
    assert {trial.group for trial in whole} & {trial.group for trial in select}, "the same trials are of the same group"


def test_a_needle_has_one_group_whatever_is_asked_about_it() -> None:
    trials = [*tasks.packaged(n=60), *tasks.packaged(n=60, questions="direct", seed=1)]
    assert {(trial.group, trial.meta["entry"]) for trial in trials} == {
        (f"packaged {entry}", entry) for entry in {trial.meta["entry"] for trial in trials}
    }
    assert trials[0].encode(zoo.tokenizer()).group == trials[0].group


def test_presets_of_nolima_share_entries_but_no_group(tmp_path: Path) -> None:
    root = nolima_files.folder(tmp_path)
    paper, scripts, evaluation = (
        tasks.nolima(root, preset=preset, lengths=[500]) for preset in ("paper", "scripts", "evaluation")
    )
    groups = [{trial.group for trial in trials} for trials in (paper, scripts, evaluation)]
    assert groups[0] == {"nolima 0401-Yuki", "nolima 0402-Yuki"}
    assert groups[0] < groups[1]
    assert not groups[1] & groups[2]
    assert {trial.meta["entry"] for trial in paper} == {trial.meta["entry"] for trial in evaluation}


def test_a_needle_in_novels(tmp_path: Path) -> None:
    trials = tasks.niah(novels(tmp_path), lengths=[300, 400], depths=2)
    assert {trial.group for trial in trials} == {f"niah {trial.needle}" for trial in trials}
    assert len({trial.group for trial in trials}) == 3


def test_a_question_and_its_last_step() -> None:
    whole, last = tasks.musique(), tasks.musique(hops=1)
    assert {trial.group for trial in whole} == {trial.group for trial in last}
    assert {trial.group for trial in whole} == {f"musique {trial.id.removeprefix('musique-')}" for trial in whole}


def test_a_story_has_one_group_at_every_length(tmp_path: Path) -> None:
    assert {t.group for t in tasks.babilong()} == {t.group for t in tasks.babilong(context_length=100)}
    assert {t.group for t in tasks.babilong(task="qa1", n=1)} <= {
        f"babilong packaged {row.text('id')}" for row in packaged_rows("babilong") if row.text("task") == "qa1"
    }
    story = {"input": "Mary went home.", "question": "Where is Mary?", "target": "kitchen"}
    copies = [write(tmp_path / f"{config}.jsonl", [story]) for config in ("0k", "4k")]
    made = [tasks.babilong("hub", task="qa1", config=path.stem, path=path)[0] for path in copies]
    assert [trial.group for trial in made] == ["babilong hub qa1-1"] * 2
    assert made[0].id != made[1].id


def test_facts_about_one_country_or_subject(tmp_path: Path) -> None:
    cities = {trial.meta["city"]: trial.group for trial in tasks.parametric()}
    assert cities["Tokyo"] == cities["Osaka"] == "cities Japan"
    assert cities["Lagos"] != cities["Cairo"]
    facts = {trial.id: trial.group for trial in tasks.parametric("facts")}
    assert facts["facts-capital-01"] == "facts Norway"
    rows = [
        {"id": i, "question": f"Q{i}?", "possible_answers": '["x"]', "subj": subject}
        for i, subject in enumerate("aab", 1)
    ]
    made = {trial.id: trial.group for trial in tasks.parametric("popqa", path=write(tmp_path / "p.jsonl", rows))}
    assert sorted(made.values()) == ["popqa a", "popqa a", "popqa b"]
    (bare,) = tasks.parametric(
        "popqa", path=write(tmp_path / "bare.jsonl", [{"question": "Q", "possible_answers": '["x"]'}])
    )
    assert bare.group == ""


def test_words_that_rhyme() -> None:
    ending = {word: group[0] for group in rhyme_groups() for word in group}
    trials = tasks.rhyme(n=80)
    assert all(trial.group == f"rhyme {ending[trial.meta['word']]}" for trial in trials)
    assert all(trial.group == f"rhyme {ending[trial.answer]}" for trial in trials)


def test_names_and_operands_in_either_order() -> None:
    first, second = tasks.ioi(n=2, names=["Zoe", "Ann"], symmetric=True)
    assert first.question != second.question
    assert first.group == second.group == "ioi Ann Zoe"
    sums = {trial.id: trial.group for trial in tasks.arithmetic(n=77, digits=1, operations="+")}
    assert sums["arithmetic-3+8"] == sums["arithmetic-8+3"] == "arithmetic 8+3"
    assert len(set(sums.values())) < len(sums)
    assert {trial.group for trial in tasks.arithmetic(n=9, digits=1, operations="-")}.isdisjoint(sums.values()), (
        "another sign is another group"
    )


def test_endings_to_one_video_and_questions_about_one_passage(tmp_path: Path) -> None:
    videos = [{**HELLASWAG, "ind": at, "source_id": source} for at, source in enumerate(["v1", "v1", "v2"])]
    made = tasks.hellaswag(path=write(tmp_path / "h.jsonl", videos))
    assert sorted(trial.group for trial in made) == ["hellaswag v1", "hellaswag v1", "hellaswag v2"]
    asked = [{**BOOLQ, "question": question, "passage": passage} for question, passage in ("ax", "bx", "ay")]
    groups = {
        trial.question + trial.haystack: trial.group for trial in tasks.boolq(path=write(tmp_path / "b.jsonl", asked))
    }
    assert groups["ax"] == groups["bx"] != groups["ay"]
    assert "x" not in groups["ax"].removeprefix("boolq "), "a digest, not the passage"


def test_a_company_has_one_group_in_trials_and_documents(reports: Path) -> None:
    trials, documents = tasks.sec10k(reports, words=40), tasks.sec10k_documents(reports)
    assert {trial.group for trial in trials} == {f"sec10k {100 + at}" for at in range(12)}
    assert {trial.id: trial.group for trial in trials} == {trial.id: trial.group for trial in documents}


@pytest.mark.parametrize(
    ("task", "row"),
    [
        (tasks.hellaswag, HELLASWAG),  # A copy without the column.
        (tasks.arc_challenge, ARC),
        (tasks.mmlu, MMLU),
        (tasks.wmdp, WMDP),
        (tasks.gsm8k, {"question": "How many?", "answer": "1+1=2\n#### 2"}),
    ],
)
def test_rows_that_share_nothing_have_no_group(tmp_path: Path, task: Callable[..., Any], row: dict[str, Any]) -> None:
    (trial,) = task(path=write(tmp_path / "rows.jsonl", [row]))
    assert trial.group == ""


def test_questions_about_one_passage_of_mmlu(tmp_path: Path) -> None:
    asked = ["This refers to it.\nOne.\nWho?", "This refers to it.\nOne.\nWhen?", "This refers to it.\nTwo.\nWho?"]
    rows = [{**MMLU, "question": question} for question in asked]
    groups = {
        trial.question.split("\nA.")[0]: trial.group for trial in tasks.mmlu(path=write(tmp_path / "m.jsonl", rows))
    }
    assert groups[asked[0]] == groups[asked[1]] != groups[asked[2]]


def test_a_problem_in_words_is_the_one_in_digits(tmp_path: Path) -> None:
    rows = [
        {"context": f"Question: What is {a} {sign} {b}?\nAnswer:", "completion": " 7"}
        for sign in ("plus", "minus", "times")
        for a in range(10, 20)
        for b in range(10, 20)
    ]
    file = write(tmp_path / "sums.jsonl", rows)
    select, test = (tasks.arithmetic(n=100, source="hub", path=file, split=split) for split in ("select", "test"))
    assert {trial.group for trial in select}.isdisjoint(trial.group for trial in test)
    assert not {trial.group for trial in select} & {
        t.group for t in tasks.arithmetic(n=300, digits=2, operations="+-*", split="test")
    }
    groups = {trial.question: trial.group for trial in tasks.arithmetic(n=300, source="hub", path=file)}
    assert groups["What is 10 plus 11?"] == groups["What is 11 plus 10?"] == "arithmetic 11+10"


def test_questions_whose_last_step_is_the_same(tmp_path: Path) -> None:
    rows = [{**HUB_ROWS[0], "id": name} for name in ("2hop__7_12", "3hop1__5_9_12", "2hop__12_7")]
    made = tasks.musique("hub", path=write(tmp_path / "m.jsonl", rows))
    assert {trial.id: trial.group for trial in made} == {
        "musique-2hop__7_12": "musique 12",
        "musique-3hop1__5_9_12": "musique 12",
        "musique-2hop__12_7": "musique 7",
    }


def test_questions_with_the_same_gold_documents(tmp_path: Path) -> None:
    again = {**DOCUMENTS[0], "idx": "q3", "question": "Who ran away?", "paragraphs": DOCUMENTS[0]["paragraphs"][::-1]}
    one, two, three = tasks.qrhead(file(tmp_path, [*DOCUMENTS, again]))
    assert one.group == three.group != two.group
    assert tasks.qrhead(tmp_path / "detection.json", n=1, words=2)[0].group == one.group
