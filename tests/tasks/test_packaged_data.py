"""The packaged needle sets and the prose they are hidden in."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
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


def wordings(entry: dict[str, Any]) -> dict[str, str]:
    """Every text of an entry that has slots: its needle, its questions and its templates."""
    asked = {name: value if isinstance(value, str) else value["question"] for name, value in entry["questions"].items()}
    own = entry["questions"]["multitoken"].get("task_template", entry["task_template"])
    return {"needle": entry["needle"], "template": entry["task_template"], "own": own, **asked}


def blanked(text: str) -> list[str]:
    """The words of a text, with nothing in its slots."""
    return re.findall(r"[a-z]+", re.sub(r"\{\w+\}", " ", text).lower())


def grams(text: str, length: int) -> set[tuple[str, ...]]:
    """Sequences of content words."""
    found = [word for word in blanked(text) if word not in FUNCTION_WORDS]
    return {tuple(found[at : at + length]) for at in range(len(found) - length + 1)}


@pytest.mark.parametrize("half", HALVES)
def test_counts_and_schema(half: str) -> None:
    entries = load(half)
    assert len({entry["id"] for entry in entries}) == len(entries) >= 25
    assert len(cases(half)) >= 75
    assert len({len(entry["tests"]) for entry in entries}) == 1, "else trials cannot use entries and tests alike"
    assert len(set(Counter(entry["kind"] for entry in entries).values())) == 1
    assert len({entry["task_template"] for entry in entries}) == 1
    names = entries[0]["character_set"]
    assert len(set(names)) == len(names) >= 64
    for entry in entries:
        assert entry["reasoning_type"] in ("world_knowledge", "commonsense")
        assert entry["system_prompt"] == ""
        assert entry["needle"].count("{CHAR}") == entry["needle"].count("{1}") == entry["needle"].count("{3}") == 1
        assert list(entry["questions"]) == ["onehop", "direct", "multitoken"]
        several = entry["questions"]["multitoken"]
        assert several["gold_answers"] == ["{3}" if "task_template" in several else "{CHAR} {3}"]
        assert several["gold_answers"][0] in entry["needle"]
        assert entry["character_set"] == names


def test_nothing_is_said_twice() -> None:
    """No needle, argument, onehop or direct question stands in two entries, of one half or of both."""
    entries = [entry for half in HALVES for entry in load(half)]
    for what in ("needle", "onehop", "direct"):
        texts = [tuple(blanked(wordings(entry)[what])) for entry in entries]
        assert len(set(texts)) == len(texts), what
    arguments = [argument.lower() for half in HALVES for _, filled in cases(half) for argument in filled]
    assert [argument for argument, times in Counter(arguments).items() if times > 1] == []


def test_the_halves_share_no_name_no_wording_and_no_three_content_words() -> None:
    select, test = load("select"), load("test")
    names = [entries[0]["character_set"] for entries in (select, test)]
    everybody = [name.lower() for name in (*names[0], *names[1])]
    assert len(set(everybody)) == len(everybody)
    assert [(a, b) for a in everybody for b in everybody if a != b and a in b] == []
    halves = [[text for entry in entries for text in wordings(entry).values()] for entries in (select, test)]
    whole = [{tuple(blanked(text)) for text in texts} for texts in halves]
    assert not whole[0] & whole[1]
    found = [{gram for text in texts for gram in grams(text, 3)} for texts in halves]
    assert min(map(len, found)) > 10
    assert not found[0] & found[1]
    words_of = [{word for _, args in cases(half) for text in args for word in content(text)} for half in HALVES]
    assert not words_of[0] & words_of[1]


def test_shared_wordings_are_noticed_whatever_fills_them() -> None:
    assert blanked("{CHAR} {3} was born in {1}.") == blanked("{CHAR} was born in {2}?")
    assert grams("Who rode a red {1} to the mill?", 3) & grams("The one who rode the red {2} to a mill.", 3)
    assert not grams("Who rode a red {1} to the mill?", 3) & grams("Who rode a blue {1} to the mill?", 3)


@pytest.mark.parametrize("half", HALVES)
def test_every_placeholder_is_filled(half: str) -> None:
    for entry, arguments in cases(half):
        texts = [text for what, text in wordings(entry).items() if what not in ("template", "own")]
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
        assert direct - needle <= {"person"}, (entry["id"], arguments)


@pytest.mark.parametrize("half", HALVES)
def test_an_argument_names_nobody(half: str) -> None:
    """Not even inside a word, so that only the right name is judged to be one."""
    everybody = [name.lower() for entries in map(load, HALVES) for name in entries[0]["character_set"]]
    for entry, arguments in cases(half):
        for pattern in wordings(entry).values():
            assert not words(fill(pattern, arguments, "")) & set(everybody), (entry["id"], arguments)
        assert not [name for name in everybody if name in arguments[2].lower()], arguments


def test_the_haystack_holds_no_needle_word_and_no_name() -> None:
    grammar = (DATA / "prose.json").read_text(encoding="ascii")
    text = words(" ".join([grammar, *(prose.haystack(split=split) for split in (*HALVES, None))]))
    for half in HALVES:
        for entry, arguments in cases(half):
            assert not {name.lower() for name in entry["character_set"]} & text
            for what, pattern in wordings(entry).items():
                if what not in ("template", "own"):
                    assert not content(fill(pattern, arguments, "")) & text, (entry["id"], arguments)


def test_the_prose_of_the_splits_shares_no_scene_no_sentence_and_no_pattern() -> None:
    select, test = (prose.haystack(split=half) for half in HALVES)
    assert not set(sentences(select)) & set(sentences(test))
    assert not set(select.split("\n\n")) & set(test.split("\n\n"))
    scenes = json.loads((DATA / "prose.json").read_text(encoding="ascii"))["scenes"]
    for number, scene in enumerate(scenes):
        places = [sum(text.count(place) for place in scene["place"]) for text in (select, test)]
        assert places[number % 2] >= 10, scene["name"]
        assert places[1 - number % 2] == 0, scene["name"]
    with pytest.raises(ValueError, match="unknown split 'train': use 'select' or 'test', or None for both"):
        prose.haystack(split="train")


@pytest.mark.parametrize("split", [*HALVES, None])
def test_the_prose_is_long_plain_and_varied(split: str | None) -> None:
    text = prose.haystack(split=split)
    assert text.isascii()
    assert not re.search(r"[{}_]|  ", text)
    assert len(text.split()) >= 40_000
    found = sentences(text)
    assert len(set(found)) >= 3000
    assert len(set(found)) >= 0.98 * len(found)
    assert all(re.match(r'"?[A-Z]', sentence) for sentence in found)


@pytest.mark.slow
def test_the_prose_is_fixed_for_a_seed() -> None:
    prose.haystack.cache_clear()
    start = time.perf_counter()
    text = prose.haystack()
    assert time.perf_counter() - start < 5
    assert hashlib.sha256(text.encode("ascii")).hexdigest() == PROSE_SHA256
    assert prose.haystack(500, seed=1) != prose.haystack(500, seed=2)
    assert all(prose.haystack(400_000, split="test").split("\n\n")), "no paragraph is empty when sentences become rare"
    assert len(prose.haystack(500, seed=1).split()) >= 500
