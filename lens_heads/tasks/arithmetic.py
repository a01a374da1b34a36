"""Arithmetic: sums and differences with exact answers. What ablating retrieval heads should spare."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from itertools import islice
from math import isqrt
from pathlib import Path
from typing import Any

from lens_heads.tasks.rows import Row, enough, hub_file, local_rows
from lens_heads.tasks.sampling import check_split, in_split
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
    """Few-shot trials whose answer is a number; no problem comes twice, and none is among the examples.

    Args:
        n: trials, spread evenly over the operations.
        digits: of both operands, without leading zeros; a difference is never negative. On the hub 2 to 5.
        operations: any of "+", "-", "*".
        seed: of the draw.
        chat: as in `Trial`. False by default, for chat models too: the few examples are a text to go on with.
        source: "generated", "a + b ="; or "hub", the problems in words of GPT-3's arithmetic (Brown et al., arXiv
            2005.14165) from the raw files of EleutherAI/arithmetic: operands below 10**digits, so shorter ones too, and
            negative differences.
        path: for "hub", a local copy instead, all of whose rows {"context", "completion"} are drawn from, whatever
            `digits` and `operations`.
        split: "select" to find heads, "test" to evaluate them: of all problems half each, 12 + 34 in the same as 34 + 12
            (on the hub, where operands stand in words, only the same problem); None draws from all.

    Returns:
        Trials without needle and haystack, with ids such as "arithmetic-12+34" or "arithmetic-hub-two_digit_addition-7";
        right when the first number of the generated text is the answer's.

    Raises:
        FileNotFoundError: the hub cannot be reached, or there is no file at `path`.
        ValueError: an unknown source, split or operation, digits outside 1 to 9, more trials than there are problems, or a
            faulty row, naming it and the field.

    The benchmark asks without examples; here four come first. Models under a billion parameters do one digit; two are
    mostly wrong.
    """
    check_split(split)
    if source == "hub":
        return _from_rows(n, digits, operations, seed, chat, path, split)
    if source != "generated":
        raise ValueError(f"there is no source {source!r}: use 'generated' or 'hub'")
    if path is not None:
        raise ValueError("path= is for source='hub': generated problems need no file")
    return _generated(n, digits, operations, seed, chat, split)


def _generated(
    n: int, digits: int, operations: Sequence[str], seed: int, chat: bool | None, split: str | None
) -> list[Trial]:
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
        tables[name] = local_rows(hub_file(HUB, f"data/{name}.jsonl", "give a copy with path="), f"{name} of {HUB}")
    trials: list[Trial] = []
    for number, (name, rows) in enumerate(tables.items()):
        share = n // len(tables) + (number < n % len(tables))
        rows = [row for row in rows if in_split(str(row.fields.get("context")), split)]
        if share or n < 1:
            trials += [
                _worded(row, name, chat) for row in rng.sample(rows, enough(share, len(rows), f"rows in {name}"))
            ]
    rng.shuffle(trials)
    return trials


def _hub_names(digits: int, operations: Sequence[str]) -> list[str]:
    """The files for so many digits."""
    offered = {2: "+-*", 3: "+-", 4: "+-", 5: "+-"}.get(digits, "")
    missing = [operation for operation in operations if operation not in offered]
    if missing or not operations or len(set(operations)) < len(operations):
        raise ValueError(
            f"digits={digits}, operations={list(operations)}: {HUB} has '+' and '-' of 2 to 5 digits and '*' of 2: ask "
            "for these, each once, or use source='generated'"
        )
    return [f"{_DIGITS[digits]}_digit_{_FILES[operation]}" for operation in operations]


def _worded(row: Row, name: str, chat: bool | None) -> Trial:
    """A row as a trial; its context is "Question: ..\\nAnswer:", or in the raw files "Q: ..\\n\\nA:"."""
    context, answer = row.text("context"), row.text("completion")
    found = _CONTEXT.fullmatch(context)
    if not found:
        raise ValueError(
            f"{row.where}: field 'context' is {context!r}: give it as 'Question: What is 1 plus 2?\\nAnswer:'"
        )
    if not re.fullmatch(r"-?\d+", answer):
        raise ValueError(f"{row.where}: field 'completion' is {answer!r}: give it a whole number")
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
    """`share` different problems of one operation, drawn by their index among all, so that none is drawn twice."""
    low, high = 10 ** (digits - 1), 10**digits
    span = high - low
    total = span * (span + 1) // 2 if operation == "-" else span * span
    examples = {(a, sign, b) for a, sign, b in shown if sign == operation and low <= min(a, b) and max(a, b) < high}
    have, where = total - len(examples), ""
    if n >= 1 and share <= have:
        # Of billions of problems only some are drawn: of so many, about half are of the split.
        size = share + len(examples) if split is None else 4 * share + 10_000
        drawn = (_problem(index, operation, low, span) for index in rng.sample(range(total), min(size, total)))
        kept = list(islice((p for p in drawn if p not in examples and in_split(_unordered(p), split)), share))
        if len(kept) == share:
            return kept
        have, where = len(kept), f" in the split {split!r}"
    raise ValueError(
        f"n={n}: there are {have} problems {operation!r} of {digits} digits{where}: ask for fewer, or for more digits"
    )


def _unordered(problem: Problem) -> str:
    a, sign, b = problem
    return f"{max(a, b)}{sign}{min(a, b)}"


def _problem(index: int, operation: str, low: int, span: int) -> Problem:
    if operation != "-":
        return low + index // span, operation, low + index % span
    larger = (isqrt(8 * index + 1) - 1) // 2
    return low + larger, operation, low + index - larger * (larger + 1) // 2
