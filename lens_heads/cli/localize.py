"""`lens-heads localize`: the few heads that a task needs, from runs with random heads ablated."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lens_heads.cli import options as cli_options
from lens_heads.cli.options import AllowCode, Batch, Device, Dtype, Lens, Model, NewTokens, Out, Task, With


def localize(
    model: Model,
    task: Task = "packaged",
    with_: With = None,
    method: Annotated[
        str, typer.Option(help="css, csb, csl, elastic_net (compressed sensing), greedy or one_shot.")
    ] = "css",
    n_masks: Annotated[int, typer.Option("--masks", help="Random sets of heads to ablate.")] = 200,
    sparsity: Annotated[float, typer.Option(help="Share of the heads that each set ablates.")] = 0.02,
    metric: Annotated[
        str, typer.Option(help="logprob, choice_logprob, greedy_match, correct, ...; see `evaluate`.")
    ] = "logprob",
    k: Annotated[int, typer.Option("-k", help="Heads looked for.")] = 5,
    estimator: Annotated[
        str | None, typer.Option(help="Another regression than the method's: lasso_1se, bic, paper, script, ...")
    ] = None,
    kind: Annotated[str, typer.Option(help="zero, or another ablation that needs no reference.")] = "zero",
    level: Annotated[str, typer.Option(help="query_head, or kv_group: all query heads of a kv head together.")] = (
        "query_head"
    ),
    patience: Annotated[
        int | None, typer.Option(help="Stop once the k first heads stayed the same for so many rounds of 25 sets.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sets.")] = 0,
    top: Annotated[int, typer.Option(help="Heads in the table.")] = 10,
    max_new_tokens: NewTokens = 50,
    batch_size: Batch = 8,
    allow_code_execution: AllowCode = False,
    out: Out = None,
    device: Device = None,
    dtype: Dtype = "float32",
    lens: Lens = None,
) -> None:
    """Find the heads whose ablation costs a task most, from few runs with random heads ablated."""
    from lens_heads.ablation.evaluation import FORCED_METRICS
    from lens_heads.localize import MaskedMetric
    from lens_heads.localize import localize as localized
    from lens_heads.report import tables
    from lens_heads.tasks import to_select

    allowed = cli_options.code_execution([task], allow_code_execution, metric not in FORCED_METRICS)
    trials = cli_options.trials(task, with_, **to_select(task), **allowed[task])
    loaded = cli_options.load(model, device, dtype, lens)
    options: dict[str, Any] = {"level": level, "out": out, "max_new_tokens": max_new_tokens, "batch_size": batch_size}
    measured = MaskedMetric(loaded, trials, metric, kind, **options)
    scores = localized(measured, method, n_masks, sparsity, k, estimator, patience, seed)
    tables.show(tables.ranking(scores, top, 0))
    fit = scores.meta.get("fit", {})
    left_out = float("nan") if fit.get("held_out_r2") is None else fit["held_out_r2"]
    told = f", R² {fit['r2']:.2f}, of masks left out {left_out:.2f}" if fit else ""
    cli_options.say(
        f"{scores.meta['evaluations']} evaluations of {scores.meta['n_trials']} trials, {metric} {scores.meta['base']:.3f} "
        f"with nothing ablated{told}",
        out,
    )
