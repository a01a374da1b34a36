"""Programs judged by running their tests: MBPP (Austin et al., arXiv 2108.07732), HumanEval (Chen et al., arXiv 2107.03374).

The answer of a trial is the reference code, so its log-probability is measured without running anything. Judging a
generated program runs it in `lens_heads.trials.sandbox`, and only with `allow_code_execution=True`.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from lens_heads.tasks.rows import Row, table
from lens_heads.tasks.sampling import check_known, enough
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

MBPP, HUMANEVAL = "google-research-datasets/mbpp", "openai/openai_humaneval"
CONFIGS = ("full", "sanitized")
SPLITS = ("test", "train", "validation", "prompt")
USUAL = 200


def mbpp(
    n: int | None = None,
    config: str = "full",
    split: str = "test",
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
    allow_code_execution: bool = False,
) -> list[Trial]:
    """Short functions to write from a description and tests, in the paper's prompt, after three original examples.

    Args:
        n: number of trials, drawn at random. None: 200, or all if there are fewer.
        config: the hub's config, "full" or "sanitized" (hand-checked descriptions).
        split: the hub's split, "test", "train", "validation" or "prompt".
        seed: random seed for the draw.
        path: a local copy of either config (.jsonl, .json or .parquet).
        chat: see `Trial`. False by default even for chat models, since the few-shot prompt is text to continue.
        allow_code_execution: allows running generated programs to judge them; `lens_heads.trials.sandbox` says what it
            protects against. Without it, only the log-probability can be measured.

    Returns:
        Trials without needle and haystack, with ids such as "mbpp-11" (MBPP's task id); `meta` holds the kind. Evaluate
        with `max_new_tokens` of 200 or more.

    Raises:
        FileNotFoundError, ValueError: missing or faulty data (named by file, row and field), unknown config or split, or
            `n` out of range.
    """
    check_known("config", config, CONFIGS)
    check_known("split", split, SPLITS)
    rows = table(path, MBPP, config=config, split=split)
    n = enough(n, len(rows), f"tasks in {MBPP if path is None else path}", USUAL)
    shots = template("mbpp")
    return [_task(row, shots, chat, allow_code_execution) for row in random.Random(seed).sample(rows, n)]


def humaneval(
    n: int | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
    allow_code_execution: bool = False,
) -> list[Trial]:
    """Functions to complete from signature and docstring, zero-shot; generated text is cut at the paper's stop sequences.

    Differs from the paper's code: the prompt ends before its last newline, as in the BigCode evaluation harness.

    Args:
        n: number of trials, drawn at random; None for all (164).
        seed: random seed for the draw.
        path: a local copy (.jsonl, .json or .parquet).
        chat: see `Trial`. False by default, since the prompt is the beginning of a file.
        allow_code_execution: as in `mbpp`.

    Returns:
        Trials without needle and haystack, with ids such as "humaneval-0"; `meta` holds the kind and the function's
        name. Evaluate with `max_new_tokens` of 200 or more.

    Raises:
        FileNotFoundError, ValueError: missing or faulty data (named by file, row and field), or `n` out of range.
    """
    rows = table(path, HUMANEVAL, split="test")
    n = enough(n, len(rows), f"problems in {HUMANEVAL if path is None else path}")
    shots = template("humaneval")
    return [_problem(row, shots, chat, allow_code_execution) for row in random.Random(seed).sample(rows, n)]


def _task(row: Row, shots: dict[str, Any], chat: bool | None, allowed: bool) -> Trial:
    """A row of MBPP; the sanitized config names some fields differently."""
    tests = "\n".join(_lines(row, "test_list"))
    imports = _lines(row, "test_imports") if row.fields.get("test_imports") else []
    setup = row.code("test_setup_code") if row.fields.get("test_setup_code") else ""
    task = row.text("text" if row.fields.get("text") else "prompt")
    preamble = "".join(f"{part}\n" for part in (*imports, setup) if part)
    return Trial(
        id=f"mbpp-{row.text('task_id')}",
        question=shots["question"].replace("{task}", task).replace("{tests}", tests),
        answer=row.code("code").strip(),
        template=shots["template"],
        chat=chat,
        meta={"kind": "mbpp"},
        judge=judge(shots, preamble=preamble, tests=tests, allowed=allowed),
    )


def _problem(row: Row, shots: dict[str, Any], chat: bool | None, allowed: bool) -> Trial:
    """A row of HumanEval. The answer starts with the prompt's last newline: tokenizers merge it with the indentation."""
    prompt, name = row.code("prompt").rstrip(), row.text("entry_point")
    if f"def {name}(" not in prompt:
        raise ValueError(f"{row.where}: field 'entry_point' must name a function in 'prompt', got {name!r}")
    return Trial(
        id=f"humaneval-{row.text('task_id').rpartition('/')[2]}",
        question=prompt,
        answer="\n" + row.code("canonical_solution").strip("\n"),
        template=shots["template"],
        chat=chat,
        meta={"kind": "humaneval", "function": name},
        judge=judge(shots, preamble=prompt, tests=f"{row.code('test')}\n\ncheck({name})", allowed=allowed),
    )


def _lines(row: Row, field: str) -> list[str]:
    """A field with a list of lines of code."""
    return [line.replace("\r\n", "\n") for line in row.texts(field)]
