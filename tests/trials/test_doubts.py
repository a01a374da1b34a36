"""What is probably not meant is told once a call, with the trial's name; special tokens in answers are refused."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.trials.encoding import encode_all
from tests import zoo
from tests.conftest import random_trial

HAY = "Rain fell. Snow lay. A cat slept."
TRIAL = lh.Trial("t", "Where is Tom?", "Oslo", HAY, "Tom is in Oslo.", depth=1)


def heard(trials: Any, template: str | None = None) -> list[str]:
    tokenizer = copy.deepcopy(zoo.tokenizer())
    tokenizer.chat_template = template
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        encode_all(trials, tokenizer, 512)
    return [str(one.message) for one in found]


def test_a_trial_as_it_should_be_is_no_doubt() -> None:
    assert heard([TRIAL, lh.Trial("u", "2 + 2 =", "4", template="{question}"), random_trial()]) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"haystack": "Tom is in Oslo. " + HAY},
        {"template": "{haystack}\nTom is in Oslo.\n{question}"},
        {"question": "Tom is in Oslo. Is he?"},
    ],
)
def test_a_needle_that_stands_elsewhere_too(changes: dict[str, Any]) -> None:
    (said,) = heard([replace(TRIAL, **changes)])
    assert said.startswith("trial t: the needle stands elsewhere in the prompt too")


def test_a_haystack_that_is_cut_before_the_second_needle_holds_it_once() -> None:
    cut = replace(TRIAL, haystack=HAY + " Tom is in Oslo.", length=200 + 15 + 17 + 10)
    assert heard([cut]) == []


def test_a_needle_in_tokens_that_stands_elsewhere_too() -> None:
    one = random_trial()
    start, end = one.needle or (0, 0)
    twice = torch.cat([one.tokens, torch.tensor([200]), one.tokens[start + 1 : end]])
    (said,) = heard([replace(one, tokens=twice)])
    assert "random-0: the needle stands elsewhere" in said
    assert heard([replace(one, tokens=twice, needle=(start, start + 3))]) == [], "three tokens may do so by accident"


def test_an_answer_that_stands_nowhere_in_the_needle() -> None:
    (said,) = heard([replace(TRIAL, answer="Bergen")])
    assert said.startswith("trial t: the answer 'Bergen' stands nowhere in the needle 'Tom is in Oslo.'")
    for fine in ({"answer": "OSLO"}, {"aliases": ("Oslo",)}, {"choices": ("Bergen", "Oslo")}, {"needle": ""}):
        assert heard([replace(TRIAL, **{"answer": "Bergen", **fine})]) == []


def test_a_prompt_that_ends_in_a_space_of_its_own() -> None:
    spaced = replace(TRIAL, template="{haystack}\n{question} Answer: ")
    (said,) = heard([spaced])
    assert said.startswith("trial t: the prompt ends in a space")
    assert heard([replace(spaced, template="{haystack}\n{question}\n")]) == []
    assert heard([TRIAL], "[user] {{ messages[0]['content'] }} [assistant] ") == [], "the family's own"


def test_a_prompt_that_ends_in_thinking() -> None:
    (said,) = heard([TRIAL], "[user] {{ messages[0]['content'] }} [assistant] <think>\n")
    assert said.startswith("trial t: the prompt ends inside a block of thinking ('<think>')")
    assert heard([replace(TRIAL, chat=False)], "{{ messages[0]['content'] }}<think>\n") == []


def test_each_doubt_is_told_once_for_all_trials() -> None:
    doubtful = [replace(TRIAL, id=f"t{i}", answer="Bergen", haystack=TRIAL.needle + " " + HAY) for i in range(3)]
    said = heard([TRIAL, *doubtful])
    assert len(said) == 2
    assert all(one.startswith("trial t0 (and 2 more): the ") for one in said)


def test_special_tokens_in_an_answer_are_refused() -> None:
    one, tokenizer = random_trial(), zoo.tokenizer()
    marked = torch.tensor([tokenizer.bos_token_id, 77])
    wrong = (
        replace(one, answer_tokens=marked),
        replace(one, choices=("x", "y"), choice_tokens=(torch.tensor([5]), marked)),
        lh.Trial("random-0", "Who?", "Ann<eos>"),
    )
    for trial, name in zip(wrong, ("<bos>", "<bos>", "<eos>"), strict=True):
        with pytest.raises(
            ValueError, match=f"trial random-0: the tokens of the answer .* contain the special token '{name}'"
        ):
            encode_all(trial, tokenizer, 512)
