"""`lens-heads demo` and `lens-heads study`: a paper's experiments, in short and in full, on any models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lens_heads.cli.loading import Sharing, loads
from lens_heads.cli.options import AllowCode, Folder, Models, once, permission
from lens_heads.cli.parsing import App

LONG, NEGATIVE = "thorough (hours)", "negative-... (nothing may hold)"
Quick = Annotated[bool, typer.Option("--quick", help="Short for --preset quick.")]

Precision = Annotated[
    float | None,
    typer.Option(help="Add test trials until the interval has this half-width, in nats.", show_default=False),
]
MaxTrials = Annotated[int | None, typer.Option(help="At most so many test trials.", show_default=False)]
Plan = Annotated[bool, typer.Option("--plan", help="Print what it would cost, and stop.")]

app = App(help="Reproduce a paper's experiments end to end.", no_args_is_help=True)


@loads
def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Use fewer trials and one k less.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Use every trial, method and control.")] = False,
    model: Models = None,
    out: Folder = Path("runs/demo"),
    *,
    loading: Sharing,
) -> None:
    """Find the heads that write what a needle says in two real models and verify them: scores, ablation, one HTML page."""
    from lens_heads.studies.locos_paper.study import locos
    from lens_heads.studies.runner import MODELS

    if quick and full:
        raise ValueError("--quick conflicts with --full. Omit one of them.")
    size = "-quick" if quick else "-full" if full else ""
    where = Path(f"{out}{size}")
    with loading.part(where):
        locos(tuple(model) if model else MODELS, f"demo{size}", where, **loading.all_options)
    typer.echo("Next: lens-heads demo --full (100 trials, every method) or lens-heads study locos (the whole paper)")


@app.command()
@loads
def locos(
    model: Models = None,
    preset: Annotated[
        str,
        typer.Option(
            help="packaged (no download), thorough (hours), quick, negative-model, negative-needles, paper or scripts."
        ),
    ] = "packaged",
    out: Folder = Path("runs/locos"),
    tuned_lens: Annotated[Path | None, typer.Option(help="Safetensors file of a tuned lens, for one model.")] = None,
    precision: Precision = None,
    max_trials: MaxTrials = None,
    plan: Plan = False,
    *,
    loading: Sharing,
) -> None:
    """Which heads write what a needle says? Reproduce the LOCOS paper: heads, ablation, specificity, causal evidence, claims."""
    from lens_heads.studies.locos_paper import study

    more = {"precision": precision, "max_trials": max_trials, "plan": plan}
    with loading.part(out):
        study.locos(model or study.MODELS, preset, out, tuned_lens, **more, **loading.all_options)


@app.command()
@loads
def choosing(
    model: Models = None,
    preset: Annotated[
        str,
        typer.Option(
            help="direct, onehop or twohop (kinds of question), each also as ...-chat for chat models, quick, or negative-model."
        ),
    ] = "direct",
    quick: Quick = False,
    max_trials: MaxTrials = None,
    plan: Plan = False,
    out: Folder = Path("runs/choosing"),
    *,
    loading: Sharing,
) -> None:
    """Which heads choose what the question asks for? Passages with two needles, of which the question picks one."""
    from lens_heads.studies.two_needles import study

    more = {"max_trials": max_trials, "plan": plan}
    with loading.part(out):
        study.choosing(model or study.MODELS, _size(preset, quick, "direct"), out, **more, **loading.all_options)


@app.command("fragile-tasks")
@loads
def fragile_tasks(
    model: Models = None,
    preset: Annotated[
        str, typer.Option(help=f"packaged (no download), {LONG}, quick, {NEGATIVE}, or paper (--path).")
    ] = "packaged",
    quick: Quick = False,
    path: Annotated[Path | None, typer.Option(help="Real 10-K filings: folder or .zip of edgar-crawler JSON.")] = None,
    precision: Precision = None,
    max_trials: MaxTrials = None,
    plan: Plan = False,
    out: Folder = Path("runs/fragile-tasks"),
    *,
    loading: Sharing,
) -> None:
    """Do two tasks, or two models, use the same heads? Query-focused heads on eight facts of annual reports."""
    from lens_heads.studies.fragile_paper import study

    more = {"precision": precision, "max_trials": max_trials, "plan": plan}
    with loading.part(out):
        study.fragile_tasks(model or study.MODELS, _size(preset, quick), out, path, **more, **loading.all_options)


@app.command()
@loads
def capability(
    model: Models = None,
    capability: Annotated[list[str] | None, typer.Option(help="A capability, repeatable (default: all).")] = None,
    preset: Annotated[
        str, typer.Option(help=f"packaged (offline), {LONG}, quick, {NEGATIVE}, or paper (downloads).")
    ] = "packaged",
    quick: Quick = False,
    words: Annotated[Path | None, typer.Option(help="Word list of the paper's swearing task, one per line.")] = None,
    precision: Precision = None,
    max_trials: MaxTrials = None,
    plan: Plan = False,
    allow_code_execution: AllowCode = None,
    out: Folder = Path("runs/capability"),
    *,
    loading: Sharing,
) -> None:
    """Which few heads carry a capability? Compressed sensing, compared with other methods by the damage of ablation."""
    from lens_heads.studies.capability_paper import study

    more = {"precision": precision, "max_trials": max_trials, "plan": plan}
    once("--capability", capability or [])
    allowed, models, size = permission(allow_code_execution), model or study.MODELS, _size(preset, quick)
    with loading.part(out):
        study.capability(models, capability, size, out, words, allowed, **more, **loading.all_options)


def _size(preset: str, quick: bool, default: str = "packaged") -> str:
    if quick and preset not in (default, "quick"):
        raise ValueError(f"--quick conflicts with --preset {preset}. Omit one of them.")
    return "quick" if quick else preset
