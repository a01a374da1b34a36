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


OWN = lh.prompt_trial(zoo.with_bos(zoo.tokenizer()), "Tom is in Oslo. Where is Tom?", "Oslo", id="own")


def heard(trials: Any, template: str | None = None) -> list[str]:
    tokenizer = copy.deepcopy(zoo.tokenizer())
    tokenizer.chat_template = template
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        encode_all(trials, tokenizer, 512)
    return [str(one.message) for one in found]


def test_a_trial_as_it_should_be_is_no_doubt() -> None:
    assert heard([TRIAL, lh.Trial("u", "2 + 2 =", "4", template="{question}"), OWN]) == []


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
    one = replace(random_trial(), answer="own", answer_tokens=OWN.answer_tokens)
    one = replace(one, answer=OWN.answer, tokens=torch.cat([OWN.tokens[:1], one.tokens]), needle=(8, 12))
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


def test_an_answer_that_stands_in_the_haystack_too() -> None:
    (said,) = heard([replace(TRIAL, haystack="Oslo is old. " + HAY)])
    assert said.startswith("trial t: the answer 'Oslo' stands outside the needle too")
    assert heard([replace(TRIAL, haystack="Osloites ski. " + HAY)]) == [], "only as a word"
    assert heard([replace(TRIAL, question="Is Tom in Oslo?")]) == [], "a question may name it"


@pytest.mark.parametrize("part", ["question", "haystack", "needle"])
def test_special_tokens_typed_into_a_text(part: str) -> None:
    typed = replace(TRIAL, **{part: getattr(TRIAL, part) + " <eos> Rain."})
    (said,) = heard([typed])
    assert said.startswith("trial t: its text holds '<eos>', which the model reads as a special token")
    assert heard([replace(TRIAL, template="{haystack}<eos>{question}")]) == [], "a frame of one's own"
    with pytest.raises(
        ValueError, match=r"trial t: its text holds '<eos>', a special token, and the chat template would"
    ):
        heard([typed], "[user] {{ messages[0]['content'] }} [assistant]")


def test_a_text_that_a_chat_template_has_framed_is_not_framed_again() -> None:
    template = "<eos>[user] {{ messages[0]['content'] }} [assistant]"
    framed = lh.Trial("t", "<eos>[user] Where is Tom? [assistant]", "Oslo", template="{question}")
    with pytest.raises(ValueError, match="use chat=False for a text that has its frame already"):
        heard([framed], template)
    heard([replace(framed, chat=False)], template)
    assert heard([replace(framed, question="Where is Tom?")], template) == []


def test_tokens_of_ones_own_that_begin_as_no_prompt_of_the_model_does() -> None:
    begun, bos = zoo.with_bos(zoo.tokenizer()), OWN.tokens[:1]
    with pytest.warns(
        UserWarning, match="trial own: the prompt begins with 'Tom .* and this model's prompts with '<bos>'"
    ):
        encode_all(replace(OWN, tokens=OWN.tokens[1:]), begun, 512)
    assert heard(replace(OWN, tokens=OWN.tokens[1:])) == [], "this one's prompts do"
    (said,) = heard([replace(OWN, tokens=torch.cat([bos, OWN.tokens]))])
    assert said.startswith("trial own: the prompt begins twice, with '<bos><bos>")


def test_an_answer_and_its_tokens_that_disagree() -> None:
    (said,) = heard([replace(OWN, answer="Bergen")])
    assert said.startswith("trial own: the answer is 'Bergen', but its tokens read ' Oslo'")
    assert heard([replace(OWN, answer="oslo, Norway")]) == [], "its beginning may do"


def test_tokens_of_another_vocabulary_are_refused() -> None:
    other = copy.deepcopy(zoo.tokenizer())
    words = other.get_vocab()
    a, b = list(words)[50:52]
    other.get_vocab = lambda: {**words, a: words[b], b: words[a]}
    with pytest.raises(ValueError, match="trial own: its tokens are from another vocabulary than that of"):
        encode_all(OWN, other, 512)
    encode_all(replace(OWN, vocabulary=""), other, 512)
    added = copy.deepcopy(zoo.tokenizer())
    added.add_tokens(["<mark>"])
    encode_all(OWN, added, 512)


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
