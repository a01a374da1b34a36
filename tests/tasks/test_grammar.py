"""Patterns: slots, numbers in slots, draws without repetition; the prose that published numbers rest on stays as it is."""

import hashlib
import random

import pytest

from lens_heads.tasks import prose
from lens_heads.tasks.prose import Expander


class _Counting(Expander):
    """Writes the bounds of a slot called `int` instead of a number."""

    def fill(self, slot: str, *bounds: int) -> str:
        return f"<{bounds}>" if slot == "int" else super().fill(slot, *bounds)


def _expander(**lists: list[str]) -> _Counting:
    return _Counting(random.Random(0), lists, {"who": "the clerk"})


def test_fixed_words_come_before_lists_and_words_may_have_slots_themselves() -> None:
    expander = _expander(who=["nobody"], act=["{who} waits for {thing}"], thing=["a letter"])
    assert expander.expand("At noon {act}.") == "At noon the clerk waits for a letter."


def test_numbers_in_a_slot_reach_fill() -> None:
    assert _expander().expand("{int 3 9} of {int -2 40}") == "<(3, 9)> of <(-2, 40)>"


def test_a_trailing_2_marks_a_second_draw_and_no_word_comes_twice_while_there_are_others() -> None:
    first, second, third = _expander(fruit=["fig", "plum"]).expand("{fruit} {fruit2} {fruit}").split()
    assert {first, second} == {"fig", "plum"}
    assert third in {"fig", "plum"}


def test_a_slot_without_a_list_is_an_error() -> None:
    with pytest.raises(KeyError, match="missing"):
        _expander().expand("{missing}")


def test_the_prose_is_the_same_to_the_letter() -> None:
    digest = hashlib.sha256(prose.haystack(words=3_000, seed=1).encode()).hexdigest()
    assert digest.startswith("d7e66f46c041153e"), (
        "other prose: results published with the packaged trials no longer hold"
    )
