"""GSM8K: grade-school word problems with worked solutions (Cobbe et al., arXiv 2110.14168)."""

from __future__ import annotations

import random
import re
from pathlib import Path

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.rows import DataRow, table
from lens_heads.tasks.sampling import USUAL, check_known, drawn
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

HUB = "openai/gsm8k"
_CALCULATION = re.compile(r"<<[^>]*>>")
_FINAL = re.compile(r"-?(\d[\d,]*)?\.?\d+")


@typed
def gsm8k(
    *,
    n: int | None = None,
    split: str = "test",
    seed: int = 0,
    path: str | Path | None = None,
    reasoning: bool = True,
    chat: bool | None = False,
) -> list[Trial]:
    """Word problems after four original few-shot examples, judged by the final number.

    Args, besides those of `lens_heads.tasks`:
        n: number of trials; None: 200, or all if there are fewer.
        split: the hub's, "test" or "train": find heads on one, evaluate them on the other.
        reasoning: True asks for a worked solution of several lines that ends in "#### n" (evaluate with `max_new_tokens`
            of 200 or more); the gold answer, used for the log-probability, is the whole worked solution. False asks for
            the bare number.

    Returns:
        Trials with ids such as "gsm8k-test-17" (the row); `meta` holds the kind, the source (the split, or the name of the
        local copy) and the number of steps in the solution.

    Differs from the benchmark: the calculator annotations (<<48/2=24>>) are removed from the solutions.

    Example:
        >>> row = {"question": "Ann has 2 apples and buys 3. How many has she?", "answer": "2 + 3 = <<2+3=5>>5 #### 5"}
        >>> pd.DataFrame([row]).to_json("rows.jsonl", orient="records", lines=True)
        >>> lh.tasks.gsm8k(path="rows.jsonl", reasoning=False)[0].answer
        '5'
    """
    check_known("split", split, ("test", "train"))
    rows = table(path, HUB, config="main", split=split)
    name = split if path is None else Path(path).stem
    shots = template("gsm8k")
    judged = judge(shots) if reasoning else judge(shots, cut=["\n"], rule="number", multiline=False)
    return [
        Trial(
            id=f"gsm8k-{name}-{row.number}",
            question=row.text("question"),
            answer=f"{solution}\n#### {final}" if reasoning else final,
            template=shots["template" if reasoning else "direct"],
            chat=chat,
            meta={"kind": "gsm8k", "source": name, "steps": len(solution.splitlines())},
            judge=judged,
        )
        for row in drawn(rows, n, f"problems in {path or HUB}", random.Random(checks.seed(seed)), USUAL)
        for solution, final in [_solution(row)]
    ]


def _solution(row: DataRow) -> tuple[str, str]:
    """The worked solution without calculator annotations, and its final number."""
    solution, marked, final = _CALCULATION.sub("", row.text("answer")).rpartition("####")
    final = final.strip()
    if not marked or not solution.strip() or not _FINAL.fullmatch(final):
        raise row.fault("answer", "be a worked solution that ends in '#### ' and a number")
    return "\n".join(line.strip() for line in solution.strip().splitlines()), final
