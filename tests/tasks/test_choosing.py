"""Packaged trials with distractors: the question decides, halves share nothing, and exchanged questions align."""

from __future__ import annotations

import itertools
import re
import warnings
from itertools import combinations
from typing import Any

import pytest

import lens_heads as lh
from lens_heads.tasks import choosing, prose
from lens_heads.tasks.choosing import QUESTIONS, STYLES, relations
from lens_heads.trials.checked_tokens import encode_all
from tests import zoo

SPLITS = ("select", "test")
SMALL = "a an the of in on to and with who whose which what where is was does do for by from has have had it its that this as at"
SMALL += " are be near around people owns my one two how many up go into something thing"


def words(*texts: str) -> set[str]:
    return {word for text in texts for word in re.findall(r"[a-z]+", text.lower())} - set(SMALL.split())


def every_trial() -> list[Any]:
    return [
        pytest.param(
            lh.tasks.packaged(split=split, n=90, distractors=1, questions=questions), id=f"{split}-{questions}"
        )
        for split in SPLITS
        for questions in QUESTIONS
    ]


def test_halves_share_no_relation_answer_template_or_prose() -> None:
    halves = [choosing._packaged(split) for split in SPLITS]
    for kind in ("person", "place"):
        assert not {*halves[0]["answers"][kind]} & {*halves[1]["answers"][kind]}
    for parts in ("templates", "others"):
        assert not {*map(str, halves[0][parts])} & {*map(str, halves[1][parts])}
    kinds, needles, hidden = ([], [], [])
    for split in SPLITS:
        mine = relations(split)
        kinds.append({one.kind for one in mine})
        needles.append({needle for one in mine for needle in one.needles})
        hidden.append({word for one in mine for word in one.words})
    for one, other in (kinds, needles, hidden):
        assert one
        assert not one & other
    associations = [
        {
            frozenset(pair)
            for one in half["relations"]
            for item in one["items"]
            for pair in combinations(map(str.lower, item), 2)
        }
        for half in halves
    ]
    assert not associations[0] & associations[1]
    for split, half in zip(SPLITS, halves, strict=True):
        assert len(relations(split)) == len(relations(split, "onehop")) == 15
        assert len(relations(split, "twohop")) >= 5, "too few groups for an interval"
        assert len(half["templates"]) >= 6
        named = {*half["answers"]["person"]} & {name for name, _ in half["others"]}
        assert not named, "a name of the haystack that could be the answer"


def test_templates_name_no_kind_of_answer() -> None:
    for split in SPLITS:
        for template in choosing._packaged(split)["templates"]:
            assert template.count("{haystack}") == template.count("{question}") == 1
            assert not words(template) & {
                "person",
                "people",
                "name",
                "named",
                "place",
                "town",
                "village",
                "number",
                "thing",
            }


@pytest.mark.parametrize("split", SPLITS)
def test_things_of_a_relation_are_told_apart(split: str) -> None:
    for relation in relations(split):
        for part in range(3):
            parts = [item[part] for item in relation.items if len(item) > part]
            assert len({*parts}) == len(parts), relation.kind
        for one, other in itertools.permutations(relation.items, 2):
            assert not words(one[0]) & words(*other), f"{relation.kind}: {one[0]} in {other}"


@pytest.mark.parametrize("split", SPLITS)
def test_no_question_but_a_direct_one_has_a_word_of_any_needle(split: str) -> None:
    """Of every thing with every other, in every wording: draws show some of them."""
    for relation in relations(split):
        needles = words(*relation.needles, *(item[0] for item in relation.items))
        for kind, part in (("onehop", 1), ("twohop", 2)):
            for question in relation.questions.get(kind, ()):
                asked = words(question, *(item[part] for item in relation.items if len(item) > part))
                assert not asked & needles, (relation.kind, kind)


@pytest.mark.parametrize("trials", every_trial())
def test_the_question_decides(trials: list[lh.Trial]) -> None:
    assert len({trial.id for trial in trials}) == len(trials) == 90
    stated = [text for trial in trials for text in (trial.needle, trial.distractors[0].text)]
    if trials[0].meta["questions"] != "twohop":  # Of few things.
        assert len({*stated}) == len(stated), "a needle stands in two trials"
    for trial in trials:
        (other,) = trial.distractors
        assert {trial.answer, other.answer} == {*trial.choices}
        assert trial.answer[0] != other.answer[0]
        assert trial.answer in trial.needle
        assert other.answer in other.text
        assert trial.answer not in other.text + trial.haystack + trial.template
        assert other.answer not in trial.needle + trial.haystack + trial.template
        assert trial.question != other.question
        asked = words(trial.question)
        if trial.meta["questions"] == "direct":
            assert asked & words(trial.needle)
        else:
            assert not asked & words(trial.needle, other.text), (trial.question, trial.needle, other.text)


def test_relations_templates_styles_and_answers_are_used_evenly() -> None:
    trials = lh.tasks.packaged(split="test", n=60, distractors=1)
    for count, values in (
        (15, [trial.meta["kind"] for trial in trials]),
        (6, [trial.template for trial in trials]),
        (3, [trial.meta["style"] for trial in trials]),
    ):
        assert {values.count(value) for value in {*values}} == {60 // count}
        assert len({*values}) == count
    assert {trial.meta["answers"] for trial in trials} == {"person", "place", "number", "thing"}
    before = [trial.depth < trial.distractors[0].depth for trial in trials]
    assert 20 < sum(before) < 40, "the right needle comes first about as often as second"
    assert lh.tasks.packaged(split="test", n=20, distractors=1) == lh.tasks.packaged(split="test", n=20, distractors=1)
    assert lh.tasks.packaged(split="test", n=20, distractors=1) != lh.tasks.packaged(
        split="test", n=20, distractors=1, seed=1
    )


def test_haystacks_of_three_styles() -> None:
    of = {trial.meta["style"]: trial for trial in lh.tasks.packaged(split="select", n=3, distractors=1)}
    assert {*of} == {*STYLES}
    names = [name for name, _ in choosing._packaged("select")["others"]]
    assert any(name in of["people"].haystack for name in names)
    assert not any(name in of["prose"].haystack for name in names)
    assert re.match(r"\d+ May: ", of["journal"].haystack)
    assert prose.haystack(words=200, split="select") == prose.haystack(words=200, split="select", people=())


def test_exchanged_questions_turn_the_answer_around_and_nothing_else() -> None:
    trials = lh.tasks.packaged(split="select", n=30, distractors=2)
    exchanged = lh.tasks.exchange_questions(trials)
    for trial, other in zip(trials, exchanged, strict=True):
        assert (other.question, other.answer) == (trial.distractors[0].question, trial.distractors[0].answer)
        assert {*other.choices} == {*trial.choices}
        hidden = [
            {(one.needle, one.depth), *((each.text, each.depth) for each in one.distractors)} for one in (trial, other)
        ]
        assert hidden[0] == hidden[1]
    for trial, again in zip(trials, lh.tasks.exchange_questions(exchanged), strict=True):
        assert (again.question, again.answer, again.needle, again.depth) == (
            trial.question,
            trial.answer,
            trial.needle,
            trial.depth,
        )
    with pytest.raises(ValueError, match="has no distractor with a question and an answer"):
        lh.tasks.exchange_questions(lh.tasks.packaged(n=1))


@pytest.mark.slow
def test_in_tokens_spans_hold_both_needles_and_the_runs_align() -> None:
    tokenizer = zoo.tokenizer()
    trials = lh.tasks.packaged(split="test", n=45, distractors=1)
    aligned = 0
    for trial, other in zip(trials, lh.tasks.exchange_questions(trials), strict=True):
        one, two = trial.encode(tokenizer), other.encode(tokenizer)
        (rival,) = one.distractors
        assert tokenizer.decode(one.tokens[slice(*one.needle)]).strip() == trial.needle  # type: ignore[misc]
        assert tokenizer.decode(one.tokens[slice(*rival)]).strip() == trial.distractors[0].text
        assert (two.needle, two.distractors) == (rival, (one.needle,)), "the same passage"
        assert one.corrupt is not None
        if one.wrong is not None:  # Many answers of this tokenizer begin with a token of the space alone.
            assert tokenizer.decode(one.wrong).strip() == other.answer
        aligned += len(one.corrupt) == len(one)
        start = max(one.needle[1], rival[1])  # type: ignore[index]
        assert one.corrupt[:start].tolist() == one.tokens[:start].tolist()
        assert other.question in tokenizer.decode(one.corrupt)
    assert aligned == len(trials), "the haystack before the question takes up the difference"


@pytest.mark.slow
def test_no_doubts_about_them() -> None:
    tokenizer = zoo.tokenizer()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for split in SPLITS:
            encode_all(lh.tasks.packaged(split=split, n=40, distractors=1, context_length=2_000), tokenizer, 10**6)


def test_what_there_is_not() -> None:
    with pytest.raises(
        ValueError, match=r"unknown questions 'multitoken': use 'onehop', 'direct' or 'twohop' \(with distr"
    ):
        lh.tasks.packaged(n=2, distractors=1, questions="multitoken")
    with pytest.raises(ValueError, match=r"distractors=9: the relation .* use at most"):
        lh.tasks.packaged(n=2, distractors=9)
    with pytest.raises(ValueError, match="distractors=-1"):
        lh.tasks.packaged(n=2, distractors=-1)
