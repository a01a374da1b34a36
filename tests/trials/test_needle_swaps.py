"""Needles exchanged or removed: exact prompts, every rule of the exchange, and an exchange whenever there is one."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lens_heads as lh
from lens_heads.sanity.answers import permuted_answers
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.exchanges import exchanged_needles, without_needle
from lens_heads.trials.trial import RESERVE, Trial
from tests import zoo

CITIES = ("Oslo", "Lima", "Rome", "Bonn", "Kyiv")
HAYSTACK = "One went. Two came! Three sat. Four stood up. " * 30


def trial(i: int, **settings: Any) -> Trial:
    defaults: dict[str, Any] = {
        "id": f"t{i}",
        "question": f"Who lives in the town {i}?",
        "answer": CITIES[i % len(CITIES)],
        "haystack": HAYSTACK,
        "needle": f"Yes: number {i} is {CITIES[i % len(CITIES)]}, {'very ' * i}well.",
        "needle_focus": f"number {i}",
        "length": 400,
        "depth": 0.4,
        "chat": False,
        "group": f"group {i}",
        "meta": {"number": i},
    }
    return Trial(**{**defaults, **settings})


FIVE = [trial(i) for i in range(5)]


def span(encoded: EncodedTrial) -> str:
    assert encoded.needle is not None
    return zoo.tokenizer().decode(encoded.tokens[slice(*encoded.needle)]).strip()


def whole(made: Trial) -> str:
    return zoo.tokenizer().decode(made.encode(zoo.tokenizer()).tokens)


@pytest.mark.parametrize("seed", range(5))
def test_every_trial_gets_the_needle_of_another(seed: int) -> None:
    before = [replace(one) for one in FIVE]
    made = exchanged_needles(FIVE, seed=seed)
    assert before == FIVE, "the originals stay"
    assert sorted(one.needle for one in made) == sorted(one.needle for one in FIVE)
    for mine, was in zip(made, FIVE, strict=True):
        giver = next(one for one in FIVE if one.needle == mine.needle)
        assert giver is not was
        new = {"id": f"{was.id}-needle-of-{giver.id}", "needle": giver.needle, "needle_focus": giver.needle_focus}
        assert mine == replace(was, **new)
        encoded = mine.encode(zoo.tokenizer())
        assert span(encoded) == giver.needle_focus
        assert giver.needle in whole(mine)
        assert was.needle not in whole(mine)
        assert len(encoded) == len(was.encode(zoo.tokenizer()))


def test_seeds() -> None:
    drawn = [tuple(one.needle for one in exchanged_needles(FIVE, seed=seed)) for seed in range(40)]
    assert drawn == [tuple(one.needle for one in exchanged_needles(FIVE, seed=seed)) for seed in range(40)]
    assert len(set(drawn)) > 20, "of 44 derangements of five"


@pytest.mark.slow
def test_every_partner_is_equally_likely() -> None:
    """A trial of five has four partners; 99.9 % of chi-square with three degrees is 16.3."""
    for at in range(2):
        counts = [0] * 5
        for seed in range(800):
            counts[int(exchanged_needles(FIVE, seed=seed)[at].id[-1])] += 1
        assert counts[at] == 0
        others = [count for number, count in enumerate(counts) if number != at]
        assert sum((count - 200) ** 2 for count in others) / 200 < 16.3


CHANGES: dict[str, dict[str, Any]] = {
    "answer": {"answer": "Oslo"},
    "an answer in other letters": {"answer": "OSLO "},
    "an alias": {"aliases": ("Oslo",)},
    "an answer that contains it": {"answer": "in Oslo"},
    "question": {"question": "who lives in the town 0"},
    "group": {"group": "group 0"},
    "one of two groups": {"group": ("x", "group 0")},
    "needle": {"needle": FIVE[0].needle, "needle_focus": ""},
    "an answer in the needle": {"needle": "This has number 1 and Oslo.", "needle_focus": "number 1"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_needles_that_would_answer_never_meet(name: str) -> None:
    """Of two trials that must not meet nothing is left; with two more, each of them gets from these."""
    pair = [trial(0), trial(1, **CHANGES[name])]
    with pytest.raises(
        ValueError, match=r"trial t[01] would get no needle of another trial: pass trials whose questions"
    ):
        exchanged_needles(pair)
    for seed in range(10):
        made = exchanged_needles([*pair, trial(2), trial(3)], seed=seed)
        assert made[0].id[-2:] in ("t2", "t3")
        assert made[1].id[-2:] in ("t2", "t3") or name == "an answer in the needle", "that one holds one way"
    assert exchanged_needles([trial(0), trial(1)])[0].id == "t0-needle-of-t1"


def test_equal_needles_are_not_exchanged() -> None:
    pair = [trial(i, needle="All is well.", needle_focus="") for i in range(2)]
    with pytest.raises(ValueError, match=r"trial t[01] would get no needle of another trial"):
        exchanged_needles(pair)


@st.composite
def lists(draw: st.DrawFn) -> list[Trial]:
    n = draw(st.integers(1, 5))
    few = st.sampled_from(CITIES[:3])
    return [
        trial(i, answer=draw(few), group=draw(st.sampled_from(["", "a", "b"])), question=draw(st.sampled_from("xyz")))
        for i in range(n)
    ]


def allowed(giver: Trial, taker: Trial) -> bool:
    needle = giver.needle.replace(",", "").rstrip(".").split()
    groups = giver.group != "" and giver.group == taker.group
    return (
        giver.answer != taker.answer
        and not groups
        and giver.question != taker.question
        and taker.answer not in needle
        and giver is not taker
    )


@given(trials=lists(), seed=st.integers(0, 9))
def test_an_exchange_is_found_whenever_there_is_one(trials: list[Trial], seed: int) -> None:
    """Against all orders of up to five trials."""
    orders = permutations(trials)
    possible = {
        tuple(one.needle for one in order)
        for order in orders
        if all(allowed(giver, taker) for giver, taker in zip(order, trials, strict=True))
    }
    if possible:
        assert tuple(one.needle for one in exchanged_needles(trials, seed=seed)) in possible
    else:
        with pytest.raises(ValueError, match="would get no needle of another trial"):
            exchanged_needles(trials, seed=seed)


@given(length=st.integers(RESERVE + 60, 900), depth=st.floats(0, 1), number=st.integers(0, 4))
def test_haystack_takes_the_needles_place(length: int, depth: float, number: int) -> None:
    """As many tokens as before; a needle that opened the prompt had no space before it."""
    was = trial(number, length=length, depth=depth)
    (made,) = without_needle([was])
    assert made == replace(was, needle="", needle_focus="")
    encoded = made.encode(zoo.tokenizer())
    assert encoded.needle is None
    assert encoded.id == was.id
    assert whole(made) == f"{HAYSTACK[: length - RESERVE]}\n\n{was.question}"
    opened = whole(was).startswith(was.needle)
    assert len(encoded) == len(was.encode(zoo.tokenizer())) + opened


def test_a_haystack_that_ends_becomes_shorter_by_at_most_the_needle() -> None:
    for settings in ({"length": 0}, {"length": 9000}, {"length": RESERVE + len(HAYSTACK) + 8}):
        was = trial(2, **settings)
        (made,) = without_needle(was)
        assert whole(made) == f"{HAYSTACK}\n\n{was.question}"
        lost = len(was.encode(zoo.tokenizer())) - len(made.encode(zoo.tokenizer()))
        assert 0 < lost <= len(" " + was.needle)


def test_a_model_looks_at_what_is_left() -> None:
    model = zoo.bridge("llama-gqa", n_ctx=1024)
    evaluation = lh.evaluate(model, without_needle(FIVE), max_new_tokens=2, progress=False)
    assert evaluation.trial_ids == tuple(one.id for one in FIVE)


def test_trials_in_tokens_lose_those_of_their_needle() -> None:
    given = lh.EncodedTrial([5, 6, 7, 8, 9, 10], (1, 3), "x", [4], "t", question=(4, 6))
    (found,) = without_needle(given)
    assert (found.tokens.tolist(), found.needle, found.question, found.id) == ([5, 8, 9, 10], None, (2, 4), "t")  # type: ignore[union-attr]  # in tokens
    for question, left in (((0, 1), (0, 1)), ((2, 5), None), (None, None)):
        assert without_needle(replace(given, question=question))[0].question == left
    with pytest.raises(ValueError, match="trial t has no needle"):
        without_needle(replace(given, needle=None))
    with pytest.raises(ValueError, match="trial t: the prompt has no tokens"):
        without_needle(replace(given, needle=(0, 6), question=None))


@pytest.mark.parametrize("control", [exchanged_needles, without_needle])
def test_bad_input(control: Any) -> None:
    if control is exchanged_needles:
        encoded = trial(0).encode(zoo.tokenizer())
        with pytest.raises(ValueError, match=r"trial t0 is in tokens, .* pass the text Trial"):
            control([encoded])
    with pytest.raises(ValueError, match="trial t1 has no needle: pass trials with one"):
        control([trial(0), trial(1, needle="", needle_focus="")])
    with pytest.raises(ValueError, match="two trials have the id 't0'"):
        control([trial(0), trial(0)])
    with pytest.raises(ValueError, match="there are no trials"):
        control([])
    for wrong in (None, "t0", 3, [trial(0), "t1"]):
        with pytest.raises(TypeError, match="must be a list of Trials"):
            control(wrong)


def test_a_trial_without_haystack_and_bad_seeds() -> None:
    with pytest.raises(
        ValueError, match="trial t0 has no haystack to put in the needle's place: pass a Trial with one"
    ):
        without_needle([trial(0, haystack=" ")])
    for seed in (-1, 0.5, "1", None, True):
        for control in (exchanged_needles, permuted_answers):
            with pytest.raises(ValueError, match="seed="):
                control(FIVE, seed=seed)


@pytest.mark.slow
def test_the_packaged_needles_can_be_exchanged() -> None:
    for split in ("select", "test"):
        trials = lh.tasks.packaged(split=split, n=60, seed=3)
        for was, made in zip(trials, exchanged_needles(trials), strict=True):
            assert made.needle != was.needle
            assert was.answer not in made.needle
            giver = next(one for one in trials if one.needle == made.needle)
            assert giver.meta["entry"] != was.meta["entry"]
