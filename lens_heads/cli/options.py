"""What the commands share: the types of their options, and the functions that read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lens_heads.runs.reading import parse_json
from lens_heads.runs.showing import visible

MODEL = "Hugging Face name, folder, .gguf file, or packaged model."
RESUMED = "Run folder. To resume a run, repeat the command."

Model = Annotated[str, typer.Option("--model", "-m", help=MODEL)]
Models = Annotated[
    list[str] | None, typer.Option("--model", "-m", help="Models, repeatable (default: both packaged ones).")
]
Task = Annotated[str, typer.Option("--task", "-t", help="Task name; see `lens-heads tasks`.")]
With = Annotated[list[str] | None, typer.Option("--with", "-w", help="Task argument as name=value, repeatable.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help=RESUMED)]
Folder = Annotated[Path, typer.Option("--out", "-o", help=RESUMED)]
Batch = Annotated[int, typer.Option("--batch-size", "-b", help="Trials per forward pass.")]
AllowCode = Annotated[
    str | None,
    typer.Option(
        "--allow-code-execution",
        metavar="[=unsafe]",
        help="Run generated programs (mbpp, humaneval), confined by bubblewrap; =unsafe: unconfined, on a disposable machine.",
    ),
]
NewTokens = Annotated[int, typer.Option("--max-new-tokens", help="Maximum number of generated tokens per answer.")]
Top = Annotated[int, typer.Option(help="Number of heads in the table.")]

ALLOW, FLAG, CONFINED = "allow_code_execution", "--allow-code-execution", "confined"
"""The argument of tasks that run generated code. It has its own flag here, so that nobody passes it by accident."""


def trials(task: str, arguments: Sequence[str] | None, **defaults: Any) -> Any:
    """The trials of a task with its `--with` arguments."""
    from lens_heads import tasks as known

    given = options(arguments)
    if ALLOW in given:
        raise ValueError(f"--with {ALLOW}=... is not accepted. Use the flag {FLAG}.")
    return known.load(task, **{**defaults, **given})


def spelled_out(words: Sequence[str]) -> list[str]:
    """A command's words, where the flag that may stand without a value has one."""
    return [f"{FLAG}={CONFINED}" if word == FLAG else word for word in words]


def permission(given: str | None) -> bool | str:
    """The permission to run code that a flag gives. ValueError for an unknown value."""
    if given in (None, CONFINED, "unsafe"):
        return given == CONFINED or given or False
    raise ValueError(f"{FLAG}={given}: omit the value, or use unsafe on a disposable machine.")


def code_execution(tasks: Sequence[str], given: str | None, generate: bool) -> dict[str, dict[str, bool | str]]:
    """The permission to run code, as an argument for each task that takes it.

    ValueError if a task needs the permission and does not have it, or if no task needs it. OSError if generated code would
    run and cannot be confined.
    """
    from lens_heads import tasks as known
    from lens_heads.trials.sandbox import check_confined

    allowed = permission(given)
    takers = [name for name in tasks if name in known.TASKS and ALLOW in known.arguments_of(name)]
    if allowed and not takers:
        raise ValueError(f"{FLAG}: no task of {', '.join(tasks)} runs generated code. Omit the flag.")
    if takers and generate and not allowed:
        raise ValueError(
            f"task {takers[0]!r} runs generated code to judge answers. Pass {FLAG}, or measure only "
            "log-probabilities (--no-text or --metric logprob)."
        )
    if takers and generate:
        check_confined(allowed == "unsafe")
    return {name: {ALLOW: allowed} if name in takers else {} for name in tasks}


def options(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Parse name=value pairs; a value that is not valid JSON is text."""
    options: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not (name := name.strip()):
            raise ValueError(f"{pair!r} is not of the form name=value.")
        if name in options:
            raise ValueError(f"{name}= is given twice. Give it once, or a list such as {name}=[1,2].")
        try:
            options[name] = parse_json(value, pair)
        except ValueError:
            options[name] = value
    return options


def say(text: str, out: Path | None) -> None:
    """Print the last line of a command, with the place of the results."""
    where = f"run folder: {out}" if out else "results were not saved (pass --out FOLDER to save them)"
    typer.echo(visible(f"{text}; {where}"))
