"""`lens-heads study`: a paper's whole experiment on models of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lens_heads.cli.options import AllowCode

Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ... (default: a GPU if there is one).")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16 or float16.")]
Models = Annotated[
    list[str] | None, typer.Option("--model", "-m", help="Models, repeatable (default: both packaged ones).")
]

app = typer.Typer(help="A paper's whole experiment, end to end.", no_args_is_help=True)


@app.callback()
def study() -> None:
    """A paper's whole experiment, end to end."""


@app.command()
def locos(
    model: Models = None,
    preset: Annotated[
        str, typer.Option(help="packaged (no download), quick, or the grids of the paper: paper, scripts.")
    ] = "packaged",
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; the same command continues it.")] = Path(
        "runs/locos"
    ),
    tuned_lens: Annotated[Path | None, typer.Option(help="Safetensors file of a tuned lens, for one model.")] = None,
    device: Device = None,
    dtype: Dtype = "float32",
) -> None:
    """Re-run the argument of the LOCOS paper: detection, ablation, what is spared, what breaks, causal evidence, claims."""
    from lens_heads.model.load import dtype_named
    from lens_heads.studies.locos_paper import study

    study.locos(model or study.MODELS, preset, out, tuned_lens, device=device, dtype=dtype_named(dtype))


@app.command("fragile-tasks")
def fragile_tasks(
    model: Models = None,
    preset: Annotated[
        str, typer.Option(help="packaged (no download), quick, or paper (the study's sizes: give --path).")
    ] = "packaged",
    quick: Annotated[bool, typer.Option("--quick", help="The same as --preset quick.")] = False,
    path: Annotated[
        Path | None,
        typer.Option(help="10-K filings, a folder or .zip of edgar-crawler's JSON, in place of made-up ones."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; the same command continues it.")] = Path(
        "runs/fragile-tasks"
    ),
    device: Device = None,
    dtype: Dtype = "float32",
) -> None:
    """Do two tasks use the same heads, do two models? Query-focused heads on eight facts of annual reports."""
    from lens_heads.model.load import dtype_named
    from lens_heads.studies.fragile_paper import study

    size, loading = _size(preset, quick), {"device": device, "dtype": dtype_named(dtype)}
    study.fragile_tasks(model or study.MODELS, size, out, path, **loading)


@app.command()
def capability(
    model: Models = None,
    capability: Annotated[
        list[str] | None, typer.Option(help="Capabilities of the preset, repeatable (default: all of them).")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="packaged (no download), quick, or paper (the paper's tasks, from the hub).")
    ] = "packaged",
    quick: Annotated[bool, typer.Option("--quick", help="The same as --preset quick.")] = False,
    words: Annotated[
        Path | None, typer.Option(help="A list of words, one a line, for the paper's capability swearing.")
    ] = None,
    allow_code_execution: AllowCode = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; the same command continues it.")] = Path(
        "runs/capability"
    ),
    device: Device = None,
    dtype: Dtype = "float32",
) -> None:
    """Which few heads carry a capability? Compressed sensing, what the heads cost it and others, against other methods."""
    from lens_heads.model.load import dtype_named
    from lens_heads.studies.capability_paper import study

    size, loading = _size(preset, quick), {"device": device, "dtype": dtype_named(dtype)}
    study.capability(model or study.MODELS, capability, size, out, words, allow_code_execution, **loading)


def _size(preset: str, quick: bool) -> str:
    if quick and preset not in ("packaged", "quick"):
        raise ValueError(f"give --quick or --preset {preset}, not both")
    return "quick" if quick else preset
