"""Every function on a model that is elsewhere, and on one spread over two devices: no mixture, and the CPU's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads import causal, compare, controls, localize, probes
from lens_heads.interventions.activations import trial_activations
from lens_heads.trials.documents import EncodedDocuments
from lens_heads.trials.encoded import EncodedTrial
from tests import zoo
from tests.conftest import few_shot, random_trial
from tests.devices import CPU, FIRST, Elsewhere, device_of, on_one, spread

QUIET: dict[str, Any] = {"progress": False}
HEADS = ["L0H1", "L1H2", "L2H0"]
SCORES = lh.HeadScores("known", torch.arange(12.0).reshape(3, 4), torch.arange(12.0).reshape(1, 3, 4), ("other",))


def trials(n: int = 3) -> list[EncodedTrial]:
    return [random_trial(seed, n=24 - 2 * seed) for seed in range(n)]


def pairs(n: int = 2) -> list[lh.TokenPair]:
    return causal.make_pairs(trials(n), zoo.tokenizer(), lh.geometry(plain("llama-gqa")))

CASES: dict[str, Callable[[Any], Any]] = {
    "check": lambda m: lh.check(m),
    "score forced": lambda m: lh.score_heads(m, trials(), list(lh.SCORERS), teacher_forced=True, null_spans=2, **QUIET),
    "score forced exact b2": lambda m: lh.score_heads(m, trials(), teacher_forced=True, direction="exact", batch_size=2, **QUIET),
    "score decoded": lambda m: lh.score_heads(m, trials(), max_new_tokens=3, **QUIET),
    "score decoded exact b2": lambda m: lh.score_heads(m, trials(), max_new_tokens=3, direction="exact", batch_size=2, **QUIET),
    "score named": lambda m: lh.score_heads(m, trials(), ["locos_name", "locos_beside", "locos_rest", "task_kv", "task_kv_write"], teacher_forced=True, **QUIET),
    "repeated": lambda m: lh.score_heads(m, probes.repeated(m, block=8), **QUIET),
    "text": lambda m: lh.score_heads(m, probes.text(["the cat sat on the mat, and the cat"]), **QUIET),
    "context": lambda m: lh.score_heads(m, probes.pair(trials()), **QUIET),
    "weights": lambda m: lh.score_heads(m, probes.weights({"x": [("a", "b"), ("c", "d"), ("e", "f")]}), **QUIET),
    "look": lambda m: lh.look(m, trials()[0]),
    "look generated": lambda m: lh.look(m, trials()[0], generated=True, max_new_tokens=3),
    "token curves": lambda m: lh.token_curves(m, "the cat sat on the mat, and the cat"*4),
    "provenance": lambda m: lh.anatomy.provenance(m, trials(), HEADS),
    "literalness": lambda m: lh.anatomy.literalness(m, trials(), HEADS),
    "rerank": lambda m: lh.rerank(m, HEADS, "who?", ["a cat", "a dog"]),
    "mean": lambda m: lh.mean_activations(m, trials(), **QUIET),
    "evaluate": lambda m: lh.evaluate(m, trials(), batch_size=2, max_new_tokens=3, **QUIET),
    "ablate": None,
    "curve": lambda m: lh.ablation_curve(m, trials(), SCORES, ks=(1, 3), max_new_tokens=3, reference=lh.mean_activations(m, trials(), **QUIET), batch_size=2, controls=["random"], **QUIET),
    "curve shared": lambda m: lh.ablation_curve(m, few_shot((5,7,6)), SCORES, ks=(1, 3), max_new_tokens=3, kind="zero", controls=["random"], **QUIET),
    "influence": lambda m: lh.influence(m, ["the cat sat on the mat"], HEADS, **QUIET),
    "patch heads": lambda m: lh.patch_heads(m, pairs(), **QUIET),
    "patch heads all": lambda m: lh.patch_heads(m, pairs(), positions="all", **QUIET),
    "path": lambda m: lh.path_patch(m, None, "logits", pairs(1), **QUIET),
    "path q": lambda m: lh.path_patch(m, None, ["L2H1"], pairs(1), **QUIET),
    "path v": lambda m: lh.path_patch(m, None, ["L2H1"], pairs(1), component="v", freeze_mlps=True, **QUIET),
    "attribution": lambda m: lh.attribution_patch(m, pairs(), **QUIET),
    "attribution answer ig": lambda m: lh.attribution_patch(m, pairs(), positions="answer", ig_steps=2, **QUIET),
    "attribute ablation": lambda m: lh.attribute_ablation(m, trials(), reference=lh.mean_activations(m, trials(), **QUIET), **QUIET),
    "gradient importance": lambda m: causal.gradient_importance(m, trials(), **QUIET),
    "attribute queries": lambda m: causal.attribute_queries(m, pairs(), **QUIET),
    "knockout": lambda m: lh.knockout_heads(m, ["the cat sat on"], **QUIET),
    "knockout subspace": lambda m: lh.knockout_heads(m, ["the cat sat on", "a dog lay on"], measure="subspace", kind="zero", **QUIET),
    "sahara": lambda m: causal.sahara(m, ["the cat sat on", "a dog lay on"], k=2, **QUIET),
    "faithfulness": lambda m: lh.faithfulness(m, pairs(), SCORES, ks=(1, 3), controls=["random"], corruption="remove", **QUIET),
    "faithfulness mean": lambda m: lh.faithfulness(m, pairs(), SCORES, ks=(1, 3), controls=["random"], corruption="remove", outside="mean", mlps="corrupt", reference=lh.mean_activations(m, trials(), **QUIET), **QUIET),
    "recovery": lambda m: lh.recovery(m, ["L0H1"], ["L1H2"], trials(), draws=2, flipped=False, scores=SCORES, **QUIET),
    "repair": lambda m: causal.repair(m, ["L0H1"], trials(), draws=2, **QUIET),
    "circuit": lambda m: causal.trace_circuit(m, pairs(1), corruption="remove", share=0.2, **QUIET),
    "localize": lambda m: lh.localize_heads(m, trials(), n_masks=10, sparsity=0.2, k=2, **QUIET),
    "localize pattern": lambda m: localize.MaskedMetric(m, trials(), kind="uniform", batch_size=2, **QUIET).values([["L0H1", "L2H2"], ["L1H1"], []]),
    "in turn": lambda m: lh.localize_heads(m, trials(), method="attribution_in_turn", k=2, **QUIET),
    "match": lambda m: lh.match_heads(m, m, texts=compare.common_texts(4), resamples=2, permutations=10, **QUIET),
    "describe": lambda m: lh.describe(m, HEADS, text=["the cat sat on the mat, and the cat"], **QUIET),
    "ov": lambda m: compare.ov_similarity(m),
    "weight change": lambda m: compare.weight_change(m, m),
    "why": lambda m: lh.why(m, "the cat sat on the mat. the cat sat on the", answer=" mat", needle="the cat sat on the mat.", kind="zero", draws=3, max_new_tokens=3),
    "shuffled": lambda m: lh.score_heads(controls.shuffled_outputs(m), trials(), "locos", teacher_forced=True, **QUIET),
}
for kind in ("zero","mean","resample","patch","scale","query_mean","query_zero","uniform","streaming","identity"):
    def case(m, kind=kind):
        ref = lh.mean_activations(m, trials(), **QUIET) if "mean" in kind else trial_activations(m, trials()[1]) if kind in ("resample","patch") else None
        opts = {"factor": 0.5} if kind=="scale" else {}
        with lh.ablate(m, HEADS, kind, ref, **opts):
            return lh.evaluate(m, trials(), batch_size=2, max_new_tokens=3, **QUIET)
    CASES["ablate "+kind]=case
del CASES["ablate"]

@cache
def plain(name: str) -> Any:
    return zoo.bridge(name)
