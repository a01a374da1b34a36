"""Lists that come again: what was cut off is what followed the first time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_heads.tasks.induction import induction
from tests import zoo


@given(
    n=st.integers(1, 8),
    words=st.integers(4, 40),
    repeats=st.integers(2, 4),
    split=st.sampled_from([None, "select", "test"]),
    seed=st.integers(0, 99),
)
def test_the_answer_is_what_followed_before(n: int, words: int, repeats: int, split: str | None, seed: int) -> None:
    trials = induction(n=n, words=words, repeats=repeats, split=split, seed=seed)
    assert len({trial.id for trial in trials}) == len({trial.question for trial in trials}) == n
    for trial in trials:
        *whole, begun = trial.question.split("\n")
        assert len(whole) == repeats - 1
        assert len(set(whole)) == 1
        said = whole[0].split(", ")
        assert len(set(said)) == len(said) == words
        assert whole[0].startswith(f"{begun} {trial.answer}"), "the list goes on as it did"
        assert said[trial.meta["at"]] == trial.answer
        assert tuple(said) == trial.meta["words"]
        assert begun, "something of the last time comes before the answer"
        assert trial.answer in trial.choices
        assert len(set(trial.choices)) == 4
        assert set(trial.choices) <= set(said)
        *others, corrupt = trial.corrupt[0].split("\n")
        assert sorted(others[0].split(", ")) == sorted(said), "the same words in another order"
        assert others == [others[0]] * (repeats - 1)
        assert others[0].startswith(f"{corrupt} "), "which is a list of its own that goes on as it did"
        assert not others[0].startswith(f"{corrupt} {trial.answer},"), "with another answer"
        assert len(trial.corrupt[0]) == len(trial.question) or trial.meta["at"] == words - 1
    assert trials == induction(n=n, words=words, repeats=repeats, split=split, seed=seed)


def test_every_place_is_cut_and_every_choice_right_sometimes() -> None:
    trials = induction(n=200)
    assert {trial.meta["at"] for trial in trials} == set(range(1, 10))
    places = [sum(trial.choices.index(trial.answer) == at for trial in trials) for at in range(4)]
    assert min(places) > 25


def test_the_splits_share_no_word() -> None:
    def vocabulary(split: str) -> set[str]:
        return {word for trial in induction(n=100, split=split) for word in trial.meta["words"]}

    select, test = vocabulary("select"), vocabulary("test")
    assert not select & test
    assert min(len(select), len(test)) > 100


def test_ids_name_split_seed_and_number() -> None:
    assert [trial.id for trial in induction(n=2, split="test", seed=3)] == ["induction-test-3-0", "induction-test-3-1"]
    assert induction(n=1)[0].id == "induction-all-0-0"
    assert induction(n=1)[0].question != induction(n=1, seed=1)[0].question


def test_the_prompt_ends_with_the_comma() -> None:
    trial = induction(n=1)[0]
    encoded = trial.encode(zoo.tokenizer())
    assert zoo.tokenizer().decode(encoded.tokens) == trial.question
    assert trial.question.endswith(",")
    assert zoo.tokenizer().decode(encoded.answer_tokens) == f" {trial.answer}"


def test_the_judge_reads_up_to_the_next_comma() -> None:
    trial = induction(n=1)[0]
    other = next(word for word in trial.choices if word != trial.answer)
    texts = (
        f" {trial.answer}, {other}",
        f" {trial.answer}",
        f" {other}, {trial.answer}",
        f" {trial.answer} {other}",
        "",
    )
    assert [trial.judge.correct(text, [trial.answer]) for text in texts] == [1, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"words": 3}, "words=3: must be an integer from 4 to [0-9]+, the words of a list"),
        ({"words": 1_000, "split": "test"}, "words=1000: must be an integer from 4 to 1[0-9]{2}, "),
        ({"n": 0}, "n=0: must be a positive integer"),
        ({"repeats": 1}, "repeats=1: must be an integer of at least 2"),
        ({"split": "all"}, "unknown split 'all': use 'select'"),
    ],
)
def test_faults_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        induction(**arguments)
