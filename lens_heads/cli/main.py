"""The `lens-heads` command: the library's functions with progress bars, run folders and result tables.

Heavy imports happen inside the commands, so that `lens-heads --help` starts fast. Exit codes: 0 success, 1 failed check,
2 wrong input, 130 interrupted (finished work stays in the run folder).
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from lens_heads.cli import ablate as cli_ablate
from lens_heads.cli import bench as cli_bench
from lens_heads.cli import causal as cli_causal
from lens_heads.cli import describe as cli_describe
from lens_heads.cli import ending
from lens_heads.cli import explore as cli_explore
from lens_heads.cli import localize as cli_localize
from lens_heads.cli import options as cli_options
from lens_heads.cli import plan as cli_plan
from lens_heads.cli import prune as cli_prune
from lens_heads.cli import rank as cli_rank
from lens_heads.cli import study as cli_study
from lens_heads.cli.loading import Loading, Planned, loads
from lens_heads.cli.options import MODEL, Batch, Model, NewTokens, Out, Task, Top, With
from lens_heads.cli.parsing import App
from lens_heads.runs.showing import one_line, visible

app = App(
    name="lens-heads",
    help="Which attention heads do this, how do we know, and do other models have them too?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(cli_study.app, name="study")
app.command("demo")(cli_study.demo)
app.command("rank")(cli_rank.rank)
app.command("methods")(cli_rank.methods)
app.command("ablate")(cli_ablate.ablate)
app.command("bench")(cli_bench.bench)
app.command("patch")(cli_causal.patch)
app.command("prune")(cli_prune.prune)
app.command("localize")(cli_localize.localize)
app.command("describe")(cli_describe.describe)
app.command("explore")(cli_explore.explore)
app.command("why")(cli_explore.why)


@app.command()
@loads
def score(
    model: Model,
    task: Task = "packaged",
    with_: With = None,
    methods: Annotated[str, typer.Option(help="Comma-separated methods, or 'all'.")] = "all",
    direction: Annotated[str, typer.Option(help="raw, exact, or the safetensors file of a tuned lens.")] = "raw",
    teacher_forced: Annotated[bool, typer.Option("--teacher-forced", help="Use gold answers; do not decode.")] = False,
    null_spans: Annotated[
        int, typer.Option(help="Other spans scored as if they were the needle, for p (99: p < 0.01).")
    ] = 0,
    max_new_tokens: NewTokens = 50,
    batch_size: Batch = 1,
    top: Top = 5,
    out: Out = None,
    *,
    loading: Planned,
) -> None:
    """Score every head by every method, with one pass per trial."""
    from lens_heads.inspection.explorer.stored import FOLDER, store
    from lens_heads.model.directions import check_direction
    from lens_heads.ranking.one_pass.score_heads import check_needles, check_unused, score_heads
    from lens_heads.ranking.one_pass.scorers import resolve_scorers
    from lens_heads.report import tables
    from lens_heads.runs import checks
    from lens_heads.tasks import OF_DOCUMENTS

    # All that can be wrong before the model is loaded.
    chosen = cli_options.methods(methods)
    cli_options.check_sizes(batch_size, max_new_tokens, not teacher_forced)
    checks.count("null_spans", null_spans, 0)
    check_direction(direction)
    of_documents = task in OF_DOCUMENTS
    resolve_scorers(chosen, "documents" if of_documents else "needle")
    if of_documents:
        check_unused(teacher_forced, direction, null_spans, {})
    trials = cli_options.trials(task, with_)
    if not of_documents:
        check_needles(trials)
    run: dict[str, Any] = {"out": out, "null_spans": null_spans}
    if not of_documents:  # Those are not decoded, and run one by one.
        run |= {"batch_size": batch_size, "max_new_tokens": max_new_tokens}
    if loading.plan:
        name = "score, gold answers" if teacher_forced or of_documents else "score, decoding"
        return cli_plan.show(loading, model, trials, cli_plan.of(name), new_tokens=max_new_tokens)
    with loading.model(model, out) as loaded:
        scores = score_heads(loaded, trials, chosen, teacher_forced=teacher_forced, direction=direction, **run)
        tables.show(tables.top_heads(scores, top))
        if out is not None and not of_documents:
            counted = {id for found in scores.values() for id in found.trial_ids}
            store(out / FOLDER, loaded, [trial for trial in trials if trial.id in counted] or trials, scores)
    outcomes = next(iter(scores.values())).outcomes
    cli_options.say(", ".join(f"{n} {outcome}" for outcome, n in outcomes.items()), out)


@app.command()
@loads
def check(
    model: Annotated[str, typer.Argument(help=MODEL)],
    *,
    loading: Loading,
) -> None:
    """Check that a model meets the assumptions of every formula: hooks, attention patterns, sums that equal the logit."""
    from lens_heads.model.check import check_model as checked
    from lens_heads.report import tables

    report = checked(loading.load(model))
    tables.show(tables.checks(report))
    raise typer.Exit(0 if report.passed else 1)


@app.command()
def tasks() -> None:
    """List the tasks and their arguments."""
    from rich.table import Table

    from lens_heads.report import tables
    from lens_heads.tasks import TASKS, arguments_of

    table = Table("task", "what it asks", "arguments (--with name=value)", title="Tasks")
    for name, task in TASKS.items():
        parameters = [p for p in arguments_of(name).values() if p.name != cli_options.ALLOW]
        arguments = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)
        table.add_row(name, task.about, tables.plain(arguments))
    tables.show(table)


@app.command()
def heads(
    path: Annotated[Path, typer.Argument(help="Score file in either published JSON format.")],
    top: Annotated[int, typer.Option(min=0, help="Number of best heads to show.")] = 10,
    bottom: Annotated[int, typer.Option(min=0, help="Number of worst heads to show.")] = 0,
    method: Annotated[str | None, typer.Option(help="Method name, for files that do not state it.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the scores to this file, in the format --form.")] = None,
    form: Annotated[
        str | None, typer.Option(help="Format of --save: envelope (default), or lists (Wu et al.).")
    ] = None,
) -> None:
    """Show or convert a score file."""
    from lens_heads.heads.scores import HeadScores
    from lens_heads.report import tables
    from lens_heads.runs import checks

    checks.one_of("--form", form or "envelope", ("envelope", "lists"))
    if form is not None and save is None:
        raise ValueError(f"--form {form} needs --save: nothing is written without it")
    scores = HeadScores.load(path, method=method)
    tables.show(tables.ranking(scores, top, bottom))
    if save is not None:
        scores.save(save, form=form or "envelope")  # type: ignore[arg-type]  # checked above
        typer.echo(visible(f"written to {save}"))


def main() -> None:
    """Run the command. Whatever goes wrong gives a one-line message and exit code 2; LENS_HEADS_DEBUG=1 shows the traceback.

    Warnings take one line too, without their source location.
    """
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not os.environ.get(ending.DEBUG):
        warnings.formatwarning = lambda message, *place, **more: f"warning: {one_line(message)}\n"
    ending.end_with(lambda: app(cli_options.spelled_out(sys.argv[1:]), standalone_mode=False))
