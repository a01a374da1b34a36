"""Needle against distractor: a plain loop, what is refused, nulls, several distractors, and planted heads of both kinds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.ranking.one_pass.scorers import NAMED_SCORERS, SCORERS
from tests import reference, zoo
from tests.conftest import random_trial

NAMES = [name for name in NAMED_SCORERS if name.endswith("_vs_distractor")]
TRIAL = replace(random_trial(n=30), distractors=((14, 18), (20, 25)), wrong=random_trial(n=30).tokens[15:17])
Q: dict[str, Any] = {"teacher_forced": True, "progress": False}


@pytest.mark.parametrize("direction", ["raw", "exact"])
def test_the_method_at_the_needle_minus_at_the_distractors(arch: str, model: Any, direction: str) -> None:
    found = lh.score_heads(model, TRIAL, NAMES, direction=direction, **Q)
    plain = reference.Plain(zoo.hf_model(arch), torch.cat([TRIAL.tokens, TRIAL.answer_tokens[:-1]]))
    steps = TRIAL.answer_tokens.tolist()
    for name in NAMES:
        method = name.removesuffix("_vs_distractor")
        exact = direction == "exact" or method == "locos_exact"

        def at(span: tuple[int, int], method: str = method, exact: bool = exact) -> torch.Tensor:
            base = "locos" if method == "locos_exact" else method
            return reference.score(base, plain, len(TRIAL), span, steps, [0, 1, 2], exact=exact)

        expected = at(TRIAL.needle) - (at(TRIAL.distractors[0]) + at(TRIAL.distractors[1])) / 2
        torch.testing.assert_close(found[name].values, expected, atol=5e-5, rtol=2e-3, msg=name)


@pytest.mark.parametrize("name", ["locos_choice", "locos_choice_exact", "dla_choice", "dla_choice_exact"])
def test_what_is_written_for_the_right_answer_rather_than_the_wrong_one(arch: str, model: Any, name: str) -> None:
    found = lh.score_heads(model, TRIAL, name, **Q)[name].values
    plain = reference.Plain(zoo.hf_model(arch), torch.cat([TRIAL.tokens, TRIAL.answer_tokens[:-1]]))
    row, exact = len(TRIAL) - 1, name.endswith("_exact")
    spans = [TRIAL.needle, *TRIAL.distractors] if name.startswith("locos") else [(0, row + 1)]
    for layer, head in ((0, 0), (1, 3), (2, 2)):
        right, wrong = (
            plain.direction(layer, row, int(tokens[0]), exact) for tokens in (TRIAL.answer_tokens, TRIAL.wrong)
        )
        keys = [key for start, end in spans for key in range(start, end)]
        expected = sum(reference.phi(plain, layer, head, row, key, right - wrong) for key in keys)
        assert float(found[layer, head]) == pytest.approx(expected, abs=5e-5, rel=2e-3)


def test_the_choice_of_all_heads_is_the_logit_difference_they_write(gqa: Any) -> None:
    """`dla_choice_exact` is `dla_exact` of the right token minus that of the wrong one, in the same row."""
    asked = replace(TRIAL, answer_tokens=TRIAL.answer_tokens[:1])
    other = replace(asked, answer_tokens=TRIAL.wrong[:1], wrong=asked.answer_tokens)
    choice, back = (
        lh.score_heads(gqa, one, "dla_choice_exact", **Q)["dla_choice_exact"].values for one in (asked, other)
    )
    right, wrong = (lh.score_heads(gqa, one, "dla_exact", **Q)["dla_exact"].values for one in (asked, other))
    torch.testing.assert_close(choice, right - wrong, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(choice, -back, atol=1e-5, rtol=1e-4)


def test_every_score_of_a_needle_has_one_and_none_runs_unless_it_is_named() -> None:
    usual = {name for name, scorer in SCORERS.items() if scorer.reads_needle}
    assert {name.removesuffix("_vs_distractor") for name in NAMES} == usual


def test_a_trial_without_a_distractor_is_refused(gqa: Any) -> None:
    with pytest.raises(
        ValueError,
        match="method 'locos_vs_distractor': it compares the needle with a distractor, and trial random-1 has",
    ):
        lh.score_heads(gqa, [TRIAL, random_trial(1)], "locos_vs_distractor", **Q)
    with pytest.raises(
        ValueError, match="method 'dla_choice': it compares the answer with a wrong one, and trial random-1 has none"
    ):
        lh.score_heads(gqa, [TRIAL, random_trial(1)], "dla_choice", **Q)


def test_a_batch_and_other_spans_equal_single_runs(gqa: Any) -> None:
    trials = [TRIAL, replace(random_trial(1, n=40), distractors=((20, 24),))]
    whole = lh.score_heads(gqa, trials, NAMES, null_spans=3, batch_size=2, **Q)
    for at, trial in enumerate(trials):
        alone = lh.score_heads(gqa, trial, NAMES, null_spans=3, **Q)
        for name in NAMES:
            torch.testing.assert_close(whole[name].per_trial[at], alone[name].per_trial[0], atol=1e-5, rtol=1e-3)
    moved = [replace(NAMED_SCORERS[name]) for name in NAMES]  # As a user's, with a view for every span.
    for name, found in lh.score_heads(gqa, trials, moved, null_spans=3, **Q).items():
        torch.testing.assert_close(found.null, whole[name].null, atol=1e-5, rtol=1e-3)


@pytest.mark.slow
def test_a_head_that_writes_any_name_does_not_choose() -> None:
    """Plain LOCOS gives it more than a third of what the head has that reads the question; the choice less than a tenth."""
    none = dict.fromkeys(("writers", "suppressors", "backups", "chains"), 0)
    planted = lh.planted_model(layers=3, copiers=1, selectors=1, **none)
    names = ["locos", "locos_choice", "dla_choice", "attention_mass_vs_distractor"]
    found = lh.score_heads(planted.model, planted.trials(24, distractors=1), names, **Q)
    (selector,), (copier,) = planted.of("selector"), planted.of("copier")
    assert found["locos"][copier] > found["locos"][selector] / 3
    for name in names[1:]:
        assert found[name].top(1) == [selector]
        assert abs(found[name][copier]) < found[name][selector] / 10, name
