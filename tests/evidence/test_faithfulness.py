"""Faithfulness: equals a plain loop of full forwards; 0 without heads and 1 with all; areas as the benchmark takes them."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads.answering.patch_metrics import answer_logprob
from lens_heads.evidence.faithfulness_results import ALL, FaithfulnessCurve, trapezoid_weights
from lens_heads.heads.conditions import Condition
from lens_heads.heads.controls import Controls
from lens_heads.model.hooks import has_hooks, hooked, recording
from lens_heads.trials.pairs import TokenPair
from tests.conftest import tiny
from tests.pairs import trial_of
from tests.ranking.causal.test_patching import random_pair

WAYS = list(itertools.product(("corrupt", "mean", "zero"), ("all", "answer"), ("free", "corrupt")))


def ranking(seed: int = 0, method: str = "mine") -> lh.HeadScores:
    values = torch.rand(1, 3, 4, generator=torch.Generator().manual_seed(seed))
    return lh.HeadScores.from_trials(method, values, ["elsewhere"])


def by_loop(
    model: Any, pair: TokenPair, heads: list[str], outside: str, positions: str, mlps: str, means: Any
) -> float:
    """One full forward of the clean prompt; everything that is not kept is set by hand, row by row."""
    names = [f"blocks.{layer}.{hook}" for layer in range(3) for hook in ("attn.hook_z", "hook_mlp_out")]
    with torch.no_grad(), recording(model, names) as seen:
        model(pair.corrupt[None])
    corrupt = {name: parts[0] for name, (parts,) in seen.items()}
    start, end = pair.answer
    rows = range(start - 1, end - 1) if positions == "answer" else range(len(pair))

    def z_hook(layer: int) -> Any:
        def hook(z: torch.Tensor, hook: Any) -> torch.Tensor:
            split, other = z.clone().reshape(1, len(pair), 4, -1), corrupt[f"blocks.{layer}.attn.hook_z"]
            for head, row in itertools.product(range(4), rows):
                if f"L{layer}H{head}" not in heads:
                    split[0, row, head] = {
                        "corrupt": lambda row=row, head=head: other.reshape(len(pair), 4, -1)[row, head],
                        "mean": lambda row=row, head=head: means.z[layer, head],
                        "zero": lambda row=row, head=head: torch.zeros(split.shape[-1]),
                    }[outside]()
            return split.reshape(z.shape)

        return hook

    def mlp_hook(layer: int) -> Any:
        def hook(x: torch.Tensor, hook: Any) -> torch.Tensor:
            x = x.clone()
            for row in rows:
                x[0, row] = corrupt[f"blocks.{layer}.hook_mlp_out"][row]
            return x

        return hook

    hooks = [(f"blocks.{layer}.attn.hook_z", z_hook(layer)) for layer in range(3)]
    hooks += [(f"blocks.{layer}.hook_mlp_out", mlp_hook(layer)) for layer in range(3)] if mlps == "corrupt" else []
    with torch.no_grad(), hooked(model, hooks):
        logits = model(pair.clean[None])[:, start - 1 : end - 1].float()
    return float(answer_logprob(logits, pair.gold)[0])


@pytest.mark.slow
def test_every_way_equals_a_loop_of_full_forwards(arch: str, model: Any) -> None:
    pair, means = random_pair(), lh.mean_activations(model, lh.EncodedTrial(torch.arange(5, 25), None, "x", [3], "m"))
    for outside, positions, mlps in WAYS:
        given = {"reference": means} if outside == "mean" else {}
        ways: Any = {"outside": outside, "positions": positions, "mlps": mlps}
        found = lh.faithfulness(
            model,
            trial_of(pair),
            ranking(),
            ks=(2, 5),
            controls=(),
            progress=False,
            **ways,
            **given,
        )
        for row in found.per_trial.to_dict("records"):
            kept = row["heads"].split(",")
            expected = by_loop(model, pair, kept, outside, positions, mlps, means)
            assert row[found.metric] == pytest.approx(expected, abs=2e-4), (outside, positions, mlps, row)
    assert not has_hooks(model)


def test_f_is_0_without_heads_1_with_all_and_follows_its_formula(gqa: Any) -> None:
    pairs = [trial_of(random_pair(seed)) for seed in range(6)]
    controls = Controls(("bottom", "random"), draws=3, trials=None)
    found = lh.faithfulness(
        gqa, pairs, [ranking(), ranking(1, "other")], ks=(2, 6), controls=controls, progress=False, positions="all"
    )
    frame = found.frame.set_index(["method", "set", "k"])
    assert frame.loc[("none", "none", 0), "value"] == 0
    assert frame.loc[(ALL, "given", 12), "value"] == 1
    means = found.per_trial.groupby(["method", "set", "k"])[found.metric].mean()
    gap = means[(ALL, "given", 12)] - means[("none", "none", 0)]
    for key in [("mine", "top", 2), ("other", "top", 6), ("mine", "bottom", 6), ("any", "random", 2)]:
        assert frame.loc[key, "value"] == pytest.approx((means[key] - means[("none", "none", 0)]) / gap, abs=1e-5)
    both = found.differences().set_index(["against", "set", "k"])
    expected = frame.loc[("mine", "top", 2), "value"] - frame.loc[("other", "top", 2), "value"]
    assert both.loc[("other", "top", 2), "difference"] == pytest.approx(expected, abs=1e-5)
    assert len(found.plot().data) == 4


def additive(values: list[float], shares: list[tuple[float, int]]) -> FaithfulnessCurve:
    """A curve of which every pair has the same values, at 0 heads, between, and all ten heads."""
    rows = []
    for (_, k), value in zip(shares, values, strict=True):
        where = ("none", "none") if k == 0 else (ALL, "given") if k == 10 else ("m", "top")
        rows += [
            {"method": where[0], "set": where[1], "k": k, "draw": 0, "heads": "", "trial": f"t{i}", "value": value - i}
            for i in range(6)
        ]
    scores = lh.HeadScores.from_trials("m", torch.arange(10.0).reshape(1, 2, 5), ["a"])
    return FaithfulnessCurve(pd.DataFrame(rows), {"m": scores}, "logprob", "free", (2, 5), shares, 8).checked()


@pytest.mark.slow
@pytest.mark.parametrize(("outside", "kept_first"), itertools.product(("corrupt", "zero"), (True, False)))
def test_it_only_grows_where_heads_only_add(outside: Any, kept_first: bool) -> None:
    """Five heads write the answer, each for itself; decoys and noise write nothing that matters. In any order, f never falls."""
    truth = lh.planted_model(copiers=2, writers=3, suppressors=0, decoys=2, backups=0, chains=0, seed=4)
    pairs = [
        replace(both[0], corrupt=both[1].tokens)
        for both in zip(truth.trials(3), truth.trials(3, corrupt=True), strict=True)
    ]
    heads, writing = list(truth.roles), set(truth.of("copier", "writer"))
    order = torch.randperm(16, generator=torch.Generator().manual_seed(3)).tolist()
    ranked = [heads[place] for place in order]
    if kept_first:
        ranked.sort(key=lambda head: head not in writing)
    values = torch.zeros(1, 4, 4)
    for place, head in enumerate(ranked):
        values[0, head.layer, head.head] = 16 - place
    scores = lh.HeadScores.from_trials("an order", values, ["elsewhere"])
    found = lh.faithfulness(
        truth.model, pairs, scores, ks=range(1, 16), outside=outside, controls=(), progress=False, positions="all"
    )
    grown = found.frame.query("set == 'top'").sort_values("k")["value"].to_numpy()
    steps = np.diff(np.concatenate([[0], grown, [1]]))  # All heads are 1, none are 0.
    writes = np.array([head in writing for head in ranked])
    assert (steps[writes] > 0.05).all()
    assert (np.abs(steps[~writes]) < 0.03).all()


def test_areas_are_trapezoids_over_shares_and_their_logarithms() -> None:
    shares = [(0.0, 0), (0.2, 2), (0.5, 5), (1.0, 10)]
    found = additive([-4.0, -2.0, 1.0, 0.0], shares)  # f: 0, 0.5, 1.25, 1
    assert found.cpr().value == pytest.approx(0.05 + 0.2625 + 0.5625)
    assert found.cmd() == pytest.approx(0.15 + 0.3 * 0.375 + 0.5 * 0.125)
    ends = found.frame.set_index("k")[["value", "low", "high"]]
    assert (tuple(ends.loc[0]), tuple(ends.loc[10])) == ((0, 0, 0), (1, 1, 1))
    logs = [math.log(0.5 / 0.2) * 0.875, math.log(2) * 1.125]
    assert found.cpr(scale="log").value == pytest.approx(sum(logs) / math.log(5))
    assert trapezoid_weights([0.001, 0.002, 1.0], "linear") == pytest.approx(np.array([0.0005, 0.4995, 0.499]))
    assert (found.heads_for(share=0.8), found.heads_for(share=0.5), found.heads_for(share=1.3)) == (5, 2, None)
    worse = additive([-4.0, 0.0, -3.0, 0.0], shares)  # f: 0, 1, 0.25, 1: what 2 heads reach, 5 lose again
    assert worse.heads_for(share=0.8) is None
    with pytest.raises(ValueError, match="scale='sqrt'"):
        found.cpr(scale="sqrt")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nothing was measured for m bottom: there is m top"):
        found.cmd(set="bottom")
    with pytest.raises(ValueError, match="lead='x'"):
        found.differences(lead="x")


def test_the_benchmark_s_shares_are_kept_where_they_are_no_head(gqa: Any) -> None:
    found = lh.faithfulness(
        gqa, trial_of(random_pair()), ranking(), ks="mib", controls=(), progress=False, positions="all"
    )
    assert [k for _, k in found.shares] == [0, 0, 0, 0, 0, 0, 1, 2, 6, 12]
    assert found.cpr().value == pytest.approx(
        float(np.dot(trapezoid_weights([s for s, _ in found.shares], "linear"), _values(found)))
    )


def _values(found: FaithfulnessCurve) -> list[float]:
    names = {0: Condition.none(), 12: Condition.given(ALL, 12)}
    return [found.faithfulness(names.get(k, Condition.top("mine", k))).value for _, k in found.shares]


def test_node_importances_are_written_as_the_benchmark_reads_them(tmp_path: Path) -> None:
    found = additive([-4.0, -2.0, 1.0, 0.0], [(0.0, 0), (0.2, 2), (0.5, 5), (1.0, 10)])
    written = json.loads(found.to_mib(tmp_path / "nodes.json").read_text())
    assert written["cfg"] == {"n_layers": 2, "n_heads": 5, "parallel_attn_mlp": False, "d_model": 8}
    assert written["nodes"]["a1.h3"] == {"in_graph": False, "score": 8.0}
    assert set(written["nodes"]) == {"input", "logits", "m0", "m1", *(f"a{i}.h{j}" for i in range(2) for j in range(5))}
    assert written["edges"] == {}


def test_continues_from_its_folder(gqa: Any, tmp_path: Path) -> None:
    how: Any = {"controls": (), "out": tmp_path, "progress": False}
    one, again = (
        lh.faithfulness(gqa, trial_of(random_pair()), ranking(), ks=(2,), **{"positions": "all", **how})
        for _ in range(2)
    )
    assert one.frame.equals(again.frame)
    with pytest.raises(ValueError, match="outside"):
        lh.faithfulness(gqa, trial_of(random_pair()), ranking(), ks=(2,), outside="zero", **{"positions": "all", **how})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ks": (13,)}, "k = 13: the model has 12 heads"),
        ({"ks": "all"}, "ks='all'"),
        ({"outside": "noise"}, "outside='noise'"),
        ({"outside": "mean"}, "outside='mean' needs reference"),
        ({"mlps": "zero"}, "mlps='zero'"),
        ({"positions": "some"}, "positions='some'"),
        ({"metric": "kl"}, "metric='kl' is 0 for the clean run"),
        ({"rankings": lh.HeadScores.from_trials("m", torch.rand(1, 2, 4), ["a"])}, "2 layers"),
        (
            {"rankings": lh.HeadScores.from_trials("m", torch.rand(1, 3, 4), ["random-1"])},
            "ranking 'm' was made on 1 of the trials",
        ),
        ({"metric": lambda logits, gold: torch.zeros(len(logits))}, "with all heads and with none"),
    ],
)
def test_what_does_not_fit_is_named(gqa: Any, given: dict[str, Any], message: str) -> None:
    settings = {"rankings": ranking(), "ks": (2,), "controls": (), "progress": False, **given}
    with pytest.raises(ValueError, match=message):
        lh.faithfulness(gqa, trial_of(random_pair()), **{"positions": "all", **settings})
    assert not has_hooks(gqa)
    assert lh.patch_heads(gqa, trial_of(random_pair()), progress=False).values.shape == (3, 4)


@pytest.mark.slow
def test_agrees_with_transformer_lens_where_it_runs() -> None:
    """TransformerLens keeps edges: those that a head does not write are kept, those of the heads outside are not."""
    analysis = pytest.importorskip("transformer_lens.tools.analysis.attribution_patching")
    if not hasattr(analysis, "faithfulness"):
        pytest.skip("this TransformerLens has no faithfulness")
    model, pair, kept = tiny("gpt2"), random_pair(3, n=10, answer=1, changed=slice(4, 6)), ["L0H1", "L1H3", "L2H0"]
    clean, corrupt = (tokens[None, :-1] for tokens in (pair.clean, pair.corrupt))

    def metric(logits: torch.Tensor) -> torch.Tensor:
        return logits[0, -1].log_softmax(-1)[int(pair.gold[0])]

    with analysis._edge_hook_flags(model):
        names = analysis._edge_hook_names(3) + analysis._attn_write_hook_names(3)
        cache = analysis.cache_activation_and_gradient(
            model, corrupt, metric, names_filter=names, compute_gradient=False
        )
        edges = analysis.enumerate_edges(model, cache)
    inside = [
        (writer, reader)
        for writer, reader in edges
        if writer.kind != "attn_head_out" or f"L{writer.layer}H{writer.head}" in kept
    ]
    theirs = analysis.faithfulness(model, clean, corrupt, metric, inside)
    scores = torch.zeros(1, 3, 4)
    for head in map(lh.Head.parse, kept):
        scores[0, head.layer, head.head] = 1
    mine = lh.HeadScores.from_trials("mine", scores, ["elsewhere"])
    found = lh.faithfulness(model, trial_of(pair), mine, ks=(3,), controls=(), progress=False, positions="all")
    value = found.draws(Condition.top("mine", 3)).iloc[0, 0]
    expected = theirs.corrupt_metric + theirs.recovered * (theirs.full_metric - theirs.corrupt_metric)
    assert value == pytest.approx(expected, abs=1e-4)
    assert abs(theirs.recovered - 1) > 0.01


def test_means_of_the_evaluated_pairs_are_refused(gqa: Any) -> None:
    pair = random_pair()
    trial = lh.EncodedTrial(pair.clean[:-3], None, "x", pair.gold, pair.id)
    means = lh.mean_activations(gqa, trial, progress=False)
    with pytest.raises(ValueError, match="the reference was computed on 1 of the evaluation trials"):
        lh.faithfulness(
            gqa,
            trial_of(pair),
            ranking(),
            ks=(2,),
            outside="mean",
            reference=means,
            controls=(),
            progress=False,
            positions="all",
        )
