"""`lens-heads study`: a paper's whole experiment on models of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="A paper's whole experiment, end to end.", no_args_is_help=True)


@app.callback()
def study() -> None:
    """A paper's whole experiment, end to end."""


@app.command()
def locos(
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="Models, repeatable (default: both packaged ones).")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="packaged (no download), quick, or the grids of the paper: paper, scripts.")
    ] = "packaged",
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; the same command continues it.")] = Path(
        "runs/locos"
    ),
    tuned_lens: Annotated[Path | None, typer.Option(help="Safetensors file of a tuned lens, for one model.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ... (default: a GPU if there is one).")] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
) -> None:
    """Re-run the argument of the LOCOS paper: detection, ablation, what is spared, what breaks, causal evidence, claims."""
    from lens_heads.models import dtype_named
    from lens_heads.studies.locos_paper import study

    study.locos(model or study.MODELS, preset, out, tuned_lens, device=device, dtype=dtype_named(dtype))
