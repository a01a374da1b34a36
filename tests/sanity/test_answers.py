"""Labels permuted: every trial keeps its prompt and is judged by what answers another question."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lens_heads as lh
from lens_heads.sanity.answers import permuted_answers
from lens_heads.trials.judges import ExactMatch, FirstNumber, Judge
from lens_heads.trials.trial import Trial
from tests import planted, zoo

JUDGES = (Judge(), ExactMatch(), FirstNumber())


def trial(i: int, answer: str, **settings: Any) -> Trial:
    defaults: dict[str, Any] = {"template": "{question}", "chat": False, "group": f"g{i}", "meta": {"i": i}}
    return Trial(**{"id": f"t{i}", "question": f"Which is {i}?", "answer": answer, **defaults, **settings})


NAMES = ("Ann", "Bo", "Cy", "Di", "Ed")
FIVE = [
    trial(i, name, aliases=(f"{name} Fox",), judge=JUDGES[i % 3], choices=(name, "x")) for i, name in enumerate(NAMES)
]


@pytest.mark.parametrize("seed", range(5))
def test_prompts_stay_and_labels_move_whole(seed: int) -> None:
    before = [replace(one) for one in FIVE]
    made = permuted_answers(FIVE, seed=seed)
    assert before == FIVE, "the originals stay"
    assert sorted(one.answer for one in made) == sorted(NAMES)
    for mine, was in zip(made, FIVE, strict=True):
        giver = next(one for one in FIVE if one.answer == mine.answer)
        assert giver is not was
        label = {name: getattr(giver, name) for name in ("answer", "aliases", "judge", "choices")}
        assert mine == replace(was, id=f"{was.id}-answer-of-{giver.id}", **label)
        assert isinstance(mine, Trial)
        assert mine.encode(zoo.tokenizer()).tokens.tolist() == was.encode(zoo.tokenizer()).tokens.tolist()


def test_trials_in_tokens_move_their_tokens_too() -> None:
    trials = planted.trials()
    for mine, was in zip(permuted_answers(trials, seed=1), trials, strict=True):
        giver = next(one for one in trials if one.answer == mine.answer)
        assert giver is not was
        assert isinstance(mine, type(was))
        assert torch.equal(mine.tokens, was.tokens)
        assert torch.equal(mine.answer_tokens, giver.answer_tokens)
        assert mine.needle == was.needle
        assert mine.id == f"{was.id}-answer-of-{giver.id}"


def test_a_model_that_answers_every_trial_answers_none() -> None:
    model, trials = planted.model(), planted.trials()
    for judged, expected in ((trials, 1), (permuted_answers(trials), 0)):
        assert lh.evaluate(model, judged, generate=False, progress=False).mean("greedy_match") == expected


def test_seeds() -> None:
    drawn = [[one.id for one in permuted_answers(FIVE, seed=seed)] for seed in range(40)]
    assert drawn == [[one.id for one in permuted_answers(FIVE, seed=seed)] for seed in range(40)]
    assert len({tuple(ids) for ids in drawn}) > 20, "of 44 derangements of five"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"answer": "A"}, {"answer": "A"}),
        ({"answer": "A"}, {"answer": "a "}),
        ({"answer": "Rome"}, {"answer": "in rome."}),
        ({"answer": "3,5"}, {"answer": "x", "aliases": ("3,5",)}),
        ({"answer": "x", "aliases": ("No",)}, {"answer": "y", "aliases": ("No one",)}),
        ({"answer": "+"}, {"answer": "+"}),
        ({"answer": "北京"}, {"answer": "北京"}),
    ],
)
def test_equal_answers_never_meet(one: dict[str, Any], other: dict[str, Any]) -> None:
    pair = [trial(0, **one), trial(1, **other)]
    with pytest.raises(ValueError, match=r"trial t[01] would get no other answer: pass trials whose answers vary more"):
        permuted_answers(pair)
    for seed in range(10):
        made = permuted_answers([*pair, trial(2, "Oslo"), trial(3, "Lima")], seed=seed)
        assert {mine.answer for mine in made[:2]} == {"Oslo", "Lima"}


@pytest.mark.parametrize(("one", "other"), [("-5", "5"), ("A", "B"), ("Romer", "Rome"), ("12", "2")])
def test_different_answers_do(one: str, other: str) -> None:
    made = permuted_answers([trial(0, one), trial(1, other)])
    assert [mine.answer for mine in made] == [other, one]


@given(answers=st.lists(st.sampled_from(NAMES[:3]), min_size=1, max_size=6), seed=st.integers(0, 9))
def test_a_permutation_is_found_whenever_there_is_one(answers: list[str], seed: int) -> None:
    trials = [trial(i, answer) for i, answer in enumerate(answers)]
    possible = [order for order in permutations(answers) if all(a != b for a, b in zip(order, answers, strict=True))]
    if possible:
        assert tuple(mine.answer for mine in permuted_answers(trials, seed=seed)) in possible
    else:
        with pytest.raises(ValueError, match="would get no other answer"):
            permuted_answers(trials, seed=seed)


def test_bad_input() -> None:
    encoded = [one.encode(zoo.tokenizer()) for one in FIVE]
    with pytest.raises(ValueError, match="trials t0 and t1 are of two kinds: pass only Trial or only EncodedTrial"):
        permuted_answers([FIVE[0], *encoded[1:]])
    with pytest.raises(ValueError, match="two trials have the id 't0'"):
        permuted_answers([FIVE[0], FIVE[0]])
    with pytest.raises(ValueError, match="there are no trials"):
        permuted_answers([])
    with pytest.raises(ValueError, match="trial t0 would get no other answer"):
        permuted_answers(FIVE[0])
    for wrong in (None, "t0", [FIVE[0], 3]):
        with pytest.raises(TypeError, match="must be a list of Trials"):
            permuted_answers(wrong)  # type: ignore[arg-type]
