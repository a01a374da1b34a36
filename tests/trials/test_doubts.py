"""What is probably not meant is told once a call, with the trial's name; special tokens in answers are refused."""

from __future__ import annotations

import copy
import re
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.trials.checked_tokens import encode_all
from tests import zoo
from tests.conftest import random_trial

HAY = "Rain fell. Snow lay. A cat slept."
TRIAL = lh.Trial("t", "Where is Tom?", "Oslo", HAY, "Tom is in Oslo.", depth=1)


OWN = lh.prompt_trial(zoo.tokenizer(), "Tom is in Oslo. Where is Tom?", "Oslo", id="own")


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
    one = replace(random_trial(), answer=OWN.answer, answer_tokens=OWN.answer_tokens, vocabulary=OWN.vocabulary)
    needle = torch.tensor(zoo.tokenizer()("Tom is in Oslo.", add_special_tokens=False).input_ids)
    tokens = torch.cat([one.tokens, needle, one.tokens])
    one = replace(one, tokens=tokens, needle=(len(one), len(one) + len(needle)))
    twice = torch.cat([one.tokens, torch.tensor([200]), needle[1:6]])
    assert heard([one]) == []
    (said,) = heard([replace(one, tokens=torch.cat([one.tokens, torch.tensor([200]), needle[1:]]))])
    assert "random-0: the needle stands elsewhere" in said
    assert heard([replace(one, tokens=twice)]) == [], "a part of it"


def test_an_answer_that_stands_nowhere_in_the_needle() -> None:
    (said,) = heard([replace(TRIAL, answer="Bergen")])
    assert said.startswith("trial t: the answer 'Bergen' stands nowhere in the needle 'Tom is in Oslo.'")
    for fine in ({"answer": "OSLO"}, {"aliases": ("Oslo",)}, {"choices": ("Bergen", "Oslo")}, {"needle": ""}):
        assert heard([replace(TRIAL, **{"answer": "Bergen", **fine})]) == []
    marked = lh.prompt_trial(zoo.tokenizer(), "Tom is in Oslo. Where is Tom?", "Oslo", needle="Tom is in")
    (said,) = heard([marked])
    assert said.startswith("trial prompt: the answer 'Oslo' stands nowhere in the needle 'Tom is in'")


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
    (said,) = heard([replace(TRIAL, question="Is Tom in Oslo?")])
    assert said.startswith("trial t: the answer 'Oslo' stands outside the needle too")
    assert heard([replace(TRIAL, template="Say Oslo or Bergen.\n{haystack}\n{question}")]) == [], (
        "an instruction may name it"
    )
    twice = "Tom is in Oslo. Ann was in Oslo. Where is Tom?"
    (said,) = heard([lh.prompt_trial(zoo.tokenizer(), twice, "Oslo", needle="Tom is in Oslo.")])
    assert said.startswith("trial prompt: the answer 'Oslo' stands outside the needle too")


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
    begun = zoo.with_bos(zoo.tokenizer())
    with pytest.warns(
        UserWarning, match="trial own: the prompt begins with 'Tom .* and this model's prompts with '<bos>'"
    ):
        encode_all(OWN, begun, 512)
    bos = torch.tensor([begun.bos_token_id])
    once, twice = torch.cat([bos, OWN.tokens]), torch.cat([bos, bos, OWN.tokens])
    (said,) = heard([replace(OWN, tokens=once)])
    assert said.startswith("trial own: the prompt begins with '<bos>', and this model's prompts with no BOS")
    framed = "{{ bos_token }}[user] {{ messages[0]['content'] }} [assistant]"
    assert heard([replace(OWN, tokens=once)], framed) == [], "its chats do"
    (said,) = heard([replace(OWN, tokens=twice)])
    assert said.startswith("trial own: the prompt begins twice, with '<bos><bos>")


def test_an_answer_and_its_tokens_that_disagree() -> None:
    (said,) = heard([replace(OWN, answer="Bergen")])
    assert said.startswith("trial own: the answer is 'Bergen', but its tokens read ' Oslo'")
    assert heard([replace(OWN, answer="oslo, Norway")]) == [], "its beginning may do"


def test_an_answer_in_tokens_of_ones_own_without_the_space_before_it() -> None:
    tokenizer, known = zoo.tokenizer(), replace(OWN, vocabulary="")
    bare = torch.tensor(tokenizer("Oslo", add_special_tokens=False).input_ids)
    ends = {"Tom is in": True, "Where is Tom?": True, "Tom (": False, "Where is Tom?\n": False}
    for prompt, doubtful in ends.items():
        tokens = torch.tensor(tokenizer(prompt, add_special_tokens=False).input_ids)
        said = heard([replace(known, tokens=tokens, question=None, answer_tokens=bare)])
        assert len(said) == doubtful, prompt
        assert heard([replace(known, tokens=tokens, question=None)]) == [], "with its space"
        assert heard([replace(OWN, tokens=tokens, question=None, answer_tokens=bare)]) == [], (
            "by prompt_trial(spaced=False)"
        )
        if said:
            assert said[0].startswith(
                "trial own: the tokens of the answer 'Oslo' begin without a space, and the prompt ends in"
            )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"answer": "Oslo\n"}, "the answer 'Oslo\\n' ends in whitespace"),
        ({"choices": ("Oslo", "Bergen ")}, "the answer 'Bergen ' ends in whitespace"),
        ({"template": "{haystack}\n{question} Oslo"}, "the prompt ends in the answer 'Oslo' already"),
        ({"template": "{context}{haystack}\n{question}"}, "its template holds '{context}', which stays in the prompt as it is"),
        ({"length": 400}, "its prompt has .. tokens, not about length=400, since its haystack has no more"),
        ({"question": "<|im_start|>user\nWhere is Tom?"}, "its text holds '<|im_start|>', a marker of other models' chats"),
        ({"template": "[INST] {haystack}\n{question} [/INST]"}, "its text holds '[INST]', a marker of other models' chats"),
    ],
)  # fmt: skip
def test_slips_of_a_trial(changes: dict[str, Any], said: str) -> None:
    (found,) = heard([replace(TRIAL, **changes)])
    assert re.match(re.escape(f"trial t: {said}").replace(r"has\ \.\.", r"has\ \d\d"), found)


def test_what_looks_like_a_slip_and_is_none() -> None:
    assert heard([replace(TRIAL, template="{haystack}\n{question} Oslonian")]) == [], "the prompt ends in another word"
    assert heard([replace(TRIAL, length=200 + 60)]) == [], "about as long as asked"
    template = "[INST] {{ messages[0]['content'] }} [/INST]"
    assert heard([replace(TRIAL, template="[INST] {haystack} {question} [/INST]", chat=False)], template) == []


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
    doubtful = [
        replace(TRIAL, id=f"t{i}", answer="Bergen", haystack=TRIAL.needle + " " + HAY + " Ha." * i) for i in range(3)
    ]
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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"judge": lh.Judge(cut=("s",))}, "its judge (Judge, rule 'contains') calls the answer 'Oslo' itself wrong"),
        ({"choices": ("Oslo", "Oslo city")}, "the choice 'Oslo' is how another one begins"),
        ({"template": "{haystack}\n{{question}}"}, "its template has doubled braces"),
        ({"needle_focus": "Tom is"}, "the answer 'Oslo' stands nowhere in the needle 'Tom is'"),
        ({"haystack": "rain " * 90, "depth": 0.6}, "its needle stands at 0.0"),
    ],
)
def test_more_slips_of_a_trial(changes: dict[str, Any], said: str) -> None:
    (found,) = heard([replace(TRIAL, **changes)])
    assert found.startswith(f"trial t: {said}")


def test_tokens_that_end_in_padding() -> None:
    tokenizer = zoo.tokenizer()
    padded = torch.cat([OWN.tokens, torch.tensor([tokenizer.eos_token_id] * 3)])
    (said,) = heard([replace(OWN, tokens=padded)])
    assert said.startswith("trial own: the prompt ends in '<eos>', after which no answer is expected")


def test_an_answer_longer_than_what_is_generated() -> None:
    with pytest.warns(
        UserWarning, match=r"trial t: the answer .* tokens, and no more than 1 are generated \(1 of 1 trials\)"
    ):
        encode_all([replace(TRIAL, answer="in Oslo")], zoo.tokenizer(), 512, room=1)


def test_one_needle_in_groups_of_their_own() -> None:
    apart = [replace(TRIAL, id=f"t{i}", question=TRIAL.question + "?" * i, group=f"g{i}") for i in range(3)]
    (said,) = heard(apart)
    assert said.startswith("trials t0, t1, t2 share a needle, but each has a group of its own")
    assert heard([replace(one, group="one") for one in apart]) == []
    assert heard([replace(one, group=("one", f"template {i}")) for i, one in enumerate(apart)]) == [], "crossing groups"
    (said,) = heard([replace(one, group=(f"g{i}", f"template {i}")) for i, one in enumerate(apart)])
    assert "share a needle" in said
