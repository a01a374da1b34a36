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

Other fields (`reasoning_type`, `system_prompt`) are ignored. Every fault raises a ValueError or FileNotFoundError that
names the file, the entry, the field and the remedy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lens_heads.tasks.books import TextFile, read_json
from lens_heads.trials.trial import Trial

_SLOT = re.compile(r"\{(\w*)\}")


@dataclass(frozen=True)
class Test:
    """Values for an entry's placeholders: `args[0]` fills {1}; `gold` are the right answers, if not the character."""

    __test__ = False  # Keeps pytest from collecting it.

    id: str
    args: tuple[str, ...]
    gold: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """One validated needle with its questions. `characters` is empty if the needle has no {CHAR}."""

    id: str
    needle: str
    questions: dict[str, str]
    characters: tuple[str, ...]
    tests: tuple[Test, ...]
    template: str
    kind: str
    where: str

    def question(self, questions: str) -> str:
        """The question of a given type; the ValueError for an unknown one lists the types of the entry."""
        if questions not in self.questions:
            have = ", ".join(repr(name) for name in self.questions)
            raise ValueError(
                f"{self.where}: field 'questions' has no {questions!r}, only {have}: add it, or use one of these"
            )
        return self.questions[questions]


@dataclass(frozen=True)
class Case:
    """An entry with one of its tests and one character, which together fill the needle."""

    entry: Entry
    test: Test
    character: str

    @property
    def id(self) -> str:
        return "-".join(part for part in (self.entry.id, self.test.id, self.character) if part)

    def trial(
        self, id: str, questions: str, haystack: str, book: str, depth: float, length: int, chat: bool | None
    ) -> Trial:
        """The filled-in trial; `meta` holds entry, test, kind, question type, character and book."""
        entry, test = self.entry, self.test
        filled = {"CHAR": self.character, **{str(i): arg for i, arg in enumerate(test.args, 1)}}
        gold = tuple(_fill(answer, filled) for answer in test.gold) or (self.character,)
        return Trial(
            id=id,
            question=_fill(entry.question(questions), filled),
            answer=gold[0],
            aliases=gold[1:],
            haystack=haystack,
            needle=_fill(entry.needle, filled),
            template=entry.template,
            depth=depth,
            length=length,
            chat=chat,
            meta={
                "entry": entry.id,
                "test": test.id,
                "kind": entry.kind,
                "questions": questions,
                "character": self.character,
                "book": book,
            },
        )


def cases(entry: Entry, characters: tuple[str, ...] | None = None) -> list[Case]:
    """Every test of an entry with each of its characters, or with each of the given ones."""
    names = entry.characters if characters is None else characters
    return [Case(entry, test, name) for test in entry.tests for name in names or ("",)]


def _fill(text: str, filled: dict[str, str]) -> str:
    return _SLOT.sub(lambda slot: filled[slot[1]], text)


def read_entries(file: TextFile) -> list[Entry]:
    """All entries of a needle file.

    Raises FileNotFoundError for a missing file, ValueError if it is not UTF-8, not JSON or not a list of entries, or if
    it has a faulty entry or a duplicate id.
    """
    raw = read_json(file)
    if not isinstance(raw, list):
        raise ValueError(f"{file}: expected a JSON list of entries, got {_kind(raw)}; wrap it in [ ]")
    if not raw:
        raise ValueError(f"{file}: the list of entries is empty: add at least one")
    entries = [_entry(value, number, str(file)) for number, value in enumerate(raw, 1)]
    seen: set[str] = set()
    for entry in entries:
        if entry.id in seen:
            raise ValueError(f"{entry.where}: duplicate id {entry.id!r}; make field 'id' unique")
        seen.add(entry.id)
    return entries


def _entry(raw: Any, number: int, file: str) -> Entry:
    where = f"{file}, entry {number}"
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: expected a JSON object {{..}}, got {_kind(raw)}")
    id = raw.get("id")
    if not isinstance(id, str | int) or not str(id).strip():
        raise ValueError(f"{where}: field 'id' is missing or empty; it must be a unique name")
    where = f"{file}, entry {id!r}"
    if raw.get("distractors"):
        raise ValueError(f"{where}: field 'distractors' is not supported: use a needle file without it")
    needle, template = _text(raw, "needle", where), _text(raw, "task_template", where)
    questions = _dict(raw, "questions", where, '{"onehop": "Which character ..?"}')
    for name in questions:
        _text(questions, name, f"{where}, questions")
    entry = Entry(
        id=str(id),
        needle=needle,
        questions=questions,
        characters=_characters(raw, needle, where),
        tests=tuple(_tests(raw, where)),
        template=template,
        kind=str(raw.get("kind", "")),
        where=where,
    )
    _check_slots(entry)
    return entry


def _characters(raw: dict[str, Any], needle: str, where: str) -> tuple[str, ...]:
    if "{CHAR}" not in needle:
        return ()
    names = raw.get("character_set")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(
            f"{where}: field 'character_set' is {_kind(names)}, but the needle contains {{CHAR}}: "
            'use a list of names such as ["Megan", "Calvin"]'
        )
    if len(set(names)) < len(names):
        raise ValueError(f"{where}: field 'character_set' has duplicate names; keep each name once")
    return tuple(names)


def _tests(raw: dict[str, Any], where: str) -> Iterator[Test]:
    shared = _gold(raw, where)
    for name, test in _dict(raw, "tests", where, '{"T01": {"input_args": ["Lisbon"]}}').items():
        args = test.get("input_args") if isinstance(test, dict) else None
        if not isinstance(args, list) or not all(isinstance(arg, str | int | float) for arg in args):
            raise ValueError(
                f"{where}, test {name!r}: field 'input_args' is {_kind(args)}: use a list of strings for {{1}}, {{2}}, .."
            )
        yield Test(name, tuple(str(arg) for arg in args), _gold(test, f"{where}, test {name!r}") or shared)


def _gold(raw: dict[str, Any], where: str) -> tuple[str, ...]:
    gold = raw.get("gold_answers") or []
    gold = [gold] if isinstance(gold, str) else gold
    if not isinstance(gold, list) or not all(isinstance(answer, str) and answer.strip() for answer in gold):
        raise ValueError(
            f"{where}: field 'gold_answers' must be a non-empty string or a list of them; otherwise omit it"
        )
    return tuple(gold)


def _check_slots(entry: Entry) -> None:
    """Checks that every placeholder can be filled and that every test has an answer."""
    for slot in ("haystack", "question"):
        if entry.template.count(f"{{{slot}}}") != 1:
            raise ValueError(
                f"{entry.where}: field 'task_template' must contain {{{slot}}} once, got {entry.template!r}"
            )
    for slot in set(_SLOT.findall(entry.template)) - {"haystack", "question"}:
        raise ValueError(
            f"{entry.where}: field 'task_template' has the unknown placeholder {{{slot}}}: "
            "use only {haystack} and {question}"
        )
    texts = [("needle", entry.needle), *((f"questions.{name}", text) for name, text in entry.questions.items())]
    for test in entry.tests:
        if not entry.characters and not test.gold:
            raise ValueError(
                f"{entry.where}, test {test.id!r}: there is no answer: put {{CHAR}} in field 'needle', or add "
                "'gold_answers'"
            )
        known = {str(i) for i in range(1, len(test.args) + 1)} | ({"CHAR"} if entry.characters else set())
        for field, text in [*texts, *(("gold_answers", answer) for answer in test.gold)]:
            for slot in _SLOT.findall(text):
                if slot not in known:
                    raise ValueError(
                        f"{entry.where}, test {test.id!r}: field {field!r} has the placeholder {{{slot}}}, but "
                        f"{_can_fill(test, bool(entry.characters))}; correct it, or extend 'input_args'"
                    )


def _can_fill(test: Test, character: bool) -> str:
    filled = (["{CHAR}"] if character else []) + [f"{{{i}}}" for i in range(1, len(test.args) + 1)]
    return f"{len(test.args)} input_args fill {', '.join(filled) or 'nothing'}"


def _text(raw: dict[str, Any], field: str, where: str) -> str:
    value = raw.get(field)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where}: field {field!r} is {_kind(value)}; it must be a non-empty string")
    return value


def _dict(raw: dict[str, Any], field: str, where: str, example: str) -> dict[str, Any]:
    value = raw.get(field)
    if not isinstance(value, dict) or not value:
        raise ValueError(f"{where}: field {field!r} is {_kind(value)}: use an object such as {example}")
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    if not value and isinstance(value, str | list | dict):
        return f"empty ({json.dumps(value)})"
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), type(value).__name__)
