"""Inputs of the newer parts that no annotation excludes: sizes, factors, names, blocks inside each other, files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lens_heads as lh
from lens_heads import compare
from lens_heads.deploy.speed import prefill_ratio
from lens_heads.evidence.streaming import streaming_cache
from lens_heads.model.forward import advance, prefill
from lens_heads.model.hooks import hooked
from lens_heads.model.planning import Machine, Sizes, jobs, shape_of
from lens_heads.ranking.causal.circuits import trace_circuit
from lens_heads.runs import checks
from lens_heads.runs.parts import Part
from tests import zoo
from tests.attack.calls import PAIRS, TRIALS, TWO, M, curve, means, scores, vectors
from tests.attack.held import refused
from tests.conftest import tiny

Q: dict[str, Any] = {"progress": False}


def inside(context: Any) -> None:
    with context:
        pass


def ablated(kind: str, **options: Any) -> None:
    inside(lh.ablate(M(), "L0H1", kind=kind, **options))


def mine(view: Any) -> Any:
    return view


def no_number(intact: Any, ablated: Any) -> Any:
    return None


LINES: list[tuple[str, Callable[[], Any], str]] = [
    ("vectors of a list", lambda: lh.HeadVectors([[1]]), "z=[[1]]: must be a dense tensor"),  # type: ignore[arg-type]
    ("gates of a list", lambda: vectors(gates=[1]), "gates=[1]: must be a dense tensor"),
    ("sparse vectors", lambda: lh.HeadVectors(torch.zeros(3, 4, 8).to_sparse()), "must be a dense tensor"),
    ("complex vectors", lambda: lh.HeadVectors(torch.zeros(3, 4, 8) * 1j), "pass a dense one of real numbers"),
    ("a span beyond int64", lambda: ablated("emphasise", factor=2, span=(2, 2**63)), "must be a pair (start, end)"),
    ("chunks beyond int64", lambda: ablated("chunks", n_chunks=3, chunk_size=10**20), f"an integer from 1 to {2**31 - 1}"),
    ("a negative emphasis", lambda: ablated("emphasise", span=(2, 5), factor=-1), "factor=-1.0: must be a finite number of"),
    ("an emphasis that overflows", lambda: ablated("emphasise", span=(2, 5), factor=1e300), "must stay within 1e+12"),
    ("a scale that overflows", lambda: ablated("scale", factor=1e20), "must stay within 1e+12"),
    ("vectors that overflow", lambda: ablated("add", reference=vectors(), factor=1e39), "times vectors of up to 1: must stay"),
    ("a factor beyond floats", lambda: ablated("scale", factor=10**400), "must be a finite number"),
    ("resample without a run", lambda: ablated("resample"), "reference=lh.trial_activations(model, other_trial)"),
    ("lr beyond float32", lambda: lh.ranking.lofit(M(), TRIALS, lr=1e38, **Q), "lr=1e+38: must be a finite number"),
    ("steps without end", lambda: lh.ranking.lofit(M(), TRIALS, steps=10**9, **Q), "steps=1000000000: must be an integer"),
    ("a batch without end", lambda: lh.ranking.lofit(M(), TRIALS, batch_size=10**9, **Q), "batch_size=1000000000"),
    ("a weight that overflows", lambda: lh.ranking.head_gating(M(), TWO, weight=1e20, steps=2, **Q), "gradient is inf"),
    ("a lag that overflows", lambda: lh.ranking.hardkuma(M(), TWO, sink=1, recent=4, lag=1e6, steps=2, **Q), "lag than 1e+06"),
    ("passkeys of one length", lambda: lh.ranking.passkeys(M(), n=1, lengths=400), "lengths=400: must be a tuple of 2"),  # type: ignore[arg-type]
    ("passkeys without end", lambda: lh.ranking.passkeys(M(), n=1, lengths=(10**8, 10**8)), "lengths=100000000"),
    ("rankings that are a number", lambda: lh.streaming(M(), TWO, 3, **Q), "rankings=3: must be a dictionary"),  # type: ignore[arg-type]
    ("a ranking of none", lambda: lh.streaming(M(), TWO, {"r": None}, **Q), "rankings={'r': None}"),  # type: ignore[dict-item]
    ("one share", lambda: lh.streaming(M(), TWO, {"r": scores()}, shares=0.5, **Q), "shares=0.5: must be a list of numbers"),  # type: ignore[arg-type]
    ("a cache of nothing", lambda: inside(streaming_cache(M(), [], sink=4, recent=0)), "recent=0: must be a positive integer"),
    ("a negative sink", lambda: inside(streaming_cache(M(), [], sink=-4, recent=3)), "sink=-4: must be a non-negative integer"),
    ("half a token", lambda: inside(streaming_cache(M(), [], sink=4, recent=2.5)), "recent=2.5"),  # type: ignore[arg-type]
    ("a sink of true", lambda: inside(streaming_cache(M(), [], sink=True, recent=3)), "sink=True"),
    ("tokens below zero", lambda: prefill_ratio(M(), M(), tokens=-5), "tokens=-5: must be a positive integer"),
    ("steps in halves", lambda: lh.look(M(), TRIALS[0], steps=1.5), "steps=1.5: must be an integer from 0 to 2"),  # type: ignore[arg-type]
    ("a chunk of none", lambda: lh.look(M(), TRIALS[0], chunk=0), "chunk=0: must be a positive integer"),
    ("a chunk below zero", lambda: lh.look(M(), TRIALS[0], chunk=-1), "chunk=-1: must be a positive integer"),
    ("half a character", lambda: lh.why(M(), "\ud800a", "x", kind="zero"), "half of a character"),
    ("half a character alone", lambda: lh.knockout_heads(M(), "a\udc00", kind="uniform", **Q), "half of a character"),
    ("no tokenizer", lambda: lh.prompt_trial(None, "a", "x"), "NoneType is no model with a tokenizer"),
    ("a window of true", lambda: lh.planted_model(window=True), "window=True: must be a positive integer, or None"),
    ("layers without end", lambda: lh.planted_model(layers=10**6), "layers=1000000: must be an integer from 1 to 128"),
    ("draws without end", lambda: lh.Controls("random", 10**9), "draws=1000000000: must be an integer"),
    ("a measure of none", lambda: lh.knockout_heads(M(), TWO, kind="zero", measure=no_number, **Q), "the measure gave None"),  # type: ignore[arg-type]
    ("no rankings", lambda: lh.faithfulness(M(), PAIRS, None, positions="all", **Q), "rankings=None: must be a dictionary"),
    ("a component z", lambda: trace_circuit(M(), PAIRS, components=("z",), **Q), "components='z': use 'q', 'k', 'v'"),  # type: ignore[arg-type]
    ("a component without a name", lambda: trace_circuit(M(), PAIRS, components=("",), **Q), "components='': use"),  # type: ignore[arg-type]
    ("a checkpoint called head", lambda: compare.checkpoint_series({"a": scores(), "head": scores(1)}, k=2), "checkpoint 'head'"),
    ("no strength", lambda: lh.probe_heads(M(), TRIALS, labels=[0, 1] * 5, folds=2, strength=0, **Q), "strength=0: the"),
    ("labels in lists", lambda: lh.probe_heads(M(), TRIALS, labels=[[1], [2]] * 5, folds=2, **Q), "label [1]: labels must"),
    ("a ranking not measured", lambda: lh.verdicts.smallest_k(curve(), "zzz"), "ranking 'zzz' was not ablated: use mine"),
    ("true for one", lambda: lh.verdicts.harms(curve(), "mine", True), "k=True was not measured"),
    ("a shard of zero", lambda: inside(lh.sharding(0)), "part=0: use a text such as '0/4'"),  # type: ignore[arg-type]
    ("a part of none", lambda: Part(0, 0), "of=0: must be a positive integer"),
    ("a part beyond all", lambda: Part(3, 2), "index=3: must be an integer from 0 to 1"),
    ("GPUs as text", lambda: inside(lh.worker_pool(M(), 2, num_gpus="1")), "num_gpus='1': use a whole number of GPUs"),  # type: ignore[arg-type]
    ("models of five", lambda: lh.studies.bench(5, "induction"), "models=5: must be names as load_model takes them"),  # type: ignore[arg-type]
    ("two texts for a pair", lambda: lh.patch_heads(M(), [("a", "b")], **Q), "make trials of texts with lh.prompt_trial"),  # type: ignore[list-item]
    ("a bare function", lambda: lh.score_heads(M(), TWO, mine, teacher_forced=True, **Q), "Scorer"),  # type: ignore[arg-type]
    ("a bare function among names", lambda: lh.score_heads(M(), TWO, ["locos", mine], teacher_forced=True, **Q), "Scorer"),  # type: ignore[list-item]
    ("an option misspelled", lambda: lh.score_heads(M(), TWO, method="locos"), "did you mean methods?"),  # type: ignore[call-arg]
    ("numbers without end", lambda: lh.stats.bootstrap_means(torch.rand(6, 2), n=10**9), "n=1000000000: must be an integer"),
    ("a group without end", lambda: lh.units.query_heads("L0H1", 10**9), "group=1000000000"),
]  # fmt: skip


@pytest.mark.parametrize(("run", "says"), [line[1:] for line in LINES], ids=[line[0] for line in LINES])
def test_an_input_out_of_place(run: Callable[[], Any], says: str) -> None:
    refused(run, says, M())


def test_a_junk_lens_is_named(tmp_path: Path) -> None:
    (tmp_path / "junk.safetensors").write_bytes(b"junk")
    refused(
        lambda: lh.score_heads(M(), TWO, "locos", teacher_forced=True, direction=tmp_path / "junk.safetensors", **Q),
        "junk.safetensors: not a safetensors file of a tuned lens",
    )


def test_a_name_that_does_not_exist_is_told_by_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean score_heads"):
        _ = lh.score_head


def test_numbers_beyond_floats_and_numpy_vectors() -> None:
    refused(lambda: checks.finite("x", 10**400), "must be a finite number")
    refused(lambda: checks.share("x", 10**400), "strictly between 0 and 1")
    refused(lambda: checks.finite_values("x", [[1], [2, 3]]), "must be numbers, in rows of one length")
    refused(lambda: checks.one_of("kind", "zeroo", ("zero", "mean")), "kind='zeroo': did you mean 'zero'?")
    assert lh.HeadVectors(np.zeros((3, 4, 8))).z.dtype == torch.float32  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "run",
    [
        lambda: lh.evaluate(M(), TWO, generate=False, **Q),
        lambda: lh.score_heads(M(), TWO, "locos", teacher_forced=True, **Q),
        lambda: lh.attribution_patch(M(), PAIRS, positions="all", **Q),
        lambda: M()(TRIALS[0].tokens[None]),
    ],
)
def test_nothing_runs_as_if_intact_inside_a_streaming_cache(run: Callable[[], Any]) -> None:
    def call() -> None:
        with streaming_cache(M(), [], sink=1, recent=2):
            run()

    refused(call, "streaming", M())


def test_a_pattern_hook_inside_a_streaming_cache_is_refused() -> None:
    tokens = TRIALS[0].tokens[None]

    def call() -> None:
        hook = "blocks.0.attn.hook_pattern", lambda pattern, hook: pattern
        with streaming_cache(M(), [], sink=1, recent=2) as cache, hooked(M(), [hook]), torch.no_grad():
            prefill(M(), tokens[:, :-1], cache)  # type: ignore[arg-type]
            advance(M(), tokens[:, -1:], cache)  # type: ignore[arg-type]

    refused(call, "hooks inside its attention", M())


def test_divergence_is_seen_in_its_first_step() -> None:
    refused(lambda: lh.ranking.lofit(M(), TRIALS, steps=9, lr=1e6, **Q), "the training diverges: its loss is")
    refused(lambda: lh.ranking.lofit(M(), TRIALS, steps=1, lr=1e6, **Q), "its loss of validation is")


def test_the_explorer_forgets_what_it_saw_under_an_intervention() -> None:
    used, fresh = (
        lh.explore(M(), TRIALS[:3], scores(), controls=lh.Controls("random", 1), max_new_tokens=2) for _ in range(2)
    )
    everyone = [f"L{layer}H{head}" for layer in range(3) for head in range(4)]
    with lh.steer(M(), everyone, vectors(), factor=5.0):
        used.run("mean")
        used.trial = 1
        seen = used.look["logprobs"]
    used.trial = 0
    assert used.run("mean")["after"] == fresh.run("mean")["after"]
    used.trial = fresh.trial = 1
    assert used.look["logprobs"] == fresh.look["logprobs"] != seen


def test_the_explorer_forgets_what_it_saw_of_other_weights() -> None:
    model = zoo.bridge("llama-gqa", seed=9)
    explorer = lh.explore(model, TRIALS[:2], scores(), controls=lh.Controls("random", 1), max_new_tokens=2)
    seen = explorer.look["logprobs"]
    with torch.no_grad():
        model.original_model.lm_head.weight.mul_(0.5)
    explorer.run("zero")
    assert explorer.look["logprobs"] != seen


def test_knockout_by_the_needle_is_knockout_by_its_span() -> None:
    """All these trials have their needle at the same place."""
    named, given = (
        lh.knockout_heads(M(), TRIALS[:3], kind="emphasise", span=span, factor=3.0, **Q) for span in ("needle", (7, 11))
    )
    assert named.per_trial.equal(given.per_trial)
    assert float(named.values.abs().max()) > 0


def test_a_plan_of_many_tokens_is_the_sum_over_its_chunks() -> None:
    shape, machine = (
        shape_of('{"model_type": "llama", "num_hidden_layers": 2}'),
        Machine((1e-3, 1e-4, 1e-8, 1e-7), (1e-2, 1e-3)),
    )
    for tokens, past, runs in ((700, 0, 1), (512, 3, 2), (5000, 40, 3), (5, 0, 1)):
        plain, begin = 0.0, 0
        while begin < tokens:
            size = min(512, tokens - begin)
            plain += machine.seconds(shape, size, past + begin, runs)
            begin += size
        assert machine.seconds(shape, tokens, past, runs) == pytest.approx(plain, rel=1e-12)
    assert len(jobs(shape, machine, Sizes(10**8))) == len(jobs(shape, machine, Sizes(10**3)))
    refused(lambda: Sizes(10**11), "context=100000000000")


def test_a_mean_of_another_shape_and_a_planted_truth_by_names() -> None:
    two = lh.MeanActivations(torch.zeros(2, 4, 8), torch.zeros(2, 4, 8), ("a",))
    refused(
        lambda: lh.faithfulness(
            tiny("llama-gqa"), PAIRS, scores(), ks=2, outside="mean", reference=two, **Q, positions="all"
        ),
        "(2, 4, 8)",
    )
    assert means().z.shape == (3, 4, 8)
    planted = lh.planted_model()
    ranking = lh.sanity.random_ranking(planted.model)
    names = [str(head) for head in planted.matters]
    assert planted.quality(ranking, truth=names) == planted.quality(ranking)
    refused(lambda: planted.quality(None), "scores=None: must be a HeadScores")  # type: ignore[arg-type]
    refused(lambda: planted.quality(ranking, truth=["L9H9"]), "head L9H9 does not exist")
