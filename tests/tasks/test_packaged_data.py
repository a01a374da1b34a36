"""The packaged needle sets and the prose they are hidden in."""

from __future__ import annotations

import hashlib
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from lens_heads.tasks import prose

DATA = Path(prose.__file__).parent / "data"
HALVES = ("select", "test")
PROSE_SHA256 = "d7ae65ed01a063cc2dfca525f6cf99c472b07d092a456d23eeec53a7efb8d2f5"
FUNCTION_WORDS = set(
    re.findall(
        r"[a-z]+",
        """a about after again against all an and any are as at be been being but by can cannot could
        did do does each few for from had has have he her him his i if in into is it its like may
        might must never not of off on once one or out outside over she should since so than that
        the their them there these they this to under up was were what when where which who whose
        will with without would you your""",
    )
)


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


def content(text: str) -> set[str]:
    return words(text) - FUNCTION_WORDS


def load(half: str) -> list[dict[str, Any]]:
    path = DATA / "packaged" / "needlesets" / f"needle_set_{half}.json"
    entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="ascii"))
    return entries


def fill(text: str, arguments: list[str], name: str) -> str:
    text = text.replace("{CHAR}", name)
    for number, argument in enumerate(arguments, 1):
        text = text.replace(f"{{{number}}}", argument)
    return text


def cases(half: str) -> list[tuple[dict[str, Any], list[str]]]:
    return [(entry, test["input_args"]) for entry in load(half) for test in entry["tests"].values()]


def sentences(text: str) -> list[str]:
    parts = re.split(r'(?<=[.?])\s+(?=["A-Z])|(?<=[.?]")\s+(?=["A-Z])', text)
    return [part for part in parts if part]


@pytest.mark.parametrize("half", HALVES)
def test_counts_and_schema(half: str) -> None:
    entries = load(half)
    assert len(entries) >= 30
    assert len({entry["kind"] for entry in entries}) >= 8
    assert len({entry["id"] for entry in entries}) == len(entries)
    assert len({entry["task_template"] for entry in entries}) == 1
    for entry in entries:
        assert entry["reasoning_type"] in ("world_knowledge", "commonsense")
        assert entry["system_prompt"] == ""
        assert entry["needle"].count("{CHAR}") == 1
        assert set(entry["questions"]) == {"onehop", "direct"}
        assert entry["task_template"].count("{haystack}") == 1
        assert entry["task_template"].count("{question}") == 1
        assert len(set(entry["character_set"])) == len(entry["character_set"]) >= 12
        assert 2 <= len(entry["tests"]) <= 4


def test_there_are_enough_filled_needles_and_none_twice() -> None:
    filled = [fill(entry["needle"], args, "X") for half in HALVES for entry, args in cases(half)]
    assert len(filled) >= 150
    assert len(set(filled)) == len(filled)


def test_the_halves_share_nothing() -> None:
    select, test = load("select"), load("test")

    def names(entries: list[dict[str, Any]]) -> set[str]:
        return {name for entry in entries for name in entry["character_set"]}

    def first_arguments(half: str) -> set[str]:
        return {arguments[0].lower() for _, arguments in cases(half)}

    assert not {e["needle"] for e in select} & {e["needle"] for e in test}
    assert not {e["id"] for e in select} & {e["id"] for e in test}
    assert not names(select) & names(test)
    assert not first_arguments("select") & first_arguments("test")
    for name in names(select) | names(test):
        assert not any(name != other and name in other for other in names(select) | names(test))


@pytest.mark.parametrize("half", HALVES)
def test_every_placeholder_is_filled(half: str) -> None:
    for entry, arguments in cases(half):
        texts = [entry["needle"], *entry["questions"].values()]
        for text in texts:
            assert not re.search(r"[{}]", fill(text, arguments, "X")), text
        for number in range(1, len(arguments) + 1):
            assert any(f"{{{number}}}" in text for text in texts)


@pytest.mark.parametrize("half", HALVES)
def test_onehop_shares_no_content_word_and_direct_shares_some(half: str) -> None:
    for entry, arguments in cases(half):
        needle = content(fill(entry["needle"], arguments, ""))
        onehop = content(fill(entry["questions"]["onehop"], arguments, ""))
        direct = content(fill(entry["questions"]["direct"], arguments, ""))
        assert not needle & onehop, (entry["id"], arguments)
        assert needle & direct, (entry["id"], arguments)
        assert direct - needle <= {"character"}, (entry["id"], arguments)


def test_the_haystack_holds_no_needle_word_and_no_name() -> None:
    text = words(prose.haystack())
    for half in HALVES:
        for entry, arguments in cases(half):
            assert not {name.lower() for name in entry["character_set"]} & text
            for pattern in (entry["needle"], *entry["questions"].values()):
                assert not content(fill(pattern, arguments, "")) & text, (entry["id"], arguments)


def test_the_prose_is_long_plain_and_varied() -> None:
    text = prose.haystack()
    assert text.isascii()
    assert not re.search(r"[{}_]|  ", text)
    assert len(text.split()) >= 40_000
    found = sentences(text)
    assert len(set(found)) >= 3000
    assert len(set(found)) >= 0.98 * len(found)
    assert all(re.match(r'"?[A-Z]', sentence) for sentence in found)


def test_the_prose_is_fixed_for_a_seed() -> None:
    prose.haystack.cache_clear()
    start = time.perf_counter()
    text = prose.haystack()
    assert time.perf_counter() - start < 5
    assert hashlib.sha256(text.encode("ascii")).hexdigest() == PROSE_SHA256
    assert prose.haystack(500, seed=1) != prose.haystack(500, seed=2)
    assert len(prose.haystack(500, seed=1).split()) >= 500
