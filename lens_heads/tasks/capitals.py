"""Capitals: a country's capital, recalled from training; no needle. Small models know many."""

from __future__ import annotations

import random
from typing import Any

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.rows import geonames
from lens_heads.tasks.sampling import enough, half
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

TOP = 150
"""Number of the most populous countries to ask about."""


@typed
def capitals(
    *, n: int | None = None, split: str | None = None, seed: int = 0, chat: bool | None = False
) -> list[Trial]:
    """Few-shot trials, country -> capital, with the capitals of three other countries as choices.

    The others are on the same continent where it has enough countries; within a split, Oceania has too few.

    Args, besides those of `lens_heads.tasks`:
        n: number of trials, the most populous countries first. None: 100, or all if there are fewer.
        split: every other one of 150 countries by population, so that no country of one half is a country of the other,
            and no capital a choice in both. None asks about all.

    Returns:
        Trials with ids such as "capitals-Japan"; `meta` holds country, continent and kind. Counterfactuals are the questions of
        all other countries of the split, of which the first of the same length is taken. Correct if the text
        contains the capital as whole words, under any of its names or as another seat of government.

    Excludes countries that are few-shot examples, share their name with their capital (Mexico City, Tunis), no longer
    exist, or have a disputed capital.

    Example:
        >>> trial = lh.tasks.capitals(n=1)[0]
        >>> trial.id, trial.answer, len(trial.choices)
        ('capitals-China', 'Beijing', 4)
    """
    shots = template("capitals")
    asked = half(_countries(shots), split)
    chosen = asked[: enough(n, len(asked), "countries", usual=100)]
    rng = random.Random(checks.seed(seed))
    rng.shuffle(chosen)
    return [
        Trial(
            id=f"capitals-{country['name']}",
            question=_asked(shots, country),
            answer=country["capital"],
            aliases=tuple(shots["aliases"].get(country["iso"], ())),
            template=shots["template"],
            chat=chat,
            meta={"country": country["name"], "continent": country["continentcode"], "kind": "capitals"},
            judge=judge(shots),
            corrupt=tuple(_asked(shots, other) for other in asked if other is not country),
            choices=_choices(country, asked, rng),
        )
        for country in chosen
    ]


def country_capitals() -> dict[str, str]:
    """The capital of every country that this task asks about, the most populous first."""
    return {country["name"]: country["capital"] for country in _countries(template("capitals"))}


def _asked(shots: dict[str, Any], country: dict[str, Any]) -> str:
    return shots["question"].replace("{country}", country["name"])


def _countries(shots: dict[str, Any]) -> list[dict[str, Any]]:
    """The countries to ask about, the most populous first."""
    known = geonames("the capitals task").get_countries().values()
    found = []
    for country in sorted(known, key=lambda country: -country["population"]):
        name, capital = country["name"].lower(), country["capital"].lower()
        alike = name in capital or capital in name or set(name.split()) & set(capital.split())
        shown = f"Country: {country['name']}." in shots["template"]
        if country["iso"] not in shots["left out"] and not shown and not alike:
            found.append(country)
    return found[:TOP]


def _choices(country: dict[str, Any], asked: list[dict[str, Any]], rng: random.Random) -> tuple[str, ...]:
    """The capital and three others in random order, from the same continent where possible."""
    others = [other for other in rng.sample(asked, len(asked)) if other is not country]
    nearest = sorted(others, key=lambda other: other["continentcode"] != country["continentcode"])[:3]
    return tuple(rng.sample([country["capital"], *(other["capital"] for other in nearest)], 4))
