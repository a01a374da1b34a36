"""Activation patching of heads: what does the answer gain when one head is given back what it wrote in the clean run?

CRI in the LOCOS paper (Gema et al., arXiv 2607.01002); activation patching in the denoising direction elsewhere
(Heimersheim and Nanda, arXiv 2404.15255). Exact: every head is patched on its own and the rest recomputed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.causal.measures import Measure, judged, resolve
from lens_heads.causal.pairs import AnyPair, Corruption, TokenPair
from lens_heads.causal.runs import (
    CLEAN,
    CORRUPT,
    TOKENS_PER_PASS,
    PairRuns,
    Positions,
    Z,
    batched,
    check_positions,
    rerun,
    run_pair,
)
from lens_heads.causal.sweep import PairScore, Setup, sweep
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.activations import TrialActivations, run_activations
from lens_heads.model.geometry import HeadGeometry, Model, geometry
from lens_heads.runs.options import LoopOptions
from lens_heads.trials.encoding import encode_all
from lens_heads.trials.trial import AnyTrial


@contextmanager
def patch(
    model: Model,
    heads: Iterable[Head | str | Sequence[int]] | Head | str,
    clean: TokenPair | AnyTrial | TrialActivations,
    positions: Positions = "answer",
) -> Iterator[None]:
    """Inside the block, the heads write what they wrote in the clean run, at the positions of that run.

    Args:
        heads: as in `ablate`.
        clean: the run to copy from: a TokenPair (its clean side), a trial (its prompt and gold answer), or activations
            made before, with which `positions` has no meaning. It is run now, under whatever is hooked onto the model.
        positions: "answer": only the rows that produce the gold answer; "all": every row of the run.

    Works in any forward, cached or batched with left padding; contexts nest, the innermost acts last.

    Raises ValueError for a head that does not exist or an unknown `positions`.
    """
    check_positions(positions)
    geometry(model).check_heads(heads)
    reference = clean if isinstance(clean, TrialActivations) else _clean_run(model, clean, positions)
    with ablate(model, heads, "patch", reference=reference):
        yield


def _clean_run(model: Model, clean: TokenPair | AnyTrial, positions: Positions) -> TrialActivations:
    if isinstance(clean, TokenPair):
        tokens, (start, end) = clean.clean, clean.answer
    else:
        shape = geometry(model)
        (trial,) = encode_all(clean, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
        tokens, start = torch.cat([trial.tokens, trial.answer_tokens]), len(trial)
        end = len(tokens)
    return run_activations(model, tokens[: end - 1], clean.id, start - 1 if positions == "answer" else 0)


def patch_heads(
    model: Model,
    pairs: Iterable[AnyPair] | AnyPair,
    metric: str | Measure = "answer_logprob",
    positions: Positions = "answer",
    corruption: Corruption = "remove",
    heads_per_pass: int | None = None,
    **run: Unpack[LoopOptions],
) -> HeadScores:
    """Patch every head on its own from the clean into the corrupt run: metric(patched) - metric(corrupt), per pair.

    Args:
        pairs: `TokenPair`s, or trials whose needle the `corruption` takes away (see `causal.make_pairs`).
        metric: "answer_logprob" (mean over the gold answer's tokens, nats), "first_token_logit_diff" (against the corrupt
            run's favourite, logits; the LOCOS authors' default), or a function of float32 logits [run, step, d_vocab] of
            the answer rows and the gold tokens [step] that returns one number per run.
        positions: "answer" patches the rows that produce the answer: what the head reads out directly, and no prompt is
            run again; "all" patches every position, so also what the head writes for later layers to fetch.
        corruption: "remove", "swap" or a function, for trials.
        heads_per_pass: heads of one layer that are patched side by side; fewer take less memory and change nothing.
        **run: `out` and `progress`, see `runs.options.LoopOptions`.

    Returns:
        HeadScores of method "cri"; positive: the head carries the answer. `meta["trials"]` lists the metric of the clean
        and the corrupt run per pair.

    Raises:
        ValueError: no pair, pairs that cannot be aligned, an answer whose first token is the corrupt run's favourite (for
            the logit difference), a metric of wrong shape or not finite. A pair at fault among others is left out with a
            warning.
    """
    shape = geometry(model)

    def score(pair: TokenPair) -> PairScore:
        runs = run_pair(model, pair, positions)
        measure = resolve(metric, pair, runs.logits[CORRUPT])
        clean, corrupt = judged(measure, runs.logits, pair).tolist()
        per_pass = heads_per_pass or max(1, TOKENS_PER_PASS // runs.tokens.shape[1])
        groups = batched(range(shape.n_heads), per_pass)
        layers = [
            torch.cat([_patched(model, runs, measure, layer, group, shape) for group in groups])
            for layer in range(shape.n_layers)
        ]
        return torch.stack(layers) - corrupt, {"clean": clean, "corrupt": corrupt}

    if heads_per_pass is not None and heads_per_pass < 1:
        raise ValueError(f"heads_per_pass={heads_per_pass}: at least one head is patched at a time")
    return sweep(model, "cri", pairs, score, Setup(metric, positions, corruption), run)


def _patched(
    model: Model, runs: PairRuns, measure: Measure, layer: int, heads: list[int], shape: HeadGeometry
) -> Float[Tensor, " head"]:
    """The metric with each of a layer's heads patched, one per row of the batch."""
    clean = runs.z(layer, CLEAN, shape.n_heads)[:, heads]

    def swap_in(z: Tensor, hook: Any) -> Tensor:
        changed = z.clone().reshape(*z.shape[:2], shape.n_heads, shape.d_head)
        changed[torch.arange(len(heads)), :, heads] = clean.transpose(0, 1)
        return changed.reshape(z.shape)

    logits = rerun(model, runs, CORRUPT, layer, len(heads), [(Z.format(layer), swap_in)])
    return judged(measure, logits, runs.pair).float().cpu()
