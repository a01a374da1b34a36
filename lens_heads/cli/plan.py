"""`--plan`: what a command would take on this machine, from the model's configuration and the trials' tokens alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lens_heads.cli.loading import Planned

if TYPE_CHECKING:
    from lens_heads.model.planning import Job, Machine, Shape, Sizes


def of(name: str) -> Callable[..., Sequence[Job]]:
    """The usual job of this name."""

    def chosen(shape: Shape, machine: Machine, sizes: Sizes) -> Sequence[Job]:
        from lens_heads.model.planning import jobs

        return [job for job in jobs(shape, machine, sizes) if job.name == name]

    return chosen


def show(loading: Planned, name: str, trials: Sequence[Any], jobs: Callable[..., Sequence[Job]], **sizes: int) -> None:
    """Print the forwards, hours and memory of a command's jobs. Two layers of the model's shape are timed for it."""
    import torch
    from rich.table import Table

    from lens_heads.model.load import dtype_of
    from lens_heads.model.planning import Sizes, shape_of
    from lens_heads.model.timing import this_machine
    from lens_heads.report import tables

    shape = shape_of(name, loading.revision, loading.trust_remote_code)
    tokenizer = loading.tokenizer(name)
    encoded = [trial.encode(tokenizer) for trial in trials]
    lengths = [len(each.tokens) for each in encoded]
    answers = [len(getattr(each, "answer_tokens", (0,))) for each in encoded]
    device = loading.device or ("cuda" if torch.cuda.is_available() else "cpu")
    machine = this_machine(shape, dtype_of(loading.dtype, device), device)
    mean = Sizes(max(1, sum(lengths) // len(lengths)), answer=max(1, sum(answers) // len(answers)), **sizes)
    workers = int(loading.workers) if loading.workers is not None and loading.workers.isdecimal() else 1
    table = Table("run", "forwards per trial", "seconds per trial", "hours in all", "GiB")
    table.title = f"{shape.name}: {len(trials)} trials of about {mean.context:,} tokens, {max(lengths):,} at most"
    for job in jobs(shape, machine, mean):
        hours = job.seconds * len(trials) / 3600 / workers
        memory = machine.memory(shape, max(lengths) + mean.new_tokens, job.kept) / 2**30
        table.add_row(job.name, f"{job.forwards:,.1f}", f"{job.seconds:,.2f}", f"{hours:,.2f}", f"{memory:,.1f}")
    tables.show(table)
