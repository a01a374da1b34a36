"""The `lens-heads` command: the library's functions with progress bars, run folders and a table at the end.

Heavy imports happen inside the commands, so that `lens-heads --help` is immediate. Exit codes: 0 done, 1 a check failed,
2 wrong input, 130 interrupted (what is finished stays in the run folder).
"""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lens_heads.cli import causal as cli_causal
from lens_heads.cli import localize as cli_localize
from lens_heads.cli import options as cli_options
from lens_heads.cli import study as cli_study
from lens_heads.cli.options import AllowCode, Batch, Device, Dtype, Lens, Model, NewTokens, Out, Task, With

if TYPE_CHECKING:
    from lens_heads.heads.scores import HeadScores

INTERRUPTED = 130

app = typer.Typer(
    name="lens-heads",
    help="Which attention heads do this, how do we know, and do other models have them too?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(cli_study.app, name="study")


@app.command()
def score(
    model: Model,
    task: Task = "packaged",
    with_: With = None,
    methods: Annotated[str, typer.Option(help="Comma-separated methods, or 'all'.")] = "all",
    direction: Annotated[str, typer.Option(help="raw, exact, or a tuned-lens safetensors file.")] = "raw",
    teacher_forced: Annotated[
        bool, typer.Option("--teacher-forced", help="Gold answers; no decoding, no gate.")
    ] = False,
    max_new_tokens: NewTokens = 50,
    batch_size: Batch = 1,
    top: Annotated[int, typer.Option(help="Heads per method in the table.")] = 5,
    out: Out = None,
    device: Device = None,
    dtype: Dtype = "float32",
    lens: Lens = None,
) -> None:
    """Score every head by every method, one pass per trial."""
    from lens_heads.report import tables
    from lens_heads.scoring.documents import score_documents
    from lens_heads.scoring.score import score_heads
    from lens_heads.trials.documents import DocumentTrial

    chosen = None if methods == "all" else [name.strip() for name in methods.split(",")]
    trials = cli_options.trials(task, with_)
    loaded = cli_options.load(model, device, dtype, lens)
    if isinstance(trials[0], DocumentTrial):
        scores = score_documents(loaded, trials, chosen, out=out)
    else:
        running: dict[str, Any] = {"batch_size": batch_size, "out": out, "max_new_tokens": max_new_tokens}
        scores = score_heads(loaded, trials, chosen, teacher_forced, direction, **running)
    tables.show(tables.top_heads(scores, top))
    outcomes = next(iter(scores.values())).meta["outcomes"]
    cli_options.say(", ".join(f"{n} {outcome}" for outcome, n in outcomes.items()), out)


@app.command()
def ablate(
    model: Model,
    scores: Annotated[list[Path], typer.Option("--scores", "-s", help="Score files (JSON); the first is the lead.")],
    task: Task = "packaged",
    with_: With = None,
    ks: Annotated[str, typer.Option(help="Comma-separated numbers of heads.")] = "1,5,10,20,50,100",
    kind: Annotated[str, typer.Option(help="mean, zero, query_mean, query_zero, uniform, ...")] = "mean",
    option: Annotated[list[str] | None, typer.Option("--option", help="An option of the kind: name=value.")] = None,
    calibrate: Annotated[str, typer.Option(help="Task whose trials give the means.")] = "packaged",
    calibrate_with: Annotated[list[str] | None, typer.Option(help="Its arguments: name=value.")] = None,
    specificity: Annotated[list[str] | None, typer.Option(help="Tasks to evaluate beside it, e.g. parametric.")] = None,
    seeds: Annotated[int, typer.Option(help="Draws of each random control.")] = 3,
    no_text: Annotated[bool, typer.Option("--no-text", help="Log-probability only; no decoding.")] = False,
    allow_code_execution: AllowCode = False,
    max_new_tokens: NewTokens = 50,
    batch_size: Batch = 1,
    out: Out = None,
    device: Device = None,
    dtype: Dtype = "float32",
    lens: Lens = None,
) -> None:
    """Ablate ever more of each ranking's heads, with controls, on trials the rankings never saw."""
    from lens_heads.ablation import curve as ablation
    from lens_heads.interventions import activations
    from lens_heads.report import tables

    rankings, numbers = _rankings(scores), _numbers(ks)
    needs_means = _needs_means(kind)
    allowed = cli_options.code_execution([task, *(specificity or [])], allow_code_execution, not no_text)
    defaults = {"split": "test"} if task in ("packaged", "ioi") else allowed[task]
    trials = cli_options.trials(task, with_, **defaults)
    others = {name: cli_options.trials(name, None, **allowed[name]) for name in specificity or []}
    calibration = cli_options.trials(calibrate, calibrate_with) if needs_means else []
    loaded = cli_options.load(model, device, dtype, lens)
    reference = activations.mean_activations(loaded, calibration) if needs_means else None
    curve = ablation.ablation_curve(
        loaded,
        {task: trials},
        rankings,
        ks=numbers,
        kind=kind,
        reference=reference,
        specificity=others,
        seeds=seeds,
        generate=not no_text,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        out=out,
        **cli_options.options(option),
    )
    for name in [task, *others]:
        tables.show(tables.curve(curve, task=name))
    cli_options.say(f"{len(curve.per_trial)} evaluations", out)


app.command("patch")(cli_causal.patch)
app.command("localize")(cli_localize.localize)


@app.command()
def check(
    model: Annotated[str, typer.Argument(help="Hub name, folder, .gguf file, or a packaged model.")],
    device: Device = None,
    dtype: Dtype = "float32",
    lens: Lens = None,
) -> None:
    """Check that a model behaves as every formula assumes: hooks, patterns, sums that close on the logit."""
    from lens_heads.model import check as checking
    from lens_heads.report import tables

    report = checking.check(cli_options.load(model, device, dtype, lens))
    tables.show(tables.checks(report))
    raise typer.Exit(0 if report.passed else 1)


@app.command()
def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer trials, and one k less.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Every trial, method and control.")] = False,
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="Models (default: both packaged ones).")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; the same command continues it.")] = Path(
        "runs/demo"
    ),
) -> None:
    """Find the heads that retrieve by meaning in two real models, and prove it: scores, ablation, one HTML page."""
    from lens_heads.studies.locos_paper.study import locos
    from lens_heads.studies.runner import MODELS

    if quick and full:
        raise ValueError("give --quick or --full, not both")
    size = "-quick" if quick else "-full" if full else ""
    locos(tuple(model) if model else MODELS, f"demo{size}", out.with_name(f"{out.name}{size}"))
    typer.echo("More: lens-heads demo --full (100 trials, every method), lens-heads study locos (the paper's argument)")


@app.command()
def tasks() -> None:
    """List the tasks and their arguments."""
    from rich.table import Table

    from lens_heads.report import tables
    from lens_heads.tasks import TASKS, arguments_of

    table = Table(title="Tasks")
    for column in ("task", "what it asks", "arguments (--with name=value)"):
        table.add_column(column)
    for name, task in TASKS.items():
        parameters = [p for p in arguments_of(name).values() if p.name != cli_options.ALLOW]
        arguments = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)
        table.add_row(name, task.about, arguments)
    tables.show(table)


@app.command()
def heads(
    path: Annotated[Path, typer.Argument(help="A score file in either published JSON form.")],
    top: Annotated[int, typer.Option(help="How many of the best heads to show.")] = 10,
    bottom: Annotated[int, typer.Option(help="How many of the worst heads to show.")] = 0,
    method: Annotated[str | None, typer.Option(help="Name of the method, for files that do not say.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the scores again, in the form of --form.")] = None,
    form: Annotated[str, typer.Option(help="envelope or lists (Wu et al.).")] = "envelope",
) -> None:
    """Show, or convert, a score file."""
    from lens_heads.heads.scores import HeadScores
    from lens_heads.report import tables

    scores = HeadScores.load(path, method)
    tables.show(tables.ranking(scores, top, bottom))
    if save is not None:
        scores.save(save, "lists" if form == "lists" else form)  # type: ignore[arg-type]  # save names a wrong form
        typer.echo(f"written to {save}")


def _rankings(paths: Sequence[Path]) -> dict[str, HeadScores]:
    """Score files by method; where that is taken by folder and file, then by number. The first stays first."""
    from lens_heads.heads.scores import HeadScores

    rankings: dict[str, HeadScores] = {}
    for path in paths:
        found = HeadScores.load(path)
        where = f"{path.absolute().parent.name}/{path.stem}"
        names = itertools.chain([found.method, where], (f"{where} #{n}" for n in itertools.count(2)))
        rankings[next(name for name in names if name not in rankings)] = found
    return rankings


def _numbers(ks: str) -> list[int]:
    """Comma-separated numbers of heads."""
    for part in ks.split(","):
        if not part.strip().isdecimal() or int(part) < 1:
            raise ValueError(f"--ks {ks!r}: {part!r} must be positive integers, e.g. 1,5,10")
    return [int(part) for part in ks.split(",")]


def _needs_means(kind: str) -> bool:
    """Whether a kind of ablation puts means in; ValueError for a kind that the command line cannot run."""
    from lens_heads.interventions.activations import MeanActivations
    from lens_heads.interventions.kinds import KINDS

    usable = [name for name, known in KINDS.items() if known.reference in (None, MeanActivations)]
    if kind not in usable:
        why = "needs another trial's activations: use it from Python, or" if kind in KINDS else "is unknown:"
        raise ValueError(f"--kind {kind!r} {why} use {', '.join(usable)}")
    return KINDS[kind].reference is not None


def main() -> None:
    """Run the command; wrong input ends in one line and exit code 2, not in a traceback (LENS_HEADS_DEBUG=1 shows it).

    A warning is one line as well, without the place in the code.
    """
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not os.environ.get("LENS_HEADS_DEBUG"):
        warnings.formatwarning = lambda message, *place, **more: f"warning: {message}\n"
    try:
        app()
    except (ValueError, TypeError, OSError, ImportError) as error:
        if os.environ.get("LENS_HEADS_DEBUG"):
            raise
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(2)
    except SystemExit as done:
        if done.code == INTERRUPTED:
            typer.secho("interrupted; with --out, the same command continues where it stopped", err=True)
        raise
