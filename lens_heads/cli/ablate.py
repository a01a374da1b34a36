"""`lens-heads ablate`: ablate more and more of each ranking's heads, beside controls, and judge what that shows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lens_heads.cli import options as cli_options
from lens_heads.cli import plan
from lens_heads.cli.loading import Planned, loads
from lens_heads.cli.options import AllowCode, Batch, Model, NewTokens, Out, Task, With

if TYPE_CHECKING:
    from lens_heads.heads.scores import HeadScores


@loads
def ablate(
    model: Model,
    scores: Annotated[list[Path], typer.Option("--scores", "-s", help="JSON score files; the first is the main one.")],
    task: Task = "packaged",
    with_: With = None,
    ks: Annotated[str, typer.Option(help="Comma-separated numbers of heads.")] = "1,5,10,20,50,100",
    kind: Annotated[str, typer.Option(help="mean, zero, query_mean, query_zero, uniform, ...")] = "mean",
    option: Annotated[list[str] | None, typer.Option(help="Option of the kind as name=value, repeatable.")] = None,
    calibrate: Annotated[str | None, typer.Option(help="Task whose trials give the means (default: packaged).")] = None,
    calibrate_with: Annotated[list[str] | None, typer.Option(help="Its arguments as name=value, repeatable.")] = None,
    specificity: Annotated[list[str] | None, typer.Option(help="Another task to evaluate, repeatable.")] = None,
    draws: Annotated[int, typer.Option(help="Number of draws of each random control.")] = 8,
    seed: Annotated[int, typer.Option(help="Of the first draw of random heads: another one redraws them.")] = 0,
    precision: Annotated[float | None, typer.Option(help="Stop at this half-width of the damage, in nats.")] = None,
    verdict: Annotated[int | None, typer.Option(help="Judge the top so many heads, beside 40 random sets.")] = None,
    no_text: Annotated[bool, typer.Option("--no-text", help="Log-probabilities only, without decoding.")] = False,
    allow_code_execution: AllowCode = None,
    max_new_tokens: NewTokens = 50,
    batch_size: Batch = 1,
    out: Out = None,
    *,
    loading: Planned,
) -> None:
    """Ablate a growing number of each ranking's top heads, with controls, on trials that the rankings did not use."""
    from lens_heads.evidence import curve as ablation
    from lens_heads.evidence.head_sets import capped, check_names, plan_sets
    from lens_heads.heads.controls import Controls
    from lens_heads.interventions import activations
    from lens_heads.interventions.checked_kind import check_options
    from lens_heads.model.belonging import check_scores_of
    from lens_heads.report import tables
    from lens_heads.runs import checks
    from lens_heads.stats.sampling import check_half_width

    # All that can be wrong before the model is loaded.
    rankings, options = _rankings(scores), _kind_options(option)
    check_names(rankings, "a ranking")
    numbers = _numbers(ks)
    if verdict is not None:
        checks.whole_number("verdict", verdict)
    Controls(draws=draws, seed=seed)
    if precision is not None:
        check_half_width("precision", precision)
    needs_means = _needs_means(kind)
    check_options(kind, options)
    if not needs_means and (calibrate is not None or calibrate_with):
        flag = f"--calibrate {calibrate}" if calibrate is not None else "--calibrate-with"
        raise ValueError(f"{flag}: {kind} ablation takes no means of other trials. Omit it, or use --kind mean.")
    cli_options.check_sizes(batch_size, max_new_tokens, not no_text)
    cli_options.once("--task and --specificity", [task, *(specificity or [])])
    allowed = cli_options.code_execution([task, *(specificity or [])], allow_code_execution, not no_text)
    defaults = {"split": "test"} if task in ("packaged", "ioi") else allowed[task]
    trials = cli_options.answered_trials(task, with_, "--with", **defaults)
    others = {
        name: cli_options.answered_trials(name, None, "--specificity", **allowed[name]) for name in specificity or []
    }
    calibration: Any = []
    if needs_means:
        calibration = cli_options.answered_trials(calibrate or "packaged", calibrate_with, "--calibrate-with")
    run: dict[str, Any] = {"batch_size": batch_size, "max_new_tokens": max_new_tokens, "out": out}
    run |= {"specificity": others, "verdict": verdict, "generate": not no_text}
    run |= {} if precision is None else {"precision": precision}
    beside = ablation.default_controls(trials, verdict is not None)
    run["controls"] = replace(beside, draws=draws if verdict is None else max(draws, beside.draws), seed=seed)
    if loading.plan:
        first = next(iter(rankings.values()))
        sets = plan_sets(rankings, capped(numbers, len(first.flat)), run["controls"])
        jobs = plan.of("ablate sets of heads")
        each = sum(one.condition.k for one in sets) // len(sets)
        return plan.show(
            loading, model, trials, jobs, sets=len(sets), k=max(1, each), new_tokens=max_new_tokens * (not no_text)
        )
    with loading.model(model, out) as loaded:
        check_scores_of(loaded, rankings)  # Before means that take minutes.
        reference = activations.mean_activations(loaded, calibration) if needs_means else None
        curve = ablation.ablation_curve(
            loaded, {task: trials}, rankings, ks=numbers, kind=kind, reference=reference, **run, **options
        )
    for name in [task, *others]:
        tables.show(tables.curve(curve, task=name))
    if verdict is not None:
        tables.show(tables.verdicts(list(curve.verdicts)))
    cli_options.say(f"{len(curve.per_trial)} evaluations", out)


def _rankings(paths: Sequence[Path]) -> dict[str, HeadScores]:
    """Score files by method name. If a name is taken, the folder and file name are used, then a number is added."""
    from lens_heads.heads.scores import HeadScores

    rankings: dict[str, HeadScores] = {}
    for path in paths:
        found = HeadScores.load(path)
        where = f"{path.absolute().parent.name}/{path.stem}"
        names = itertools.chain([found.method, where], (f"{where} #{n}" for n in itertools.count(2)))
        rankings[next(name for name in names if name not in rankings)] = found
    return rankings


def _numbers(ks: str) -> list[int]:
    """Parse comma-separated numbers of heads."""
    from lens_heads.runs.checks import LARGEST

    for part in ks.split(","):
        if not part.strip().isdecimal() or not 1 <= int(part) <= LARGEST:
            least = "a positive integer" if len(part) < 10 else f"an integer from 1 to {LARGEST}"
            raise ValueError(f"--ks {ks!r}: {part!r:.60} is not {least}. Use a list such as 1,5,10.")
    return [int(part) for part in ks.split(",")]


def _kind_options(pairs: Sequence[str] | None) -> dict[str, Any]:
    """The options of a kind of ablation. ValueError for a name that no kind has."""
    from lens_heads.interventions.kinds import KINDS

    given, known = (
        cli_options.options(pairs, "--option"),
        dict.fromkeys(name for kind in KINDS.values() for name in kind.options),
    )
    for name in given:
        if name not in known:
            raise ValueError(f"--option {name}=...: no kind of ablation has this option. Use {', '.join(known)}.")
    return given


def _needs_means(kind: str) -> bool:
    """Whether a kind of ablation needs mean activations; ValueError for a kind that the command line cannot run."""
    from lens_heads.interventions.activations import MeanActivations
    from lens_heads.interventions.kinds import KINDS

    usable = [name for name, known in KINDS.items() if known.reference in (None, MeanActivations)]
    if kind not in usable:
        why = (
            "needs activations of a trial, or vectors, which only Python can pass"
            if kind in KINDS
            else "does not exist"
        )
        raise ValueError(f"--kind {kind!r} {why}. Use {', '.join(usable)}.")
    return KINDS[kind].reference is not None
