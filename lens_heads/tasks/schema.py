"""Needle files in NoLiMa's schema: read, validated, filled in and turned into trials.

A needle file is a JSON list of entries:

    id               unique name
    needle           a sentence with {CHAR} (the answer) and {1}, {2}, .. (arguments)
    questions        {"onehop": .., "twohop": .., "direct": ..}, any of them, with {1}, {2}, ..
    character_set    names for {CHAR}
    tests            {"T01": {"input_args": [..]}, ..}: values for {1}, {2}, ..
    task_template    the prompt, with {haystack} and {question}, each once
    gold_answers     optional, in an entry or a test: the right answers, if the character is not the answer
    kind             optional: the needle's topic

One addition: a question may be {"question": .., "gold_answers": .., "task_template": ..}, with answers and a prompt of its
own; both are optional and come before those of test and entry.

Other fields (`reasoning_type`, `system_prompt`) are ignored. Every fault raises a ValueError or FileNotFoundError that
names the file, the entry, the field and the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lens_heads.runs.reading import TextFile, read_json
from lens_heads.tasks.rows import DataRow
from lens_heads.trials.trial import Trial

_SLOT = re.compile(r"\{(\w*)\}")


@dataclass(frozen=True)
class Test:
    """Values for an entry's placeholders: `args[0]` fills {1}; `gold` are the right answers, if not the character."""

    id: str
    args: tuple[str, ...]
    gold: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """A question; its own right answers and template, where they differ from those of test and entry."""

    text: str
    gold: tuple[str, ...] = ()
    template: str = ""


@dataclass(frozen=True)
class Entry:
    """One validated needle with its questions. `characters` is empty if the needle has no {CHAR}."""

    id: str
    needle: str
    questions: dict[str, Question]
    characters: tuple[str, ...]
    tests: tuple[Test, ...]
    template: str
    kind: str
    where: str


@dataclass(frozen=True)
class Case:
    """An entry with one of its tests and one character, which together fill the needle."""

    entry: Entry
    test: Test
    character: str

    @property
    def id(self) -> str:
        return "-".join(filter(None, (self.entry.id, self.test.id, self.character)))

    def trial(self, questions: str, book: str, kind: type[Trial] = Trial, **fields: Any) -> Trial:
        """The filled-in trial, with `fields` of `Trial`, or another `kind` of trial.

        `meta` holds entry, test, association (entry and test), kind, question type, character and book.

        The ValueError for an unknown question type lists those of the entry.
        """
        entry, test = self.entry, self.test
        if questions not in entry.questions:
            have = ", ".join(map(repr, entry.questions))
            raise ValueError(
                f"{entry.where}: field 'questions' has no {questions!r}, only {have}: add it, or use one of these"
            )
        asked = entry.questions[questions]
        filled = {"CHAR": self.character, **{str(i): arg for i, arg in enumerate(test.args, 1)}}
        gold = tuple(_fill(answer, filled) for answer in asked.gold or test.gold) or (self.character,)
        return kind(
            question=_fill(asked.text, filled),
            answer=gold[0],
            aliases=gold[1:],
            needle=_fill(entry.needle, filled),
            template=asked.template or entry.template,
            meta={
                "entry": entry.id,
                "test": test.id,
                "association": f"{entry.id}-{test.id}",
                "kind": entry.kind,
                "questions": questions,
                "character": self.character,
                "book": book,
            },
            **fields,
        )


def cases(entry: Entry, characters: tuple[str, ...] | None = None) -> list[Case]:
    """Every test of an entry with each of its characters, or with each of the given ones."""
    names = entry.characters if characters is None else characters
    return [Case(entry, test, name) for test in entry.tests for name in names or ("",)]


def _fill(text: str, filled: dict[str, str]) -> str:
    return _SLOT.sub(lambda slot: filled[slot[1]], text)


def read_entries(*files: TextFile) -> list[Entry]:
    """All entries of one or more needle files."""
    entries: dict[str, Entry] = {}
    for file in files:
        raw = read_json(file)
        if not isinstance(raw, list) or not raw:
            got = "an empty one" if raw == [] else type(raw).__name__
            raise ValueError(f"{file}: expected a JSON list of one or more entries, [{{..}}, ..], got {got}")
        for entry in (_entry(value, number, str(file)) for number, value in enumerate(raw, 1)):
            if (first := entries.setdefault(entry.id, entry)) is not entry:
                other = f"duplicate id {entry.id!r}" if first.where == entry.where else f"{first.where} has the same id"
                raise ValueError(f"{entry.where}: {other}; make field 'id' unique, or choose one file with needle_set=")
    return list(entries.values())


def _entry(raw: Any, number: int, file: str) -> Entry:
    where = f"{file}, entry {number}"
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: expected a JSON object {{..}}, got {type(raw).__name__}")
    id = DataRow(where, number, raw).text("id")
    row = DataRow(f"{file}, entry {id!r}", number, raw)
    if raw.get("distractors"):
        raise ValueError(f"{row.where}: field 'distractors' is not supported: use a needle file without it")
    needle = row.verbatim("needle")
    entry = Entry(
        id=id,
        needle=needle,
        questions=_questions(row),
        characters=tuple(row.texts("character_set")) if "{CHAR}" in needle else (),
        tests=tuple(_tests(row)),
        template=row.verbatim("task_template"),
        kind=row.text("kind", empty=True) if "kind" in raw else "",
        where=row.where,
    )
    if len(set(entry.characters)) < len(entry.characters):
        raise ValueError(f"{row.where}: field 'character_set' has duplicate names; keep each name once")
    _check_template(entry.where, entry.template)
    for test in entry.tests:
        _check_slots(entry, test)
    return entry


def _object(row: DataRow, field: str, example: str) -> dict[str, Any]:
    value = row.fields.get(field)
    if not isinstance(value, dict) or not value:
        raise row.fault(field, f"be an object such as {example}")
    return value


def _questions(row: DataRow) -> dict[str, Question]:
    asked = _object(row, "questions", '{"onehop": "Which character ..?"}')
    plain = DataRow(f"{row.where}, questions", row.number, asked)
    return {
        name: _own(DataRow(f"{row.where}, question {name!r}", row.number, value))
        if isinstance(value, dict)
        else Question(plain.verbatim(name))
        for name, value in asked.items()
    }


def _own(row: DataRow) -> Question:
    """A question with answers or a template of its own."""
    template = row.verbatim("task_template") if "task_template" in row.fields else ""
    if template:
        _check_template(row.where, template)
    return Question(row.verbatim("question"), _gold(row), template)


def _tests(row: DataRow) -> Iterator[Test]:
    shared = _gold(row)
    for name, fields in _object(row, "tests", '{"T01": {"input_args": ["Lisbon"]}}').items():
        test = DataRow(f"{row.where}, test {name!r}", row.number, fields if isinstance(fields, dict) else {})
        args = test.fields.get("input_args")
        if not isinstance(args, list) or not all(type(arg) in (str, int, float) for arg in args):
            raise test.fault("input_args", "be a list of strings for {1}, {2}, ..")
        yield Test(name, tuple(str(arg) for arg in args), _gold(test) or shared)


def _gold(row: DataRow) -> tuple[str, ...]:
    gold = row.fields.get("gold_answers") or []
    gold = [gold] if isinstance(gold, str) else gold
    if not isinstance(gold, list) or not all(isinstance(answer, str) and answer.strip() for answer in gold):
        raise row.fault("gold_answers", "be a non-empty string or a list of them, or be omitted")
    return tuple(gold)


def _check_template(where: str, template: str) -> None:
    wrong = f"{where}: field 'task_template'"
    for slot in ("{haystack}", "{question}"):
        if template.count(slot) != 1:
            raise ValueError(f"{wrong} must contain {slot} once, got {template!r}")
    for slot in set(_SLOT.findall(template)) - {"haystack", "question"}:
        raise ValueError(f"{wrong} has the unknown placeholder {{{slot}}}: use only {{haystack}} and {{question}}")


def _check_slots(entry: Entry, test: Test) -> None:
    """Checks that a test has an answer and can fill every placeholder."""
    where = f"{entry.where}, test {test.id!r}"
    if not entry.characters and not test.gold and not all(asked.gold for asked in entry.questions.values()):
        raise ValueError(f"{where}: there is no answer: put {{CHAR}} in field 'needle', or add 'gold_answers'")
    known = [*(["CHAR"] if entry.characters else []), *(str(i) for i in range(1, len(test.args) + 1))]
    texts = {"needle": entry.needle, "gold_answers": " ".join(test.gold)}
    for name, asked in entry.questions.items():
        texts |= {f"questions.{name}": asked.text, f"questions.{name}.gold_answers": " ".join(asked.gold)}
    for field, text in texts.items():
        stranger = next((slot for slot in _SLOT.findall(text) if slot not in known), None)
        if stranger is not None:
            filled = ", ".join(f"{{{name}}}" for name in known) or "nothing"
            raise ValueError(
                f"{where}: field {field!r} has the placeholder {{{stranger}}}, but {len(test.args)} input_args fill "
                f"{filled}; correct it, or extend 'input_args'"
            )
