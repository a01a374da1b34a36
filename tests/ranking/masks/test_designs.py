"""Designs of masks: what each guarantees, for any numbers, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_heads.ranking.masks.designs import DESIGNS, check_masks, draw_masks, share

NUMBERS = {
    "n_masks": st.integers(1, 25),
    "n_layers": st.integers(1, 7),
    "n_heads": st.integers(1, 7),
    "sparsity": st.floats(0.01, 0.99),
    "seed": st.integers(0, 5),
}


def draw(design: str, n_masks: int, n_layers: int, n_heads: int, sparsity: float, seed: int) -> np.ndarray | None:
    """The masks; None where the numbers leave no head to ablate."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return draw_masks(design, n_masks, n_layers, n_heads, sparsity, seed=seed)
        except ValueError:
            assert int(sparsity * n_layers * n_heads) == 0
            return None


def spread(counts: np.ndarray) -> int:
    return int(counts.max() - counts.min())


@pytest.mark.parametrize("design", ["stratified", "layer_balanced"])
@given(**NUMBERS)
def test_heads_are_ablated_equally_often_after_any_number_of_masks(design: str, **numbers: int) -> None:
    masks = draw(design, **numbers)
    if masks is None:
        return
    assert masks.shape == (numbers["n_masks"], numbers["n_layers"], numbers["n_heads"])
    assert set(masks.sum((1, 2))) == {int(numbers["sparsity"] * masks[0].size + 1e-9)}
    for prefix in masks.cumsum(0):
        assert spread(prefix) <= 1


@given(**NUMBERS)
def test_layer_balance_holds_in_every_mask_and_over_all_of_them(**numbers: int) -> None:
    masks = draw("layer_balanced", **numbers)
    if masks is None:
        return
    by_layer = masks.sum(2)
    assert max(spread(counts) for counts in by_layer) <= 1
    assert max(spread(totals) for totals in by_layer.cumsum(0)) <= 1


def test_a_stratified_mask_is_not_balanced_over_layers() -> None:
    masks = draw_masks("stratified", 40, 4, 8, 0.25)
    assert max(spread(counts) for counts in masks.sum(2)) > 1


@pytest.mark.parametrize("design", DESIGNS)
def test_the_seed_decides(design: str) -> None:
    first, again, other = (draw_masks(design, 40, 4, 8, 0.2, seed=seed) for seed in (0, 0, 1))
    assert first.dtype == bool
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("design", ["stratified", "layer_balanced"])
def test_ties_are_broken_at_random(design: str) -> None:
    first_masks = np.stack([draw(design, 1, 4, 8, 0.25, seed) for seed in range(400)])
    share = first_masks.mean((0, 1))
    assert abs(share - 0.25).max() < 4.5 * np.sqrt(0.25 * 0.75 / 400)


def test_bernoulli_ablates_each_head_at_its_rate_and_on_its_own() -> None:
    with pytest.warns(UserWarning, match="of 4000 masks repeat another"):  # There are 2^12 in all.
        masks = draw_masks("bernoulli", 4000, 3, 4, 0.3).reshape(4000, -1)
    assert abs(masks.mean(0) - 0.3).max() < 4 * np.sqrt(0.3 * 0.7 / 4000)
    between = np.corrcoef(masks.T)[~np.eye(12, dtype=bool)]
    assert abs(between).max() < 4 / np.sqrt(4000)
    assert masks.sum(1).var() == pytest.approx(12 * 0.3 * 0.7, rel=0.1)


def test_a_share_just_below_a_whole_number_of_heads_is_that_number() -> None:
    assert draw_masks("stratified", 20, 10, 10, 0.29)[0].sum() == 29
    assert draw_masks("stratified", 20, 10, 10, 0.299)[0].sum() == 29


def test_bad_choices_are_refused_with_the_value() -> None:
    with pytest.raises(ValueError, match="unknown design 'random': use bernoulli, stratified, layer_balanced"):
        draw_masks("random", 10, 4, 4, 0.2)
    with pytest.raises(ValueError, match="n_masks=0: must be a positive integer"):
        draw_masks("stratified", 0, 4, 4, 0.2)
    with pytest.raises(ValueError, match="n_heads=0: must be a positive integer"):
        draw_masks("stratified", 10, 4, 0, 0.2)
    for sparsity in (0, 1, 5, -0.1, float("nan")):
        with pytest.raises(ValueError, match=f"sparsity={sparsity}: must lie strictly"):
            draw_masks("stratified", 10, 4, 4, sparsity)
    for design in ("stratified", "layer_balanced"):
        with pytest.raises(ValueError, match=r"sparsity=0\.05 of 16 heads is less than one head: use at least 0\.063"):
            draw_masks(design, 10, 4, 4, 0.05)
    with pytest.raises(
        ValueError, match=r"sparsity=0\.001 of 16 heads: each of the 2 masks ablates no head. Ablate more"
    ):
        draw_masks("bernoulli", 2, 4, 4, 0.001)
    with pytest.raises(ValueError, match=r"each of the 2 masks ablates every head. Ablate fewer"):
        draw_masks("bernoulli", 2, 4, 4, 0.9999)


def test_masks_of_users_are_checked() -> None:
    good = np.array([[[1, 0], [0, 0]], [[0, 1], [1, 1]], [[0, 0], [0, 0]]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked = check_masks(good)
    assert checked.dtype == bool
    assert (checked == good).all()
    with pytest.raises(ValueError, match=r"a mask contains 0\.5. Use True or 1 where a head is ablated"):
        check_masks(good * 0.5)
    with pytest.raises(ValueError, match=r"masks of shape \[3\]"):
        check_masks(good[:, 0, 0])
    with pytest.raises(ValueError, match=r"masks of shape \[0, 2, 2\]"):
        check_masks(good[:0])


def test_masks_that_tell_nothing_new_are_counted_in_a_warning() -> None:
    masks = np.array([[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 1, 0], [1, 0, 1, 0]])
    with (
        pytest.warns(UserWarning, match="2 of 4 masks repeat another"),
        pytest.warns(UserWarning, match="2 of 4 heads are ablated in none or in all of 4 masks"),
    ):
        check_masks(masks)
    with pytest.warns(UserWarning, match=r"sparsity=0\.01 of 1024 heads: 24 of 1024 heads are ablated in none"):
        draw_masks("stratified", 100, 32, 32, 0.01)


@pytest.mark.slow
@given(of=st.integers(1, 2), heads=st.integers(4, 2000))
def test_the_share_that_is_advised_is_enough(of: int, heads: int) -> None:
    """Rounded down, .0037 of 270 heads would be refused again."""
    advised = share(of, heads)
    assert draw_masks("stratified", 1, 1, heads, advised).sum() >= of
    assert advised <= 1.1 * of / heads + 1e-9
