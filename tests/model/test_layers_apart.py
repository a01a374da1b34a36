"""Models whose layers differ: some have no heads, or wider ones. Scores have holes there, and nothing takes these for heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.heads.controls import Controls
from lens_heads.model.forward import Cache, advance, prefill
from lens_heads.model.geometry import head_geometry
from lens_heads.report import tables
from tests import witnesses
from tests.conftest import random_trial

STATEFUL = tuple(witnesses.HYBRIDS)
TEXTS = ["It rained all morning. Nobody went out, and the street stayed empty."] * 3


@pytest.fixture(params=["lfm2", "qwen3_next"])
def hybrid(request: pytest.FixtureRequest) -> Any:
    return witnesses.bridged(request.param)


@pytest.fixture
def scores(hybrid: Any) -> lh.HeadScores:
    trials = [random_trial(seed, n=40) for seed in range(12)]
    return lh.score_heads(hybrid, trials, "dla", teacher_forced=True, progress=False)["dla"]


def test_layers_say_what_they_have() -> None:
    shape = head_geometry(witnesses.bridged("qwen3_next"))
    assert shape.attending == (1, 3)
    assert [layer.mixer for layer in shape.layers] == ["linear attention", ""] * 2
    assert (shape.n_layers, shape.n_heads, shape.size, shape.group) == (4, 4, 8, 2)
    assert shape.holes.tolist() == [[True] * 4, [False] * 4] * 2
    gemma = head_geometry(witnesses.bridged("gemma4"))
    assert [(layer.n_kv_heads, layer.d_head, layer.window) for layer in gemma.layers] == [(2, 8, 6), (1, 16, None)] * 2
    with pytest.raises(ValueError, match="gemma4 has 2 or 4 query heads per kv head, by layer"):
        _ = gemma.group


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qwen3_next", "4 layers, 4 heads (2 kv) in 2 of them, d_head 8"),
        ("gemma4", "4 layers, 4 heads (2 or 1 kv), d_head 8 or 16"),
        ("granite", "4 layers, 4 heads (2 kv), d_head 8"),
    ],
)
def test_the_report_says_in_what_layers_differ(name: str, said: str) -> None:
    assert tables.checks(lh.check_model(witnesses.bridged(name))).title == f"{name}: {said}"


def test_a_score_that_is_overwritten_is_no_hole(hybrid: Any, scores: lh.HeadScores) -> None:
    """What is no head was decided when the scores were made."""
    scores.values[1, 2] = torch.nan
    assert len(scores.heads) == 8
    with pytest.raises(ValueError, match="ranking 'dla' holds scores that are not finite"):
        lh.ablation_curve(hybrid, [random_trial(90, n=40)], {"dla": scores}, ks=[1], controls=(), kind="zero")


def test_a_place_without_a_head_is_named(hybrid: Any, scores: lh.HeadScores) -> None:
    said = r"head L0H1 does not exist: layer 0 of \w+ mixes tokens by .*, and has no attention heads; layers 1, 3 have some"
    with pytest.raises(ValueError, match=said), lh.ablate(hybrid, ["L0H1"], kind="zero"):
        pass
    with pytest.raises(ValueError, match="head L0H1 does not exist: layer 0 has 0 heads"):
        _ = scores["L0H1"]


def test_what_is_no_head_is_never_ranked_drawn_or_tested(scores: lh.HeadScores) -> None:
    there = {f"L{layer}H{head}" for layer in (1, 3) for head in range(4)}
    assert {str(head) for head in scores.ranking()} == there
    assert scores.values[0].isnan().all()
    assert set(scores.frame["name"]) == there
    for found in (scores.random(2), scores.random(2, like="layer"), scores.bottom(2), scores.top(2)):
        assert {str(head) for head in found} < there
    assert not scores.significant()[0].any()
    assert scores.p_values()[0].isnan().all()
    assert 1 >= scores.reliability() > -1
    assert scores.stability(2).k == 2
    with pytest.raises(ValueError, match="k=9: must be an integer from 0 to 8"):
        scores.top(9)
    drawn = lh.sanity.random_ranking(scores)
    assert {str(head) for head in drawn.ranking()} == there


def test_scores_survive_the_file(scores: lh.HeadScores, tmp_path: Path) -> None:
    again = lh.HeadScores.load(scores.save(tmp_path / "dla.json"))
    torch.testing.assert_close(again.per_trial, scores.per_trial, equal_nan=True)
    assert again.ranking() == scores.ranking()
    with pytest.raises(ValueError, match="form 'lists' has a score of every head of every layer"):
        scores.save(tmp_path / "lists.json", form="lists")


def test_figures_leave_the_places_empty(scores: lh.HeadScores) -> None:
    figure = scores.plot()
    assert figure.data[0].customdata[0][0][0] == "no head"
    assert figure.data[0].z[0][0] != figure.data[0].z[0][0]


def test_scores_of_a_model_with_other_heads_are_refused(hybrid: Any, scores: lh.HeadScores) -> None:
    dense = lh.HeadScores.from_trials("own", torch.rand(3, 4, 4), ["a", "b", "c"])
    with pytest.raises(ValueError, match=r"has other heads than .*: 8 of the table are there"):
        lh.ablation_curve(hybrid, [random_trial(90, n=40)], {"own": dense}, ks=[1], controls=(), kind="zero")
    with pytest.raises(ValueError, match="cannot be compared"):
        lh.compare.overlap(scores, dense, k=1)


@pytest.mark.parametrize("name", STATEFUL)
def test_a_cache_goes_back_to_what_was_marked(name: str) -> None:
    """As often as one likes, and without what another cache appended to the same states."""
    model = witnesses.bridged(name)
    tokens = random_trial(4, n=30).tokens[None]
    with torch.no_grad():
        whole = witnesses.plain(name)(tokens, use_cache=False).logits
        cache = Cache(model, 1)
        prefill(model, tokens[:, :20], cache)
        cache.mark()
        for _ in range(2):
            other = cache.branch(0, 2)
            other = advance(model, tokens[:, 20:25].flip(1).repeat(2, 1), other, logits=5)
            assert other.shape[0] == 2
            for part in tokens[:, 20:].split([1, 1, 4, 1, 3], 1):  # Single tokens step the states, several scan them.
                end = advance(model, part, cache, logits=part.shape[1])
            torch.testing.assert_close(end, whole[:, -3:], atol=2e-4, rtol=2e-4)
            cache.crop(20)


@pytest.mark.parametrize("name", STATEFUL)
def test_a_batch_is_its_single_prompts(name: str) -> None:
    """Padding leaves no trace in a state."""
    model = witnesses.bridged(name)
    trials = [random_trial(seed, n=n) for seed, n in ((1, 18), (2, 40), (3, 29))]
    both, single = (lh.evaluate(model, trials, max_new_tokens=4, batch_size=size, progress=False) for size in (3, 1))
    assert both.texts == single.texts
    torch.testing.assert_close(both.metrics["logprob"], single.metrics["logprob"], atol=2e-4, rtol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*STATEFUL, *witnesses.UNLIKE])
def test_everything_runs_on_real_heads_or_is_refused_in_a_sentence(name: str) -> None:
    model = witnesses.bridged(name)
    shape = head_geometry(model)
    trials, test = ([random_trial(seed, n=60) for seed in range(first, first + 6)] for first in (0, 20))
    means = lh.mean_activations(model, [random_trial(seed, n=60) for seed in range(50, 53)], progress=False)
    dla = lh.score_heads(model, trials, "dla", teacher_forced=True, progress=False)["dla"]
    found = {"dla": dla}
    found["patching"] = lh.patch_heads(model, trials[:2], progress=False)
    found["attribution"] = lh.attribution_patch(model, trials[:2], positions="answer", progress=False)
    found["ablation"] = lh.attribute_ablation(model, trials[:2], kind="zero", progress=False)
    found["path"] = lh.path_patch(model, trials[:2], None, "logits", corruption="swap", progress=False)
    found["knockout"] = lh.knockout_heads(model, trials[:2], kind="uniform", progress=False)
    for method in ("css", "one_shot", "greedy"):
        more = {"n_masks": 20, "sparsity": 0.5} if method == "css" else {}
        found[method] = lh.localize_heads(model, trials, method=method, k=1, kind="zero", progress=False, **more)
    for one in found.values():
        assert torch.equal(one.values.isnan(), shape.holes), one.method
        assert len(one.ranking()) == shape.size
    curve = lh.ablation_curve(
        model,
        test,
        {"dla": dla},
        ks=[1, 2],
        controls=Controls(("random", "random_like", "bottom"), 3),
        kind="mean",
        reference=means,
        generate=False,
        progress=False,
    )
    for row in curve.per_trial.itertuples():
        shape.check_heads([head for head in row.heads.split(",") if head])
    faith = lh.faithfulness(model, test[:3], {"dla": dla}, positions="answer", progress=False)
    assert faith.total == shape.size
    recovered = lh.recovery(
        model, test[:3], dla.top(1), dla.top(1), ranking=dla, flipped=False, kind="zero", max_new_tokens=2
    )
    assert not recovered.frame.empty
    look = lh.look(model, trials[0])
    assert list(look.heads) == shape.every_head()
    dense = witnesses.bridged("granite")
    for pair in ((model, dense), (dense, model)):
        match = lh.match_heads(*pair, texts=TEXTS, resamples=2, permutations=2, progress=False)
        assert match.heads_b == tuple(head_geometry(pair[1]).every_head())
        assert set(match.pairs["head_a"]) <= {str(head) for head in head_geometry(pair[0]).every_head()}


def test_kv_heads_of_a_latent_are_refused() -> None:
    model = witnesses.bridged("deepseek_v3")
    assert all(layer.latent for layer in head_geometry(model).layers)
    for call in (
        lambda: lh.ranking.duo(model, [random_trial(1, n=60)], steps=1),
        lambda: lh.ranking.MaskedMetric(model, [random_trial(1)], unit="kv_head"),
        lambda: lh.prune(model, ["L0H1", "L1H1"], "nowhere", how="remove"),
    ):
        with pytest.raises(ValueError, match="is about kv heads, and deepseek_v3 has none"):
            call()
