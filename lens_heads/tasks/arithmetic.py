"""Arithmetic: sums and differences with exact answers. A control: ablating retrieval heads should leave it intact."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from itertools import islice
from math import isqrt
from pathlib import Path
from typing import Any

from lens_heads.tasks.rows import Row, hub_file, local_rows
from lens_heads.tasks.sampling import check_known, check_split, enough, in_split
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

Problem = tuple[int, str, int]

ANSWERS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}

HUB = "EleutherAI/arithmetic"
_DIGITS = {2: "two", 3: "three", 4: "four", 5: "five"}
_FILES = {"+": "addition", "-": "subtraction", "*": "multiplication"}
_WORDS = {"plus": "+", "minus": "-", "times": "*"}
_CONTEXT = re.compile(r"\s*(?:Question|Q):\s*(.+?)\s*(?:Answer|A):\s*", re.DOTALL)


def arithmetic(
    n: int = 200,
    digits: int = 2,
    operations: Sequence[str] = ("+", "-"),
    seed: int = 0,
    chat: bool | None = False,
    source: str = "generated",
    path: str | Path | None = None,
    split: str | None = None,
) -> list[Trial]:
    """Few-shot trials whose answer is a number; no problem repeats, and none is among the few-shot examples.

    Args:
        n: number of trials, spread evenly over the operations.
        digits: digits of both operands, without leading zeros; differences are never negative. On the hub 2 to 5.
        operations: any of "+", "-", "*".
        seed: random seed for the draw.
        chat: see `Trial`. False by default even for chat models, since the few-shot prompt is text to continue.
        source: "generated", "a + b ="; or "hub", GPT-3's arithmetic problems in words (Brown et al., arXiv 2005.14165),
            from the raw files of EleutherAI/arithmetic: operands below 10**digits, so also shorter ones, and negative
            differences.
        path: for "hub", a local copy; all its rows {"context", "completion"} are drawn from, regardless of `digits` and
            `operations`.
        split: "select" for finding heads, "test" for evaluating them: half of all problems each, with 12 + 34 and
            34 + 12 in the same half (not on the hub, whose problems are in words); None draws from all.

    Returns:
        Trials without needle and haystack, with ids such as "arithmetic-12+34" or "arithmetic-hub-two_digit_addition-7".
        A generated text is correct if its first number equals the answer.

    Raises:
        FileNotFoundError: the hub cannot be reached, or there is no file at `path`.
        ValueError: unknown source, split or operation, digits outside 1 to 9, `n` out of range, or a faulty row (named
            with its field).

    The benchmark is zero-shot; here four examples come first. Models under a billion parameters manage one digit and
    mostly fail on two.
    """
    check_split(split)
    check_known("source", source, ("generated", "hub"))
    if source == "hub":
        return _from_rows(n, digits, operations, seed, chat, path, split)
    if path is not None:
        raise ValueError("path= requires source='hub': generated problems need no file")
    return _generated(n, digits, operations, seed, chat, split)


def _generated(
    n: int, digits: int, operations: Sequence[str], seed: int, chat: bool | None, split: str | None
) -> list[Trial]:
    unknown = [operation for operation in operations if operation not in ANSWERS]
    if unknown or not operations or len(set(operations)) < len(operations):
        raise ValueError(
            f"operations={list(operations)} must be one or more of {', '.join(map(repr, ANSWERS))}, each once"
        )
    if not 1 <= digits <= 9:
        raise ValueError(f"digits={digits} is out of range: use 1 to 9")
    shots = template("arithmetic")
    prompt = shots["one digit" if digits == 1 else "template"]
    shown = {(int(a), sign, int(b)) for a, sign, b in re.findall(r"(\d+) ([-+*]) (\d+) =", prompt)}
    rng = random.Random(seed)
    problems: list[Problem] = []
    for number, operation in enumerate(operations):
        share = _share(n, len(operations), number)
        problems += _draw(operation, digits, share, shown, rng, n, split)
    rng.shuffle(problems)
    return [
        Trial(
            id=f"arithmetic-{a}{sign}{b}",
            question=shots["question"].replace("{a}", str(a)).replace("{operation}", sign).replace("{b}", str(b)),
            answer=str(ANSWERS[sign](a, b)),
            template=prompt,
            chat=chat,
            meta={"operation": sign, "digits": digits, "kind": "arithmetic"},
            judge=judge(shots),
        )
        for a, sign, b in problems
    ]


def _share(n: int, parts: int, number: int) -> int:
    """The size of part `number` when n is split as evenly as possible."""
    return n // parts + (number < n % parts)


def _from_rows(
    n: int,
    digits: int,
    operations: Sequence[str],
    seed: int,
    chat: bool | None,
    path: str | Path | None,
    split: str | None,
) -> list[Trial]:
    rng = random.Random(seed)
    tables = {Path(path).stem: local_rows(path, f"a data file of {HUB}")} if path is not None else {}
    for name in [] if path is not None else _hub_names(digits, operations):
        tables[name] = local_rows(hub_file(HUB, f"data/{name}.jsonl", "pass a local copy as path="), f"{name} of {HUB}")
    trials: list[Trial] = []
    for number, (name, rows) in enumerate(tables.items()):
        share = _share(n, len(tables), number)
        rows = [row for row in rows if in_split(str(row.fields.get("context")), split)]
        if share or n < 1:
            trials += [
                _worded(row, name, chat) for row in rng.sample(rows, enough(share, len(rows), f"rows in {name}"))
            ]
    rng.shuffle(trials)
    return trials


def _hub_names(digits: int, operations: Sequence[str]) -> list[str]:
    """The hub's files for a number of digits."""
    offered = {2: "+-*", 3: "+-", 4: "+-", 5: "+-"}.get(digits, "")
    missing = [operation for operation in operations if operation not in offered]
    if missing or not operations or len(set(operations)) < len(operations):
        raise ValueError(
            f"digits={digits}, operations={list(operations)}: {HUB} has only '+' and '-' of 2 to 5 digits and '*' of 2 "
            "digits; use these, each once, or source='generated'"
        )
    return [f"{_DIGITS[digits]}_digit_{_FILES[operation]}" for operation in operations]


def _worded(row: Row, name: str, chat: bool | None) -> Trial:
    """A row as a trial; its context reads "Question: ..\\nAnswer:", or in the raw files "Q: ..\\n\\nA:"."""
    context, answer = row.text("context"), row.text("completion")
    found = _CONTEXT.fullmatch(context)
    if not found:
        raise ValueError(
            f"{row.where}: field 'context' must look like 'Question: What is 1 plus 2?\\nAnswer:', got {context!r}"
        )
    if not re.fullmatch(r"-?\d+", answer):
        raise ValueError(f"{row.where}: field 'completion' must be an integer, got {answer!r}")
    shots = template("arithmetic")
    word = re.search(r"\d (plus|minus|times) \d", found[1])
    meta: dict[str, Any] = {"kind": "arithmetic", "file": name}
    return Trial(
        id=f"arithmetic-hub-{name}-{row.number}",
        question=found[1],
        answer=answer,
        template=shots["worded"],
        chat=chat,
        meta=meta | ({"operation": _WORDS[word[1]]} if word else {}),
        judge=judge(shots),
    )


def _draw(
    operation: str, digits: int, share: int, shown: set[Problem], rng: random.Random, n: int, split: str | None
) -> list[Problem]:
    """`share` distinct problems of one operation, drawn by index so that none repeats."""
    low, high = 10 ** (digits - 1), 10**digits
    span = high - low
    total = span * (span + 1) // 2 if operation == "-" else span * span
    examples = {(a, sign, b) for a, sign, b in shown if sign == operation and low <= min(a, b) and max(a, b) < high}
    have, where = total - len(examples), ""
    if n >= 1 and share <= have:
        # There may be billions of problems; about half of such a sample belong to the split.
        size = share + len(examples) if split is None else 4 * share + 10_000
        drawn = (_problem(index, operation, low, span) for index in rng.sample(range(total), min(size, total)))
        kept = list(islice((p for p in drawn if p not in examples and in_split(_unordered(p), split)), share))
        if len(kept) == share:
            return kept
        have, where = len(kept), f" in the split {split!r}"
    raise ValueError(
        f"n={n} is out of range: there are {have} {operation!r} problems of {digits} digits{where}; change n or digits"
    )


def _unordered(problem: Problem) -> str:
    a, sign, b = problem
    return f"{max(a, b)}{sign}{min(a, b)}"


def _problem(index: int, operation: str, low: int, span: int) -> Problem:
    if operation != "-":
        return low + index // span, operation, low + index % span
    larger = (isqrt(8 * index + 1) - 1) // 2
    return low + larger, operation, low + index - larger * (larger + 1) // 2
