"""Arithmetic: sums and differences with exact answers. A control: ablating retrieval heads should leave it intact."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Container, Sequence
from itertools import islice
from math import isqrt
from operator import add, mul, sub
from pathlib import Path

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.rows import DataRow, hub_file, local_rows
from lens_heads.tasks.sampling import check_known, check_split, drawn, in_split
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

Problem = tuple[int, str, int]

ANSWERS: dict[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul}

HUB = "EleutherAI/arithmetic"
_DIGITS = {2: "two", 3: "three", 4: "four", 5: "five"}
_FILES = {"+": "addition", "-": "subtraction", "*": "multiplication"}
_WORDS = {"plus": "+", "minus": "-", "times": "*"}
_PROBLEM = re.compile(r"(\d+) (plus|minus|times) (\d+)")
_CONTEXT = re.compile(r"\s*(?:Question|Q):\s*(.+?)\s*(?:Answer|A):\s*", re.DOTALL)


@typed
def arithmetic(
    *,
    n: int = 200,
    digits: int = 2,
    operations: Sequence[str] | str = ("+", "-"),
    seed: int = 0,
    chat: bool | None = False,
    source: str = "generated",
    path: str | Path | None = None,
    split: str | None = None,
) -> list[Trial]:
    """Few-shot trials whose answer is a number; no problem repeats, and none is among the few-shot examples.

    Args, besides those of `lens_heads.tasks`:
        n: number of trials, spread evenly over the operations.
        digits: digits of both operands, 1 to 9, without leading zeros; differences are never negative. On the hub 2 to 5.
        operations: any of "+", "-", "*".
        source: "generated", "a + b ="; or "hub", GPT-3's arithmetic problems in words (Brown et al., arXiv 2005.14165),
            from the raw files of EleutherAI/arithmetic: operands below 10**digits, so also shorter ones, and negative
            differences.
        path: for "hub", a local copy; all its rows {"context", "completion"} are drawn from, regardless of `digits` and
            `operations`.
        split: half of all problems each, with 12 + 34 and 34 + 12 in the same half.

    Returns:
        Trials with ids such as "arithmetic-12+34" or "arithmetic-hub-two_digit_addition-7". A problem and its copy with
        swapped operands are a group, in digits or in words. The counterfactual of generated ones is a question with
        another operand and answer, and as many digits. A text is correct if its first number equals the answer.

    The benchmark is zero-shot; here four examples come first. Models under a billion parameters manage one digit and
    mostly fail on two.

    Example:
        >>> trial = lh.tasks.arithmetic(n=2, digits=1, split="select")[0]
        >>> print(trial.question.splitlines()[-1], "->", trial.answer)
        6 - 4 = -> 2
    """
    check_split(split)
    check_known("source", source, ("generated", "hub"))
    checks.whole_number("n", n, least=None, most=None)
    checks.whole_number("digits", digits, least=None)
    if source == "hub":
        return _from_rows(_tables(digits, operations, path), n, split, random.Random(checks.seed(seed)), chat)
    if path is not None:
        raise ValueError("path= requires source='hub': generated problems need no file")
    return _generated(n, digits, operations, split, random.Random(checks.seed(seed)), chat)


def _generated(
    n: int, digits: int, operations: Sequence[str], split: str | None, rng: random.Random, chat: bool | None
) -> list[Trial]:
    if not _each_once(operations, ANSWERS):
        raise ValueError(
            f"operations={list(operations)} must be one or more of {', '.join(map(repr, ANSWERS))}, each once"
        )
    if not 1 <= digits <= 9:
        raise ValueError(f"digits={digits} is out of range: use 1 to 9")
    shots = template("arithmetic")
    prompt, asked = shots["one digit" if digits == 1 else "template"], shots["question"]
    shown = {(int(a), sign, int(b)) for a, sign, b in re.findall(r"(\d+) ([-+*]) (\d+) =", prompt)}
    problems = _problems(n, digits, operations, shown, split, rng)
    rng.shuffle(problems)
    return [
        Trial(
            id=f"arithmetic-{a}{sign}{b}",
            question=_asked(asked, (a, sign, b)),
            answer=str(ANSWERS[sign](a, b)),
            template=prompt,
            chat=chat,
            meta={"operation": sign, "digits": digits, "kind": "arithmetic"},
            judge=judge(shots),
            corrupt=_asked(asked, _other((a, sign, b), digits)),
            group=f"arithmetic {_unordered((a, sign, b))}",
        )
        for a, sign, b in problems
    ]


def _asked(question: str, problem: Problem) -> str:
    a, sign, b = problem
    return question.replace("{a}", str(a)).replace("{operation}", sign).replace("{b}", str(b))


def _other(problem: Problem, digits: int) -> Problem:
    """The same problem with another second operand (or first, where there is none), whose answer differs.

    An answer of as many digits is preferred. The problem alone decides which.
    """
    a, sign, b = problem
    low, high, answer = 10 ** (digits - 1), 10**digits, ANSWERS[sign]
    rng = random.Random(f"another {a}{sign}{b}")
    numbers = [rng.randrange(low, high) for _ in range(50)]
    found = [(a, sign, x) for x in numbers] + [(a, sign, b + 1), (a, sign, b - 1), (a + 1, sign, b), (a - 1, sign, b)]
    able = [
        one
        for one in found
        if low <= min(one[0], one[2]) and max(one[0], one[2]) < high and (sign != "-" or one[0] >= one[2])
        if answer(one[0], one[2]) != answer(a, b)
    ]
    return next((one for one in able if len(str(answer(one[0], one[2]))) == len(str(answer(a, b)))), able[0])


def _each_once(operations: Sequence[str], known: Container[str]) -> bool:
    return 0 < len(operations) == len(set(operations)) and all(operation in known for operation in operations)


def _share(n: int, parts: int, number: int) -> int:
    """The size of part `number` when n is split as evenly as possible."""
    return n // parts + (number < n % parts)


def _problems(
    n: int, digits: int, operations: Sequence[str], shown: set[Problem], split: str | None, rng: random.Random
) -> list[Problem]:
    """`n` distinct problems of a split, spread over the operations, none of them `shown`; ValueError if there are fewer."""
    low = 10 ** (digits - 1)
    span = 9 * low
    problems: list[Problem] = []
    for number, operation in enumerate(operations):
        share, kept = _share(n, len(operations), number), []
        total = span * (span + 1) // 2 if operation == "-" else span * span
        examples = {
            (a, sign, b) for a, sign, b in shown if sign == operation and low <= min(a, b) <= max(a, b) < 10 * low
        }
        have, where = total - len(examples), ""
        if n >= 1 and share <= have:
            # About half of such a sample belong to the split. All problems may be billions.
            size = share + len(examples) if split is None else 4 * share + 10_000
            sample = (_at(index, operation, low, span) for index in rng.sample(range(total), min(size, total)))
            kept = list(islice((p for p in sample if p not in examples and in_split(_unordered(p), split)), share))
            have, where = len(kept), f" in the split {split!r}"
        if n < 1 or len(kept) < share:
            raise ValueError(
                f"n={n} is out of range: there are {have} {operation!r} problems of {digits} digits{where}; "
                "change n or digits"
            )
        problems += kept
    return problems


def _at(index: int, operation: str, low: int, span: int) -> Problem:
    """The problem of an operation at an index, of all with operands from `low` to `low + span - 1`."""
    if operation != "-":
        return low + index // span, operation, low + index % span
    larger = (isqrt(8 * index + 1) - 1) // 2
    return low + larger, operation, low + index - larger * (larger + 1) // 2


def _unordered(problem: Problem) -> str:
    a, sign, b = problem
    return f"{max(a, b)}{sign}{min(a, b)}"


def _tables(digits: int, operations: Sequence[str], path: str | Path | None) -> dict[str, list[DataRow]]:
    """The rows of the local copy, or those of the hub's files for a number of digits, by the name of the file."""
    if path is not None:
        rows = local_rows(path, f"a data file of {HUB}")
        return {Path(path).stem: rows}
    if not _each_once(operations, {2: "+-*", 3: "+-", 4: "+-", 5: "+-"}.get(digits, "")):
        raise ValueError(
            f"digits={digits}, operations={list(operations)}: {HUB} has only '+' and '-' of 2 to 5 digits and '*' of 2 "
            "digits; use these, each once, or source='generated'"
        )
    names = [f"{_DIGITS[digits]}_digit_{_FILES[operation]}" for operation in operations]
    files = {name: hub_file(HUB, f"data/{name}.jsonl", "pass a local copy as path=") for name in names}
    return {name: local_rows(file, f"{name} of {HUB}") for name, file in files.items()}


def _from_rows(
    tables: dict[str, list[DataRow]], n: int, split: str | None, rng: random.Random, chat: bool | None
) -> list[Trial]:
    trials: list[Trial] = []
    for number, (name, every) in enumerate(tables.items()):
        share = _share(n, len(tables), number)
        rows = [row for row in every if in_split(_problem(row) or str(row.fields.get("context")), split)]
        if share or n < 1:
            trials += [_worded(row, name, chat) for row in drawn(rows, share, f"rows in {name}", rng)]
    rng.shuffle(trials)
    return trials


def _problem(row: DataRow) -> str:
    """A row's problem as in `_unordered`, so that it falls into the same split as in digits; empty if it has none."""
    found = _PROBLEM.search(str(row.fields.get("context")))
    return _unordered((int(found[1]), _WORDS[found[2]], int(found[3]))) if found else ""


def _worded(row: DataRow, name: str, chat: bool | None) -> Trial:
    """A row as a trial; its context reads "Question: ..\\nAnswer:", or in the raw files "Q: ..\\n\\nA:"."""
    answer, found = row.text("completion"), _CONTEXT.fullmatch(row.text("context"))
    if not found:
        raise row.fault("context", "look like 'Question: What is 1 plus 2?\\nAnswer:'")
    if not re.fullmatch(r"-?\d+", answer):
        raise row.fault("completion", "be an integer")
    shots = template("arithmetic")
    problem = _PROBLEM.search(found[1])
    return Trial(
        id=f"arithmetic-hub-{name}-{row.number}",
        question=found[1],
        answer=answer,
        template=shots["worded"],
        chat=chat,
        meta={"kind": "arithmetic", "file": name} | ({"operation": _WORDS[problem[2]]} if problem else {}),
        judge=judge(shots),
        group=f"arithmetic {_problem(row)}" if problem else "",
    )
