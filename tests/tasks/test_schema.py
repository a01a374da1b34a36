"""Needle files: what is read, what is filled in, and what every fault says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_heads.tasks.books import at_least, read_books
from lens_heads.tasks.schema import cases, read_entries
from tests.tasks.nolima_files import NAMES, TEMPLATE, entry, needle_file


def read(tmp_path: Path, entries: Any) -> Any:
    return read_entries(needle_file(tmp_path / "mine.json", entries))


def made(case: Any, questions: str = "onehop") -> Any:
    return case.trial(questions, "book", id="x", haystack="Hay.", chat=False)


def test_an_entry_is_filled_in(tmp_path: Path) -> None:
    (found,) = read(tmp_path, [entry(kind="place")])
    every = cases(found)
    assert [case.id for case in every] == [f"0401-{t}-{name}" for t in ("T16_C02", "T16_C05") for name in NAMES]
    trial = made(every[6], "twohop")
    assert trial.needle == "Actually, Stuart lives next to the Kiasma museum."
    assert trial.question == "Which character has been to Uusimaa?"
    assert (trial.answer, trial.aliases, trial.template) == ("Stuart", (), TEMPLATE)
    assert trial.meta == {
        "entry": "0401",
        "test": "T16_C05",
        "association": "0401-T16_C05",
        "kind": "place",
        "questions": "twohop",
        "character": "Stuart",
        "book": "book",
    }


def test_gold_answers_of_the_test_come_before_those_of_the_entry_and_the_character(tmp_path: Path) -> None:
    tests = {
        "A": {"input_args": ["a", "b", "c"], "gold_answers": ["{1}, of course", "Miss {CHAR}"]},
        "B": {"input_args": ["d", "e", "f"]},
    }
    (found,) = read(tmp_path, [entry(tests=tests, gold_answers="somebody")])
    first, second = (made(case) for case in cases(found, ("Katie",)))
    assert (first.answer, first.aliases) == ("a, of course", ("Miss Katie",))
    assert (second.answer, second.aliases) == ("somebody", ())


def test_a_question_may_have_answers_and_a_prompt_of_its_own(tmp_path: Path) -> None:
    own = {
        "question": "Where is {CHAR}?",
        "gold_answers": ["in {2}", "{2}"],
        "task_template": "{haystack} {question} In",
    }
    asked = {"onehop": {"question": "Who?"}, "where": own}
    (found,) = read(tmp_path, [entry(questions=asked, gold_answers="somebody")])
    case = cases(found, ("Katie",))[0]
    where, who = made(case, "where"), made(case, "onehop")
    assert (where.question, where.answer, where.aliases) == ("Where is Katie?", "in Dresden", ("Dresden",))
    assert where.template == "{haystack} {question} In"
    assert (who.question, who.answer, who.template) == ("Who?", "somebody", TEMPLATE)
    (nameless,) = read(
        tmp_path, [entry(needle="The door is of {1}.", questions={"where": own | {"question": "Where?"}})]
    )
    assert made(cases(nameless)[0], "where").answer == "in Dresden"


def test_a_needle_without_a_character_needs_gold_answers(tmp_path: Path) -> None:
    tests = {"A": {"input_args": ["oak", "x", "y"], "gold_answers": "oak"}}
    (found,) = read(tmp_path, [entry(needle="The door is of {1}.", character_set=None, tests=tests)])
    (case,) = cases(found)
    assert (case.id, made(case).needle, made(case).answer) == ("0401-A", "The door is of oak.", "oak")
    with pytest.raises(ValueError, match=r"mine.json, entry '0401', test 'T16_C02': there is no answer: put \{CHAR\}"):
        read(tmp_path, [entry(needle="The door is of {1}.")])


@given(arguments=st.lists(st.text(min_size=1), min_size=2, max_size=2))
def test_arguments_are_put_in_as_they_are(tmp_path_factory: pytest.TempPathFactory, arguments: list[str]) -> None:
    """Also those that look like placeholders themselves."""
    raw = entry(questions={"onehop": "Who? {2}|{1}"}, tests={"T": {"input_args": arguments}})
    (found,) = read(tmp_path_factory.mktemp("set"), [raw])
    trial = made(cases(found, ("Gary",))[0])
    assert trial.needle == f"Actually, Gary lives next to the {arguments[0]}."
    assert trial.question == f"Who? {arguments[1]}|{arguments[0]}"


FAULTS: list[tuple[Any, str]] = [
    ('[{"id": "a",}]', r"mine.json: invalid JSON at line 1, column \d+: .*; correct it there"),
    ("", r"mine.json: is empty; it must contain JSON"),
    ({"id": "a"}, r"mine.json: expected a JSON list of one or more entries, .*, got dict"),
    ([], r"mine.json: expected a JSON list of one or more entries, .*, got an empty one"),
    (["text"], r"mine.json, entry 1: expected a JSON object \{\.\.\}, got str"),
    ([entry(), entry(id=None)], r"mine.json, entry 2: field 'id' is missing or empty"),
    ([entry(), entry()], r"mine.json, entry '0401': duplicate id '0401'; make field 'id' unique"),
    ([entry(needle=None)], r"mine.json, entry '0401': field 'needle' is missing or empty; it must contain text"),
    ([entry(needle=["{CHAR}"])], r"entry '0401': field 'needle' must contain text, got \['{CHAR}'\]"),
    ([entry(task_template=None)], r"entry '0401': field 'task_template' is missing"),
    ([entry(questions=None)], r"entry '0401': field 'questions' must be an object such as \{\"onehop\".*, got None"),
    ([entry(questions={})], r"entry '0401': field 'questions' must be an object .*, got \{\}"),
    (
        [entry(questions={"onehop": {"gold_answers": "x"}})],
        r"entry '0401', question 'onehop': field 'question' is missing or empty",
    ),
    (
        [entry(questions={"onehop": {"question": "Who?", "gold_answers": [3]}})],
        r"entry '0401', question 'onehop': field 'gold_answers' must be a non-empty string or a list",
    ),
    (
        [entry(questions={"onehop": {"question": "Who?", "task_template": "{question}"}})],
        r"entry '0401', question 'onehop': field 'task_template' must contain \{haystack\} once",
    ),
    (
        [entry(questions={"onehop": {"question": "Who?", "gold_answers": "{4}"}})],
        r"test 'T16_C02': field 'questions.onehop.gold_answers' has the placeholder \{4\}",
    ),
    (
        [entry(needle="No name.", questions={"a": {"question": "Who?", "gold_answers": "x"}, "b": "Who?"})],
        r"test 'T16_C02': there is no answer",
    ),
    ([entry(questions={"onehop": ""})], r"entry '0401', questions: field 'onehop' is missing or empty"),
    ([entry(tests=None)], r"entry '0401': field 'tests' must be an object such as \{\"T01\".*, got None"),
    ([entry(tests={"T": {}})], r"entry '0401', test 'T': field 'input_args' must be a list of strings .*, got None"),
    ([entry(tests={"T": ["a"]})], r"entry '0401', test 'T': field 'input_args' must be a list"),
    ([entry(tests={"T": {"input_args": "a"}})], r"test 'T': field 'input_args' must be a list of strings .*, got 'a'"),
    (
        [entry(character_set=None)],
        r"entry '0401': field 'character_set' must be a list of 1 or more non-empty strings, got None",
    ),
    ([entry(character_set=[])], r"entry '0401': field 'character_set' must be a list of 1 or more .*, got \[\]"),
    ([entry(character_set=["A", "A"])], r"entry '0401': field 'character_set' has duplicate names"),
    ([entry(gold_answers=[3])], r"entry '0401': field 'gold_answers' must be a non-empty string or a list of them"),
    ([entry(distractors={"onehop": "x"})], r"entry '0401': field 'distractors' is not supported"),
    ([entry(task_template="{question}")], r"entry '0401': field 'task_template' must contain \{haystack\} once"),
    ([entry(task_template="{haystack}")], r"entry '0401': field 'task_template' must contain \{question\} once"),
    ([entry(task_template="{haystack}{haystack}{question}")], r"'task_template' must contain \{haystack\} once"),
    ([entry(task_template=TEMPLATE + "{CHAR}")], r"'task_template' has the unknown placeholder \{CHAR\}"),
    (
        [entry(needle="{CHAR} met {NAME}.")],
        r"test 'T16_C02': field 'needle' has the placeholder \{NAME\}, but 3 input_args",
    ),
    (
        [entry(tests={"T": {"input_args": ["a", "b"]}})],
        r"entry '0401', test 'T': field 'questions.twohop' has the placeholder \{3\}, but 2 input_args fill "
        r"\{CHAR\}, \{1\}, \{2\}; correct it, or extend 'input_args'",
    ),
    (
        [entry(tests={"T": {"input_args": ["a", "b", "c"], "gold_answers": ["{4}", "fine"]}})],
        r"test 'T': field 'gold_answers' has the placeholder \{4\}",
    ),
]


@pytest.mark.parametrize(("entries", "message"), FAULTS, ids=range(len(FAULTS)))
def test_a_fault_is_named_with_file_entry_field_and_remedy(tmp_path: Path, entries: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, entries)
    assert caught.value.__cause__ is None, "no second traceback"


def test_a_question_type_that_an_entry_lacks(tmp_path: Path) -> None:
    (found,) = read(tmp_path, [entry()])
    with pytest.raises(
        ValueError, match=r"mine.json, entry '0401': field 'questions' has no 'direct', only 'onehop', 'twohop'"
    ):
        made(cases(found)[0], "direct")


def test_files_that_are_missing_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none.json does not exist: check its name"):
        read_entries(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes('["Bogotá"]'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin.json: not valid UTF-8 at byte 7"):
        read_entries(tmp_path / "latin.json")


def test_books_are_every_text_below_haystack(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"haystack contains no .txt file: put the texts"):
        read_books(tmp_path)
    (tmp_path / "haystack" / "deep").mkdir(parents=True)
    (tmp_path / "haystack" / "b.txt").write_text(" B. \n")
    (tmp_path / "haystack" / "deep" / "a.txt").write_bytes(b"\xef\xbb\xbfA.\r\nC.")
    assert read_books(tmp_path) == {"b": "B.", "deep/a": "A.\nC."}
    (tmp_path / "haystack" / "c.txt").write_text("\n")
    with pytest.raises(ValueError, match=r"c.txt: the file is empty"):
        read_books(tmp_path)


@given(words=st.integers(1, 9), wanted=st.integers(1, 40))
def test_a_short_text_is_repeated_no_more_than_needed(words: int, wanted: int) -> None:
    text = " ".join(["w"] * words)
    got = len(at_least(text, wanted).split())
    assert got >= wanted
    assert got == words or got - words < wanted
