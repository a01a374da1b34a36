"""GSM8K: grade-school word problems with worked solutions (Cobbe et al., arXiv 2110.14168)."""

from __future__ import annotations

import random
import re
from pathlib import Path

from lens_heads.tasks.rows import Row, enough, hub_rows, local_rows
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.judges import Judge
from lens_heads.trials.trial import Trial

HUB = "openai/gsm8k"
SPLITS = ("test", "train")
USUAL = 200
_CALCULATION = re.compile(r"<<[^>]*>>")
_FINAL = re.compile(r"-?(\d[\d,]*)?\.?\d+")


def gsm8k(
    n: int | None = None,
    split: str = "test",
    seed: int = 0,
    path: str | Path | None = None,
    reasoning: bool = True,
    chat: bool | None = False,
) -> list[Trial]:
    """Word problems after four original examples, judged by the final number.

    Args:
        n: trials; fewer than there are means a random draw. None: 200, or all where there are fewer.
        split: of the hub's data, "test" or "train": find heads on one, evaluate them on the other.
        seed: of the draw.
        path: a local copy instead, of either split (.jsonl, .json, .csv or .parquet; fields `question` and `answer`).
        reasoning: True asks for a worked solution that ends in "#### n", of several lines (evaluate with
            `max_new_tokens` of 200 or more); the gold answer, for the log-probability, is the whole worked solution. False
            asks for the number alone.
        chat: as in `Trial`. False by default, for chat models too: the few examples are a text to go on with.

    Returns:
        Trials without needle and haystack, with ids such as "gsm8k-test-17" (the row); `meta` holds the kind, the source
        (the split, or the name of the local copy) and the number of steps of the solution.

    Raises:
        FileNotFoundError, ValueError: naming the file, the row and the field; an unknown split; more trials than rows.

    Differs from the benchmark: the calculator's marks (<<48/2=24>>) are taken out of the solutions.
    """
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}: use {' or '.join(map(repr, SPLITS))}")
    rows = hub_rows(HUB, config="main", split=split) if path is None else local_rows(path, f"{HUB}, main, {split}")
    name = split if path is None else Path(path).stem
    drawn = random.Random(seed).sample(
        rows, enough(n, len(rows), f"problems in {HUB if path is None else path}", USUAL)
    )
    shots = template("gsm8k")
    judged = judge(shots) if reasoning else judge(shots, cut=["\n"], rule="number", multiline=False)
    prompt = shots["template" if reasoning else "direct"]
    return [_trial(row, name, prompt, judged, reasoning, chat) for row in drawn]


def _trial(row: Row, name: str, prompt: str, judged: Judge, reasoning: bool, chat: bool | None) -> Trial:
    solution, final = _solution(row)
    return Trial(
        id=f"gsm8k-{name}-{row.number}",
        question=row.text("question"),
        answer=f"{solution}\n#### {final}" if reasoning else final,
        template=prompt,
        chat=chat,
        meta={"kind": "gsm8k", "source": name, "steps": len(solution.splitlines())},
        judge=judged,
    )


def _solution(row: Row) -> tuple[str, str]:
    """The worked solution without the calculator's marks, and the number it ends in."""
    solution, marked, final = _CALCULATION.sub("", row.text("answer")).rpartition("####")
    final = final.strip()
    if not marked or not solution.strip() or not _FINAL.fullmatch(final):
        raise ValueError(
            f"{row.where}: field 'answer' is {row.text('answer')!r}: give a worked solution that ends in '#### ' and a number"
        )
    return "\n".join(line.strip() for line in solution.strip().splitlines()), final
