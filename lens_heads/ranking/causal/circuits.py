"""Circuits: heads found by path patching stage after stage, and how many of them two tasks share.

Wang et al. (arXiv 2211.00593) trace a circuit backwards from the logits; Merullo et al. (arXiv 2310.08744) compare those of two
tasks. A sender's effect is the share of the gap between the clean and the corrupt run that its path alone makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from lens_heads.answering.pair_runs import CLEAN, CORRUPT, run_pair
from lens_heads.answering.patch_metrics import Measure, check_measure, judged, measure_of
from lens_heads.heads.circuit import Circuit, Stage
from lens_heads.heads.head import Head
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.workers import shared
from lens_heads.ranking.causal.paths import Component, path_patch
from lens_heads.runs import checks
from lens_heads.runs.options import LoopOptions
from lens_heads.runs.reading import user_path
from lens_heads.runs.typed import typed
from lens_heads.trials.pairs import Corruption, TokenPair, make_pairs
from lens_heads.trials.trial import AnyTrial

if TYPE_CHECKING:
    pass

LEAST_GAP = 1e-4
"""A smaller mean gap between the clean and the corrupt run is none to take shares of."""
LEAST_SHARE = 1e-6
"""Smaller shares of the gap are rounding: such a head does not write to the receivers at all."""


@typed
@shared
def trace_circuit(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    *,
    components: Sequence[Component] = ("q",),
    share: float = 0.02,
    metric: str | Measure = "logprob",
    corruption: Corruption | None = None,
    freeze_mlps: bool = False,
    **run: Unpack[LoopOptions],
) -> Circuit:
    """Trace a circuit backwards: heads that write to the logits, then heads that feed these, stage by stage.

    Args:
        trials, metric, corruption, freeze_mlps, **run: as in `path_patch`. With `out`, every stage has a folder in it. The
            papers' metric is the logit difference between both answers, which a function can give.
        components: the input that each further stage leads into, its receivers being the heads of the stage before: ("q",)
            finds what tells the writing heads where to look, ("q", "v") also what those read.
        share: of all heads, how many a stage keeps, those with the largest absolute effect; the paper's 2 %, at least one.

    Returns a `Circuit`. Heads that do not reach the receivers are in no stage, and a stage without any ends the trace. Raises
    ValueError as `path_patch` does, and for pairs whose corrupt runs are as good as the clean ones, or better, on the mean.

    `model`: as there.

    Cost: a `path_patch` from every head below for each of the stages, one more than `components`.

    Example:
        >>> circuit = lh.ranking.trace_circuit(model, pairs[:2], share=0.25)
        >>> circuit.stages[0].name, list(circuit.stages[0].heads) == heads
        ('to the logits', True)
    """
    shape = head_geometry(model)
    name, total = check_measure(metric), shape.size
    k = max(1, round(checks.share("share", share, "0.02") * total))
    for component in components:
        checks.one_of("components", component, get_args(Component))
    made = make_pairs(trials, model.tokenizer, shape, corruption=corruption)
    gap = mean_gap(model, [TokenPair.of(one) for one in made], metric)
    folder = run.get("out")
    out = None if folder is None else user_path(folder, "out")
    stages: list[Stage] = []
    leading: list[Component | None] = [None, *components]
    for number, component in enumerate(leading):
        into = stages[-1].heads if stages else ()
        receivers: tuple[Head, ...] | Literal["logits"] = into if component else "logits"
        if component and max(head.layer for head in into) == 0:
            break
        how: Any = {**run, "out": None if out is None else Path(out) / f"stage-{number}"}
        scores = path_patch(
            model,
            made,
            None,
            receivers,
            component=component or "q",
            metric=metric,
            base="clean",
            freeze_mlps=freeze_mlps,
            **how,
        )
        scores = replace(
            scores,
            values=scores.values / gap,
            per_trial=scores.per_trial / gap,
            score_unit="share of the gap",
            selected=True,
        )
        flat = scores.values.abs().flatten()
        sizes = [at for at in flat.argsort(descending=True, stable=True)[:k].tolist() if flat[at] > LEAST_SHARE]
        if not sizes:
            break
        heads = tuple(Head(at // shape.n_heads, at % shape.n_heads) for at in sizes)
        stages.append(
            Stage(f"to {component} of {len(into)} heads" if component else "to the logits", into, scores, heads)
        )
    meta = {"model": shape.name, "metric": name, "share": share, "pairs": len(made), "freeze_mlps": freeze_mlps}
    return Circuit(tuple(stages), gap, (shape.n_layers, shape.n_heads), meta)


def mean_gap(model: Model, pairs: Sequence[TokenPair], metric: str | Measure) -> float:
    """The mean of metric(clean) - metric(corrupt) over the pairs that have the metric. ValueError unless it is positive."""
    gaps, refused = [], []
    for pair in pairs:
        runs = run_pair(model, pair, "answer", ())
        try:
            measure = measure_of(metric, pair, runs.logits[CLEAN], runs.logits[CORRUPT])
        except ValueError as error:  # `path_patch` omits such a pair, too, with a warning.
            refused.append(error)
            continue
        values = judged(measure, runs.logits, pair)
        gaps.append(float(values[CLEAN] - values[CORRUPT]))
    if not gaps:
        raise refused[0]
    gap, name = sum(gaps) / len(gaps), check_measure(metric)
    if gap < LEAST_GAP:
        raise ValueError(
            f"the clean runs exceed the corrupt ones by {gap:.1e} in {name} on the mean: there is nothing to take shares of; use "
            "pairs whose answer the corruption takes away"
        )
    return gap
