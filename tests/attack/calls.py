"""A valid call of every public function that takes more than a file, for one argument at a time to be replaced by a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

import lens_heads as lh
from lens_heads import compare, deploy, stats, tasks, units
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.activations import MeanActivations
from lens_heads.trials.pairs import TokenPair
from tests import zoo
from tests.conftest import random_trial, tiny
from tests.pairs import trial_of

TRIALS = [replace(random_trial(seed, 24 + seed), question=(12, 15)) for seed in range(10)]
Q = dict(progress=False)


def M() -> Any:
    return tiny("llama-gqa")


def scores(seed: int = 0, heads: int = 4, **about: Any) -> HeadScores:
    values = torch.rand(5, 3, heads, generator=torch.Generator().manual_seed(seed))
    return HeadScores.from_trials("mine", values, [f"s{i}" for i in range(5)], **about)


def named(method: str, seed: int = 0) -> HeadScores:
    return replace(scores(seed), method=method)


def _razor() -> dict[str, Any]:
    return dict(induction=named("induction"), echo=named("echo", 1), group=2)


def vectors(**about: Any) -> lh.HeadVectors:
    return lh.HeadVectors(torch.ones(3, 4, 8), **about)


def means() -> MeanActivations:
    return MeanActivations(torch.zeros(3, 4, 8), torch.zeros(3, 4, 8), ("a",))


def pair(seed: int = 0) -> lh.EncodedTrial:
    clean = torch.randint(3, zoo.VOCAB, (20,), generator=torch.Generator().manual_seed(seed))
    corrupt = clean.clone()
    corrupt[5:9] = (clean[5:9] + 7) % 200 + 3
    return trial_of(TokenPair(clean, corrupt, (17, 20), f"pair-{seed}"))


@cache
def curve() -> Any:
    return lh.ablation_curve(M(), TRIALS[:6], scores(), ks=[1], kind="zero", generate=False, controls="random", **Q)  # type: ignore[arg-type]


def chosen() -> list[Any]:
    """Trials with choices."""
    return [replace(one, choices=("x", "y"), choice_tokens=(one.answer_tokens, one.answer_tokens + 1)) for one in TWO]


PAIRS = [pair(seed) for seed in range(2)]
TWO, QUERY = TRIALS[:2], lh.DocumentTrial("q", "a b", (lh.Document("one", id="1"), lh.Document("two", id="2")), ("1",))
NOWHERE = Path("/nowhere/at/all")

CALLS: dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]]]] = {
    "ablate": (lh.ablate, lambda: dict(model=M(), heads="L0H1", kind="zero")),
    "steer": (lh.steer, lambda: dict(model=M(), heads="L0H1", vectors=vectors())),
    "patch": (lh.patch, lambda: dict(model=M(), heads="L0H1", clean=PAIRS[0])),
    "working": (lh.worker_pool, lambda: dict(model=M(), workers=2)),
    "streaming_cache": (lh.evidence.streaming_cache, lambda: dict(model=M(), heads=[])),
    "ablation_curve": (
        lh.ablation_curve,
        lambda: dict(model=M(), trials=TRIALS, rankings=scores(), ks=[1], kind="zero", controls=(), **Q),
    ),
    "aie": (
        lh.average_indirect_effect,
        lambda: dict(model=M(), trials=TRIALS, vectors=vectors(), metric="first_token_prob", **Q),
    ),
    "attribute_ablation": (lh.attribute_ablation, lambda: dict(model=M(), trials=TRIALS, kind="zero", **Q)),
    "attribution_patch": (lh.attribution_patch, lambda: dict(model=M(), trials=PAIRS, positions="all", **Q)),
    "check": (lh.check_model, lambda: dict(model=M())),
    "contrast": (lh.contrast, lambda: dict(model=M(), trials=TWO, heads="L0H1", kind="zero", **Q)),
    "describe": (lh.describe, lambda: dict(model=M(), heads="L0H1", **Q)),
    "evaluate": (lh.evaluate, lambda: dict(model=M(), trials=TWO, **Q)),
    "explore": (lh.explore, lambda: dict(model=M(), trials=TWO, rankings=scores())),
    "faithfulness": (
        lh.faithfulness,
        lambda: dict(model=M(), trials=PAIRS, rankings=scores(), ks=2, controls=(), positions="all", **Q),
    ),
    "influence": (lh.influence, lambda: dict(model=M(), texts="hello world", heads="L0H1", kind="uniform", **Q)),
    "knockout_heads": (lh.knockout_heads, lambda: dict(model=M(), trials=TWO, kind="uniform", **Q)),
    "localize_heads": (
        lh.localize_heads,
        lambda: dict(model=M(), trials=TRIALS, n_masks=20, sparsity=0.2, k=2, kind="zero", **Q),
    ),
    "look": (lh.look, lambda: dict(model=M(), trial=TRIALS[0], generated=True)),
    "match_heads": (lh.match_heads, lambda: dict(model_a=M(), model_b=M(), texts=["hello there " * 6] * 3, **Q)),
    "mean_activations": (lh.mean_activations, lambda: dict(model=M(), trials=TWO, **Q)),
    "trial_activations": (lh.trial_activations, lambda: dict(model=M(), trial=TRIALS[0])),
    "row_activations": (lh.row_activations, lambda: dict(model=M(), trials=TWO, **Q)),
    "patch_heads": (lh.patch_heads, lambda: dict(model=M(), trials=PAIRS, **Q)),
    "path_patch": (lh.path_patch, lambda: dict(model=M(), senders=["L0H1"], receivers="logits", trials=PAIRS, **Q)),
    "planted": (lh.planted_model, lambda: dict()),
    "probe_heads": (lh.probe_heads, lambda: dict(model=M(), trials=TRIALS, labels=[0, 1] * 5, folds=2, **Q)),
    "prompt_trial": (lh.prompt_trial, lambda: dict(model=zoo.tokenizer(), prompt="hello b", answer="c")),
    "prune": (lh.prune, lambda: dict(model=M(), heads="L0H1", path=NOWHERE)),
    "razor_attention_heads": (
        lh.razor_attention_heads,
        lambda: dict(induction=named("induction"), echo=named("echo", 1), group=2),
    ),
    "read_gates": (lh.read_gates, lambda: dict(path=NOWHERE)),
    "write_gates": (lh.write_gates, lambda: dict(scores=scores(heads=2, unit="kv_head"), path=NOWHERE)),
    "load_heads": (lh.load_heads, lambda: dict(path=NOWHERE)),
    "recovery": (
        lh.recovery,
        lambda: dict(
            model=M(), trials=TWO, ablated="L1H1", patched="L0H0", controls=["random"], fair=False, kind="zero", **Q
        ),
    ),
    "reinforce": (lh.reinforce, lambda: dict(model=M(), trials=TWO, **Q)),
    "rerank": (lh.rerank, lambda: dict(model=M(), heads="L0H1", query="a b", documents=["one two", "three four"])),
    "score_documents": (lh.score_documents, lambda: dict(model=M(), trials=[QUERY], **Q)),
    "score_heads": (lh.score_heads, lambda: dict(model=M(), trials=TWO, methods="locos", **Q)),
    "streaming": (lh.streaming, lambda: dict(model=M(), trials=TWO, rankings={"r": scores()}, **Q)),
    "task_vectors": (lh.task_vectors, lambda: dict(model=M(), trials=TWO)),
    "token_curves": (lh.token_curves, lambda: dict(model=M(), text="hello world and more text " * 4)),
    "why": (lh.why, lambda: dict(model=M(), prompt="hello b", answer="c", kind="zero")),
    "attribute_queries": (lh.ranking.attribute_queries, lambda: dict(model=M(), trials=PAIRS, **Q)),
    "gradient_importance": (lh.ranking.gradient_importance, lambda: dict(model=M(), trials=TWO, **Q)),
    "importance": (lh.ranking.importance, lambda: dict(scores=scores())),
    "repair": (lh.evidence.repair, lambda: dict(model=M(), heads="L0H1", trials=chosen(), **Q)),
    "sahara": (lh.ranking.sahara, lambda: dict(model=M(), trials=TRIALS[:3], kind="uniform", **Q)),
    "trace_circuit": (lh.ranking.trace_circuit, lambda: dict(model=M(), trials=PAIRS, **Q)),
    "concentration": (lh.inspection.concentration, lambda: dict(scores=scores())),
    "kv_groups": (lh.inspection.kv_groups, lambda: dict(scores=scores(), k=2, group=2)),
    "literalness": (lh.inspection.literalness, lambda: dict(model=M(), trials=TWO, **Q)),
    "provenance": (lh.inspection.provenance, lambda: dict(model=M(), trials=TWO, heads="L0H1", **Q)),
    "highest_first": (units.highest_first, lambda: dict(scores=scores())),
    "query_heads": (units.query_heads, lambda: dict(kv_heads="L0K1", group=2)),
    "to_kv_heads": (units.to_kv_heads, lambda: dict(scores=scores(), group=2)),
    "to_query_heads": (units.to_query_heads, lambda: dict(scores=scores(unit="kv_head"), group=2)),
    "duo": (lh.ranking.duo, lambda: dict(model=M(), trials=TWO, sink=1, recent=4, **Q)),
    "hardkuma": (lh.ranking.hardkuma, lambda: dict(model=M(), trials=TWO, sink=1, recent=4, **Q)),
    "head_gating": (lh.ranking.head_gating, lambda: dict(model=M(), trials=TWO, **Q)),
    "lofit": (lh.ranking.lofit, lambda: dict(model=M(), trials=TRIALS, **Q)),
    "soft_injection": (lh.ranking.soft_injection, lambda: dict(model=M(), trials=TRIALS, vectors=vectors(), **Q)),
    "passkeys": (lh.ranking.passkeys, lambda: dict(model=M(), n=1, lengths=(300, 400), keys=1, words=1)),
    "gate_threshold": (lh.heads.gate_threshold, lambda: dict(scores=scores(), share=0.5)),
    "open_gates": (lh.heads.open_gates, lambda: dict(scores=scores())),
    "prefill_ratio": (deploy.prefill_ratio, lambda: dict(before=M(), after=M(), tokens=4)),
    "lowest_groups": (deploy.lowest_groups, lambda: dict(scores=scores(), shape=lh.head_geometry(M()), k=1)),
    "checkpoint_series": (compare.checkpoint_series, lambda: dict(checkpoints={"a": scores(), "b": scores(1)}, k=2)),
    "compare_checkpoints": (compare.compare_checkpoints, lambda: dict(before=scores(), after=scores(1), k=2)),
    "head_signatures": (compare.head_signatures, lambda: dict(model=M(), texts=["hello there " * 6] * 2, **Q)),
    "jaccard_curve": (compare.jaccard_curve, lambda: dict(a=scores(), b=scores(1), ks=[1, 2])),
    "overlap": (compare.overlap, lambda: dict(a=scores(), b=scores(1), k=2)),
    "overlap_by_depth": (compare.overlap_by_depth, lambda: dict(a=scores(), b=scores(1), k=2, bins=2)),
    "rank_correlation": (compare.rank_correlation, lambda: dict(a=scores(), b=scores(1))),
    "ov_similarity": (compare.ov_similarity, lambda: dict(model=M())),
    "weight_change": (
        compare.weight_change,
        lambda: dict(before=M(), after=zoo.bridge("llama-gqa", hf=zoo.hf_model("llama-gqa", seed=7))),
    ),
    "common_texts": (lh.ranking.common_texts, lambda: dict(n=2)),
    "draw_masks": (lh.ranking.draw_masks, lambda: dict(design="bernoulli", n_masks=20, n_layers=3, n_heads=4)),
    "generality": (
        lh.evidence.generality,
        lambda: dict(model=M(), rankings=scores(), trials={"a": TWO, "b": TRIALS[2:4]}, kind="zero", **Q),
    ),
    "search": (lh.ranking.search, lambda: dict(model=M(), trials=TRIALS[:3], held_out=TRIALS[3:], kind="zero", **Q)),
    "universal_heads": (
        lh.compare.universal_heads,
        lambda: dict(rankings={"a": scores(), "b": scores(1), "c": scores(2)}),
    ),
    "planted_quality": (
        lh.sanity.planted_quality,
        lambda: dict(rank=lambda one: lh.sanity.random_ranking(one.model), seeds=1),
    ),
    "without_needle": (lh.sanity.without_needle, lambda: dict(trials=TWO)),
    "repeated": (lh.repeated_blocks, lambda: dict(model=M())),
    "plain_texts": (lh.plain_texts, lambda: dict(texts="hello world")),
    "context_pairs": (lh.context_pairs, lambda: dict(trials=TWO)),
    "harms": (lh.verdicts.harms, lambda: dict(curve=curve(), ranking="mine", k=1)),
    "breaks": (lh.verdicts.breaks, lambda: dict(curve=curve(), ranking="mine", k=1)),
    "spared": (lh.verdicts.spared, lambda: dict(curve=curve(), ranking="mine", k=1)),
    "smallest_k": (lh.verdicts.smallest_k, lambda: dict(curve=curve(), ranking="mine")),
    "capitals": (tasks.capitals, lambda: dict(n=2)),
    "induction": (tasks.induction, lambda: dict(n=2)),
    "key_value": (tasks.key_value, lambda: dict(n=2)),
    "ioi": (tasks.ioi, lambda: dict(n=2)),
    "arithmetic": (tasks.arithmetic, lambda: dict(n=2)),
    "word_pairs": (tasks.word_pairs, lambda: dict(n=2)),
    "copy_colors": (tasks.copy_colors, lambda: dict(n=2)),
    "greater_than": (tasks.greater_than, lambda: dict(n=2)),
    "packaged": (tasks.packaged, lambda: dict(n=2)),
    "bootstrap_means": (stats.bootstrap_means, lambda: dict(values=torch.rand(6, 2))),
    "top_k_stability": (stats.top_k_stability, lambda: dict(per_trial=torch.rand(6, 4).numpy(), k=2)),
}
