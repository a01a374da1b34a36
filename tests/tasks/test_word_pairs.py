"""Word pairs: examples of other words, true or shuffled answers, halves that share no word."""

from __future__ import annotations

import pytest

from lens_heads.tasks.word_pairs import RELATIONS, word_pairs


@pytest.mark.parametrize("relation", RELATIONS)
def test_examples_and_answers(relation: str) -> None:
    trials = word_pairs(relation=relation, split="test", shots=5)
    known = {trial.meta and trial.id.rsplit("-", 1)[1]: trial.answer for trial in trials}
    assert len(trials) >= 30
    for trial in trials:
        *shown, asked = trial.question.split("\n\n")
        assert len(shown) == 5
        word = asked.removeprefix("Q: ").removesuffix("\nA:")
        for example in shown:
            other, partner = example.removeprefix("Q: ").split("\nA: ")
            assert other != word
            assert known.get(other, partner) == partner
        assert trial.id == f"{relation.replace(' ', '-')}-5-true-{word}"
        assert trial.judge.correct(f" {trial.answer}", [trial.answer])


def test_shuffled_labels_are_all_wrong_and_the_words_stay() -> None:
    true, shuffled, none = (
        word_pairs(n=12, shots=shots, labels=labels) for shots, labels in ((8, "true"), (8, "shuffled"), (0, "true"))
    )  # type: ignore[arg-type]
    known = dict(
        example.removeprefix("Q: ").split("\nA: ") for trial in true for example in trial.question.split("\n\n")[:-1]
    )
    for trial in shuffled:
        shown = [example.removeprefix("Q: ").split("\nA: ") for example in trial.question.split("\n\n")[:-1]]
        assert {partner for _, partner in shown} <= {*known.values(), *(t.answer for t in word_pairs())}
        assert all(known.get(word) != partner for word, partner in shown if word in known)
    assert {trial.group for trial in none} == {trial.group for trial in true}
    assert all("\n\n" not in trial.question for trial in none)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("split", [None, "select"])
def test_no_shuffled_example_is_true(relation: str, split: str | None) -> None:
    true = dict(
        example.removeprefix("Q: ").split("\nA: ")
        for trial in word_pairs(relation=relation, shots=20)
        for example in trial.question.split("\n\n")[:-1]
    )
    for shots in (1, 2, 3, 10):
        for trial in word_pairs(relation=relation, shots=shots, labels="shuffled", split=split):
            *shown, asked = trial.question.split("\n\n")
            pairs = [example.removeprefix("Q: ").split("\nA: ") for example in shown]
            assert len(pairs) == shots
            assert all(true[word] != partner for word, partner in pairs)
            assert all(partner in true.values() for _, partner in pairs)
            assert trial.answer == true[asked.removeprefix("Q: ").removesuffix("\nA:")]
            assert trial.answer not in [partner for _, partner in pairs]


def test_halves_share_no_word() -> None:
    halves = [{trial.group for trial in word_pairs(split=split)} for split in ("select", "test")]
    assert halves[0].isdisjoint(halves[1])
    assert len(halves[0]) == len(halves[1]) == 32


def test_bad_arguments() -> None:
    for given, message in (
        ({"relation": "plural"}, "unknown relation 'plural': use 'antonym', 'past tense' or 'capital'"),
        ({"labels": "wrong"}, "unknown labels 'wrong'"),
        ({"shots": 64}, "shots=64: must be an integer from 0 to 63, the other words"),
        ({"n": 100}, "n=100 is out of range: there are 64 words"),
    ):
        with pytest.raises(ValueError, match=message):
            word_pairs(**given)  # type: ignore[arg-type]
