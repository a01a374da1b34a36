"""What localize does where there is little to find, and what it refuses before anything is run."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lens_heads.heads.head import Head
from lens_heads.ranking.masks import localize as module
from lens_heads.ranking.masks.greedy import greedy, one_shot
from lens_heads.ranking.masks.localize import localize, localize_heads
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.ranking.masks.sparse_fit import fit
from tests import planted, zoo
from tests.planted import COPIER, WRITER
from tests.ranking.masks.runs import FOUND, different, failing, measured, model, passes

REPEATED = "ignore:.*(masks repeat another|are ablated in none).*:UserWarning"


def unanswerable() -> list[Any]:
    """The model never gives these answers, whatever is ablated."""
    token = torch.tensor(zoo.tokenizer()("z", add_special_tokens=False).input_ids)
    return [replace(trial, answer="z", answer_tokens=token) for trial in FOUND]


def test_masks_drawn_twice_are_warned_about_and_run_once() -> None:
    fresh = MaskedMetric(model(), FOUND, progress=False)
    with passes(model()) as seen:
        fresh.base  # noqa: B018
        base = len(seen)
        with pytest.warns(UserWarning, match=r"sparsity=0\.125 of 8 heads: 32 of 40 masks repeat another"):
            scores = localize(fresh, method="css", n_masks=40, sparsity=0.125)
    assert scores.meta["n_masks"] == 8
    assert scores.evaluations == 9
    one_head_each = passes_of(fresh, [[Head(layer, head)] for layer in range(2) for head in range(4)])
    assert len(seen) - base <= one_head_each
    assert scores.top(1) == [COPIER]


def test_heads_that_no_mask_ablates_are_warned_about_once(recwarn: pytest.WarningsRecorder) -> None:
    localize(measured(), method="csb", n_masks=6, sparsity=0.2, k=1)
    said = [str(each.message) for each in recwarn if "in none or in all" in str(each.message)]
    assert len(said) == 1
    assert said[0].startswith("sparsity=0.2 of 8 heads: ")


def passes_of(measured: MaskedMetric, sets: list[list[Head]]) -> int:
    """How many passes these sets take when each is run for the first time."""
    fresh = MaskedMetric(measured.model, measured.trials, progress=False)
    fresh.base  # noqa: B018
    with passes(measured.model) as seen:
        fresh(np.stack([fresh.mask(heads) for heads in sets]))
    return len(seen)


@pytest.mark.filterwarnings(REPEATED)
@pytest.mark.parametrize("method", ["css", "csb", "csl", "elastic_net"])
def test_a_metric_that_is_the_same_under_every_mask_is_refused(method: str) -> None:
    constant = MaskedMetric(model(), unanswerable(), metric="greedy_match", progress=False)
    with pytest.raises(ValueError, match=r"every mask gives the response 0: nothing to explain\. Ablate more heads"):
        localize(constant, method=method, n_masks=12, sparsity=0.3)


def test_searches_of_a_constant_metric_find_nothing() -> None:
    constant = MaskedMetric(model(), unanswerable(), metric="greedy_match", progress=False)
    assert (one_shot(constant) == 0).all()
    with pytest.warns(UserWarning, match="stopped at 0 of 3 heads: ablating one more does not lower greedy_match"):
        scores = localize(constant, method="greedy", k=3)
    assert scores.order == ()
    assert (scores.values == 0).all()
    assert len(scores.ties(3)) == 3


@pytest.mark.slow
@pytest.mark.filterwarnings(REPEATED)
def test_patience_waits_while_nothing_has_happened_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only with both writers ablated is the answer another, which few masks do: none of the first."""
    monkeypatch.setattr(module, "ROUND", 5)
    coarse = MaskedMetric(model(), FOUND, metric="greedy_match", progress=False)
    response = coarse(different("bernoulli", 120, 0.2)).mean(1)
    assert np.ptp(response[:5]) == 0 < np.ptp(response)
    scores = localize(coarse, method="csb", n_masks=120, sparsity=0.2, k=2, patience=2)
    assert set(scores.top(2)) == {COPIER, WRITER}


@pytest.mark.slow
@pytest.mark.filterwarnings(REPEATED)
def test_a_failed_mask_is_left_out_of_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = different("layer_balanced", 24, 0.5, seed=2)
    values, bad = measured()(masks), measured().heads(masks[3])
    failing(monkeypatch, lambda heads: heads == bad, RuntimeError("boom"))
    with pytest.warns(UserWarning, match="1 of .* failed; the first: RuntimeError: boom"):
        scores = localize(MaskedMetric(model(), FOUND, progress=False), method="csl", n_masks=24, sparsity=0.5, seed=2)
    kept = np.delete(np.arange(len(masks)), 3)
    expected = fit(masks[kept], values[kept], seed=2)
    np.testing.assert_allclose(scores.per_trial.numpy(), expected.per_trial, atol=1e-5)
    assert abs(expected.per_trial - fit(masks, values, seed=2).per_trial).max() > 1e-3
    assert scores.meta["n_masks"] == len(masks) - 1


@pytest.mark.filterwarnings(REPEATED)
def test_too_many_failed_masks_are_no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that ablate the writer fail: the others would say that it costs nothing."""
    failing(monkeypatch, lambda heads: WRITER in heads, RuntimeError("boom"))
    with (
        pytest.warns(UserWarning, match="boom"),
        pytest.raises(RuntimeError, match=r"\d of \d\d masks failed: without them, heads .* would look harmless"),
    ):
        localize(MaskedMetric(model(), FOUND, progress=False), method="css", n_masks=24, sparsity=0.3)


def test_one_head_a_mask_is_named() -> None:
    with pytest.warns(UserWarning, match=r"sparsity=0.15 of 8 heads ablates one at a time.* Use at least 0.25"):
        localize(measured(), method="css", n_masks=8, sparsity=0.15, k=1)


def test_a_search_needs_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, lambda heads: heads == [WRITER], RuntimeError("boom"))
    for run in (one_shot, lambda fresh: greedy(fresh, 2)):
        with (
            pytest.warns(UserWarning, match="boom"),
            pytest.raises(RuntimeError, match=r"1 of 8 runs failed, the first with L1H2 ablated"),
        ):
            run(MaskedMetric(model(), FOUND, progress=False))


BAD: list[tuple[dict[str, Any], str]] = [
    ({"method": "lasso"}, "unknown method 'lasso': use css, csb, csl, elastic_net, greedy, one_shot, best_in_turn"),
    ({"estimator": "ridge"}, "estimator='ridge': use lasso, lasso_1se, bic, paper, script, elastic_net"),
    ({"method": "greedy", "estimator": "lasso"}, "estimator='lasso': greedy uses no regression"),
    ({"n_masks": 1}, "n_masks=1: must be an integer of at least 5 for cross-validation"),
    ({"sparsity": 0.1}, r"sparsity=0.1 of 8 heads is less than one head: use at least 0.13"),
    ({"sparsity": 1.0}, "sparsity=1.0: must lie strictly between 0 and 1"),
    ({"n_masks": 8, "method": "csl"}, "only 4 of the 8 masks differ, and cross-validation needs at least 5"),
    ({"patience": 0}, "patience=0: must be a positive integer"),
    ({"k": 0}, "k=0: must be a positive integer"),
    ({"k": 9}, "k=9: the model has only 8 heads"),
    ({"method": "greedy", "k": 9}, "k=9: must be an integer from 1 to 8, the number of heads"),
    ({"method": "best_in_turn", "k": 9}, "k=9: must be an integer from 1 to 8, the number of heads"),
]


@pytest.mark.filterwarnings(REPEATED)
@pytest.mark.parametrize(("choice", "message"), BAD)
def test_bad_choices_are_refused_before_anything_is_run(choice: dict[str, Any], message: str) -> None:
    options, measured = {"n_masks": 20, "sparsity": 0.3} | choice, MaskedMetric(model(), FOUND, progress=False)
    with passes(model()) as seen, pytest.raises(ValueError, match=re.escape(message)):
        localize(measured, **options)
    assert not seen


def test_a_task_s_name_is_no_trials() -> None:
    with pytest.raises(TypeError, match="trials='capitals': must be a list of Trials"):
        localize_heads(planted.model(), "capitals", kind="zero")  # type: ignore[arg-type]
