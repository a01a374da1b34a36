"""A head that reads the question and a head that writes any name: two needles tell them apart, one needle does not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.sanity.planted_weights import FILLER

Q: dict[str, Any] = {"progress": False}


@cache
def planted(copiers: int = 1, selectors: int = 1) -> lh.sanity.Planted:
    none = dict.fromkeys(("writers", "suppressors", "backups", "chains"), 0)
    return lh.planted_model(layers=3, copiers=copiers, selectors=selectors, **none)


@cache
def trials() -> tuple[lh.EncodedTrial, ...]:
    return tuple(planted().trials(24, distractors=1))


def one_needle() -> list[lh.EncodedTrial]:
    """The same questions with filler in the place of the distractor, so that one name is left."""
    letter = planted().ids[FILLER[0]]
    found = []
    for one in trials():
        tokens = one.tokens.clone()
        tokens[slice(*one.distractors[0])] = letter
        found.append(replace(one, tokens=tokens, distractors=(), corrupt=None))
    return found


def mean(asked: Any, metric: str, ablated: Any = ()) -> float:
    if not ablated:
        return lh.evaluate(planted().model, asked, generate=False, **Q).mean(metric)
    with lh.ablate(planted().model, ablated, kind="zero"):
        return lh.evaluate(planted().model, asked, generate=False, **Q).mean(metric)


@pytest.mark.slow
@pytest.mark.parametrize(("role", "carries"), [("selector", True), ("copier", False), ("decoy", False)])
def test_the_choice_says_which_head_reads_the_question(role: str, carries: bool) -> None:
    whole = mean(trials(), "choice_margin")
    left = mean(trials(), "choice_margin", planted().of(role))
    assert whole > 3
    assert (left < 0.1 * whole) if carries else (left > 0.95 * whole)


@pytest.mark.slow
def test_one_name_in_the_passage_tells_nothing() -> None:
    """Both heads cost the answer, and the log-probability alone takes the one for the other with two names, too."""
    for asked in (one_needle(), trials()):
        whole = mean(asked, "logprob")
        for role in ("selector", "copier"):
            assert whole - mean(asked, "logprob", planted().of(role)) > 0.5, role
        assert whole - mean(asked, "logprob", planted().of("decoy")) < 0.05


def test_exchanged_questions_are_the_counterfactual() -> None:
    exchanged = lh.tasks.exchange_questions(trials())
    for one, other in zip(trials(), exchanged, strict=True):
        assert isinstance(other, lh.EncodedTrial)
        assert one.corrupt is not None
        assert torch.equal(one.corrupt, other.tokens)
        assert (other.needle, other.distractors) == (one.distractors[0], (one.needle,))
        (again,) = lh.tasks.exchange_questions(other)
        assert (again.answer, again.needle) == (one.answer, one.needle)
    assert mean(exchanged, "choice") == 1
    with pytest.raises(ValueError, match="is in tokens and lacks its other question"):
        lh.tasks.exchange_questions(one_needle())


@pytest.mark.slow
def test_patching_with_the_other_question_finds_what_the_question_selects() -> None:
    found = lh.patch_heads(
        planted().model, list(trials()), metric="first_token_logit_diff", corruption="counterfactual", **Q
    )
    (selector,), (copier,) = planted().of("selector"), planted().of("copier")
    assert found.top(1) == [selector]
    assert abs(found[copier]) < 0.05 * found[selector]


@pytest.mark.slow
def test_a_model_that_answers_without_the_question_fails_the_gate() -> None:
    does = lh.ability(planted().model, trials(), **Q)
    assert does.exchanged is not None
    assert does.does
    assert does.choice().value == 1
    blind = planted(copiers=2, selectors=0)
    found = lh.ability(blind.model, blind.trials(24, distractors=1), **Q)
    assert not found.does
    assert found.choice().value == pytest.approx(0.5, abs=0.15), "what it prefers is right under one of two questions"
    alone = [replace(one, distractors=()) for one in one_needle()]
    with_one = lh.evaluate(blind.model, alone, generate=False, **Q)
    assert with_one.mean("greedy_match") == 1, "with one name in the passage it looks able"


def test_there_is_one_distractor() -> None:
    with pytest.raises(ValueError, match="distractors=2: must be an integer from 0 to 1"):
        planted().trials(2, distractors=2)


def test_without_its_needles_a_prompt_in_tokens_holds_neither() -> None:
    for one, bare in zip(trials(), lh.sanity.without_needle(trials()), strict=True):
        assert isinstance(bare, lh.EncodedTrial)
        assert (bare.needle, bare.distractors, bare.corrupt) == (None, (), None)
        taken = sum(end - start for start, end in (one.needle or (0, 0), *one.distractors))
        assert len(bare.tokens) == len(one.tokens) - taken
        assert not {*bare.tokens.tolist()} & {planted().ids[answer] for answer in "ABCDEFGH("}


@pytest.mark.slow
@pytest.mark.parametrize("selectors", [1, 0])
def test_a_model_that_writes_any_name_needs_no_question(selectors: int) -> None:
    """With a selector, the other question takes what the needle is worth; heads that write any name answer it as well."""
    made = planted(copiers=1, selectors=selectors)
    found = lh.question_need(made.model, made.trials(24, distractors=1), **Q)
    assert found.decides is bool(selectors), str(found)
