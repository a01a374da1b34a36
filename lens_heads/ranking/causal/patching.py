"""Activation patching: how much of the answer comes back when one head is given back its output from the clean run?

CRI in the LOCOS paper (Gema et al., arXiv 2607.01002); elsewhere activation patching in the denoising direction (Heimersheim
and Nanda, arXiv 2404.15255). Exact: every head is patched on its own and the rest is recomputed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Unpack

from jaxtyping import Float
from torch import Tensor

from lens_heads.answering.pair_runs import CLEAN, CORRUPT, PairRuns, PairScore, Z, run_pair
from lens_heads.answering.patch_metrics import Measure
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import by_layer
from lens_heads.interventions.checked_kind import check_belongs
from lens_heads.interventions.vectors import HeadVectors
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.hooks import HookFunction
from lens_heads.model.workers import shared
from lens_heads.ranking.causal.sweep import sweep
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method, total
from lens_heads.runs import checks
from lens_heads.runs.options import LoopOptions
from lens_heads.runs.typed import typed
from lens_heads.trials.pairs import Corruption, Positions, TokenPair
from lens_heads.trials.trial import AnyTrial


@typed
@shared
def patch_heads(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    *,
    metric: str | Measure = "logprob",
    positions: Positions = "answer",
    corruption: Corruption | None = None,
    heads_per_pass: int | None = None,
    donor: HeadVectors | None = None,
    **run: Unpack[LoopOptions],
) -> HeadScores:
    """Patch every head on its own from the clean into the corrupt run: metric(patched) - metric(corrupt), per pair.

    Args:
        trials: trials with a counterfactual (`lh.pair`, `Trial(corrupt=)`), or with a needle that `corruption` takes away.
        metric: "logprob" (mean over the gold answer's tokens, nats), "answer_logit" (above the mean logit, mean over
            them), "first_token_logit_diff" (against the pair's wrong answer, or else the corrupt run's top token, logits; the
            latter is the LOCOS authors' default), "first_token_prob", "kl" (minus the divergence from the clean run, nats; needs
            no gold answer), or a function of the answer rows' float32 logits [run, step, d_vocab] and the gold tokens [step]
            that returns one number per run.
        positions: "answer" patches the rows that produce the answer: what the head reads out directly, without running
            the prompt again. "all" patches every position, including what later layers read from the head.
        corruption: "counterfactual", "remove", "swap", or a function (see `trials.make_pairs`). None: the trials' own
            counterfactuals, or else without their needles.
        heads_per_pass: heads patched side by side. Fewer take less memory; results do not change beyond rounding.
        donor: vectors of other trials that are patched in at every one of these rows, in place of what the clean run has.
        **run: `out` and `progress`, see `runs.options.LoopOptions`.

    Returns:
        HeadScores of method "patching_answer" or "patching_all", by `positions`; of "aie" with a donor. Positive: the head
        carries the answer. `meta["trials"]` lists the metric of the clean and the corrupt run per pair.
    Raises:
        ValueError: no pairs, pairs that cannot be aligned, a donor made on these pairs, an answer whose first token the corrupt
            run already ranks first (for the logit difference), a metric of the wrong shape or not finite. If only some pairs
            fail, they are omitted with a warning.

    Cost: for each trial a pass for each side, and one for every head, from its layer on; `heads_per_pass` run side by side.

    Example:
        >>> lh.patch_heads(model, pairs[:2]).top(2) == heads
        True
    """
    if heads_per_pass is not None:
        checks.whole_number("heads_per_pass", heads_per_pass, remedy=", or None for all at once")
    shape = head_geometry(model)
    heads = shape.every_head()

    if donor is not None:
        check_belongs(model, donor)

    def score(pair: TokenPair) -> PairScore:
        runs = run_pair(model, pair, positions)
        return runs.scores(metric, heads, partial(_patched, runs, donor), most=heads_per_pass)

    name, about = (f"patching_{positions}", {}) if donor is None else ("aie", {"donor": donor.digest})
    return sweep(
        model, name, trials, score, metric, positions, corruption, run, donor is None, replacement=donor, **about
    )


def _patched(runs: PairRuns, donor: HeadVectors | None, heads: list[Head]) -> Float[Tensor, "head step d_vocab"]:
    """The answer logits with each head patched, one per row of the batch."""

    def swap(layer: int) -> HookFunction:
        given = runs.z(layer, CLEAN) if donor is None else donor.z[layer][None]
        return lambda z, hook: runs.swapped(z, layer, heads, given)

    hooks = [(Z.format(layer), swap(layer)) for layer in by_layer(heads)]
    return runs.rerun(CORRUPT, [head.layer for head in heads], hooks)


def _method(positions: Positions, where: str, shared_by: int, fails: str) -> Method:
    """About `shared_by` heads cost one pass, since a run starts at the head's layer or row."""
    name = f"patching_{positions}"

    def rank(material: Material) -> HeadScores:
        return patch_heads(material.model, material.pairs, positions=positions, **material.loop(name))

    return Method(
        name,
        "patching",
        rank,
        "pairs",
        lambda shape, masks, k: 2 + total(shape) / shared_by,
        signed=True,
        paper="CRI, arXiv 2607.01002; arXiv 2404.15255",
        fails=fails,
        label=f"patching, {where}",
        unit="nats",
    )


METHODS = (
    _method("answer", "answer rows", 20, "sees what a head reads out, not what later heads do with it"),
    _method("all", "all rows", 2, "misses heads for which others stand in; rests on the corruption"),
)
