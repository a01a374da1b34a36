"""`lens-heads rank`: heads by any method, or by several that share what they can. `lens-heads methods` lists them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lens_heads.cli import options as cli_options
from lens_heads.cli import plan
from lens_heads.cli.loading import Planned, loads
from lens_heads.cli.options import Batch, Model, NewTokens, Out, Task, Top, With


@loads
def rank(
    model: Model,
    task: Task = "packaged",
    with_: With = None,
    methods: Annotated[str, typer.Option(help="Comma-separated methods; see `lens-heads methods`.")] = "locos",
    k: Annotated[int, typer.Option("-k", help="Number of heads that a search looks for.")] = 5,
    n_masks: Annotated[int, typer.Option("--masks", help="Random sets of heads that methods of masks ablate.")] = 100,
    calibrate: Annotated[
        int, typer.Option(help="The last trials, whose means stand in for ablated heads (0: ordinary prompts).")
    ] = 0,
    corruption: Annotated[
        str | None, typer.Option(help="remove, swap or counterfactual (default: what the trials have).")
    ] = None,
    generated: Annotated[
        bool, typer.Option("--generated", help="Score what the model writes, not gold answers.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything drawn.")] = 0,
    top: Top = 5,
    max_new_tokens: NewTokens = 50,
    batch_size: Batch = 1,
    out: Out = None,
    *,
    loading: Planned,
) -> None:
    """Rank every head by each of the methods, from the same trials."""
    from lens_heads.model.planning import Job
    from lens_heads.ranking.rank import check_calibrated
    from lens_heads.ranking.rank import rank as ranking
    from lens_heads.ranking.registry import resolve
    from lens_heads.report import tables
    from lens_heads.runs import checks
    from lens_heads.trials.pairs import check_corruptible, check_corruption

    # All that can be wrong before the model is loaded.
    names = cli_options.listed("--methods", methods, "methods")
    chosen = resolve(names)
    checks.whole_number("k", k)
    checks.whole_number("--masks", n_masks)
    checks.seed(seed)
    cli_options.check_sizes(batch_size, max_new_tokens, generated)
    trials = cli_options.answered_trials(task, with_)
    if checks.count("--calibrate", calibrate, 0, len(trials) - 1, ", one less than there are trials"):
        check_calibrated("--calibrate", chosen)
    if corruption is not None:
        check_corruption(corruption)
        check_corruptible(trials, corruption)
    selected, others = trials[: len(trials) - calibrate], trials[len(trials) - calibrate :]
    for method in chosen:
        if lacks := method.lacks(selected, bool(others)):
            raise ValueError(f"method {method.name!r}: {lacks}")
    how: dict[str, Any] = {"out": out, "batch_size": batch_size, "max_new_tokens": max_new_tokens}
    how |= {"masks": n_masks, "calibration": others or None, "corruption": corruption, "seed": seed}
    if loading.plan:
        passes = [(method.name, method.passes) for method in chosen]

        def jobs(shape: Any, machine: Any, sizes: Any) -> list[Job]:
            one = machine.seconds(shape, sizes.context)
            took = [(name, of(shape, n_masks, k)) for name, of in passes]
            return [Job(name, times, times * one, kept=True) for name, times in took]

        return plan.show(loading, model, selected, jobs, new_tokens=max_new_tokens * generated)
    with loading.model(model, out) as loaded:
        scores = ranking(loaded, selected, names, k=k, teacher_forced=not generated, **how)
    tables.show(tables.top_heads(scores, top))
    cli_options.say(f"{len(scores)} of {len(chosen)} methods on {len(selected)} trials", out)


def methods() -> None:
    """List the ranking methods: what they need, where they come from, and when they mislead."""
    from lens_heads.ranking.registry import methods as registry
    from lens_heads.report import tables

    tables.show(tables.methods(registry.frame))
