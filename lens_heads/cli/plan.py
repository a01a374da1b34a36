"""`lens-heads plan`: what a run would cost, before anything is loaded."""

from __future__ import annotations

from typing import Annotated

import typer

from lens_heads.cli.loading import TrustCode

MODEL = "As elsewhere, but only its configuration is read; or a configuration as JSON."


def plan(
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL)],
    context: Annotated[int, typer.Option(help="Tokens of a prompt.")] = 4000,
    trials: Annotated[int, typer.Option(help="Number of trials.")] = 100,
    on: Annotated[str, typer.Option(help="here (rates are measured), a100, h100, h200 or b200.")] = "here",
    devices: Annotated[int, typer.Option(help="Devices that share the trials.")] = 1,
    gpus_per_worker: Annotated[int, typer.Option(help="Devices over which each copy of the model is spread.")] = 1,
    dtype: Annotated[
        str | None, typer.Option(help="Of runs here (default: float32); other machines compute in bfloat16.")
    ] = None,
    answer: Annotated[int, typer.Option(help="Tokens of a gold answer.")] = 6,
    new_tokens: Annotated[int, typer.Option("--max-new-tokens", help="Tokens generated per answer.")] = 50,
    sets: Annotated[
        int, typer.Option(help="Sets of heads ablated: rankings, numbers of heads and random controls.")
    ] = 60,
    masks: Annotated[int, typer.Option(help="Random masks of localize.")] = 200,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    trust_remote_code: TrustCode = False,
) -> None:
    """Say how many forwards, how much time and how much memory the usual runs take, from the model's configuration."""
    import torch
    from rich.table import Table

    from lens_heads.model.load import dtype_of
    from lens_heads.model.planning import MACHINES, Sizes, jobs, shape_of
    from lens_heads.model.timing import this_machine
    from lens_heads.report import tables
    from lens_heads.runs import checks

    for name, value in (("trials", trials), ("devices", devices), ("gpus_per_worker", gpus_per_worker)):
        checks.whole_number(name, value)
    if gpus_per_worker > devices:
        raise ValueError(f"--gpus-per-worker {gpus_per_worker}: there are --devices {devices}; plan with more of them")
    if on != "here" and on not in MACHINES:
        raise ValueError(f"--on {on!r}: use here or {', '.join(MACHINES)}")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    numbers = dtype_of(dtype, device)
    if dtype is not None and on != "here":
        raise ValueError(f"--dtype {dtype}: {on} is planned in bfloat16. Omit it, or plan --on here.")
    sizes = Sizes(context, answer, new_tokens, sets, masks=masks)
    shape = shape_of(model, revision, trust_remote_code)
    machine = this_machine(shape, numbers, device) if on == "here" else MACHINES[on]
    workers = max(1, devices // gpus_per_worker)
    table = Table("run", "forwards per trial", "device-hours", "hours in all", "GiB per device")
    table.title = f"{shape.name}: {trials} trials of {context:,} tokens on {devices} x {machine.name}"
    for job in jobs(shape, machine, sizes):
        hours = job.seconds * trials / 3600
        memory = machine.memory(shape, context + new_tokens, job.kept, gpus_per_worker) / 2**30
        table.add_row(job.name, f"{job.forwards:,.1f}", f"{hours:,.2f}", f"{hours / workers:,.2f}", f"{memory:,.1f}")
    tables.show(table)
    typer.echo(
        f"{shape.params / 1e9:.2f} billion parameters; {machine.products / 1e12:.2f} Tflop/s in products, "
        f"{machine.attention / 1e12:.2f} in attention, {machine.bandwidth / 1e9:.0f} GB/s "
        + ("(measured)" if on == "here" else "(stated by its maker, times the share that is reached)")
    )
