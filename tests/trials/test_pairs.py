"""Pairs are aligned token by token, or say why they cannot be."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lens_heads as lh
from lens_heads.model.geometry import head_geometry
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.pairs import TokenPair, make_pairs, token_pairs
from lens_heads.trials.tokenizing import piece
from tests import planted, zoo
from tests.conftest import random_trial, tiny


def shape() -> Any:
    return head_geometry(tiny("llama-gqa"))


def pairs(trials: Any, corruption: Any = "remove") -> list[TokenPair]:
    return token_pairs(trials, zoo.tokenizer(), shape(), corruption)


def text_trial(name: str, answer: str, needle: str = "The chef is {}.") -> lh.Trial:
    return lh.Trial(
        id=name,
        question="Who is the chef?",
        answer=answer,
        needle=needle.format(answer),
        haystack="It rained all day. Nobody came. The lamp was lit.",
        template="{haystack} {question} Answer:",
    )


@given(st.integers(1, 30), st.integers(1, 5), st.data())
def test_divergence_is_the_first_difference_or_the_row_before_the_answer(prompt: int, answer: int, data: Any) -> None:
    n = prompt + answer
    clean = torch.arange(3, 3 + n)
    changed = data.draw(st.sets(st.integers(0, prompt - 1)))
    corrupt = clean.clone()
    for at in changed:
        corrupt[at] = 250
    pair = TokenPair(clean, corrupt, (prompt, n), "x")
    expected = min([*changed, prompt - 1])
    assert pair.divergence == expected
    assert torch.equal(pair.clean[: pair.divergence], pair.corrupt[: pair.divergence])
    assert pair.gold.tolist() == clean[prompt:].tolist()


def test_remove_puts_as_many_full_stops_where_the_needle_was() -> None:
    trial = random_trial()
    (pair,) = pairs([trial])
    start, end = trial.needle  # type: ignore[misc]
    stop = piece(zoo.tokenizer(), ".")[0]
    assert pair.corrupt[start:end].tolist() == [stop] * (end - start)
    rest = [i for i in range(len(pair)) if not start <= i < end]
    assert torch.equal(pair.clean[rest], pair.corrupt[rest])
    assert torch.equal(pair.clean[: len(trial)], trial.tokens)
    assert pair.answer == (len(trial), len(trial) + len(trial.answer_tokens))


def test_swap_puts_another_trials_answer_of_the_same_length_into_the_needle() -> None:
    tokenizer = zoo.tokenizer()
    with pytest.warns(UserWarning, match="1 of 3 trials make no pair.*trial b: no other trial's answer has"):
        made = pairs([text_trial("a", "Anna"), text_trial("b", "Bo"), text_trial("c", "Carl")], "swap")
    assert [pair.id for pair in made] == ["a", "c"]
    clean, corrupt = (tokenizer.decode(tokens) for tokens in (made[0].clean, made[0].corrupt))
    assert "The chef is Anna." in clean
    assert corrupt == clean.replace("The chef is Anna.", "The chef is Carl.")


def test_a_function_corrupts_as_it_likes_and_must_keep_the_length() -> None:
    trial = random_trial()
    (pair,) = pairs([trial], lambda encoded: encoded.tokens.flip(0))
    assert torch.equal(pair.corrupt[: len(trial)], trial.tokens.flip(0))
    with pytest.raises(ValueError, match="the corrupt prompt has 23 tokens and the clean one 24"):
        pairs([trial], lambda encoded: encoded.tokens[:-1])


def test_results_know_the_needle_so_that_selection_and_evaluation_can_be_kept_apart() -> None:
    one, other = pairs([random_trial(0), random_trial(1)])
    assert one.made_on.needle != other.made_on.needle != ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corrupt": [5, 6]}, "the corrupt prompt has 2 tokens and the clean one 3"),
        ({"corrupt": [0.5, 1, 2]}, "corrupt must be a list of token ids"),
        ({"corrupt": None}, "trial x has no counterfactual: give the trial corrupt=, or corruption= a function"),
        ({"wrong": []}, r"the wrong answer \[\] must begin with another token"),
    ],
)
def test_wrong_pairs_say_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pairs([own(**change)], "counterfactual")


def own(**fields: Any) -> EncodedTrial:
    given = {"tokens": [5, 6, 7], "needle": None, "answer": "a", "answer_tokens": [8], "id": "x", "corrupt": [5, 9, 7]}
    return EncodedTrial(**{**given, **fields})


def test_without_a_corruption_the_counterfactual_is_taken_or_else_the_needle_removed() -> None:
    (pair,) = pairs([own()], None)
    assert pair.corrupt.tolist() == [5, 9, 7, 8]
    trial = random_trial()
    assert torch.equal(pairs([trial], None)[0].corrupt, pairs([trial], "remove")[0].corrupt)
    with pytest.warns(UserWarning, match="1 of 2 trials make no pair; the first: trial random-0 has no counterfactual"):
        assert [one.id for one in pairs([own(), trial], None)] == ["x"]
    same = make_pairs(own(corrupt=[5, 6, 7]), zoo.tokenizer(), shape())
    assert torch.equal(same[0].tokens, same[0].corrupt), "equal on purpose"


def test_a_trial_s_counterfactual_is_its_prompt_with_the_other_question() -> None:
    tokenizer = zoo.tokenizer()
    trial = dataclasses.replace(text_trial("a", "Anna"), corrupt=("Who?", "Who is the cook?", "Who is the chief"))
    encoded = trial.encode(tokenizer)
    assert tokenizer.decode(encoded.corrupt) == tokenizer.decode(encoded.tokens).replace("chef? A", "cook? A")
    only = dataclasses.replace(trial, corrupt="Who?")
    with pytest.raises(ValueError, match="the corrupt prompt has"):
        pairs([only], None)
    with pytest.raises(ValueError, match=r"corrupt \(3,\) must be non-empty strings"):
        dataclasses.replace(trial, corrupt=(3,))


def test_pairs_are_checked_before_anything_is_run() -> None:
    with pytest.raises(ValueError, match="two trials have the id 'x'"):
        pairs([own(), own()], None)
    with pytest.raises(ValueError, match="a token id lies outside 0 to 255"):
        pairs([own(corrupt=[5, 600, 7])], None)
    with pytest.raises(ValueError, match="512 prompt tokens and 1 to come exceed the context window of 512"):
        pairs([own(tokens=[5] * 512, corrupt=[5] * 512)], None)
    with pytest.raises(ValueError, match="there are no trials"):
        pairs([])
    with pytest.raises(ValueError, match="corruption='noise': use remove, swap, counterfactual, or a function"):
        pairs([own()], "noise")
    with pytest.raises(ValueError, match="has no needle to remove: give the trial corrupt="):
        pairs([dataclasses.replace(random_trial(), needle=None)])


def test_swap_says_when_the_answer_is_not_in_the_needle() -> None:
    with pytest.raises(ValueError, match="the tokens of the answer 'Anna' do not occur in the needle"):
        pairs([text_trial("a", "Anna", "The chef is tall."), text_trial("b", "Carl", "The chef is tall.")], "swap")


def test_planted_prompts_swap_their_capitals() -> None:
    made = pairs(planted.trials(2), "swap")
    a, b = planted.trials(2)
    assert int(made[0].corrupt[a.needle[0] + 3]) == int(b.answer_tokens[0])  # type: ignore[index]
