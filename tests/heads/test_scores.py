"""Head and HeadScores: names, rankings, control sets, intervals, what is refused."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats

from lens_heads import stats
from lens_heads.heads.head import Head, parse_heads
from lens_heads.heads.made_on import MadeOn
from lens_heads.heads.scores import HeadScores
from lens_heads.runs.identity import ModelIdentity
from lens_heads.stats.positive_mean import positive_mean_p


def scores(values: list[list[float]] | torch.Tensor, method: str = "m", **about: Any) -> HeadScores:
    """One trial, so that values are the scores themselves."""
    one = torch.as_tensor(values, dtype=torch.float32)[None]
    return HeadScores.from_trials(method, one, ["t"], **about)


def ramp(layers: int, heads: int) -> HeadScores:
    """The score of a head is its rank from the front: L0H0 is best."""
    return scores(torch.arange(layers * heads, 0, -1).reshape(layers, heads).float())


@pytest.mark.parametrize("text", ["L12H1", "l12h1", "12-1", "12.1", "12:1", "12,1", " L12 H1 "])
def test_every_spelling_reads_as_the_same_head(text: str) -> None:
    assert Head.parse(text) == Head(12, 1)


def test_a_head_is_written_and_keyed_one_way() -> None:
    head = Head.parse((12, 1))
    assert (str(head), repr(head), head.key) == ("L12H1", "Head(12, 1)", "12-1")
    assert Head.parse(str(head)) == Head.parse(head.key) == Head.parse(head) == head


def test_heads_sort_by_layer_then_head_as_numbers() -> None:
    assert sorted([Head(10, 0), Head(2, 11), Head(2, 3)]) == [Head(2, 3), Head(2, 11), Head(10, 0)]


@pytest.mark.parametrize("text", ["", "12", "L12", "H1", "12-", "-12-1", "L1H2H3", "a-b", "12-1.5"])
def test_what_is_no_head_is_refused_with_the_value(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read") as error:
        Head.parse(text)
    assert repr(text) in str(error.value)


def test_a_triple_is_no_head() -> None:
    with pytest.raises(ValueError, match=r"\(1, 2, 3\).*a pair"):
        Head.parse((1, 2, 3))


def test_a_list_of_heads_keeps_order_and_drops_repeats() -> None:
    assert parse_heads("L3H0, 1-2 L3H0") == [Head(3, 0), Head(1, 2)]
    assert parse_heads(["L1H1", (0, 2), Head(1, 1)]) == [Head(1, 1), Head(0, 2)]
    assert parse_heads(Head(0, 0)) == [Head(0, 0)]


def test_top_and_bottom_are_the_two_ends() -> None:
    found = scores([[0.1, 3.0], [-2.0, 0.5]])
    assert found.top(2) == [Head(0, 1), Head(1, 1)]
    assert found.bottom(2) == [Head(1, 0), Head(0, 0)]
    assert found.top(4) == found.bottom(4)[::-1]
    assert found.top(0) == found.bottom(0) == []
    assert found["L0H1"] == 3.0


def test_equal_scores_come_in_order_of_layer_and_head() -> None:
    found = scores([[1.0, 2.0, 1.0], [1.0, 2.0, 0.0]])
    assert found.ranking() == [Head(0, 1), Head(1, 1), Head(0, 0), Head(0, 2), Head(1, 0), Head(1, 2)]
    assert found.bottom(2) == [Head(1, 2), Head(1, 0)]


@pytest.mark.parametrize("k", [-1, 7])
@pytest.mark.parametrize("call", ["top", "bottom", "random"])
def test_k_out_of_range_names_the_range(call: str, k: int) -> None:
    with pytest.raises(ValueError, match=f"k={k}: must be an integer from 0 to 6, the number of heads that m scores"):
        getattr(ramp(2, 3), call)(k)


@pytest.mark.parametrize("head", ["L2H0", "L0H3"])
def test_a_head_the_model_does_not_have_is_refused(head: str) -> None:
    with pytest.raises(ValueError, match=f"head {head} does not exist: these scores have layers 0-1 and heads 0-2"):
        ramp(2, 3)[head]


@pytest.mark.slow
def test_random_heads_are_of_all_heads_and_follow_the_seed() -> None:
    found = ramp(6, 6)
    for like in (None, "layer"):
        assert found.random(6, seed=3, like=like) == found.random(6, seed=3, like=like)
        assert len({tuple(found.random(6, seed=seed, like=like)) for seed in range(8)}) > 4
        assert all(len(set(found.random(10, seed=seed, like=like))) == 10 for seed in range(20))
    assert {head for seed in range(300) for head in found.random(3, seed=seed)} == set(found.ranking())
    drawn = Counter(head for seed in range(600) for head in ramp(2, 3).random(2, seed=seed))
    assert min(drawn.values()) > 140, "600 draws of 2 of 6 heads: 200 each, and 140 lies five standard deviations below"


def test_like_layer_draws_as_many_from_each_layer_as_the_top_has() -> None:
    values = torch.zeros(5, 4)
    for head in ("L0H1", "L2H0", "L2H3", "L4H2"):
        at = Head.parse(head)
        values[at.layer, at.head] = 1
    for seed in range(10):
        control = scores(values).random(4, seed=seed, like="layer")
        assert Counter(head.layer for head in control) == {0: 1, 2: 2, 4: 1}


def test_an_unknown_likeness_is_refused() -> None:
    with pytest.raises(ValueError, match="like='depth'"):
        ramp(2, 2).random(1, like="depth")  # type: ignore[arg-type]


def test_the_interval_of_every_head_is_that_of_its_mean_over_trials() -> None:
    generator = np.random.default_rng(5)
    data = generator.normal(size=(25, 2, 3)).astype(np.float32) + np.arange(6).reshape(2, 3).astype(np.float32)
    found = HeadScores.from_trials("m", torch.from_numpy(data), [str(i) for i in range(25)])
    _, low, high = found.interval(level=0.9, n=300, seed=11)
    for layer in range(2):
        for head in range(3):
            alone = stats.mean_interval(torch.from_numpy(data[:, layer, head]), level=0.9, n=300, seed=11)
            assert (float(low[layer, head]), float(high[layer, head])) == pytest.approx(
                [float(end) for end in alone[1:]]
            )
            t = scipy_stats.ttest_1samp(data[:, layer, head], 0).confidence_interval(0.9)
            assert float(low[layer, head]) <= t.low + 1e-6
            assert float(high[layer, head]) >= t.high - 1e-6


def noise(trials: int, layers: int, heads: int, seed: int) -> torch.Tensor:
    return torch.randn(trials, layers, heads, generator=torch.Generator().manual_seed(seed))


def test_a_planted_signal_is_significant_and_nothing_else_is() -> None:
    data = noise(40, 4, 6, seed=1)
    planted = {Head(0, 3), Head(2, 2), Head(3, 5)}
    for head in planted:
        data[:, head.layer, head.head] += 1.5
    data[:, 1, 1] -= 1.5  # A head below zero is not a finding.
    found = HeadScores.from_trials("m", data, [str(i) for i in range(40)])
    hit = {Head(int(i), int(j)) for i, j in found.significant().nonzero()}
    assert hit == planted


def test_pure_noise_is_rarely_significant() -> None:
    """With no true effect the false discovery rate is the chance of any discovery at all: 5 % of experiments."""
    experiments = 60
    any_hit = 0
    for seed in range(experiments):
        found = HeadScores.from_trials("m", noise(20, 3, 4, seed=100 + seed), [str(i) for i in range(20)])
        any_hit += bool(found.significant(alpha=0.05).any())
    assert any_hit <= 8  # 3 expected; 9 or more would happen once in 300.


def test_reliability_is_near_one_for_stable_scores_and_near_zero_for_noise() -> None:
    stable = torch.randn(5, 8, generator=torch.Generator().manual_seed(0)) + 0.05 * noise(30, 5, 8, seed=2)
    ids = [str(i) for i in range(30)]
    assert HeadScores.from_trials("m", stable, ids).reliability() > 0.99
    for seed in range(3):
        assert abs(HeadScores.from_trials("m", noise(30, 5, 8, seed), ids).reliability()) < 0.3
    assert np.isnan(ramp(2, 2).reliability())  # One trial has no halves.


@pytest.mark.parametrize(("bad", "shown"), [(float("nan"), "nan"), (float("inf"), "inf"), (-float("inf"), "-inf")])
def test_a_score_that_is_no_number_is_refused_and_the_head_named(bad: float, shown: str) -> None:
    data = torch.zeros(2, 3, 4)
    data[1, 2, 1] = bad
    with pytest.raises(ValueError, match=rf"locos: the score of L2H1 is {shown} \(1 heads are not finite\)"):
        HeadScores.from_trials("locos", data, ["a", "b"])


def test_shapes_that_disagree_are_refused() -> None:
    with pytest.raises(ValueError, match=r"m: values \(2, 3\) must be \[layer, head\]"):
        HeadScores("m", torch.zeros(2, 3), torch.zeros(1, 3, 2), ("a",))
    with pytest.raises(ValueError, match="2 trials but 1 trial ids"):
        HeadScores("m", torch.zeros(2, 3), torch.zeros(2, 2, 3), ("a",))
    with pytest.raises(ValueError, match="no trial contributed a score"):
        HeadScores.from_trials("m", torch.zeros(0, 2, 3), [])


def test_scores_are_float32_means_over_the_trials_whatever_comes_in() -> None:
    data = noise(3, 2, 2, seed=4).to(torch.bfloat16).requires_grad_()
    found = HeadScores.from_trials("m", data, ["a", "b", "c"])
    assert found.values.dtype == found.per_trial.dtype == torch.float32
    assert not found.values.requires_grad
    for layer in range(2):
        for head in range(2):
            plain = sum(float(data.detach()[i, layer, head]) for i in range(3)) / 3
            assert found[layer, head] == pytest.approx(plain, abs=1e-6)


def test_the_frame_lists_every_head_best_first() -> None:
    data = noise(12, 3, 4, seed=6)
    found = HeadScores.from_trials("m", data, [str(i) for i in range(12)])
    frame = found.frame
    assert list(frame.columns) == ["layer", "head", "name", "score", "low", "high"]
    assert list(frame["name"]) == [str(head) for head in found.ranking()]
    assert list(frame["score"]) == sorted(frame["score"], reverse=True)
    for row in frame.itertuples():
        assert row.name == f"L{row.layer}H{row.head}"
        assert row.score == pytest.approx(float(data[:, row.layer, row.head].mean()), abs=1e-6)
        assert row.low < row.score < row.high
    assert list(found.ranked.columns) == ["layer", "head", "name", "score"]


def test_in_a_notebook_it_shows_method_model_and_the_ten_best() -> None:
    html = scores(
        torch.arange(12, 0, -1).reshape(3, 4) / 7, method="locos", model=ModelIdentity("tiny-model")
    )._repr_html_()
    assert "locos" in html
    assert "tiny-model" in html
    assert "3 layers x 4 heads, 1 trials" in html
    assert "1.714" in html  # 12 / 7
    shown = [str(Head(i // 4, i % 4)) for i in range(12)]
    assert all(f"<td>{name}</td>" in html for name in shown[:10])
    assert not any(f"<td>{name}</td>" in html for name in shown[10:])


def test_repr_names_the_three_best() -> None:
    assert repr(ramp(2, 2)) == "HeadScores('m', 2 layers x 2 heads, 1 trials, best: L0H0 4, L0H1 3, L1H0 2)"


@pytest.mark.parametrize("text", ["L0K1", "l12k3", " L2 K0 "])
def test_a_kv_head_is_not_read_as_a_query_head(text: str) -> None:
    for read in (Head.parse, parse_heads if " " not in text else Head.parse, ramp(2, 3).__getitem__):
        with pytest.raises(ValueError, match=r"is a kv head, .* each of its query heads, k \* group to .*\.group"):
            read(text)


BAD_PAIRS: list[Any] = [(0, -1), (-1, 0), (1.7, 2.2), (1, 2.0), ("0", 1), (True, 0), (0, None), (np.float32(1), 0)]


@pytest.mark.parametrize("pair", BAD_PAIRS)
def test_a_layer_or_head_that_is_no_number_from_zero_on_is_refused(pair: Any) -> None:
    for read in (lambda p: Head(*p), Head.parse, lambda p: parse_heads([p]), ramp(2, 3).__getitem__):
        with pytest.raises(
            ValueError, match=r"cannot read Head\(.*\) as a head: its (layer|head) .* is not a non-negative integer"
        ):
            read(pair)


def test_integers_of_numpy_and_torch_are_integers() -> None:
    for pair in ((np.int64(1), np.uint8(2)), torch.tensor([1, 2]), np.array([1, 2])):
        head = Head.parse(pair)
        assert head == Head(1, 2)
        assert type(head.layer) is type(head.head) is int
    assert ramp(2, 3)[np.int64(1), np.int64(2)] == 1.0
    assert parse_heads(np.array([[0, 1], [1, 2]])) == [Head(0, 1), Head(1, 2)]  # type: ignore[arg-type]


@pytest.mark.parametrize("pair", [(0, 1), [0, 1], (np.int64(0), np.int64(1))])
def test_a_bare_pair_is_one_head(pair: Any) -> None:
    assert parse_heads(pair) == [Head(0, 1)]


@pytest.mark.parametrize("value", [3, None, 1.5])
def test_what_holds_no_heads_is_refused_with_the_spellings(value: Any) -> None:
    for given in (value, [value], (value,)):
        with pytest.raises(TypeError, match=f"cannot read {value} as a head: write L12H1, 12-1 or a pair"):
            parse_heads(given)


def test_scores_are_no_choice_of_heads() -> None:
    for given in (ramp(2, 3), [ramp(2, 3)]):
        with pytest.raises(TypeError, match=r"m: expected heads, got scores: select the best with \.top\(k\)"):
            parse_heads(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("call", ["top", "bottom", "random", "ties"])
def test_k_is_an_integer(call: str) -> None:
    ask = getattr(ramp(2, 3), call)
    for k in (3.0, "2", None, True):
        with pytest.raises(ValueError, match=f"k={k!r}: must be an integer from 0 to 6"):
            ask(k)
    assert ask(np.int64(2)) == ask(2)


def test_random_heads_are_as_they_were_drawn() -> None:
    """A seed names the same heads from version to version."""
    assert [str(head) for head in ramp(3, 4).random(4, seed=1)] == ["L0H1", "L1H0", "L1H2", "L2H0"]
    assert ramp(2, 3).random(np.int64(4)) == ramp(2, 3).random(4)  # type: ignore[arg-type]


def test_scores_are_equal_to_themselves_alone_and_hash() -> None:
    one, other = ramp(2, 3), ramp(2, 3)
    assert one == one
    assert one != other
    assert len({one, other, one}) == 2


def test_one_trial_has_no_interval(tmp_path: Path) -> None:
    found = ramp(2, 3)
    _, low, high = found.interval()
    assert low.shape == high.shape == (2, 3)
    assert low.isnan().all()
    assert high.isnan().all()
    frame = found.frame
    assert frame["low"].isna().all()
    assert frame["high"].isna().all()
    html = found._repr_html_()
    assert html.count("<td>–</td>") == 12
    assert "nan" not in html.lower()
    path = found.save(tmp_path / "s.json")
    assert torch.equal(HeadScores.load(path).values, found.values)
    for bounds in json.loads(path.read_text())["confidence_intervals"].values():
        assert all(bound is None or np.isnan(bound) for bound in bounds)
    four, five = (HeadScores.from_trials("m", noise(n, 2, 3, seed=0), [*"abcde"[:n]]) for n in (4, 5))
    assert four.interval().low.isnan().all(), "no interval below five trials"
    assert (five.interval().low < five.interval().high).all()


@pytest.mark.parametrize(
    ("method", "meta"),
    [("copy", {}), ("contrastive", {}), ("headkv", {}), ("mine", {"signed": False}), ("copy", {"signed": False})],
)
def test_scores_that_are_never_negative_need_a_null(method: str, meta: dict[str, Any]) -> None:
    found = HeadScores.from_trials(method, noise(12, 2, 3, seed=0).abs(), [str(i) for i in range(12)], **meta)
    for test in (found.p_values, found.significant):
        with pytest.raises(ValueError, match=f"{method} cannot be negative, .* score with null_spans=99"):
            test()
    assert replace(found, null=torch.zeros(19, 2, 3)).significant().all()


@pytest.mark.parametrize(("method", "meta"), [("locos", {}), ("mine", {}), ("mine", {"signed": True})])
def test_signed_scores_have_one(method: str, meta: dict[str, Any]) -> None:
    found = HeadScores.from_trials(method, noise(12, 2, 3, seed=0), [str(i) for i in range(12)], **meta)
    assert torch.equal(found.p_values(), positive_mean_p(found.per_trial))


def test_few_trials_need_a_null() -> None:
    found = HeadScores.from_trials("m", noise(9, 2, 3, seed=0), [str(i) for i in range(9)])
    assert found.untested().startswith("m: 9 trials are too few")
    with pytest.raises(ValueError, match="use 10 or more, or score with null_spans=99"):
        found.significant()
    assert replace(found, null=torch.zeros(19, 2, 3)).untested() == ""


@pytest.mark.parametrize("best", ["highest", "lowest"])
def test_p_with_a_null_counts_the_draws_whose_best_head_is_as_good(best: Any) -> None:
    sign = 1 if best == "highest" else -1
    found = HeadScores.from_trials("m", sign * noise(3, 2, 3, seed=4), ["a", "b", "c"], best=best)
    null = sign * noise(99, 2, 3, seed=5) / 20
    null[:7] = found.values  # A draw that is equal counts.
    tested = replace(found, null=null)
    p = tested.p_values()
    for layer in range(2):
        for head in range(3):
            reached = sum(max((sign * each).flatten().tolist()) >= sign * found[layer, head] for each in null)
            assert float(p[layer, head]) == (1 + reached) / 100
    assert p.min() == 0.08
    assert tested.significant(alpha=0.08).sum() == 2, "at most alpha, not below it"
    assert not tested.significant(alpha=0.0799).any()


def test_too_few_draws_are_no_test_at_that_level() -> None:
    found = replace(ramp(2, 3), null=torch.zeros(18, 2, 3))
    assert found.p_values().min() == 1 / 19
    with pytest.raises(
        ValueError, match=r"18 draws of the null give no p up to 0\.05: score with null_spans=19 or more"
    ):
        found.significant()
    assert replace(found, null=torch.zeros(19, 2, 3)).significant().any()
    assert replace(found, null=torch.zeros(99, 2, 3)).untested(alpha=0.01) == ""


@pytest.mark.parametrize(
    ("null", "message"),
    [
        (torch.zeros(0, 2, 3), r"null \(0, 2, 3\) must be"),
        (torch.zeros(5, 3, 2), r"null \(5, 3, 2\) must be"),
        (torch.full((5, 2, 3), float("nan")), "the null is not finite"),
    ],
)
def test_a_null_fits_the_scores(null: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(ramp(2, 3), null=null)


def test_every_draw_without_an_effect_errs_at_most_at_its_level() -> None:
    """Heads that depend on each other, and no effect: the chance that any head passes at .1 is at most .1."""
    generator = torch.Generator().manual_seed(0)
    studies, any_hit = 400, 0
    for _ in range(studies):
        drawn = torch.randn(40, 3, 4, generator=generator) + torch.randn(40, 1, 1, generator=generator)
        found = HeadScores.from_trials("m", drawn[:1].exp(), ["a"], null=drawn[1:].exp())
        any_hit += bool(found.significant(alpha=0.1).any())
    assert 24 <= any_hit <= 56  # 40 expected, 2.7 standard deviations to each side.


def grouped(per_trial: torch.Tensor, groups: int) -> HeadScores:
    """Every trial once in each of so many places, as a member of its group."""
    ids = tuple(f"t{i}" for i in range(len(per_trial)))
    made_on = tuple(MadeOn(name, group=f"g{i % groups:02d}") for i, name in enumerate(ids))
    return HeadScores.from_trials("m", per_trial, ids, made_on=made_on, signed=True)


def test_a_trial_that_comes_four_times_counts_once() -> None:
    """Intervals and p are those of the groups' means; groups below the fewest trials have none."""
    once = noise(12, 3, 4, seed=5) + 0.5
    four = grouped(once.repeat(4, 1, 1), 12)
    assert len(four.groups[0]) == 48
    alone = HeadScores.from_trials("m", once, tuple(f"t{i}" for i in range(12)), signed=True)
    for mine, other in zip(four.interval(), alone.interval(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0.02, atol=1e-3)
    torch.testing.assert_close(four.p_values(), alone.p_values(), rtol=1e-4, atol=1e-6)
    few = grouped(once[:4].repeat(6, 1, 1), 4)
    assert few.interval().low.isnan().all()
    assert "4 groups of trials are too few" in few.untested()


def test_stability_counts_the_trials_that_another_set_would_need() -> None:
    strong = torch.zeros(40, 4, 8)
    strong[:, 1, :5] = 1
    found = HeadScores.from_trials("m", strong + 0.5 * noise(40, 4, 8, seed=1), tuple(f"t{i}" for i in range(40)))
    stable = found.stability(5)
    assert (stable.k, stable.heads, stable.trials) == (5, 32, 40)
    assert stable.jaccard > 0.9 > stable.expected
    nothing = HeadScores.from_trials("m", noise(40, 4, 8, seed=2), found.trial_ids).stability(5)
    assert nothing.chance[0] <= nothing.jaccard <= nothing.chance[1]
    lowest = replace(found, per_trial=-found.per_trial, values=-found.values, best="lowest").stability(5)
    assert lowest.jaccard == stable.jaccard
    with pytest.raises(ValueError, match="chose its heads on all of these trials"):
        replace(found, selected=True).stability(5)
