"""Matching heads: copies with known permutations, distances by hand, and nulls that hold their level."""

from __future__ import annotations

import importlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kstest

import lens_heads as lh
from lens_heads.compare import match_heads
from lens_heads.heads.head import Head
from lens_heads.heads.matching import HeadMatch, match_accuracy
from lens_heads.heads.scores import HeadScores
from lens_heads.model.hooks import has_hooks
from tests import zoo
from tests.compare.permuted import TEXTS, permuted
from tests.conftest import tiny

module: Any = importlib.import_module("lens_heads.compare.correspondence")
QUICK: Any = {"texts": TEXTS, "resamples": 5, "permutations": 19, "progress": False}


@cache
def copies(arch: str) -> tuple[HeadMatch, dict[Head, Head]]:
    copy, truth = permuted(arch)
    return match_heads(tiny(arch), copy, **QUICK), truth


@cache
def small() -> Any:
    """Fewer layers and heads than the others."""
    return zoo.bridge("llama-gqa", hf=zoo.hf_model("llama-gqa", num_hidden_layers=2, num_attention_heads=2))


def scores(values: Any, method: str = "locos", spread: float = 0.0, trials: int = 4) -> HeadScores:
    mean = torch.tensor(values, dtype=torch.float32)
    noise = torch.randn(trials, *mean.shape, generator=torch.Generator().manual_seed(0))
    return HeadScores(method, mean, mean + spread * noise, tuple(f"t{i}" for i in range(trials)))


def random_scores(seed: int, layers: int = 3, heads: int = 4, spread: float = 0.0) -> HeadScores:
    return scores(torch.randn(layers, heads, generator=torch.Generator().manual_seed(seed)).tolist(), spread=spread)


# Ground truth: a copy whose heads stand in another order


@pytest.mark.slow
def test_every_head_of_a_permuted_copy_is_found(arch: str) -> None:
    match, truth = copies(arch)
    assert match_accuracy(match, truth) == 1
    assert any(a != b for a, b in truth.items())
    np.testing.assert_allclose(match.pairs["distance"], 0, atol=1e-3)
    assert (match.pairs["margin"] > 0).all()
    assert (match.pairs["stability"] == 1).all()
    assert match.p == 1 / 20
    by_layer = [match.distance[4 * layer : 4 * layer + 4, 4 * layer : 4 * layer + 4].mean() for layer in range(3)]
    assert match.chance == pytest.approx(np.mean(by_layer))  # Three layers, three bins.
    assert match.chance > 0.1
    assert not has_hooks(tiny(arch))


@pytest.mark.slow
@pytest.mark.parametrize("part", ["patterns", "cka"])
def test_one_part_is_enough_for_a_copy(part: str) -> None:
    copy, truth = permuted("llama-gqa")
    match = match_heads(tiny("llama-gqa"), copy, signatures=[part], **QUICK)
    assert match_accuracy(match, truth) == 1
    assert np.isnan(match.p), "one part cannot disagree with itself"


@pytest.mark.slow
def test_accuracy_falls_with_noise_on_the_weights() -> None:
    rates = []
    for noise in (0.0, 0.3, 3.0):
        copy, truth = permuted("llama-gqa", noise=noise)
        rates.append(match_accuracy(match_heads(tiny("llama-gqa"), copy, **QUICK), truth))
    assert rates[0] == 1
    assert rates[0] >= rates[1] > rates[2]
    assert rates[2] < 0.5


@pytest.mark.slow
def test_a_distance_that_forgets_what_heads_do_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_combined", lambda parts, weights: parts["depth"])
    copy, truth = permuted("llama-gqa")
    assert match_accuracy(match_heads(tiny("llama-gqa"), copy, **QUICK), truth) < 1


# Numbers by hand


def by_scores(a: HeadScores, b: HeadScores, model_a: Any, model_b: Any, **options: Any) -> HeadMatch:
    given = {"resamples": 20, "permutations": 19, "progress": False, "signatures": ["scores"]} | options
    return match_heads(model_a, model_b, rankings=({"x": a}, {"x": b}), **given)


def test_distances_pairs_and_ranks_match_a_loop() -> None:
    a, b = random_scores(0), random_scores(1, 2, 2)
    match = by_scores(a, b, tiny("llama-gqa"), small(), signatures=["depth", "scores"], weights={"scores": 3})
    depth = [layer / 2 for layer in range(3) for _ in range(4)], [layer / 1 for layer in range(2) for _ in range(2)]
    z = [(s.values.flatten() - s.values.mean()) / s.values.std(correction=0) for s in (a, b)]
    spread = np.var([*depth[0], *depth[1]])
    for i in range(12):
        for j in range(4):
            near = (depth[0][i] - depth[1][j]) ** 2 / (2 * spread)
            alike = float(z[0][i] - z[1][j]) ** 2 / 2
            assert match.distance[i, j] == pytest.approx((near + 3 * alike) / 4, abs=1e-5)
    assert len(match.pairs) == 4, "the model with fewer heads decides"
    for row in match.pairs.to_dict("records"):
        i, j = Head.parse(row["head_a"]), Head.parse(row["head_b"])
        line = match.distance[4 * i.layer + i.head]
        own = line[2 * j.layer + j.head]
        others = [line[k] for k in range(4) if k != 2 * j.layer + j.head]
        as_deep = [line[2 * j.layer + k] for k in range(2)]  # Two layers, two bins.
        assert row["distance"] == pytest.approx(own)
        assert row["margin"] == pytest.approx(min(others) - own)
        assert row["p"] == sum(d <= own for d in as_deep) / 2
        assert row["distance"] == pytest.approx((row["depth"] + 3 * row["scores"]) / 4)
    assert match.mean_distance == pytest.approx(match.pairs["distance"].mean())


def test_the_assignment_is_one_to_one_and_the_cheapest() -> None:
    """The head that is nearest to two is given to the one that has no other choice."""
    a, b = scores([[0, 0.5, 10, 20]] * 3), scores([[0.4, 6, 10, 20]] * 3)
    match = by_scores(a, b, tiny("llama-gqa"), tiny("llama-gqa"), signatures=["depth", "scores"])
    for layer in range(3):
        assert [match.partner((layer, head)) for head in range(4)] == [Head(layer, head) for head in range(4)]
    by_head = match.pairs.set_index("head_a")
    assert by_head.loc["L0H1", "margin"] < 0 < by_head.loc["L0H2", "margin"]


def test_partners_of_named_heads_and_heads_without_one() -> None:
    match = by_scores(random_scores(0), random_scores(1, 2, 2), tiny("llama-gqa"), small())
    without = [Head(layer, head) for layer in range(3) for head in range(4) if match.partner((layer, head)) is None]
    assert len(without) == 8
    first = match.pairs.iloc[0]
    assert match.matched([str(without[0]), first["head_a"]]) == [Head.parse(first["head_b"])]
    assert match_accuracy(match, {first["head_a"]: first["head_b"], without[0]: "L0H0"}) == 0.5
    with pytest.raises(ValueError, match=r"head L3H0 does not exist: .* has layers 0-2 and heads 0-3"):
        match.partner("L3H0")
    with pytest.raises(ValueError, match="truth is empty"):
        match_accuracy(match, {})


def test_stability_is_low_where_trials_do_not_tell_heads_apart() -> None:
    values = [[0, 0.1, 5, 9]] * 3
    clear, vague = (
        by_scores(
            scores(values, spread=s, trials=9),
            scores(values),
            tiny("llama-gqa"),
            tiny("llama-gqa"),
            signatures=["depth", "scores"],
        )
        for s in (0.0, 0.5)
    )
    assert (clear.pairs["stability"] == 1).all()
    by_head = vague.pairs.set_index("head_a")["stability"]
    assert by_head["L0H0"] < 0.95
    assert (by_head[["L0H2", "L0H3"]] == 1).all()


def test_a_part_without_weight_is_as_good_as_left_out() -> None:
    a, b = random_scores(0), random_scores(1)
    with_depth = by_scores(
        a, b, tiny("llama-gqa"), tiny("llama-gqa"), signatures=["depth", "scores"], weights={"depth": 0}
    )
    np.testing.assert_allclose(with_depth.distance, by_scores(a, b, tiny("llama-gqa"), tiny("llama-gqa")).distance)


def test_a_score_that_all_heads_share_tells_none_apart() -> None:
    flat, a, b = scores([[1.0] * 4] * 3), random_scores(0), random_scores(1)
    model = tiny("llama-gqa")
    options: Any = {"signatures": ["scores"], "resamples": 2, "permutations": 1, "progress": False}
    both = match_heads(model, model, rankings=({"x": a, "y": flat}, {"y": flat, "x": b}), **options)
    np.testing.assert_allclose(both.distance, by_scores(a, b, model, model).distance / 2)


# The null of the whole matching


def test_parts_that_agree_only_by_depth_are_not_significant_and_agreeing_ones_are() -> None:
    """Twelve heads in two bins, two parts. Under the null p is uniform; where both parts name the same partner it is least."""
    rng, bins = np.random.default_rng(0), np.repeat([0, 1], 6)
    deep = 5.0 * (bins[:, None] != bins)
    weights = {"patterns": 1.0, "cka": 1.0}
    unrelated = [
        module._p_value({name: deep + rng.random((12, 12)) for name in weights}, weights, bins, 99, seed, False)
        for seed in range(40)
    ]
    assert kstest(unrelated, "uniform").pvalue > 0.01
    same = deep + 1 - np.eye(12) + 0.1 * rng.random((12, 12))
    assert module._p_value(dict.fromkeys(weights, same), weights, bins, 99, 0, False) == 0.01


# Files, and what is refused


def test_a_saved_match_is_read_back(tmp_path: Path) -> None:
    match, _ = copies("llama-gqa")
    back = HeadMatch.load(match.save(tmp_path / "match"))
    assert back.pairs.equals(match.pairs)
    np.testing.assert_array_equal(back.distance, match.distance)
    for name in ("p", "chance", "shape_a", "shape_b", "meta", "identities", "depth_bins"):
        assert getattr(back, name) == getattr(match, name)
    assert back.identities[0].weights
    assert back.partner("L0H0") == match.partner("L0H0")
    (tmp_path / "match" / "match.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"match.json is missing\. .* written by HeadMatch\.save"):
        HeadMatch.load(tmp_path / "match")
    assert "12 pairs" in repr(match)
    assert lh.match_heads is match_heads


def test_a_match_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """There, the models' identities and the number of bins stand in the meta."""
    match, _ = copies("llama-gqa")
    file = match.save(tmp_path / "match") / "match.json"
    about = json.loads(file.read_text())
    about["meta"] |= {name: about.pop(name) for name in ("identities", "depth_bins")}
    file.write_text(json.dumps(about))
    back = HeadMatch.load(tmp_path / "match")
    assert (back.identities, back.depth_bins, back.meta) == (match.identities, match.depth_bins, match.meta)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"signatures": ["scores"]}, r"signatures include 'scores'\. Pass rankings=\(\{name"),
        ({"signatures": ["kurtosis"]}, r"unknown signature 'kurtosis'\. Choose from depth, patterns, scores, cka"),
        ({"signatures": "depth"}, r"signatures=\['depth'\] cannot separate heads of a layer"),
        ({"signatures": []}, r"signatures=\[\] cannot separate heads"),
        ({"signatures": ["cka"], "rankings": ({}, {})}, "rankings are given, but signatures do not include 'scores'"),
        ({"rankings": ({}, {})}, r"rankings of a are named \[\], those of b \[\]\. Pass the same names"),
        (
            {"rankings": ({"x": random_scores(0)}, {"y": random_scores(0)})},
            r"rankings of a are named \['x'\], those of b \['y'\]",
        ),
        (
            {"rankings": ({"x": random_scores(0)}, {"x": random_scores(0, 2, 2)})},
            r"rankings\['x'\] is for a model of 2 layers x 2 heads",
        ),
        (
            {
                "rankings": (
                    {"x": random_scores(0)},
                    {"x": HeadScores("x", torch.ones(3, 4), torch.ones(1, 3, 4), ("t",), {}, "kv_head")},
                )
            },
            r"rankings\['x'\] of .* must score query heads, not kv_heads\. Convert them",
        ),
        (
            {"signatures": ["scores"], "rankings": ({"x": random_scores(0)},) * 2, "texts": TEXTS},
            r"signatures=\['scores'\] use no texts\. Add 'patterns'",
        ),
        ({"weights": {"scores": 2}}, "weights include 'scores', but the parts in use are depth, patterns, cka"),
        ({"weights": {"cka": -1}}, r"weights\['cka'\]=-1: must be a finite number of at least 0"),
        ({"weights": {"cka": 0, "patterns": 0, "depth": 0}}, "at least one must be above 0"),
        ({"resamples": 1}, "resamples=1: must be an integer of at least 2"),
        ({"permutations": 0}, "permutations=0: must be a positive integer"),
        ({"depth_bins": 4}, "depth_bins=4: must be an integer from 1 to 3"),
        ({"texts": []}, "0 texts: at least 2"),
        ({"texts": [TEXTS[0], "too short"]}, "text 1 has 2 words"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(options: dict[str, Any], message: str) -> None:
    model, ran = tiny("llama-gqa"), []
    handle = model.original_model.register_forward_pre_hook(lambda *_: ran.append(1))
    with pytest.raises(ValueError, match=message):
        match_heads(model, model, progress=False, **{"texts": None if "signatures" in options else TEXTS} | options)
    handle.remove()
    assert not ran


def test_one_text_is_no_list_of_texts() -> None:
    model = tiny("llama-gqa")
    with pytest.raises(TypeError, match="texts='one text of several words': must be a list of texts"):
        match_heads(model, model, texts="one text of several words", progress=False)  # type: ignore[arg-type]  # on purpose


def test_a_context_too_short_in_the_second_model_stops_before_the_first_runs() -> None:
    model, ran = tiny("llama-gqa"), []
    handle = model.original_model.register_forward_pre_hook(lambda *_: ran.append(1))
    with pytest.raises(
        ValueError, match=r"is read twice, but the context of llama-gqa is 128\. Shorten it to at most 63 tokens"
    ):
        match_heads(model, zoo.bridge("llama-gqa", n_ctx=128), texts=TEXTS, progress=False)
    handle.remove()
    assert not ran
