"""Programs judged by running their tests: MBPP (Austin et al., arXiv 2108.07732), HumanEval (Chen et al., arXiv 2107.03374).

The answer of a trial is the reference code, so that its log-probability is measured without running anything. Judging a
generated program runs it, in `lens_heads.trials.sandbox`, and only with `allow_code_execution=True`.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from lens_heads.tasks.rows import Row, enough, hub_rows, local_rows
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
    """Short functions from a description and their tests, in the paper's prompt, after three original examples.

    Args:
        n: trials; fewer than there are means a random draw. None: 200, or all where there are fewer.
        config: of the hub's data, "full" or "sanitized" (its descriptions checked by hand).
        split: of the hub's data, "test", "train", "validation" or "prompt".
        seed: of the draw.
        path: a local copy of either config instead (.jsonl, .json or .parquet).
        chat: as in `Trial`. False by default, for chat models too: the few examples are a text to go on with.
        allow_code_execution: generated programs may be run, to judge them; see `lens_heads.trials.sandbox` for what that guards
            against. Without it only the log-probability can be measured.

    Returns:
        Trials without needle and haystack, with ids such as "mbpp-11" (the task's); `meta` holds the kind. Evaluate with
        `max_new_tokens` of 200 or more.

    Raises:
        FileNotFoundError, ValueError: naming the file, the row and the field; an unknown config or split; more trials
            than rows.
    """
    for what, value, known in (("config", config, CONFIGS), ("split", split, SPLITS)):
        if value not in known:
            raise ValueError(f"there is no {what} {value!r}: use {' or '.join(map(repr, known))}")
    rows = (
        hub_rows(MBPP, config=config, split=split) if path is None else local_rows(path, f"{MBPP}, {config}, {split}")
    )
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
    """Functions to go on with from their signature and docstring, without examples; the text ends where the paper ends it.

    Differs from the paper's code: the prompt ends before its last newline, as in the BigCode evaluation harness.

    Args:
        n: trials; fewer than there are means a random draw. None for all (164).
        seed: of the draw.
        path: a local copy instead (.jsonl, .json or .parquet).
        chat: as in `Trial`. False by default: the prompt is the beginning of a file.
        allow_code_execution: as in `mbpp`.

    Returns:
        Trials without needle and haystack, with ids such as "humaneval-0"; `meta` holds the kind and the function's
        name. Evaluate with `max_new_tokens` of 200 or more.

    Raises:
        FileNotFoundError, ValueError: naming the file, the row and the field; more trials than rows.
    """
    rows = hub_rows(HUMANEVAL, split="test") if path is None else local_rows(path, f"{HUMANEVAL}, test")
    n = enough(n, len(rows), f"problems in {HUMANEVAL if path is None else path}")
    shots = template("humaneval")
    return [_problem(row, shots, chat, allow_code_execution) for row in random.Random(seed).sample(rows, n)]


def _task(row: Row, shots: dict[str, Any], chat: bool | None, allowed: bool) -> Trial:
    """A row of MBPP, of either config: the sanitized one calls some fields otherwise."""
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
    """A row of HumanEval. The newline after the prompt goes to the answer: tokenizers join it with the indentation."""
    prompt, name = row.code("prompt").rstrip(), row.text("entry_point")
    if f"def {name}(" not in prompt:
        raise ValueError(f"{row.where}: field 'entry_point' is {name!r}: give the name of a function in 'prompt'")
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
    """A field that must hold a list of lines of code."""
    value: Any = row.fields.get(field)
    if not isinstance(value, list) or not value or not all(isinstance(line, str) and line.strip() for line in value):
        raise ValueError(f"{row.where}: field {field!r} is {value!r}: give a list of texts, none of them empty")
    return [line.replace("\r\n", "\n") for line in value]
