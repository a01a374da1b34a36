"""`lens-heads localize`: find the few heads that a task needs by ablating random sets of heads."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, get_args

import typer

from lens_heads.cli import options as cli_options
from lens_heads.cli import plan
from lens_heads.cli.loading import Planned, loads
from lens_heads.cli.options import AllowCode, Batch, Model, NewTokens, Out, Task, Top, With


@loads
def localize(
    model: Model,
    task: Task = "packaged",
    with_: With = None,
    method: Annotated[str, typer.Option(help="css, csb, csl, elastic_net, greedy, one_shot or best_in_turn.")] = "css",
    n_masks: Annotated[int, typer.Option("--masks", help="Number of random masks (sets of heads to ablate).")] = 200,
    sparsity: Annotated[float, typer.Option(help="Share of the heads that each mask ablates.")] = 0.02,
    metric: Annotated[str, typer.Option(help="logprob, choice_logprob, correct, ... (see `evaluate`).")] = "logprob",
    k: Annotated[int, typer.Option("-k", help="Number of heads to find.")] = 5,
    estimator: Annotated[str | None, typer.Option(help="Other regression: lasso_1se, bic, paper, ...")] = None,
    kind: Annotated[str, typer.Option(help="Kind of ablation: zero, or another that needs no reference.")] = "zero",
    unit: Annotated[str, typer.Option(help="query_head, or kv_head (all query heads that read it).")] = "query_head",
    patience: Annotated[int | None, typer.Option(help="Rounds of 25 masks without a new head before stopping.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the masks.")] = 0,
    top: Top = 10,
    max_new_tokens: NewTokens = 50,
    batch_size: Batch = 8,
    allow_code_execution: AllowCode = None,
    out: Out = None,
    *,
    loading: Planned,
) -> None:
    """Find the heads whose ablation costs a task most, from a small number of runs with random heads ablated."""
    from lens_heads.answering.evaluation import FORCED_METRICS, check_metric
    from lens_heads.heads.head import Unit
    from lens_heads.interventions.kinds import KINDS, REQUIRED
    from lens_heads.model.planning import Job
    from lens_heads.ranking.masks.localize import DESIGNED, Settings, localize_heads
    from lens_heads.ranking.registry import methods as known
    from lens_heads.report import tables
    from lens_heads.runs import checks
    from lens_heads.tasks import to_select

    # Before the model is loaded.
    Settings(method, n_masks, sparsity, k, estimator, patience, seed)
    checks.one_of("--unit", unit, get_args(Unit))
    alone = (name for name, each in KINDS.items() if each.reference is None and REQUIRED not in each.options.values())
    checks.one_of("--kind", kind, alone)
    decoded = metric not in FORCED_METRICS
    check_metric(metric, [], generate=True)
    cli_options.check_sizes(batch_size, max_new_tokens, decoded)
    allowed = cli_options.code_execution([task], allow_code_execution, decoded)
    trials = cli_options.answered_trials(task, with_, "--with", **to_select(task), **allowed[task])
    check_metric(metric, trials, generate=True)
    options: dict[str, Any] = {"out": out, "max_new_tokens": max_new_tokens, "batch_size": batch_size}
    options |= {"n_masks": n_masks, "sparsity": sparsity, "estimator": estimator, "patience": patience, "seed": seed}
    if loading.plan:

        def jobs(shape: Any, machine: Any, sizes: Any) -> list[Job]:
            """Masks of the asked sparsity; a search ablates one head more at a time."""
            runs = round(known[method].passes(shape, n_masks, k))
            each = max(1, round(sparsity * shape.size)) if method in DESIGNED else 1
            return list(plan.of("localize by masks")(shape, machine, replace(sizes, masks=runs, k=each)))

        return plan.show(loading, model, trials, jobs, new_tokens=max_new_tokens * decoded)
    with loading.model(model, out) as loaded:
        scores = localize_heads(loaded, trials, method=method, metric=metric, k=k, kind=kind, unit=unit, **options)  # type: ignore[arg-type]  # checked there
    tables.show(tables.ranking(scores, top, 0))
    fit = scores.fit
    held_out = float("nan") if fit.get("held_out_r2") is None else fit["held_out_r2"]
    quality = f", R² {fit['r2']:.2f} ({held_out:.2f} on held-out masks)" if fit else ""
    runs = f"{scores.evaluations} evaluations of {scores.meta['n_trials']} trials"
    cli_options.say(f"{runs}, {metric} {scores.base:.3f} without ablation{quality}", out)
