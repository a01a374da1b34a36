"""Multiple choice from the hub: HellaSwag, BoolQ, ARC, MMLU, WMDP, as lm-evaluation-harness asks without examples.

Each benchmark is how one of its rows reads; drawing and trials are shared. Judge them by `choice` or `choice_norm`; a
generated text is right when the first choice that it names is.
"""

from __future__ import annotations

import difflib
import random
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lens_heads.tasks.rows import Row, enough, hub_rows, local_rows
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

USUAL = 200
"""Trials by default, where there are as many."""

LETTERS = ("A", "B", "C", "D")
HAZARDS = {"bio": "biology", "chem": "chemistry", "cyber": "cybersecurity"}
_BRACKETS = re.compile(r"\[.*?\]")


@dataclass(frozen=True)
class _Item:
    """A row as a question; `gold` is the place of the right choice."""

    question: str
    choices: tuple[str, ...]
    gold: int
    subject: str = ""
    passage: str = ""


@dataclass(frozen=True)
class _Benchmark:
    """Where a benchmark is, how a row of it reads, and its part of the template file. The first split is the usual one."""

    name: str
    hub: str
    config: str | None
    splits: tuple[str, ...]
    item: Callable[[Row], _Item]
    prompt: str


def hellaswag(
    n: int | None = None,
    split: str | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """How does it go on? HellaSwag, `Rowan/hellaswag` (Zellers et al., arXiv 1905.07830): four endings.

    Args:
        n: trials; fewer than there are means a random draw. None: 200, or all where there are fewer.
        split: of the hub, "validation" by default, or "train". Its test split has no labels.
        seed: of the draw.
        path: a local copy instead (.jsonl, .json, .csv, .tsv or .parquet), all of it.
        chat: as in `Trial`. False by default, for chat models too.

    Returns:
        Trials without needle, with ids such as "hellaswag-validation-17" (the row; of a copy the file's name); the choices
        are the endings. `meta` holds kind, subject and n_choices.

    Raises:
        FileNotFoundError: the hub cannot be reached, or there is no file at `path`.
        ValueError: an unknown split, more trials than there are questions, or a faulty row, naming it and the field.

    Warns of rows with two equal choices, or an empty one, which are left out. Published accuracies are `choice_norm`.
    """
    benchmark = _Benchmark("hellaswag", "Rowan/hellaswag", None, ("validation", "train"), _hellaswag, "hellaswag")
    return _trials(benchmark, n, split, seed, path, chat)


def boolq(
    n: int | None = None,
    split: str | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Yes or no, by a passage: BoolQ, `aps/super_glue` boolq (Clark et al., arXiv 1905.10044).

    A copy may also be of `google/boolq`, whose answers are true and false. Arguments, errors and the rest as in
    `hellaswag`; splits are "validation" and "train". The passage is the trial's haystack.
    """
    benchmark = _Benchmark("boolq", "aps/super_glue", "boolq", ("validation", "train"), _boolq, "boolq")
    return _trials(benchmark, n, split, seed, path, chat)


def arc_challenge(
    n: int | None = None,
    split: str | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Science at school, three to five choices: `allenai/ai2_arc` ARC-Challenge (Clark et al., arXiv 1803.05457).

    Arguments, errors and the rest as in `hellaswag`; splits are "test", the default, "validation" and "train". The choices
    are texts that the prompt does not list. Published accuracies are `choice_norm`.
    """
    splits = ("test", "validation", "train")
    benchmark = _Benchmark("arc_challenge", "allenai/ai2_arc", "ARC-Challenge", splits, _arc, "arc_challenge")
    return _trials(benchmark, n, split, seed, path, chat)


def mmlu(
    n: int | None = None,
    subjects: str | Sequence[str] | None = None,
    split: str | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Knowledge of 57 subjects, four choices by letter: MMLU, `cais/mmlu` (Hendrycks et al., arXiv 2009.03300).

    The prompt names the subject and lists the choices; the answer is a letter. `subjects`: only of these, such as
    "abstract_algebra"; None for all. Splits are "test", the default, "validation" and "dev". A copy holds `question`, `subject`,
    `choices` or four columns `A` to `D`, and `answer`, 0 to 3 or A to D, with small or capital names. Arguments, errors
    and the rest as in `hellaswag`; an unknown subject is a ValueError. Published accuracies are `choice`, mostly after five
    examples; here there are none.
    """
    benchmark = _Benchmark("mmlu", "cais/mmlu", "all", ("test", "validation", "dev"), _lettered, "lettered")
    return _trials(benchmark, n, split, seed, path, chat, subjects)


def wmdp(
    n: int | None = None,
    subject: str = "bio",
    split: str | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Knowledge that helps to do harm, four choices by letter: WMDP, `cais/wmdp` (Li et al., arXiv 2403.03218).

    `subject` is "bio", "chem" or "cyber"; of a copy it says what its rows are about. The only split is "test". Asked as
    `mmlu`; arguments, errors and the rest as in `hellaswag`, an unknown subject is a ValueError.
    """
    if subject not in HAZARDS:
        raise ValueError(f"there is no subject {subject!r}: use {', '.join(map(repr, HAZARDS))}")

    def item(row: Row) -> _Item:
        return _lettered(replace(row, fields={**row.fields, "subject": HAZARDS[subject]}))

    benchmark = _Benchmark(f"wmdp-{subject}", "cais/wmdp", f"wmdp-{subject}", ("test",), item, "lettered")
    return _trials(benchmark, n, split, seed, path, chat)


def _trials(
    benchmark: _Benchmark,
    n: int | None,
    split: str | None,
    seed: int,
    path: str | Path | None,
    chat: bool | None,
    subjects: str | Sequence[str] | None = None,
) -> list[Trial]:
    if path is not None and split is not None:
        raise ValueError(f"split={split!r} is of the hub: a copy at path= is read whole")
    split = benchmark.splits[0] if split is None else split
    if split not in benchmark.splits:
        raise ValueError(f"{benchmark.name} has no split {split!r} with answers: use {', '.join(benchmark.splits)}")
    name = split if path is None else Path(path).stem
    if path is None:
        rows = hub_rows(benchmark.hub, config=benchmark.config, split=split)
    else:
        rows = local_rows(path, f"{benchmark.hub}, {split}")
    where = f"{benchmark.name} {name}"
    items = _chosen([(row, benchmark.item(row)) for row in rows], subjects)
    kept = [(row, item) for row, item in items if all(item.choices) and len(set(item.choices)) == len(item.choices)]
    if len(kept) < len(items):
        out = len(items) - len(kept)
        warnings.warn(
            f"{out} of {len(items)} rows of {where} have two equal choices or an empty one: left out", stacklevel=3
        )
    drawn = random.Random(seed).sample(kept, enough(n, len(kept), f"questions in {where}", USUAL))
    return [_trial(benchmark, f"{benchmark.name}-{name}-{row.number}", item, chat) for row, item in drawn]


def _chosen(items: list[tuple[Row, _Item]], subjects: str | Sequence[str] | None) -> list[tuple[Row, _Item]]:
    """The items of these subjects; ValueError for one that none is of, naming the nearest."""
    if subjects is None:
        return items
    wanted = [subjects] if isinstance(subjects, str) else list(subjects)
    have = sorted({item.subject for _, item in items})
    unknown = next((subject for subject in wanted or [""] if subject not in have), None)
    if unknown is not None:
        near = difflib.get_close_matches(unknown, have, n=3) or have
        raise ValueError(f"there is no subject {unknown!r}: use {', '.join(near)}")
    return [(row, item) for row, item in items if item.subject in wanted]


def _trial(benchmark: _Benchmark, name: str, item: _Item, chat: bool | None) -> Trial:
    shots = template("multiple_choice")[benchmark.prompt]
    return Trial(
        id=name,
        question=item.question,
        answer=item.choices[item.gold],
        haystack=item.passage,
        template=shots["template"].replace("{subject}", item.subject.replace("_", " ")),
        chat=chat,
        meta={"kind": benchmark.name, "subject": item.subject, "n_choices": len(item.choices)},
        judge=judge(shots, labels=item.choices),
        choices=item.choices,
    )


def _hellaswag(row: Row) -> _Item:
    """The harness's clean-up of the texts from WikiHow, whose headings are in brackets."""

    def clean(text: str) -> str:
        return _BRACKETS.sub("", text.strip().replace(" [title]", ". ")).replace("  ", " ").strip()

    subject = row.text("activity_label")
    context = f"{subject}: {row.text('ctx_a')} {row.text('ctx_b', empty=True).capitalize()}"
    endings = tuple(clean(text) for text in _texts(row, "endings"))
    return _Item(clean(context), endings, _place(row, "label", tuple(map(str, range(len(endings))))), subject)


def _boolq(row: Row) -> _Item:
    field = "label" if "label" in row.fields else "answer"
    gold = _place(row, field, ("0", "1"), ("False", "True"))
    return _Item(row.text("question"), ("no", "yes"), gold, passage=row.text("passage"))


def _arc(row: Row) -> _Item:
    choices = row.fields.get("choices")
    if not isinstance(choices, dict):
        raise ValueError(f"{row.where}: field 'choices' is {choices!r}: give {{'text': [..], 'label': [..]}}")
    inner = Row(f"{row.where}, choices", row.number, choices)
    texts, labels = _texts(inner, "text"), _texts(inner, "label")
    if len(texts) != len(labels):
        raise ValueError(f"{inner.where}: {len(texts)} texts but {len(labels)} labels: give one each")
    return _Item(row.text("question"), texts, _place(row, "answerKey", labels))


def _lettered(row: Row) -> _Item:
    """A question with its choices listed by letter, which are what is chosen from."""
    row = replace(row, fields={name.lower(): value for name, value in row.fields.items()})
    columns = [letter.lower() for letter in LETTERS]
    texts = _texts(row, "choices") if "choices" in row.fields else tuple(row.text(column) for column in columns)
    if len(texts) != len(LETTERS):
        raise ValueError(f"{row.where}: field 'choices' has {len(texts)} texts: give {len(LETTERS)}")
    listed = (f"{letter}. {text}" for letter, text in zip(LETTERS, texts, strict=True))
    gold = _place(row, "answer", ("0", "1", "2", "3"), LETTERS)
    return _Item("\n".join((row.text("question"), *listed)), LETTERS, gold, row.text("subject"))


def _texts(row: Row, field: str) -> tuple[str, ...]:
    """A field that must hold a list of texts; they may be empty."""
    value: Any = row.fields.get(field)
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{row.where}: field {field!r} is {value!r}: give a list of two texts or more")
    return tuple(text.strip() for text in value)


def _place(row: Row, field: str, *names: Sequence[str]) -> int:
    """The place of the right choice, which the field names in one of these ways."""
    value = str(row.fields.get(field, "")).strip()
    for each in names:
        if value in each:
            return each.index(value)
    known = " or ".join(", ".join(each) for each in names)
    raise ValueError(f"{row.where}: field {field!r} is {value!r}, which is no choice: give it {known}")
