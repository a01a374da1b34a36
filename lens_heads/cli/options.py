"""What the commands share: options by their types, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

Model = Annotated[str, typer.Option("--model", "-m", help="Hub name, folder, .gguf file, or a packaged model.")]
Task = Annotated[str, typer.Option("--task", "-t", help="A task; see `lens-heads tasks`.")]
With = Annotated[
    list[str] | None, typer.Option("--with", "-w", help="An argument of the task: name=value, repeatable.")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Run folder; the same command continues it.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ... (default: a GPU if there is one).")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16 or float16.")]
Lens = Annotated[str | None, typer.Option(help="bridge or hooked (TransformerLens 3.9 only).")]
Batch = Annotated[int, typer.Option("--batch-size", "-b", help="Trials per pass.")]
AllowCode = Annotated[
    bool, typer.Option("--allow-code-execution", help="Run generated programs (mbpp, humaneval), in a sandbox.")
]
NewTokens = Annotated[int, typer.Option("--max-new-tokens", help="Longest generated answer.")]


ALLOW = "allow_code_execution"
"""The argument of tasks whose judging runs generated code: a flag of its own here, so that it is never given in passing."""


def trials(task: str, arguments: Sequence[str] | None, **defaults: Any) -> Any:
    """The trials of a task with its `--with` arguments."""
    from lens_heads import tasks as known

    given = options(arguments)
    if ALLOW in given:
        raise ValueError(f"--with {ALLOW}=...: only the flag --allow-code-execution allows that")
    return known.load(task, **{**defaults, **given})


def code_execution(tasks: Sequence[str], allowed: bool, generate: bool) -> dict[str, dict[str, bool]]:
    """The permission as an argument, for each of the tasks that takes it; ValueError for one too many or too few."""
    from lens_heads import tasks as known

    takers = [name for name in tasks if name in known.TASKS and ALLOW in known.arguments_of(name)]
    if allowed and not takers:
        raise ValueError(
            f"--allow-code-execution: nothing of {', '.join(tasks)} runs generated code: leave the flag out"
        )
    if takers and generate and not allowed:
        raise ValueError(
            f"task {takers[0]!r} is judged by running generated code: allow that with --allow-code-execution, or "
            "measure the log-probability alone (--no-text; --metric logprob)"
        )
    return {name: {ALLOW: allowed} if name in takers else {} for name in tasks}


def options(pairs: Sequence[str] | None) -> dict[str, Any]:
    """name=value pairs; values are JSON where they can be, else text."""
    options: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{pair!r} is not name=value")
        try:
            options[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            options[name.strip()] = value
    return options


def load(model: str, device: str | None, dtype: str, lens: str | None) -> Any:
    """The model, with its dtype by name."""
    from lens_heads.model.load import dtype_named, load_model

    return load_model(model, device=device, dtype=dtype_named(dtype), lens=lens)  # type: ignore[arg-type]  # checked there


def say(text: str, out: Path | None) -> None:
    """A last line, and where the results are."""
    typer.echo(f"{text}; " + (f"run folder: {out}" if out else "nothing was saved: --out FOLDER keeps the results"))
