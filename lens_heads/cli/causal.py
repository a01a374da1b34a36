"""`lens-heads patch`: find heads by what changes when they are patched."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from lens_heads.cli import options as cli_options
from lens_heads.cli import plan
from lens_heads.cli.loading import Planned, loads
from lens_heads.cli.options import Model, Out, Task, Top, With


@loads
def patch(
    model: Model,
    task: Task = "packaged",
    with_: With = None,
    metric: Annotated[str, typer.Option(help="logprob, answer_logit or first_token_logit_diff.")] = "logprob",
    positions: Annotated[str, typer.Option(help="answer (the positions that produce it) or all.")] = "answer",
    corruption: Annotated[
        str | None,
        typer.Option(help="counterfactual, remove or swap (default: what the trials have)."),
    ] = None,
    ig_steps: Annotated[
        int, typer.Option(help="0: patch exactly; 1: attribution patching; more: EAP-IG with this many steps.")
    ] = 0,
    top: Top = 10,
    out: Out = None,
    *,
    loading: Planned,
) -> None:
    """Patch each head from the clean run into the corrupt run, and measure how much the answer recovers."""
    from lens_heads.answering.patch_metrics import check_measure
    from lens_heads.ranking.causal.attribution import attribution_patch
    from lens_heads.ranking.causal.patching import patch_heads
    from lens_heads.report import tables
    from lens_heads.runs import checks
    from lens_heads.trials.pairs import check_corruptible, check_corruption, check_positions

    check_measure(metric)  # Before the model is loaded.
    check_positions(positions)
    check_corruption(corruption)  # type: ignore[arg-type]  # checked there
    checks.count("ig_steps", ig_steps, 0)
    trials = cli_options.answered_trials(task, with_)
    check_corruptible(trials, corruption)  # type: ignore[arg-type]  # checked above
    how: Any = {"metric": metric, "positions": positions, "corruption": corruption, "out": out}
    if loading.plan:
        rows = "answer rows" if positions == "answer" else "all positions"
        return plan.show(loading, model, trials, plan.of(f"patch every head, {rows}"))
    with loading.model(model, out) as loaded:
        by = partial(attribution_patch, ig_steps=ig_steps) if ig_steps else patch_heads
        scores = by(loaded, trials, **how)
    tables.show(tables.ranking(scores, top, 0))
    cli_options.say(f"{len(scores.trial_ids)} pairs", out)
