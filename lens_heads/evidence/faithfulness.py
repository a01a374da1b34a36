"""Sufficiency: what a model still does when only some heads are kept, and all others are taken from the corrupt run.

The faithfulness of the Mechanistic Interpretability Benchmark (Mueller et al., arXiv 2504.13151) for heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack, get_args

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lens_heads.answering.pair_runs import CLEAN, CORRUPT, PairRuns, Z, run_pair
from lens_heads.answering.patch_metrics import Measure, check_measure, measure_of, warn_of_reversed
from lens_heads.evidence.curve_results import MAIN_TASK
from lens_heads.evidence.faithfulness_results import ALL, FaithfulnessCurve
from lens_heads.evidence.head_sets import named_scores, plan_sets
from lens_heads.heads.conditions import KEY, Condition, HeadSet, head_set
from lens_heads.heads.controls import CONTROLS, AnyControls, Controls
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.grouping import COLUMNS, labels
from lens_heads.heads.head import Head
from lens_heads.heads.named import AnyRankings
from lens_heads.heads.one_model import check_weights
from lens_heads.heads.ranks import check_ranks
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.activations import MeanActivations
from lens_heads.interventions.checked_kind import check_belongs, reference_digest
from lens_heads.interventions.independence import check_independent
from lens_heads.model.geometry import Model
from lens_heads.model.hooks import HookFunction
from lens_heads.model.identity import identified
from lens_heads.model.run_folders import folder_for
from lens_heads.model.support import require
from lens_heads.model.workers import shared
from lens_heads.runs import checks, engine
from lens_heads.runs.code import labelled
from lens_heads.runs.options import LoopOptions, Run
from lens_heads.runs.shards import Result
from lens_heads.runs.store import RunFolder
from lens_heads.runs.typed import typed
from lens_heads.trials.pairs import Corruption, Positions, TokenPair, check_positions, pairs_digest, token_pairs
from lens_heads.trials.trial import AnyTrial

BESIDE = Controls(("random", "random_like"), trials=20)
"""The controls by default."""

Outside = Literal["corrupt", "mean", "zero"]
MLPs = Literal["free", "corrupt"]
MLP_OUT = "blocks.{}.hook_mlp_out"
MIB = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The shares of all components at which the benchmark evaluates; of few heads, the smallest are none."""


@dataclass(frozen=True)
class _How:
    """What stands in for heads that are not kept."""

    outside: Outside
    mlps: MLPs
    positions: Positions
    reference: MeanActivations | None

    def of(self, runs: PairRuns, layer: int) -> Float[Tensor, "#row head d_head"]:
        """The outputs of a layer's heads when they are not kept."""
        z = runs.z(layer, CORRUPT)
        if self.outside == "corrupt":
            return z
        if self.reference is not None:
            return self.reference.z[layer, : z.shape[-2], : z.shape[-1]][None].to(z)
        return torch.zeros_like(z)

    def check(self, metric: str) -> None:
        """ValueError for an unknown choice, a missing reference, and a metric that has no share."""
        check_positions(self.positions)
        for name, given, known in (("outside", self.outside, Outside), ("mlps", self.mlps, MLPs)):
            if given not in get_args(known):
                raise ValueError(f"{name}={given!r}: use {', '.join(map(repr, get_args(known)))}")
        if (self.outside == "mean") != (self.reference is not None):
            remedy = "needs reference=mean_activations(...)" if self.reference is None else "takes no reference"
            raise ValueError(f"outside={self.outside!r} {remedy}")
        if metric in {*KEY, *COLUMNS, "heads"}:
            raise ValueError(
                f"a metric called {metric!r} has the name of a column of the table: name the function otherwise"
            )
        if metric == "kl":
            raise ValueError("metric='kl' is 0 for the clean run by definition: use 'logprob' or a function")

    @property
    def settings(self) -> dict[str, str]:
        """What stored results depend on."""
        named = {"outside": self.outside, "mlps": self.mlps, "positions": self.positions}
        return {**named, "reference": reference_digest(self.reference)}

    @property
    def first(self) -> int | None:
        """Means and zeros also replace what both runs share, unless only the answer rows are edited."""
        return 0 if self.positions == "all" and (self.outside != "corrupt" or self.mlps == "corrupt") else None


@typed
@shared
def faithfulness(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    rankings: AnyRankings,
    *,
    ks: Sequence[int] | int | Literal["mib"] = "mib",
    metric: str | Measure = "logprob",
    outside: Outside = "corrupt",
    mlps: MLPs = "free",
    positions: Positions,
    reference: MeanActivations | None = None,
    corruption: Corruption | None = None,
    controls: AnyControls = BESIDE,
    **run: Unpack[LoopOptions],
) -> FaithfulnessCurve:
    """Keep the top k heads of every ranking, for every k, and measure how much of the clean run's metric is left.

    f(C) = (m(C) - m(none)) / (m(all) - m(none)), m the mean over pairs with the heads C kept; f = 1 where all heads are kept, 0
    where none are. A kept head computes its output from what the edited heads below it leave.

    Args:
        trials, metric, corruption: as in `patch_heads`, on trials that no ranking was made on; no "kl".
        rankings: scores by method, as in `ablation_curve`.
        ks: numbers of heads to keep, or "mib": the benchmark's ten shares of all heads.
        outside: what replaces the heads that are not kept: their output in the corrupt run, the mean (`reference=
            mean_activations(...)`), or zero.
        mlps: "free" computes every MLP from what reaches it, so f measures heads only and no kept head is not the corrupt run;
            "corrupt" gives every MLP its output in the corrupt run, also in m(all).
        positions: "all", as in the benchmark, or "answer", the rows that produce the answer.
        controls: as in `ablation_curve`; () for none.
        **run: `out` and `progress`, see `runs.options.LoopOptions`.

    Returns a `FaithfulnessCurve`. Differs from the benchmark, whose circuits also choose MLPs and edges.

    Raises ValueError as `ablation_curve` and `patch_heads` do, for k beyond the number of heads, "mean" without a reference,
    and runs with all heads and with none that do not differ.

    Cost: for each trial two passes for its two sides, and one for each set of heads that is kept.

    Example:
        >>> found = lh.faithfulness(model, pairs[:2], {"locos": scores}, ks=[2], controls=(), positions="all")
        >>> found.frame[found.frame["set"] == "top"]["value"].item() > 0.9
        True
    """
    shape, options, name = require(model, "faithfulness", "writes"), Run.of(run), check_measure(metric)
    how = _How(outside, mlps, positions, reference)
    how.check(name)
    if reference is not None:
        check_belongs(model, reference)
    chosen, shares = named_scores(rankings, shape), _shares(ks, shape.size)
    check_ranks(chosen, sorted({k for _, k in shares}))
    sets = _sets(shape, chosen, shares, Controls.given(controls, BESIDE, CONTROLS))
    made, identity = token_pairs(trials, model.tokenizer, shape, corruption), identified(model, "metrics")
    check_weights(chosen, identity)
    check_independent(chosen, reference, [pair.made_on for pair in made])
    settings = {
        **identity.settings,
        **how.settings,
        "metric": name if isinstance(metric, str) else labelled(name, metric, options.out is not None),
        "pairs": pairs_digest(made),
    }
    results = _run_all(model, made, sets, metric, how, folder_for(model, options.out, settings), options.progress)
    rows = _rows(made, sets, results, name)
    size = shape.n_layers, shape.n_heads
    found = FaithfulnessCurve(
        pd.DataFrame(rows), chosen, name, mlps, size, tuple(shares), model.cfg.d_model, settings, shape.size
    ).checked()
    if outside == "corrupt":
        empty, whole = found.draws(Condition.none())[0], found.draws(Condition.given(ALL, found.total))[0]
        warn_of_reversed(name, zip(whole.index, whole, empty, strict=True))
    return found


@dataclass(frozen=True, eq=False)
class _Run:
    """One pair with one set of heads kept."""

    pair: TokenPair
    heads: tuple[Head, ...]

    @property
    def key(self) -> tuple[str, ...]:
        return self.pair.id, *(head.key for head in self.heads)


def _run_all(
    model: Model,
    pairs: Sequence[TokenPair],
    sets: Sequence[HeadSet],
    metric: str | Measure,
    how: _How,
    folder: RunFolder | None,
    progress: bool,
) -> dict[tuple[str, ...], Result]:
    """Every pair with every set of heads kept, by the key of the run; those of a pair run together."""
    runs = [_Run(pair, heads) for place, pair in enumerate(pairs) for heads in _distinct(sets, place)]

    def work(batch: list[_Run]) -> list[Result]:
        values = _measured(model, batch[0].pair, [one.heads for one in batch], metric, how)
        return [Result({"value": value}, {}) for value in values]

    results = engine.run(
        runs,
        work,
        key=lambda one: one.key,
        group=lambda one: one.pair.id,
        batch_size=len(sets),
        folder=folder,
        progress=progress,
        description="faithfulness",
    )
    return dict(zip((one.key for one in runs), results, strict=True))


def _distinct(sets: Sequence[HeadSet], place: int) -> list[tuple[Head, ...]]:
    """The different sets of heads that run on the pair at a place."""
    return list(dict.fromkeys(_sorted(one) for one in sets if one.trials is None or place < one.trials))


def _sorted(one: HeadSet) -> tuple[Head, ...]:
    return tuple(sorted(one.heads))


def _sets(
    shape: HeadGeometry, rankings: Mapping[str, HeadScores], shares: Sequence[tuple[float, int]], controls: Controls
) -> list[HeadSet]:
    """No head, the heads of every ranking and its controls, and all heads."""
    everyone = shape.every_head()
    sizes = sorted({k for _, k in shares if 0 < k < len(everyone)})
    return [*plan_sets(rankings, sizes, controls), head_set(Condition.given(ALL, len(everyone)), everyone)]


def _measured(
    model: Model, pair: TokenPair, sets: Sequence[Sequence[Head]], metric: str | Measure, how: _How
) -> Float[Tensor, " set"]:
    """The metric of one pair under every set of kept heads."""
    hooks = ["attn.hook_z", *(["hook_mlp_out"] if how.mlps == "corrupt" else [])]
    runs = run_pair(model, pair, how.positions, hooks, first=how.first)
    measure = measure_of(metric, pair, runs.logits[CLEAN], runs.logits[CORRUPT])

    def logits(some: Sequence[Sequence[Head]]) -> Float[Tensor, "set step d_vocab"]:
        kept = _kept(some, runs.shape)
        return runs.rerun(CLEAN, [0] * len(kept), _hooks(runs, kept, how))

    return torch.cat([values for _, values in runs.measured(measure, logits, sets)])


def _kept(sets: Sequence[Sequence[Head]], shape: HeadGeometry) -> Bool[Tensor, "set layer head"]:
    kept = torch.zeros(len(sets), shape.n_layers, shape.n_heads, dtype=torch.bool)
    for number, one in enumerate(sets):
        for head in one:
            kept[number, head.layer, head.head] = True
    return kept


def _hooks(runs: PairRuns, kept: Bool[Tensor, "set layer head"], how: _How) -> list[tuple[str, HookFunction]]:
    """Replace what is not kept, one set of heads per row of the batch."""

    def keep(z: Tensor, hook: Any, layer: int) -> Tensor:
        split = runs.shape.by_head(z, layer)
        mine = kept[:, layer, : split.shape[2]].to(z.device)[:, None, :, None]
        return torch.where(mine, split, how.of(runs, layer).to(split)).reshape(z.shape)

    def put(x: Tensor, hook: Any, layer: int) -> Tensor:
        return runs.kept[MLP_OUT.format(layer)][CORRUPT].to(x).expand_as(x)

    layers = runs.shape.attending
    found: list[tuple[str, HookFunction]] = [
        (Z.format(layer), lambda z, hook, layer=layer: keep(z, hook, layer)) for layer in layers
    ]
    if how.mlps == "corrupt":
        found += [
            (MLP_OUT.format(layer), lambda x, hook, layer=layer: put(x, hook, layer))
            for layer in range(runs.shape.n_layers)
        ]
    return found


def _rows(
    pairs: Sequence[TokenPair], sets: Sequence[HeadSet], results: Mapping[tuple[str, ...], Result], metric: str
) -> list[dict[str, Any]]:
    """A row per pair and set; a pair of which any run failed has none."""
    failed = {key[0] for key, result in results.items() if not result.keep}
    return [
        {"method": one.condition.method, "set": one.condition.set, "k": len(one.heads), "draw": one.draw}
        | {"heads": ",".join(map(str, one.heads)), "task": MAIN_TASK, "trial": pair.id}
        | labels(pair)
        | {metric: float(results[_Run(pair, _sorted(one)).key].arrays["value"])}
        for place, pair in enumerate(pairs)
        for one in sets
        if pair.id not in failed and (one.trials is None or place < one.trials)
    ]


def _shares(ks: Sequence[int] | int | str, total: int) -> list[tuple[float, int]]:
    """Shares of all heads, with the number of heads kept at each."""
    if isinstance(ks, str):
        if ks != "mib":
            raise ValueError(f"ks={ks!r}: use numbers of heads, or 'mib'")
        return [(share, int(share * total)) for share in MIB]
    listed = checks.whole_numbers("ks", ks, remedy=" (k = 0 and all heads are always included)")
    most = max(listed)
    if most > total:
        raise ValueError(f"k = {most}: the model has {total} heads")
    return [(k / total, k) for k in sorted({0, *listed, total})]
