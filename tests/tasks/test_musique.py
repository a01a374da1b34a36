"""MuSiQue: the made-up questions can be answered, in one way only; rows become exact trials; faults are named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import datasets
import pytest

from lens_heads.tasks import prose
from lens_heads.tasks.musique import musique
from tests import zoo
from tests.tasks.row_files import write

DATA = Path(prose.__file__).parent / "data" / "packaged"
HALVES = ("select", "test")


def rows(half: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"musique_{half}.jsonl").read_text(encoding="ascii").splitlines()]


EVERY = [row for half in HALVES for row in rows(half)]
NAMES = [row["id"] for row in EVERY]


def holding(row: dict[str, Any], name: str) -> list[int]:
    """The paragraphs in which a name stands."""
    texts = [f"{paragraph['title']}: {paragraph['paragraph_text']}" for paragraph in row["paragraphs"]]
    return [i for i, text in enumerate(texts) if re.search(rf"\b{re.escape(name)}\b", text)]


def test_there_are_enough_of_each_kind() -> None:
    for half in HALVES:
        kinds = [row["id"].split("__")[0] for row in rows(half)]
        assert (kinds.count("2hop"), kinds.count("3hop")) == (20, 10)
    assert len(set(NAMES)) == len(EVERY) == 60
    assert len({row["question"] for row in EVERY}) == 60


@pytest.mark.parametrize("row", EVERY, ids=NAMES)
def test_the_answer_is_reached_through_the_hops_and_no_other_way(row: dict[str, Any]) -> None:
    steps, paragraphs = row["question_decomposition"], row["paragraphs"]
    supporting = [i for i, paragraph in enumerate(paragraphs) if paragraph["is_supporting"]]
    assert sorted(step["paragraph_support_idx"] for step in steps) == supporting
    assert len(steps) == len(supporting) == int(row["id"][0])
    for number, step in enumerate(steps):
        paragraph = paragraphs[step["paragraph_support_idx"]]
        assert re.search(rf"\b{re.escape(step['answer'])}\b", paragraph["paragraph_text"])
        if number:  # A step starts from the paragraph about what the step before it found.
            assert f"#{number}" in step["question"]
            assert paragraph["title"] == steps[number - 1]["answer"]
            linked = {steps[number - 1]["paragraph_support_idx"], step["paragraph_support_idx"]}
            assert set(holding(row, steps[number - 1]["answer"])) == linked
            assert steps[number - 1]["answer"] not in row["question"], "the question gives a step away"
        else:
            assert paragraph["title"].lower() in row["question"].lower()
            assert holding(row, paragraph["title"]) == [step["paragraph_support_idx"]]
    assert row["answer"] == steps[-1]["answer"]
    assert holding(row, row["answer"]) == [steps[-1]["paragraph_support_idx"]]
    assert row["answer"] not in row["question"]


@pytest.mark.parametrize("row", EVERY, ids=NAMES)
def test_distractors_are_of_the_same_kinds_and_do_not_answer(row: dict[str, Any]) -> None:
    others = [paragraph for paragraph in row["paragraphs"] if not paragraph["is_supporting"]]
    needed = [paragraph for paragraph in row["paragraphs"] if paragraph["is_supporting"]]
    assert len(others) == 3
    for paragraph in others:
        assert row["answer"] not in paragraph["title"] + paragraph["paragraph_text"]
        assert paragraph["title"] not in row["question"]
    first = next(p for p in needed if p["title"].lower() in row["question"].lower())
    kind = first["title"].split()[-1]  # Bridge, Museum, Academy, ..: of some names it is the shared word.
    shared = set(first["title"].split()) & {word for paragraph in others for word in paragraph["title"].split()}
    assert shared or kind not in ("Bridge", "Museum", "Academy")
    words = sum(len(f"{p['title']} {p['paragraph_text']}".split()) for p in row["paragraphs"])
    assert 110 <= words <= 260


def test_the_halves_share_no_name() -> None:
    titles, answers = (
        {half: {name for row in rows(half) for name in names(row)} for half in HALVES}
        for names in (
            lambda row: [paragraph["title"] for paragraph in row["paragraphs"]],
            lambda row: [step["answer"] for step in row["question_decomposition"]],
        )
    )
    names = {half: titles[half] | answers[half] for half in HALVES}
    assert not names["select"] & names["test"]
    texts = {half: " ".join(json.dumps(row) for row in rows(half)) for half in HALVES}
    assert not [name for name in names["select"] if re.search(rf"\b{re.escape(name)}\b", texts["test"])]
    assert not [name for name in names["test"] if re.search(rf"\b{re.escape(name)}\b", texts["select"])]


def test_a_packaged_trial_is_its_row() -> None:
    trials = {trial.id: trial for trial in musique()}
    assert len(trials) == 60
    row = EVERY[0]
    trial = trials[f"musique-{row['id']}"]
    assert trial.haystack.split("\n\n") == [f"{p['title']}: {p['paragraph_text']}" for p in row["paragraphs"]]
    assert (trial.question, trial.answer, trial.aliases) == (
        row["question"],
        row["answer"],
        tuple(row["answer_aliases"]),
    )
    assert trial.meta == {"kind": "2-hop", "hops": 2, "source": "packaged"}
    assert trial.judge.correct(f" The {row['answer']}.\n", [trial.answer]) == 1
    text = zoo.tokenizer().decode(trial.encode(zoo.tokenizer()).tokens)
    assert text.endswith(f"\n\nQuestion: {row['question']}\nAnswer:")
    assert not any(word in trial.template for other in EVERY for word in (other["answer"], *other["answer_aliases"]))


def test_hops_splits_and_draws() -> None:
    assert {trial.meta["hops"] for trial in musique(hops=3)} == {3}
    assert len(musique(hops=2)) == 40
    halves = [{trial.id for trial in musique(split=half)} for half in HALVES]
    assert all("_select_" in name for name in halves[0])
    assert (len(halves[0]), len(halves[0] & halves[1])) == (30, 0)
    assert musique(n=9, seed=3, distractors=1) == musique(n=9, seed=3, distractors=1)
    assert {t.id for t in musique(n=9, seed=3)} != {t.id for t in musique(n=9, seed=4)}


def test_one_hop_asks_the_last_step_with_its_names_filled_in() -> None:
    trials = {trial.id: trial for trial in musique(hops=1)}
    for row in EVERY:
        steps, trial = row["question_decomposition"], trials[f"musique-{row['id']}-last"]
        assert trial.question == steps[-1]["question"].replace(f"#{len(steps) - 1}", steps[-2]["answer"])
        assert "#" not in trial.question
        assert (trial.answer, trial.meta["hops"]) == (row["answer"], 1)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_fewer_distractors_keep_what_is_needed_in_order(kept: int) -> None:
    for row, trial in zip(EVERY, sorted(musique(distractors=kept), key=lambda t: NAMES.index(t.id[8:])), strict=True):
        left = trial.haystack.split("\n\n")
        texts = [f"{p['title']}: {p['paragraph_text']}" for p in row["paragraphs"]]
        assert [text for text in texts if text in left] == left
        needed = [texts[i] for i, p in enumerate(row["paragraphs"]) if p["is_supporting"]]
        assert set(needed) <= set(left)
        assert len(left) == len(needed) + kept


def test_the_answer_paragraph_as_needle_stands_where_it_stood() -> None:
    tokenizer = zoo.tokenizer()
    plain = {trial.id: trial for trial in musique()}
    for trial in musique(needle="answer paragraph"):
        encoded = trial.encode(tokenizer)
        assert encoded.needle
        whole = tokenizer.decode(plain[trial.id].encode(tokenizer).tokens)
        assert tokenizer.decode(encoded.tokens) == whole
        assert tokenizer.decode(encoded.tokens[slice(*encoded.needle)]) == trial.needle
        assert trial.answer in trial.needle
        before = len(plain[trial.id].haystack.split(trial.needle)[0].rstrip())
        assert trial.depth == pytest.approx(before / len(plain[trial.id].haystack))


HUB_ROWS = [
    {
        "id": f"{hops}hop__{number}",
        "paragraphs": [
            {"idx": 0, "title": "Ann", "paragraph_text": "Ann was born in Ulm.", "is_supporting": True},
            {"idx": 1, "title": "Bo", "paragraph_text": "Bo was born in Rome.", "is_supporting": False},
            {"idx": 2, "title": "Ulm", "paragraph_text": "Ulm is on the Danube river.", "is_supporting": True},
        ],
        "question": f"Which river is at Ann's town, {number}?",
        "answer": "Danube",
        "answer_aliases": ["Donau", ""],
    }
    for number, hops in enumerate(["2", "3"])
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_a_local_copy_of_each_format(tmp_path: Path, name: str) -> None:
    trials = musique("hub", path=write(tmp_path / name, HUB_ROWS), needle="answer paragraph")
    assert sorted(trial.id for trial in trials) == ["musique-2hop__0", "musique-3hop__1"]
    assert {(trial.answer, trial.aliases) for trial in trials} == {("Danube", ("Donau",))}
    assert trials[0].needle == "Ulm: Ulm is on the Danube river."
    assert [t.meta["hops"] for t in musique("hub", path=tmp_path / name, hops=3)] == [3]


def test_questions_that_cannot_be_answered_are_left_out(tmp_path: Path) -> None:
    """MuSiQue-Full holds each question twice, the second time without a paragraph that it needs."""
    full = [{**row, "answerable": answerable} for row in HUB_ROWS for answerable in (True, False)]
    with pytest.warns(UserWarning, match=r"2 of 4 rows say answerable: false .*left out"):
        trials = musique("hub", path=write(tmp_path / "full.jsonl", full))
    answerable = musique("hub", path=write(tmp_path / "answerable.jsonl", HUB_ROWS))
    assert trials == answerable
    with pytest.raises(ValueError, match=r"1 of 1 rows say answerable: false .*none is left: pass"):
        musique("hub", path=write(tmp_path / "none.jsonl", full[1:2]))
    with pytest.raises(ValueError, match=r"row 1: field 'answerable' must be true or false, got 'no'"):
        musique("hub", path=write(tmp_path / "odd.jsonl", [{**HUB_ROWS[0], "answerable": "no"}]))


def test_the_hub_is_asked_for_the_validation_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: asked.append((args, kwargs)) or HUB_ROWS)
    assert len(musique("hub")) == 2
    assert asked == [(("bdsaglam/musique", "answerable"), {"split": "validation"})]


def test_without_the_hub_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(
        FileNotFoundError, match=r"could not load bdsaglam/musique answerable validation .*copy as path="
    ):
        musique("hub")


def faulty(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**HUB_ROWS[0], **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (faulty(question=None), r"rows.jsonl, row 1: field 'question' is missing or empty; it must contain text"),
        (faulty(answer=" "), r"row 1: field 'answer' is missing or empty"),
        (faulty(paragraphs=[]), r"row 1: field 'paragraphs' must be a list of .*, got \[\]"),
        (faulty(paragraphs=["text"]), r"row 1: field 'paragraphs' must be a list of .* objects, got \['text'\]"),
        (
            faulty(paragraphs=[{"title": "", "paragraph_text": "x", "is_supporting": True}]),
            r"row 1, paragraph 1: field 'title' is missing or empty",
        ),
        (
            faulty(paragraphs=[{"title": "x", "paragraph_text": "x", "is_supporting": "yes"}]),
            r"row 1, paragraph 1: field 'is_supporting' must be true or false, got 'yes'",
        ),
        (faulty(answer_aliases="Donau"), r"row 1: field 'answer_aliases' must be a list of .* strings, got 'Donau'"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        musique("hub", path=write(tmp_path / "rows.jsonl", [row]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "web"}, "unknown source 'web': use 'packaged' or 'hub'"),
        ({"split": "train"}, "unknown split 'train': use 'select' or 'test'"),
        ({"source": "hub", "split": "test"}, "split='test' requires source='packaged'"),
        ({"path": "x"}, "path= requires source='hub'"),
        ({"hops": 4}, "hops=4: no question has that many; use 2, 3, 1 or None"),
        ({"n": 61}, "n=61 is out of range: there are 60 questions in packaged"),
        ({"n": 0}, "n=0"),
        ({"needle": "answer"}, "needle='answer': use 'answer paragraph'"),
        ({"distractors": -1}, "distractors=-1"),
    ],
)
def test_other_faults_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        musique(**arguments)


def test_what_a_row_lacks_for_an_option_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", [faulty(answer="Rhine", answer_aliases=[])])
    with pytest.raises(
        ValueError, match=r"row 1: no supporting paragraph contains the answer 'Rhine'; use needle=None"
    ):
        musique("hub", path=file, needle="answer paragraph")
    with pytest.raises(ValueError, match=r"row 1: hops=1 requires field 'question_decomposition'"):
        musique("hub", path=file, hops=1)
