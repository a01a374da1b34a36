"""Arithmetic: generated sums and differences with exact answers. What ablating retrieval heads should spare."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from math import isqrt

from lens_heads.tasks.templates import template
from lens_heads.trials import Trial

Problem = tuple[int, str, int]

ANSWERS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


def arithmetic(
    n: int = 200,
    digits: int = 2,
    operations: Sequence[str] = ("+", "-"),
    seed: int = 0,
    chat: bool | None = False,
) -> list[Trial]:
    """Few-shot trials "a + b =" whose answer is the number; no problem comes twice, and none is among the examples.

    Args:
        n: trials, spread evenly over the operations.
        digits: of both operands, without leading zeros; a difference is never negative.
        operations: any of "+", "-", "*".
        seed: of the draw.
        chat: as in `Trial`. False by default, for chat models too: the few examples are a text to go on with.

    Returns:
        Trials without needle and haystack, with ids such as "arithmetic-12+34".

    Raises:
        ValueError: an unknown operation, digits outside 1 to 9, or more trials than there are problems.

    Differs from EleutherAI/arithmetic, which draws operands below 10**digits, so shorter ones too, and negative
    differences. Models under a billion parameters do one digit; two are mostly wrong.
    """
    unknown = [operation for operation in operations if operation not in ANSWERS]
    if unknown or not operations or len(set(operations)) < len(operations):
        raise ValueError(f"operations={list(operations)}: use any of {', '.join(map(repr, ANSWERS))}, each once")
    if not 1 <= digits <= 9:
        raise ValueError(f"digits={digits}: operands have 1 to 9 digits")
    shots = template("arithmetic")
    prompt = shots["one digit" if digits == 1 else "template"]
    shown = {(int(a), sign, int(b)) for a, sign, b in re.findall(r"(\d+) ([-+*]) (\d+) =", prompt)}
    rng = random.Random(seed)
    problems: list[Problem] = []
    for number, operation in enumerate(operations):
        share = n // len(operations) + (number < n % len(operations))
        problems += _draw(operation, digits, share, shown, rng, n)
    rng.shuffle(problems)
    return [
        Trial(
            id=f"arithmetic-{a}{sign}{b}",
            question=shots["question"].replace("{a}", str(a)).replace("{operation}", sign).replace("{b}", str(b)),
            answer=str(ANSWERS[sign](a, b)),
            template=prompt,
            chat=chat,
            meta={"operation": sign, "digits": digits, "kind": "arithmetic"},
        )
        for a, sign, b in problems
    ]


def _draw(operation: str, digits: int, share: int, shown: set[Problem], rng: random.Random, n: int) -> list[Problem]:
    """`share` different problems of one operation, drawn by their index among all, so that none is drawn twice."""
    low, high = 10 ** (digits - 1), 10**digits
    span = high - low
    total = span * (span + 1) // 2 if operation == "-" else span * span
    examples = {(a, sign, b) for a, sign, b in shown if sign == operation and low <= min(a, b) and max(a, b) < high}
    have = total - len(examples)
    if n < 1 or share > have:
        raise ValueError(
            f"n={n}: there are {have} problems {operation!r} of {digits} digits: ask for fewer, or for more digits"
        )
    drawn = [_problem(index, operation, low, span) for index in rng.sample(range(total), share + len(examples))]
    return [problem for problem in drawn if problem not in examples][:share]


def _problem(index: int, operation: str, low: int, span: int) -> Problem:
    if operation != "-":
        return low + index // span, operation, low + index % span
    larger = (isqrt(8 * index + 1) - 1) // 2
    return low + larger, operation, low + index - larger * (larger + 1) // 2
