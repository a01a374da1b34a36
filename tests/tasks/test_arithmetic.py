"""Generated problems: exact, unique, none of them an example."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_heads.tasks.arithmetic import arithmetic
from tests import zoo


def parts(trial: Any) -> tuple[int, str, int]:
    found = re.fullmatch(r"(\d+) ([-+*]) (\d+) =", trial.question)
    assert found
    return int(found[1]), found[2], int(found[3])


@given(
    n=st.integers(1, 60),
    digits=st.integers(1, 9),
    operations=st.lists(st.sampled_from("+-*"), min_size=1, unique=True),
    seed=st.integers(0, 9),
)
def test_answers_are_exact_and_problems_unique(n: int, digits: int, operations: list[str], seed: int) -> None:
    if digits == 1 and n > 30 * len(operations):
        return
    trials = arithmetic(n, digits, operations, seed)
    problems = [parts(trial) for trial in trials]
    assert len(set(problems)) == len({trial.id for trial in trials}) == n
    for trial, (a, sign, b) in zip(trials, problems, strict=True):
        assert int(trial.answer) == {"+": a + b, "-": a - b, "*": a * b}[sign] >= 0
        assert len(str(a)) == len(str(b)) == digits
        assert f"\n{trial.question}" not in "\n" + trial.template, "an example gives the answer away"
    counts = Counter(sign for _, sign, _ in problems)
    assert max(counts.values()) - min(counts[sign] for sign in operations) <= 1
    assert trials == arithmetic(n, digits, operations, seed)


def test_examples_in_the_templates_are_right() -> None:
    for digits in (1, 2):
        shots = re.findall(r"(\d+) ([-+]) (\d+) = (\d+)", arithmetic(1, digits)[0].template)
        assert len(shots) >= 4
        assert all(int(c) == (int(a) + int(b) if sign == "+" else int(a) - int(b)) for a, sign, b, c in shots)


def test_all_problems_can_be_asked_for_and_no_more() -> None:
    sums = {parts(trial) for trial in arithmetic(77, 1, "+")}
    shown = {(2, 3), (6, 5), (4, 8), (7, 2)}
    assert sums == {(a, "+", b) for a in range(1, 10) for b in range(1, 10) if (a, b) not in shown}
    differences = {parts(trial) for trial in arithmetic(41, 1, "-")}
    assert differences == {(a, "-", b) for a in range(1, 10) for b in range(1, a + 1)} - {
        (9, "-", 4),
        (7, "-", 5),
        (6, "-", 3),
        (8, "-", 2),
    }
    with pytest.raises(ValueError, match=r"n=42: there are 41 problems '-' of 1 digits"):
        arithmetic(42, 1, "-")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"operations": ("+", "/")}, r"operations=\['\+', '/'\]: use any of '\+', '-', '\*'"),
        ({"operations": ()}, "operations=\\[\\]"),
        ({"operations": ("+", "+")}, "each once"),
        ({"digits": 0}, "digits=0"),
        ({"digits": 10}, "digits=10: operands have 1 to 9 digits"),
        ({"n": 0}, "n=0"),
    ],
)
def test_faults_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arithmetic(**arguments)


def test_the_answer_follows_with_a_space() -> None:
    tokenizer = zoo.tokenizer()
    trial = arithmetic(1)[0]
    encoded = trial.encode(tokenizer)
    assert encoded.needle is None
    assert tokenizer.decode(encoded.tokens) == trial.template.replace("{question}", trial.question)
    assert tokenizer.decode(encoded.answer_tokens) == " " + trial.answer
