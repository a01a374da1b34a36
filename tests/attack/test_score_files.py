"""Damaged score files, and scores of other weights than the model's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lens_heads as lh
from lens_heads.compare import overlap
from lens_heads.compare.checkpoints import compare_checkpoints
from lens_heads.compare.overlap import jaccard_curve
from lens_heads.compare.rankings import by_layer_third, pool_scores, rank_biased_overlap, rank_correlation
from lens_heads.compare.universal import universal_heads
from lens_heads.evidence.generality import generality
from lens_heads.heads.files import load_heads
from lens_heads.heads.scores import HeadScores
from lens_heads.model.identity import identify
from lens_heads.runs.identity import ModelIdentity
from tests.attack.held import refused
from tests.conftest import random_trial, tiny

PLAIN = {f"{layer}-{head}": [0.5, 0.25] for layer in range(3) for head in range(2)}


def envelope(**changes: Any) -> dict[str, Any]:
    meta = {"method": "m", **changes.pop("meta", {})}
    return {"meta": meta, "scores": {**PLAIN, **changes.pop("more", {})}, "trial_ids": ["a", "b"], **changes}


FILES: list[tuple[str, Any, str]] = [
    ("a head twice", {**PLAIN, "L0H0": [1, 1]}, "head L0H0 is listed twice, the second time as 'L0H0'"),
    ("a head in three notations", {**PLAIN, "0.1": [1, 1]}, "head L0H1 is listed twice, the second time as '0.1'"),
    ("an envelope's head twice", envelope(more={"0:0": [1, 1]}), "head L0H0 is listed twice"),
    ("order beyond", envelope(meta={"order": ["L9H0"]}), "order names L9H0, but there are 3 layers x 2 heads"),
    ("order of numbers", envelope(meta={"order": [1]}), "meta.order"),
    ("order of nonsense", envelope(meta={"order": ["best"]}), "meta.order"),
    ("ids twice", envelope(trial_ids=["a", "a"]), "two trials have the id 'a'"),
    ("ids null", envelope(trial_ids=[None, "b"]), "trial_ids is [None, 'b']"),
    ("ids of lists", envelope(trial_ids=[["a"], "b"]), "trial_ids is [['a'], 'b']"),
    ("ids true", envelope(trial_ids=[True, "b"]), "trial_ids is [True, 'b']"),
    ("ids missing", envelope(trial_ids=["a"]), "1 trial_ids but 2 scores per head"),
    ("ids a text", envelope(trial_ids="ab"), "trial_ids is 'ab'"),
    ("selected a text", envelope(meta={"selected": "false"}), "meta.selected is 'false'"),
    ("selected a number", envelope(meta={"selected": 1}), "meta.selected is 1"),
    ("base a text", envelope(meta={"base": "-1.5"}), "meta.base is '-1.5'"),
    ("fit a list", envelope(meta={"fit": [1]}), "meta.fit is [1]: expected an object"),
    ("outcomes a number", envelope(meta={"outcomes": 3}), "meta.outcomes is 3: expected an object"),
    ("signed a text", envelope(meta={"signed": "no"}), "meta.signed is 'no'"),
    ("unit", envelope(meta={"unit": "layer"}), "meta.unit is 'layer'"),
    ("best", envelope(meta={"best": "middle"}), "meta.best is 'middle'"),
    ("method null", envelope(meta={"method": 3}), "meta.method is 3"),
    ("model a list", envelope(meta={"model": ["x"]}), "meta.model is ['x']"),
    ("weights a number", envelope(meta={"weights": 7}), "meta.weights is 7"),
    ("shape", envelope(meta={"shape": [2, 2]}), "does not exist in a file of 2 layers x 2 heads"),
    ("shape huge", envelope(meta={"shape": [10**9, 10**9]}), "is missing from a file"),
    ("shape half", envelope(meta={"shape": [3.0, 2]}), "meta.shape is"),
    ("meta a list", envelope() | {"meta": []}, "meta is []"),
    ("values ragged", envelope(meta={"values": [[1], [2, 3]]}), "meta.values is"),
    ("values of another shape", envelope(meta={"values": [[1.0, 2.0]]}), "meta.values is"),
    ("values nan", envelope(meta={"values": [[float("nan")] * 2] * 3}), "the score of L0H0"),
    ("score null", {**PLAIN, "0-0": [None, 1]}, "head L0H0, trial 0: None is not a finite number"),
    ("score text", {**PLAIN, "0-0": ["1", 1]}, "head L0H0, trial 0: '1' is not a finite number"),
    ("score true", {**PLAIN, "0-0": [True, 1]}, "head L0H0, trial 0: True is not a finite number"),
    ("score nan", {**PLAIN, "0-0": [float("nan"), 1]}, "is not a finite number"),
    ("score infinite", {**PLAIN, "0-0": [float("inf"), 1]}, "is not a finite number"),
    ("score too large", {**PLAIN, "0-0": [1e300, 1]}, "is not a finite number"),
    ("ragged", {**PLAIN, "0-0": [1]}, "trials, but others have"),
    ("a head missing", {key: value for key, value in PLAIN.items() if key != "1-0"}, "head L1H0 is missing"),
    ("empty lists", {key: [] for key in PLAIN}, "the score lists are empty"),
    ("a kv head", {**PLAIN, "L0K0": [1, 1]}, "is a kv head"),
    ("a head of words", {**PLAIN, "best": [1, 1]}, "cannot read 'best' as a head"),
    ("a head with an underscore", {**PLAIN, "0_1": [1, 1]}, "cannot read '0_1' as a head"),
    ("a layer with an underscore", {**PLAIN, "0_1-0": [1, 1]}, "cannot read '0_1-0' as a head"),
    ("a head in other digits", {**PLAIN, "\u0661-0": [1, 1]}, "as a head"),
    ("made on numbers", envelope(meta={"made_on": [{"id": 3}]}), "meta.made_on[0].id is 3: expected a string"),
    (
        "made on a group of numbers",
        envelope(meta={"made_on": [{"id": "a"}, {"id": "b", "group": [1]}]}),
        "meta.made_on[1].group is [1]: expected a string, or a list of them",
    ),
    ("made on an object", envelope(meta={"made_on": [{"id": "a", "needle": {}}]}), "meta.made_on[0].needle is {}"),
    ("a mean beyond float32", {key: [3e38, 3e38] for key in PLAIN}, "the score of L0H0 is inf"),
    ("scores a list", envelope(scores=[1]), "'scores' must be an object"),
    ("a list", [1, 2], "holds a list, not scores: a list of heads is read by lh.load_heads"),
    ("nothing", {}, "is not a score file"),
]


@pytest.mark.parametrize(("content", "says"), [line[1:] for line in FILES], ids=[line[0] for line in FILES])
def test_a_damaged_score_file(tmp_path: Path, content: Any, says: str) -> None:
    path = tmp_path / "scores.json"
    path.write_text(json.dumps(content))
    assert str(path) in refused(lambda: HeadScores.load(path), says)


SOUND: list[tuple[str, Any, str]] = [
    ("plain", PLAIN, "copy"),
    ("ids of numbers", envelope(trial_ids=[1, 2]), "m"),
    ("signed unknown", envelope(meta={"signed": None}), "m"),
    ("one number a head", dict.fromkeys(PLAIN, 0.5), "copy"),
    ("notations mixed", {"L0H0": [1, 2], "0-1": [1, 2]}, "copy"),
    ("an order", envelope(meta={"order": ["L2H1"]}), "m"),
]


@pytest.mark.parametrize(("content", "method"), [line[1:] for line in SOUND], ids=[line[0] for line in SOUND])
def test_a_sound_score_file(tmp_path: Path, content: Any, method: str) -> None:
    path = tmp_path / "scores.json"
    path.write_text(json.dumps(content))
    assert HeadScores.load(path).method == method


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**40) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["0-0", "scores", "meta"]), inner),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    meta=st.dictionaries(
        st.sampled_from(
            ["order", "selected", "unit", "shape", "values", "made_on", "trials", "base", "fit", "outcomes"]
        ),
        JSON,
    )
)
def test_any_meta_loads_or_is_refused(tmp_path_factory: pytest.TempPathFactory, meta: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("meta") / "scores.json"
    path.write_text(json.dumps(envelope(meta=meta)))
    try:
        found = HeadScores.load(path)
    except ValueError:
        refused(lambda: HeadScores.load(path), "")
    else:
        assert found.values.shape == (3, 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[null]",
        "[[1, true]]",
        "[[1]]",
        '["L0"]',
        "17",
        "[1.5]",
        "L1H1 x",
        "0_1",
        "0_1-2",
        "1-2, 1-2",
        "[[1, 2], [1, 2]]",
        '["1-2", "L1H2"]',
        "[[1, Infinity]]",
    ],
)
def test_a_damaged_list_of_heads(tmp_path: Path, text: str) -> None:
    path = tmp_path / "heads.txt"
    path.write_text(text)
    refused(lambda: load_heads(path), "heads.txt")


def scores(weights: str = "", dtype: str = "torch.float32", name: str = "m") -> HeadScores:
    values = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))
    return HeadScores.from_trials(
        name, values, [f"{weights}1", f"{weights}2"], model=ModelIdentity("x", weights, dtype)
    )


ONE, OTHER = scores("one"), scores("other")
PAIRS: dict[str, Callable[[HeadScores, HeadScores], Any]] = {
    "overlap": lambda a, b: overlap(a, b, k=2),
    "jaccard_curve": lambda a, b: jaccard_curve(a, b, ks=[1]),
    "rank_biased_overlap": rank_biased_overlap,
    "rank_correlation": rank_correlation,
    "by_layer_third": lambda a, b: by_layer_third(a, b, n=9),
    "pool_scores": lambda a, b: pool_scores({"a": a, "b": b}),
    "universal_heads": lambda a, b: universal_heads({"a": a, "b": b}, at_least=2),
}


@pytest.mark.parametrize("name", PAIRS)
def test_rankings_of_two_models_are_refused_where_one_is_meant(name: str) -> None:
    refused(lambda: PAIRS[name](ONE, OTHER), "different weights. Score one model with both.")
    PAIRS[name](ONE, scores("", name="m"))
    PAIRS[name](ONE, scores("other", "torch.bfloat16"))


MADE: list[tuple[str, Callable[[], Any], str]] = [
    (
        "values a list",
        lambda: HeadScores("m", [[1.0]], torch.ones(1, 1, 1), ("a",)),
        "m: values must be a tensor, not list",
    ),  # type: ignore[arg-type]
    ("ids a text", lambda: HeadScores.from_trials("m", torch.ones(2, 3, 4), "ab"), "trial_ids"),
    ("ids twice", lambda: HeadScores.from_trials("m", torch.ones(2, 3, 4), ["a", "a"]), "two trials have the id 'a'"),
    ("no method", lambda: HeadScores.from_trials("", torch.ones(2, 3, 4), ["a", "b"]), "method='': must be"),
    ("method null", lambda: HeadScores.from_trials(None, torch.ones(2, 3, 4), ["a", "b"]), "method=None"),  # type: ignore[arg-type]
    ("no trials", lambda: HeadScores.from_trials("m", torch.ones(0, 3, 4), []), "no trial contributed a score"),
    (
        "order beyond",
        lambda: HeadScores.from_trials("m", torch.ones(1, 3, 4), ["a"], order=("L3H0",)),
        "order names L3H0",
    ),
    ("unit", lambda: HeadScores.from_trials("m", torch.ones(1, 3, 4), ["a"], unit="head"), "unit='head'"),
]


@pytest.mark.parametrize(("run", "says"), [line[1:] for line in MADE], ids=[line[0] for line in MADE])
def test_scores_made_wrong(run: Callable[[], Any], says: str) -> None:
    refused(run, says)


def test_checkpoints_have_different_weights() -> None:
    assert len(compare_checkpoints(ONE, OTHER, k=2, n=9)) == 12


def curve(found: HeadScores) -> Any:
    run: dict[str, Any] = {"kind": "zero", "generate": False, "progress": False}
    return lh.ablation_curve(tiny("llama-gqa"), [random_trial(0)], found, ks=1, controls=(), **run)


RUNS: dict[str, Callable[[HeadScores], Any]] = {
    "ablation_curve": curve,
    "recovery": lambda found: lh.recovery(
        tiny("llama-gqa"),
        [random_trial(0)],
        "L0H0",
        "L0H0",
        controls=(),
        ranking=found,
        flipped=False,
        progress=False,
        kind="zero",
    ),
    "match_heads": lambda found: lh.match_heads(
        *[tiny("llama-gqa")] * 2,
        signatures=["scores"],
        rankings=({"m": found}, {"m": found}),
        resamples=2,
        permutations=1,
        progress=False,
    ),
    "generality": lambda found: generality(
        tiny("llama-gqa"), {"t": [random_trial(0)]}, found, k=1, controls=(), progress=False, kind="zero"
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_scores_of_other_weights_are_refused(name: str) -> None:
    model = tiny("llama-gqa")
    refused(lambda: RUNS[name](OTHER), "was made on other weights (x, other)", model)
    RUNS[name](scores(identify(model).weights))
    RUNS[name](scores())
