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
Top = Annotated[int, typer.Option(min=0, help="Number of heads in the table.")]

ALLOW, FLAG, CONFINED = "allow_code_execution", "--allow-code-execution", "confined"
"""The argument of tasks that run generated code. It has its own flag here, so that nobody passes it by accident."""


def trials(task: str, arguments: Sequence[str] | None, flag: str = "--with", **defaults: Any) -> Any:
    """The trials of a task with its arguments, those of a `flag`."""
    from lens_heads import tasks as known

    given = options(arguments, flag)
    if ALLOW in given:
        raise ValueError(f"{flag} {ALLOW}=... is not accepted. Use the flag {FLAG}.")
    return known.load(task, **{**defaults, **given})


def answered_trials(task: str, arguments: Sequence[str] | None, flag: str = "--with", **defaults: Any) -> Any:
    """The trials of a task that has answers. ValueError for one of documents, whose trials only `score` takes."""
    from lens_heads.tasks import OF_DOCUMENTS

    if task in OF_DOCUMENTS:
        raise ValueError(f"task {task!r} makes document trials, which only lens-heads score takes: use another task")
    return trials(task, arguments, flag, **defaults)


def check_sizes(batch_size: int, max_new_tokens: int, generate: bool = True) -> None:
    """ValueError for numbers with which nothing runs, before the model is loaded."""
    from lens_heads.runs import checks

    checks.whole_number("batch_size", batch_size)
    checks.whole_number("max_new_tokens", max_new_tokens, 1 if generate else 0)


def listed(flag: str, text: str, what: str) -> list[str]:
    """The names in a text, separated by commas. ValueError for an empty one, and for one that stands twice."""
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise ValueError(f"{flag} {text!r}: there is an empty name. Separate {what} by single commas.")
    once(flag, names)
    return names


def once(flag: str, names: Sequence[str]) -> None:
    """ValueError for a name that is given twice."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{flag}: {twice!r} is given twice. Name it once.")


def methods(text: str) -> list[str] | None:
    """The names of methods; None for all."""
    return None if text == "all" else listed("--methods", text, "methods")


def heads(text: str) -> list[Any]:
    """Query heads, separated by commas. ValueError for what is none, and for one that stands twice."""
    from lens_heads.heads.head import Head

    names = listed("--heads", text, "heads such as L5H1,L7H0")
    try:
        found = [Head.parse(name) for name in names]
    except ValueError as error:
        raise ValueError(f"--heads {text!r}: {error}") from None
    once("--heads", [str(head) for head in found])
    return found


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


def options(pairs: Sequence[str] | None, flag: str = "--with") -> dict[str, Any]:
    """Parse name=value pairs of a `flag`; a value that is not valid JSON is text."""
    options: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not (name := name.strip()):
            raise ValueError(f"{flag} {pair!r} is not of the form name=value. Write it as in n=20.")
        if name in options:
            raise ValueError(f"{flag} {name}= is given twice. Give it once, or a list such as {name}=[1,2].")
        try:
            options[name] = parse_json(value, pair)
        except ValueError:
            options[name] = value
    return options


def say(text: str, out: Path | None) -> None:
    """Print the last line of a command, with the place of the results."""
    where = f"run folder: {out}" if out else "results were not saved (pass --out FOLDER to save them)"
    typer.echo(visible(f"{text}; {where}"))
