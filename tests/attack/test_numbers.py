"""Whole numbers, seeds and shares: text, booleans, fractions and numbers out of range are refused where they enter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads import tasks
from lens_heads.compare import depth, rankings
from lens_heads.compare.checkpoints import compare_checkpoints
from lens_heads.compare.cka import linear_cka
from lens_heads.compare.overlap import head_overlaps, jaccard_curve, overlap
from lens_heads.compare.universal import universal_heads
from lens_heads.evidence.correlation import correlate
from lens_heads.heads.scores import HeadScores
from lens_heads.inspection.anatomy import kv_groups
from lens_heads.ranking.causal.attribution import attribution_patch
from lens_heads.ranking.causal.patching import patch_heads
from lens_heads.ranking.masks.designs import draw_masks
from lens_heads.ranking.masks.localize import Settings, localize
from lens_heads.ranking.masks.sparse_fit import fit, solve_masks
from lens_heads.ranking.one_pass.common_texts import common_texts
from lens_heads.ranking.one_pass.scorers.contrastive import contrastive
from lens_heads.ranking.one_pass.scorers.core import core
from lens_heads.runs import checks
from lens_heads.runs.options import Run
from lens_heads.studies.capability_paper import presets as capability
from lens_heads.studies.fragile_paper import claims as fragile
from lens_heads.studies.locos_paper import claims as locos
from lens_heads.tasks.prose import haystack
from tests.attack.held import refused
from tests.conftest import random_trial, tiny

POSITIVE, NON_NEGATIVE = "must be a positive integer", "must be a non-negative integer"


def scores(name: str = "m", seed: int = 0) -> HeadScores:
    values = torch.randn(4, 3, 4, generator=torch.Generator().manual_seed(seed))
    return HeadScores.from_trials(name, values, [f"{name}{i}" for i in range(4)])


A, B = scores("a"), scores("b", 1)
MASKS = np.random.default_rng(0).random((20, 3, 4)) < 0.3
TABLE = pd.DataFrame(np.random.default_rng(0).random((2, 5)), index=[1, 2], columns=list("abcde"))
OTHER = pd.DataFrame(np.random.default_rng(1).random((2, 5)), index=[1, 2], columns=list("abcde"))

NUMBERS: list[tuple[Any, str]] = [(x, "must be") for x in (0, -1, 1.0, "1", True, None, float("nan"), [1])]
"""No positive integer."""

POSITIVES: dict[str, Callable[[Any], Any]] = {
    "batch_size": lambda x: Run.of({"batch_size": x}),
    "n": lambda x: A.interval(n=x),
    "n of reliability": lambda x: A.reliability(n=x),
    "n_masks": lambda x: draw_masks("bernoulli", x, 3, 4, 0.3),
    "n_layers": lambda x: draw_masks("bernoulli", 9, x, 4, 0.3),
    "words": lambda x: haystack.__wrapped__(x),
    "digits": lambda x: tasks.arithmetic(n=4, digits=x),
    "n of common texts": lambda x: common_texts(n=x),
    "k": lambda x: overlap(A, B, k=x),
    "k of depth": lambda x: depth.overlap_by_depth(A, B, k=x, bins=2),
    "k of universal heads": lambda x: universal_heads({"a": A, "b": B}, k=x, at_least=2),
    "k of settings": lambda x: Settings(k=x),
    "k of kv groups": lambda x: kv_groups(A, k=x, group=2),
}


@pytest.mark.parametrize(("value", "says"), NUMBERS, ids=[repr(x) for x, _ in NUMBERS])
@pytest.mark.parametrize("argument", POSITIVES)
def test_a_positive_integer(argument: str, value: Any, says: str) -> None:
    if argument == "digits":
        says = "digits="
    refused(lambda: POSITIVES[argument](value), says)


SEEDED: dict[str, Callable[[Any], Any]] = {
    "random heads": lambda x: A.random(2, seed=x),
    "interval": lambda x: A.interval(seed=x),
    "masks": lambda x: draw_masks("bernoulli", 9, 3, 4, 0.3, seed=x),
    "settings": lambda x: Settings(seed=x),
    "arithmetic": lambda x: tasks.arithmetic(n=4, seed=x),
    "packaged": lambda x: tasks.packaged(n=2, seed=x),
    "capitals": lambda x: tasks.capitals(n=4, seed=x),
    "induction": lambda x: tasks.induction(n=4, seed=x),
    "rhyme": lambda x: tasks.rhyme(n=4, seed=x),
    "musique": lambda x: tasks.musique(n=2, seed=x),
    "depth": lambda x: depth.overlap_by_depth(A, B, k=2, bins=2, seed=x),
    "correlate": lambda x: correlate(TABLE, OTHER, seed=x),
    "thirds": lambda x: rankings.by_layer_third(A, B, seed=x),
}
SEEDS = [-1, 1.5, "0", True, None, float("inf"), 2**63]


@pytest.mark.slow
@pytest.mark.parametrize("value", SEEDS, ids=map(repr, SEEDS))
@pytest.mark.parametrize("what", SEEDED)
def test_a_seed(what: str, value: Any) -> None:
    refused(lambda: SEEDED[what](value), f"seed={value!r}: must be")


LINES: list[tuple[str, Callable[[], Any], str]] = [
    ("ks true", lambda: curve(ks=True), "ks=True: must be positive integers"),
    ("ks text", lambda: curve(ks="12"), "ks='12': must be positive integers"),
    ("ks zero", lambda: curve(ks=[0]), "ks=[0]: must be positive integers"),
    ("ks none", lambda: curve(ks=[]), "ks=[]: must be positive integers"),
    ("ks half", lambda: curve(ks=[1.5]), "ks=[1.5]: must be positive integers"),
    ("ks nan", lambda: curve(ks=[float("nan")]), "must be positive integers"),
    ("chunk -1", lambda: score(chunk=-1), f"chunk=-1: {POSITIVE}"),
    ("chunk 0", lambda: score(chunk=0), f"chunk=0: {POSITIVE}"),
    ("chunk text", lambda: score(chunk="8"), f"chunk='8': {POSITIVE}"),
    ("top_k", lambda: contrastive(None, top_k=-1), f"top_k=-1: {NON_NEGATIVE}"),  # type: ignore[arg-type]
    ("tau 0", lambda: core(None, tau=0), "tau=0: must be positive"),  # type: ignore[arg-type]
    ("tau nan", lambda: core(None, tau=float("nan")), "tau=nan: must be a finite number"),  # type: ignore[arg-type]
    ("batch 0", lambda: score(batch_size=0), f"batch_size=0: {POSITIVE}"),
    ("new tokens -1", lambda: score(max_new_tokens=-1), f"max_new_tokens=-1: {NON_NEGATIVE}"),
    ("new tokens 0", lambda: score(max_new_tokens=0), f"max_new_tokens=0: {POSITIVE}"),
    ("evaluate -1", lambda: evaluate(max_new_tokens=-1), f"max_new_tokens=-1: {NON_NEGATIVE}"),
    ("evaluate 0", lambda: evaluate(max_new_tokens=0), "use generate=False"),
    ("evaluate text", lambda: evaluate(batch_size="4"), "batch_size='4'"),
    ("ig_steps", lambda: attribution_patch(MODEL(), [], ig_steps=0, positions="all"), f"ig_steps=0: {POSITIVE}"),
    ("ig_steps true", lambda: attribution_patch(MODEL(), [], ig_steps=True, positions="all"), "ig_steps=True"),
    ("ig_steps text", lambda: attribution_patch(MODEL(), [], ig_steps="2", positions="all"), "ig_steps='2'"),  # type: ignore[arg-type]
    ("heads_per_pass", lambda: patch_heads(MODEL(), [], heads_per_pass=0), f"heads_per_pass=0: {POSITIVE}"),
    ("heads_per_pass half", lambda: patch_heads(MODEL(), [], heads_per_pass=0.5), "heads_per_pass=0.5"),  # type: ignore[arg-type]
    ("means of 0", lambda: lh.mean_activations(MODEL(), TRIALS, n=0), f"n=0: {POSITIVE}"),
    ("means of -1", lambda: lh.mean_activations(MODEL(), TRIALS, n=-1), f"n=-1: {POSITIVE}"),
    ("controls", lambda: lh.Controls(draws=-1), f"draws=-1: {NON_NEGATIVE}"),
    ("controls text", lambda: lh.Controls(draws="3"), "draws='3'"),  # type: ignore[arg-type]
    ("random of 0", lambda: lh.Controls("random", draws=0), "draws=0 leaves no control of random"),
    ("task n text", lambda: tasks.load("capitals", n="abc"), "n='abc': must be an integer"),
    ("task n half", lambda: tasks.load("packaged", n=1.5), "n=1.5: must be an integer"),
    ("task n true", lambda: tasks.load("capitals", n=True), "n=True: must be an integer"),
    ("task n 0", lambda: tasks.load("capitals", n=0), "n=0"),
    ("arithmetic n", lambda: tasks.arithmetic(n="4"), "n='4': must be an integer"),  # type: ignore[arg-type]
    ("length 0", lambda: tasks.packaged(n=2, context_length=0), "context_length=0"),
    ("length text", lambda: tasks.packaged(n=2, context_length="9"), "context_length='9'"),  # type: ignore[arg-type]
    ("story length", lambda: tasks.babilong(context_length=-5), "context_length=-5"),
    ("depths beyond", lambda: tasks.packaged(n=2, depths=[1.5]), "depths=1.5: must be a finite number from 0 to 1"),
    ("depths nan", lambda: tasks.packaged(n=2, depths=[float("nan")]), "depths=nan: must be a finite number"),
    ("depths 0", lambda: tasks.packaged(n=2, depths=0), f"depths=0: {POSITIVE}"),
    ("depths text", lambda: tasks.packaged(n=2, depths="3"), "depths='3'"),  # type: ignore[arg-type]
    ("depths none", lambda: tasks.packaged(n=2, depths=[]), "depths=[]"),
    ("repeats", lambda: tasks.induction(n=2, repeats=1), "repeats=1: must be an integer of at least 2"),
    ("words", lambda: tasks.induction(n=2, words="ten"), "words='ten'"),  # type: ignore[arg-type]
    ("hops", lambda: tasks.musique(n=2, hops="2"), "hops='2'"),  # type: ignore[arg-type]
    ("distractors", lambda: tasks.musique(n=2, distractors=-1), f"distractors=-1: {NON_NEGATIVE}"),
    ("chunk words", lambda: tasks.sec10k_documents(chunk_words=0), f"chunk_words=0: {POSITIVE}"),
    ("documents", lambda: tasks.sec10k_documents(n_documents=-1), f"n_documents=-1: {NON_NEGATIVE}"),
    ("sec10k n", lambda: tasks.sec10k(path="/nowhere", n=0), f"n=0: {POSITIVE}"),
    ("sec10k seed", lambda: tasks.sec10k_documents(path="/nowhere", split_seed=-1), f"split_seed=-1: {NON_NEGATIVE}"),
    ("sec10k words", lambda: tasks.sec10k(words=-1), f"words=-1: {POSITIVE}"),
    ("level 95", lambda: A.interval(level=95), "level=95: must lie strictly between 0 and 1"),
    ("level text", lambda: A.interval(level="0.9"), "level='0.9'"),  # type: ignore[arg-type]
    ("level nan", lambda: A.interval(level=float("nan")), "level=nan"),
    ("alpha", lambda: A.significant(alpha=0), "alpha=0: must lie strictly between 0 and 1"),
    ("p", lambda: rankings.rank_biased_overlap(A, B, p=1), "p=1: must lie strictly"),
    ("alpha of checkpoints", lambda: compare_checkpoints(A, renamed(B, "a"), k=2, alpha=2), "alpha=2: must lie"),
    ("n of checkpoints", lambda: compare_checkpoints(A, renamed(B, "a"), k=2, n=0), f"n=0: {POSITIVE}"),
    ("jaccard ks", lambda: jaccard_curve(A, B, ks=[True]), "ks=[True]"),
    ("jaccard ks text", lambda: jaccard_curve(A, B, ks="12"), "ks='12'"),  # type: ignore[arg-type]
    ("k beyond", lambda: A.top(13), "k=13: must be an integer from 0 to 12, the number of heads that a scores"),
    ("k true", lambda: A.top(True), "k=True: must be an integer"),
    ("k_b", lambda: overlap(A, B, k=2, k_b=-1), "k=-1: must be an integer from 1 to 12"),
    ("bins", lambda: depth.overlap_by_depth(A, B, k=2, bins=4), "bins=4: must be an integer from 1 to 3"),
    ("permutations", lambda: correlate(TABLE, OTHER, permutations=-3), f"permutations=-3: {POSITIVE}"),
    ("permutations text", lambda: correlate(TABLE, OTHER, permutations="9"), "permutations='9'"),  # type: ignore[arg-type]
    (
        "resamples",
        lambda: lh.match_heads(MODEL(), MODEL(), resamples=1),
        "resamples=1: must be an integer of at least 2",
    ),
    (
        "depth_bins",
        lambda: lh.match_heads(MODEL(), MODEL(), depth_bins=9),
        "depth_bins=9: must be an integer from 1 to 3",
    ),
    (
        "cka chunk",
        lambda: linear_cka(torch.ones(9, 1, 2), torch.ones(9, 1, 2), chunk=7),
        "chunk=7: must be an integer of",
    ),
    ("sparsity", lambda: draw_masks("bernoulli", 9, 3, 4, 1.0), "sparsity=1.0: must lie strictly"),
    ("sparsity nan", lambda: Settings(sparsity=float("nan")), "sparsity=nan: must lie strictly"),
    ("sparsity text", lambda: Settings(sparsity="0.1"), "sparsity='0.1'"),  # type: ignore[arg-type]
    ("patience", lambda: Settings(patience=0), f"patience=0: {POSITIVE}"),
    ("n_masks", lambda: Settings(n_masks=4), "n_masks=4: must be an integer of at least 5"),
    ("n_masks text", lambda: Settings(n_masks="200"), "n_masks='200'"),  # type: ignore[arg-type]
    ("alpha of masks", lambda: solve_masks(MASKS, RESPONSE, alpha=-1), "alpha=-1: must be positive and finite"),
    ("alpha nan", lambda: solve_masks(MASKS, RESPONSE, alpha=float("nan")), "alpha=nan: must be a finite number"),
    ("base of true", lambda: solve_masks(MASKS, RESPONSE, base=True), "base=True: must be one finite number"),
    (
        "base of truth values",
        lambda: solve_masks(MASKS, RESPONSE, base=[True, False]),
        "must be one finite number, or one per",
    ),
    ("base of text", lambda: fit(MASKS, RESPONSE, base="0"), "base='0': must be one finite number"),  # type: ignore[arg-type]
    ("k of true", lambda: head_overlaps({"a": A, "b": B}, k=True), "k=True: must be an integer"),
    ("stability", lambda: fit(MASKS, RESPONSE, n_stability=1.5), "n_stability=1.5"),  # type: ignore[arg-type]
    ("bootstrap", lambda: fit(MASKS, RESPONSE, n_bootstrap=0), f"n_bootstrap=0: {POSITIVE}"),
    ("at_least", lambda: universal_heads({"a": A, "b": B}, at_least=3), "at_least=3: must be an integer from 2 to 2"),
    ("tolerance", lambda: lh.check_model(MODEL(), tolerance=float("nan")), "tolerance=nan: must be a finite number"),
    ("tolerance text", lambda: lh.check_model(MODEL(), tolerance="1e-3"), "tolerance='1e-3'"),  # type: ignore[arg-type]
    ("group", lambda: kv_groups(A, k=2, group=0), "group=0 does not fit"),
    ("group true", lambda: kv_groups(A, k=2, group=True), "group=True does not fit"),
    ("preset draws", lambda: replace(LOCOS, seeds=-1), f"seeds=-1: {NON_NEGATIVE}"),
    ("preset tokens", lambda: replace(LOCOS, max_new_tokens="8"), "max_new_tokens='8'"),
    ("preset k", lambda: replace(LOCOS, k=0), f"k=0: {POSITIVE}"),
    ("preset ks", lambda: replace(LOCOS, ks=(0,)), "ks=(0,): must be positive integers"),
    ("preset texts", lambda: replace(FRAGILE, match_texts=1), "match_texts=1: must be an integer of at least 2"),
    ("preset batch", lambda: replace(FRAGILE, batch_size=0), f"batch_size=0: {POSITIVE}"),
    ("preset masks", lambda: replace(CAPABILITY, n_masks=4.5), "n_masks=4.5: must be an integer of at least 5"),
    ("preset sparsity", lambda: replace(CAPABILITY, sparsity=2), "sparsity=2: must lie strictly between 0 and 1"),
    ("huge seed", lambda: checks.seed(2**70), "must be an integer from 0 to"),
]

LOCOS, FRAGILE, CAPABILITY = (next(iter(presets.PRESETS.values())) for presets in (locos, fragile, capability))
RESPONSE = np.random.default_rng(2).random(20)
TRIALS = [random_trial(0), random_trial(1)]


def MODEL() -> Any:
    return tiny("llama-gqa")


def score(**options: Any) -> Any:
    return lh.score_heads(MODEL(), TRIALS, ["locos"], progress=False, **options)


def evaluate(**options: Any) -> Any:
    return lh.evaluate(MODEL(), TRIALS, progress=False, **options)


def curve(**options: Any) -> Any:
    return lh.ablation_curve(MODEL(), TRIALS, A, kind="zero", progress=False, **options)


def renamed(found: HeadScores, name: str) -> HeadScores:
    return HeadScores.from_trials(name, found.per_trial, found.trial_ids)


@pytest.mark.parametrize(("run", "says"), [line[1:] for line in LINES], ids=[line[0] for line in LINES])
def test_a_number_out_of_place(run: Callable[[], Any], says: str) -> None:
    refused(run, says, MODEL())


RIGHT: list[tuple[str, Callable[[], Any], Any]] = [
    ("numpy int", lambda: A.top(np.int64(2)), A.top(2)),
    ("numpy ks", lambda: list(jaccard_curve(A, B, ks=np.array([1, 2]))["k"]), [1, 2]),
    ("tensor", lambda: checks.whole_number("n", torch.tensor(3)), 3),
    ("one of ks", lambda: checks.whole_numbers("ks", 3), [3]),
    ("nothing on top", lambda: A.top(0), []),
    ("largest seed", lambda: checks.seed(2**63 - 1), 2**63 - 1),
    ("numpy float", lambda: checks.finite("x", np.float32(0.5)), 0.5),
    ("whole share", lambda: checks.finite("x", 1, 0, 1), 1.0),
    ("all packaged", lambda: len(tasks.capitals(n=None)) > 50, True),
    ("masks of numpy numbers", lambda: draw_masks("bernoulli", np.int64(9), 3, 4, np.float64(0.3)).shape, (9, 3, 4)),
    ("a chunk of one", lambda: score(chunk=1, teacher_forced=True)["locos"].top(3), None),
]


@pytest.mark.parametrize(("run", "right"), [line[1:] for line in RIGHT], ids=[line[0] for line in RIGHT])
def test_a_number_in_place(run: Callable[[], Any], right: Any) -> None:
    found = run()
    assert found == (score(teacher_forced=True)["locos"].top(3) if right is None else right)


def test_greedy_takes_no_more_heads_than_there_are() -> None:
    from lens_heads.ranking.masks.measure import MaskedMetric

    measured = MaskedMetric(MODEL(), TRIALS, progress=False)
    refused(
        lambda: localize(measured, method="greedy", k=13),
        "k=13: must be an integer from 1 to 12, the number of heads",
        MODEL(),
    )


X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (lambda: lh.stats.bootstrap_means(X, n=0), "n=0: must be a positive integer"),
        (lambda: lh.stats.bootstrap_means(X, seed=-1), "seed=-1: must be a non-negative integer"),
        (lambda: lh.stats.bootstrap_means(X[:0]), "there are no trials"),
        (lambda: lh.stats.mean_interval(X, level=1.0), "level=1.0: must lie strictly between 0 and 1"),
        (lambda: lh.stats.crossed_interval(X, n=1.5), "n=1.5: must be a positive integer"),
        (lambda: lh.stats.crossed_interval(X[0]), "must be [draw, trial]"),
        (lambda: lh.stats.crossed_interval(X[:0]), "with at least one draw"),
        (lambda: lh.stats.crossed_interval(X[:, :0]), "there are no trials"),
        (lambda: lh.stats.ratio_interval(X, X, n=-1), "n=-1: must be a positive integer"),
        (lambda: lh.stats.percentile_interval(X.numpy(), level="0.95"), "level='0.95': must lie strictly"),
        (lambda: lh.stats.positive_mean_p(X[:0]), "0 trials: a test of mean > 0 needs at least 10"),
        (lambda: lh.stats.family_wise_p(X[0], X[:0]), "with at least one draw"),
        (lambda: lh.stats.wilson(None, 10), "share=None: must be a finite number from 0 to 1"),  # type: ignore[arg-type]
        (lambda: lh.stats.wilson(1.5, 10), "share=1.5: must be a finite number from 0 to 1"),
        (lambda: lh.stats.wilson(0.5, 0), "n=0: must be positive"),
        (lambda: lh.stats.wilson(0.5, 10, level=95), "level=95: must lie strictly between 0 and 1"),
        (lambda: lh.stats.benjamini_hochberg(None), "p=None: must be a dense tensor"),  # type: ignore[arg-type]
        (lambda: lh.stats.benjamini_hochberg(X), "must be p values, from 0 to 1"),
        (lambda: lh.stats.benjamini_hochberg(X / 9, alpha=5), "alpha=5: must lie strictly between 0 and 1"),
        (lambda: lh.stats.split_half_reliability(X, n=0), "n=0: must be a positive integer"),
        (lambda: lh.stats.split_half_reliability(X, seed=True), "seed=True: must be a non-negative integer"),
    ],
)
def test_statistics(run: Any, says: str) -> None:
    refused(run, says)
