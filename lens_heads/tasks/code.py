"""Programs judged by running their tests: MBPP (Austin et al., arXiv 2108.07732), HumanEval (Chen et al., arXiv 2107.03374).

The answer of a trial is the reference code, so its log-probability is measured without running anything. Judging a
generated program runs it in `lens_heads.trials.sandbox`, and only with `allow_code_execution`.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.rows import DataRow, table
from lens_heads.tasks.sampling import USUAL, check_known, drawn
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.sandbox import permission
from lens_heads.trials.trial import Trial

MBPP, HUMANEVAL = "google-research-datasets/mbpp", "openai/openai_humaneval"


@typed
def mbpp(
    *,
    n: int | None = None,
    config: str = "full",
    split: str = "test",
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
    allow_code_execution: bool | str = False,
) -> list[Trial]:
    """Short functions to write from a description and tests, in the paper's prompt, after three original examples.

    Args, besides those of `lens_heads.tasks`:
        n: number of trials; None: 200, or all if there are fewer.
        config: the hub's config, "full" or "sanitized" (hand-checked descriptions); a local copy may be of either.
        split: the hub's, "test", "train", "validation" or "prompt".
        allow_code_execution: True lets generated programs run to judge them, confined by bubblewrap (`lens_heads.trials.sandbox`
            says what that keeps out); "unsafe" lets them run unconfined, on a disposable machine. With False, only the
            log-probability can be measured.

    Returns:
        Trials with ids such as "mbpp-11" (MBPP's task id); `meta` holds the kind. Evaluate with `max_new_tokens` of 200 or
        more.

    Example:
        >>> row = {"task_id": 11, "text": "Write a function that doubles.", "code": "def double(x): return 2 * x"}
        >>> row |= {"test_list": ["assert double(2) == 4"], "test_setup_code": "", "challenge_test_list": []}
        >>> pd.DataFrame([row]).to_json("rows.jsonl", orient="records", lines=True)
        >>> lh.tasks.mbpp(path="rows.jsonl")[0].id
        'mbpp-11'
    """
    permission("allow_code_execution", allow_code_execution)
    check_known("config", config, ("full", "sanitized"))
    check_known("split", split, ("test", "train", "validation", "prompt"))
    rows = table(path, MBPP, config=config, split=split)
    chosen = drawn(rows, n, f"tasks in {path or MBPP}", random.Random(checks.seed(seed)), USUAL)
    return [_task(row, template("mbpp"), chat, allow_code_execution) for row in chosen]


@typed
def humaneval(
    *,
    n: int | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
    allow_code_execution: bool | str = False,
) -> list[Trial]:
    """Functions to complete from signature and docstring, zero-shot; generated text is cut at the paper's stop sequences.

    Arguments as in `mbpp`; there are 164 problems, asked by default. Trials have ids such as "humaneval-0"; `meta` holds the
    kind and the function's name. Evaluate with `max_new_tokens` of 200 or more.

    Differs from the paper's code: the prompt ends before its last newline, as in the BigCode evaluation harness.

    `allow_code_execution`: as in `mbpp`.

    Example:
        >>> row = {"task_id": "HumanEval/0", "prompt": "def double(x):", "canonical_solution": " return 2 * x"}
        >>> row |= {"entry_point": "double", "test": "def check(f): assert f(2) == 4"}
        >>> pd.DataFrame([row]).to_json("rows.jsonl", orient="records", lines=True)
        >>> lh.tasks.humaneval(path="rows.jsonl")[0].id
        'humaneval-0'
    """
    permission("allow_code_execution", allow_code_execution)
    rows = table(path, HUMANEVAL, split="test")
    chosen = drawn(rows, n, f"problems in {path or HUMANEVAL}", random.Random(checks.seed(seed)))
    return [_problem(row, template("humaneval"), chat, allow_code_execution) for row in chosen]


def _task(row: DataRow, shots: dict[str, Any], chat: bool | None, allowed: bool | str) -> Trial:
    """A row of MBPP; the sanitized config names some fields differently."""
    tests = _unix("\n".join(row.texts("test_list")))
    imports = row.texts("test_imports") if row.fields.get("test_imports") else []
    setup, code = row.verbatim("test_setup_code") if row.fields.get("test_setup_code") else "", _unix(row.text("code"))
    # Most setups build trees of the code's own class Node. Others define what the code needs.
    first, then = (
        ([], [setup]) if set(re.findall(r"\w+", setup)) & (_defined(code) - _defined(setup)) else ([setup], [])
    )
    task = row.text("text" if row.fields.get("text") else "prompt")
    preamble = _unix("".join(f"{part}\n" for part in (*imports, *first) if part))
    return Trial(
        id=f"mbpp-{row.text('task_id')}",
        question=shots["question"].replace("{task}", task).replace("{tests}", tests),
        answer=code,
        template=shots["template"],
        chat=chat,
        meta={"kind": "mbpp"},
        judge=judge(shots, preamble=preamble, tests=_unix("\n".join([*then, tests])), allowed=allowed),
    )


def _defined(code: str) -> set[str]:
    """The names of the functions and classes that code defines."""
    return set(re.findall(r"^(?:def|class) +(\w+)", code, re.MULTILINE))


def _problem(row: DataRow, shots: dict[str, Any], chat: bool | None, allowed: bool | str) -> Trial:
    """A row of HumanEval. The answer starts with the prompt's last newline: tokenizers merge it with the indentation."""
    prompt, name = _unix(row.verbatim("prompt")).rstrip(), row.text("entry_point")
    if f"def {name}(" not in prompt:
        raise row.fault("entry_point", "name a function in 'prompt'")
    return Trial(
        id=f"humaneval-{row.text('task_id').rpartition('/')[2]}",
        question=prompt,
        answer="\n" + _unix(row.verbatim("canonical_solution")).strip("\n"),
        template=shots["template"],
        chat=chat,
        meta={"kind": "humaneval", "function": name},
        judge=judge(shots, preamble=prompt, tests=f"{_unix(row.verbatim('test'))}\n\ncheck({name})", allowed=allowed),
    )


def _unix(code: str) -> str:
    return code.replace("\r\n", "\n")
