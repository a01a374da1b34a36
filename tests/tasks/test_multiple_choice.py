"""Multiple choice: rows of each benchmark's format become exact trials; faults are named."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

import lens_heads as lh
from lens_heads.tasks.multiple_choice import arc_challenge, boolq, hellaswag, mmlu, wmdp
from tests import zoo
from tests.tasks.row_files import write

HELLASWAG = {
    "ind": 24,
    "activity_label": "Roof shingle removal",
    "ctx_a": "A man is sitting on a roof.",
    "ctx_b": "he",
    "ctx": "A man is sitting on a roof. he",
    "endings": ["is using wrap.", "is ripping level tiles off.", "holds a cube.", "starts pulling up roofing."],
    "label": "3",
}
WIKIHOW = {
    **HELLASWAG,
    "activity_label": "Home and Garden",
    "ctx_a": "[header] How to cook rice [title] Rinse it. [step] Use  cold water.",
    "ctx_b": "",
    "endings": ["[substeps] Drain it.", "Do not. [title] Boil it.", "Wait.", "Soak it. [substeps] Twice."],
    "label": "1",
}
BOOLQ = {"question": "is ulm on the danube", "passage": "Ulm lies on the Danube.", "idx": 0, "label": 1}
ARC = {
    "id": "Mercury_1",
    "question": "Which one rusts?",
    "choices": {"text": ["wood", "iron", "glass", "clay"], "label": ["A", "B", "C", "D"]},
    "answerKey": "B",
}
MMLU = {"question": "What is 1 + 1?", "subject": "abstract_algebra", "choices": ["1", "2", "3", "None"], "answer": 1}
WMDP = {"question": "Which port?", "choices": ["22", "80", "443", "25"], "answer": 2}

TASKS: dict[str, tuple[Callable[..., list[lh.Trial]], dict[str, Any]]] = {
    "hellaswag": (hellaswag, HELLASWAG),
    "boolq": (boolq, BOOLQ),
    "arc_challenge": (arc_challenge, ARC),
    "mmlu": (mmlu, MMLU),
    "wmdp": (wmdp, WMDP),
}
PROMPTS = {
    "hellaswag": "Roof shingle removal: A man is sitting on a roof. He",
    "boolq": "Ulm lies on the Danube.\nQuestion: is ulm on the danube?\nAnswer:",
    "arc_challenge": "Question: Which one rusts?\nAnswer:",
    "mmlu": "The following are multiple choice questions (with answers) about abstract algebra.\n\n"
    "What is 1 + 1?\nA. 1\nB. 2\nC. 3\nD. None\nAnswer:",
    "wmdp": "The following are multiple choice questions (with answers) about biology.\n\n"
    "Which port?\nA. 22\nB. 80\nC. 443\nD. 25\nAnswer:",
}
ANSWERS = {
    "hellaswag": "starts pulling up roofing.",
    "boolq": "yes",
    "arc_challenge": "iron",
    "mmlu": "B",
    "wmdp": "C",
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def changed(row: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The row with other fields; without those that are None."""
    return {key: value for key, value in {**row, **changes}.items() if value is not None}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("name", TASKS)
def test_a_row_is_its_trial(tmp_path: Path, name: str, suffix: str) -> None:
    task, row = TASKS[name]
    (trial,) = task(path=write(tmp_path / f"copy{suffix}", [row]))
    kind = "wmdp-bio" if name == "wmdp" else name
    assert trial.id == f"{kind}-copy-1"
    encoded = trial.encode(zoo.tokenizer())
    assert zoo.tokenizer().decode(encoded.tokens) == PROMPTS[name]
    assert zoo.tokenizer().decode(encoded.answer_tokens) == f" {ANSWERS[name]}"
    assert trial.answer == ANSWERS[name]
    assert (trial.meta["kind"], trial.meta["n_choices"]) == (kind, len(trial.choices))
    assert trial.judge.correct(f" {trial.answer}\nmore", [trial.answer]) == 1
    others = [choice for choice in trial.choices if choice != trial.answer]
    assert not any(trial.judge.correct(f" {choice}", [trial.answer]) for choice in others)


def test_choices_and_subjects(tmp_path: Path) -> None:
    made = {name: task(path=write(tmp_path / f"{name}.jsonl", [row]))[0] for name, (task, row) in TASKS.items()}
    assert made["hellaswag"].choices == tuple(HELLASWAG["endings"])
    assert made["boolq"].choices == ("no", "yes")
    assert made["arc_challenge"].choices == ("wood", "iron", "glass", "clay")
    assert made["mmlu"].choices == made["wmdp"].choices == ("A", "B", "C", "D")
    assert {name: trial.meta["subject"] for name, trial in made.items()} == {
        "hellaswag": "Roof shingle removal",
        "boolq": "",
        "arc_challenge": "",
        "mmlu": "abstract_algebra",
        "wmdp": "biology",
    }


def test_wikihows_brackets_are_cleaned_up(tmp_path: Path) -> None:
    (trial,) = hellaswag(path=write(tmp_path / "rows.jsonl", [WIKIHOW]))
    assert trial.question == "Home and Garden: How to cook rice. Rinse it. Use cold water."
    assert trial.choices == ("Drain it.", "Do not.. Boil it.", "Wait.", "Soak it. Twice.")
    assert trial.answer == "Do not.. Boil it."


@pytest.mark.parametrize(
    ("name", "fields", "answer"),
    [
        ("boolq", {"label": 0}, "no"),
        ("boolq", {"label": None, "answer": True}, "yes"),  # google/boolq
        ("boolq", {"label": None, "answer": False}, "no"),
        ("arc_challenge", {"choices": {"text": ["x", "y", "z"], "label": ["1", "2", "3"]}, "answerKey": "3"}, "z"),
        ("mmlu", {"answer": 0}, "A"),
        ("mmlu", {"answer": "D"}, "D"),
    ],
)
def test_other_ways_to_name_the_answer(tmp_path: Path, name: str, fields: dict[str, Any], answer: str) -> None:
    task, row = TASKS[name]
    (trial,) = task(path=write(tmp_path / "rows.jsonl", [changed(row, **fields)]))
    assert trial.answer == answer


def test_a_csv_of_mmlu_keeps_its_nones(tmp_path: Path) -> None:
    file = tmp_path / "mmlu.csv"
    file.write_text(
        ',Question,A,B,C,D,Answer,Subject\n0,"Who, then?",Ann,None,NA,null,B,virology\n1,Why?,1,2,3,4,D,astronomy\n'
    )
    trials = {trial.meta["subject"]: trial for trial in mmlu(path=file)}
    assert trials["virology"].question == "Who, then?\nA. Ann\nB. None\nC. NA\nD. null"
    assert trials["virology"].answer == "B"
    assert [trial.answer for trial in mmlu(path=file, subjects="astronomy")] == ["D"]
    assert len(mmlu(path=file, subjects=["astronomy", "virology"])) == 2


@pytest.mark.parametrize(
    ("name", "arguments", "asked"),
    [
        ("hellaswag", {}, (("Rowan/hellaswag",), {"split": "validation"})),
        ("hellaswag", {"split": "train"}, (("Rowan/hellaswag",), {"split": "train"})),
        ("boolq", {}, (("aps/super_glue", "boolq"), {"split": "validation"})),
        ("arc_challenge", {}, (("allenai/ai2_arc", "ARC-Challenge"), {"split": "test"})),
        ("mmlu", {}, (("cais/mmlu", "all"), {"split": "test"})),
        ("wmdp", {"subject": "chem"}, (("cais/wmdp", "wmdp-chem"), {"split": "test"})),
    ],
)
def test_the_hub_is_asked_for(name: str, arguments: Any, asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    task, row = TASKS[name]
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: calls.append((args, kwargs)) or [row] * 3)
    trials = task(**arguments)
    assert calls == [asked]
    kind = "wmdp-chem" if name == "wmdp" else name
    assert {trial.id for trial in trials} == {f"{kind}-{asked[1]['split']}-{number}" for number in (1, 2, 3)}


def test_the_draw_is_the_seeds(tmp_path: Path) -> None:
    rows = [changed(MMLU, question=f"What is {i} + 1?") for i in range(230)]
    file = write(tmp_path / "rows.jsonl", rows)
    assert len(mmlu(path=file)) == 200
    assert mmlu(n=9, path=file, seed=3) == mmlu(n=9, path=file, seed=3)
    assert {t.id for t in mmlu(n=9, path=file, seed=3)} != {t.id for t in mmlu(n=9, path=file, seed=4)}
    with pytest.raises(ValueError, match="n=231 is out of range: there are 230 questions in mmlu rows; use 1 to 230"):
        mmlu(n=231, path=file)


def test_rows_without_different_choices_are_left_out_and_counted(tmp_path: Path) -> None:
    twice = changed(HELLASWAG, endings=["a", "b [x]", "b", "c"])
    empty = changed(HELLASWAG, endings=["a", "[header]", "b", "c"])
    file = write(tmp_path / "rows.jsonl", [twice, HELLASWAG, empty])
    with pytest.warns(
        UserWarning, match="dropped 2 of 3 rows of hellaswag rows, which have duplicate or empty choices"
    ):
        trials = hellaswag(path=file)
    assert [trial.id for trial in trials] == ["hellaswag-rows-2"]
    with warnings.catch_warnings():  # Letters differ even where their texts do not.
        warnings.simplefilter("error")
        mmlu(path=write(tmp_path / "letters.jsonl", [changed(MMLU, choices=["1", "1", "2", ""])]))


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("hellaswag", {"label": ""}, "rows.jsonl, row 1: field 'label' must be one of 0, 1, 2, 3, got ''"),
        ("hellaswag", {"label": "4"}, "field 'label' must be one of .*, got '4'"),
        ("hellaswag", {"ctx_a": None}, "row 1: field 'ctx_a' is missing or empty"),
        ("hellaswag", {"ctx_b": None}, "row 1: field 'ctx_b' is missing or empty"),
        ("hellaswag", {"endings": "a"}, "row 1: field 'endings' must be a list of 2 or more strings, got 'a'"),
        ("hellaswag", {"endings": ["a"]}, r"must be a list of 2 or more strings, got \['a'\]"),
        ("boolq", {"label": -1}, "field 'label' must be one of 0, 1 or False, True, got -1"),
        ("boolq", {"label": None}, "field 'answer' must be one of .*, got None"),
        ("boolq", {"passage": " "}, "field 'passage' is missing or empty"),
        ("arc_challenge", {"answerKey": "E"}, "field 'answerKey' must be one of A, B, C, D, got 'E'"),
        ("arc_challenge", {"choices": ["a", "b"]}, r"field 'choices' must be {'text': .*, got \['a', 'b'\]"),
        (
            "arc_challenge",
            {"choices": {"text": ["a", "b"]}},
            "row 1, choices: field 'label' must be a list .*, got None",
        ),
        (
            "arc_challenge",
            {"choices": {"text": ["a", "b"], "label": ["A", "B", "C"]}},
            "row 1, choices: 2 texts but 3 labels; their numbers must be equal",
        ),
        ("mmlu", {"answer": 4}, "field 'answer' must be one of 0, 1, 2, 3 or A, B, C, D, got 4"),
        ("mmlu", {"choices": ["1", "2", "3"]}, "field 'choices' has 3 texts, but must have 4"),
        ("mmlu", {"choices": None}, "field 'a' is missing or empty"),
        ("mmlu", {"subject": None}, "field 'subject' is missing or empty"),
        ("wmdp", {"question": None}, "field 'question' is missing or empty"),
    ],
)
def test_a_faulty_row_is_named(tmp_path: Path, name: str, fields: dict[str, Any], message: str) -> None:
    task, row = TASKS[name]
    with pytest.raises(ValueError, match=message):
        task(path=write(tmp_path / "rows.jsonl", [changed(row, **fields)]))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "hellaswag",
            {"split": "test"},
            r"unknown hellaswag split 'test': use 'validation' or 'train' \(splits with answers\)",
        ),
        ("wmdp", {"split": "train"}, "unknown wmdp-bio split 'train': use 'test'"),
        ("wmdp", {"subject": "nuclear"}, "unknown subject 'nuclear': use 'bio', 'chem' or 'cyber'"),
        (
            "mmlu",
            {"path": "x", "split": "test"},
            "split='test' requires the hub: a local copy is read whole; omit split=",
        ),
    ],
)
def test_other_faults_are_named(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TASKS[name][0](**arguments)


def test_an_unknown_subject_names_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", [MMLU, changed(MMLU, subject="virology")])
    with pytest.raises(ValueError, match="unknown subject 'algebra': use abstract_algebra"):
        mmlu(path=file, subjects=["virology", "algebra"])
    with pytest.raises(ValueError, match="unknown subject '': use abstract_algebra, virology"):
        mmlu(path=file, subjects=[])


def test_without_the_hub_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(FileNotFoundError, match=r"could not load allenai/ai2_arc ARC-Challenge test .*copy as path="):
        arc_challenge()


def test_a_model_chooses(tmp_path: Path) -> None:
    """Trials of three benchmarks together, with three numbers of choices, judged by choice and by text."""
    trials = [
        trial
        for name in ("hellaswag", "boolq", "mmlu")
        for trial in TASKS[name][0](path=write(tmp_path / f"{name}.jsonl", [TASKS[name][1]]))
    ]
    found = lh.evaluate(zoo.bridge("llama-gqa", n_ctx=2048), trials, max_new_tokens=3, progress=False)
    assert {"choice", "choice_norm", "choice_logprob", "correct"} < set(found.metrics)
    assert set(found.metrics["choice"].tolist()) <= {0.0, 1.0}
    assert (found.metrics["choice_logprob"] < 0).all()
