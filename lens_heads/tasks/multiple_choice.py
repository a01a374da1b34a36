"""Multiple choice from the hub: HellaSwag, BoolQ, ARC, MMLU, WMDP, in lm-evaluation-harness's zero-shot format.

A benchmark defines only how to read one of its rows; drawing and building trials are shared. Judge by `choice` or
`choice_norm`; a generated text is correct if the first choice it names is.
"""

from __future__ import annotations

import difflib
import random
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from lens_heads.runs import checks
from lens_heads.runs.digests import digest
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.tasks.rows import DataRow, table
from lens_heads.tasks.sampling import USUAL, check_known, drawn
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

LETTERS = ("A", "B", "C", "D")
MANY = 12
"""Of so many questions with four choices, the first is right for one at least, but for one table in thirty."""
HAZARDS = {"bio": "biology", "chem": "chemistry", "cyber": "cybersecurity"}


class _Item(NamedTuple):
    """A row as a question; `gold` is the index of the right choice."""

    question: str
    choices: tuple[str, ...]
    gold: int
    subject: str = ""
    passage: str = ""
    group: str = ""


@dataclass(frozen=True)
class _Benchmark:
    """A benchmark's location, its row reader and its entry in the template file. The first split is the default."""

    name: str
    hub: str
    config: str | None
    splits: tuple[str, ...]
    item: Callable[[DataRow], _Item]
    prompt: str

    def trials(
        self,
        n: int | None,
        split: str | None,
        seed: int,
        path: str | Path | None,
        chat: bool | None,
        subjects: str | Sequence[str] | None = None,
    ) -> list[Trial]:
        """The arguments are those of the tasks."""
        if path is not None and split is not None:
            raise ValueError(f"split={split!r} requires the hub: a local copy is read whole; omit split= with path=")
        split = self.splits[0] if split is None else split
        check_known(f"{self.name} split", split, self.splits, " (splits with answers)")
        rows = table(path, self.hub, config=self.config, split=split)
        name = split if path is None else Path(path).stem
        where = f"{self.name} {name}"
        items = _chosen([(row, self.item(row)) for row in rows], subjects)
        if len(items) >= MANY and all(item.gold for _, item in items):
            warnings.warn(
                f"the right choice of none of {len(items)} rows of {where} is the first: answers are counted from 0",
                stacklevel=users_line(),
            )
        kept = [(row, item) for row, item in items if all(item.choices) and len(set(item.choices)) == len(item.choices)]
        if len(kept) < len(items):
            dropped = f"dropped {len(items) - len(kept)} of {len(items)} rows of {where}"
            warnings.warn(f"{dropped}, which have duplicate or empty choices", stacklevel=users_line())
        shots = template("multiple_choice")[self.prompt]
        return [
            Trial(
                id=f"{self.name}-{name}-{row.number}",
                question=item.question,
                answer=item.choices[item.gold],
                haystack=item.passage,
                template=shots["template"].replace("{subject}", item.subject.replace("_", " ")),
                chat=chat,
                meta={"kind": self.name, "subject": item.subject, "n_choices": len(item.choices)},
                judge=judge(shots, labels=item.choices),
                choices=item.choices,
                group=item.group,
            )
            for row, item in drawn(kept, n, f"questions in {where}", random.Random(checks.seed(seed)), USUAL)
        ]


@typed
def hellaswag(
    *,
    n: int | None = None,
    split: str | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """How does the text continue? HellaSwag, `Rowan/hellaswag` (Zellers et al., arXiv 1905.07830): four endings.

    `n` is 200 by default, or all if there are fewer; `split` is "validation" by default, or "train" (the test split has no
    labels); a local copy at `path` is read whole. Other arguments and errors as in `lens_heads.tasks`.

    Trials have ids such as "hellaswag-validation-17" (split, or the name of the local copy, and row); the choices are the
    endings. `meta` holds kind, subject and n_choices. Endings to the same video or article are a group.

    Warns about, and drops, rows with duplicate or empty choices. Published accuracies correspond to `choice_norm`.

    Example:
        >>> row = {"ctx_a": "She breaks an egg.", "ctx_b": "She", "activity_label": "Cooking", "label": "0"}
        >>> row |= {"endings": ["fries it.", "sings.", "flies.", "naps."], "source_id": "video"}
        >>> pd.DataFrame([row]).to_json("rows.jsonl", orient="records", lines=True)
        >>> lh.tasks.hellaswag(path="rows.jsonl")[0].answer
        'fries it.'
    """
    benchmark = _Benchmark("hellaswag", "Rowan/hellaswag", None, ("validation", "train"), _hellaswag, "hellaswag")
    return benchmark.trials(n, split, seed, path, chat)


@typed
def boolq(
    *,
    n: int | None = None,
    split: str | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Yes or no, given a passage: BoolQ, `aps/super_glue` boolq (Clark et al., arXiv 1905.10044).

    A local copy may also be of `google/boolq`, whose answers are true and false. Otherwise as `hellaswag`; splits are
    "validation" (the default) and "train". The passage is the trial's haystack, and its group.

    Example:
        >>> _ = Path("rows.jsonl").write_text('{"question": "is iron a metal", "passage": "Iron is a metal.", "answer": true}')
        >>> lh.tasks.boolq(path="rows.jsonl")[0].answer
        'yes'
    """
    benchmark = _Benchmark("boolq", "aps/super_glue", "boolq", ("validation", "train"), _boolq, "boolq")
    return benchmark.trials(n, split, seed, path, chat)


@typed
def arc_challenge(
    *,
    n: int | None = None,
    split: str | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Grade-school science, three to five choices: `allenai/ai2_arc` ARC-Challenge (Clark et al., arXiv 1803.05457).

    Arguments and errors as in `hellaswag`; splits are "test" (the default), "validation" and "train". The choices are texts
    that the prompt does not list. Published accuracies correspond to `choice_norm`.

    Example:
        >>> choices = {"text": ["iron", "wood", "air"], "label": ["A", "B", "C"]}
        >>> row = {"id": "a1", "question": "Which is a metal?", "choices": choices, "answerKey": "A"}
        >>> pd.DataFrame([row]).to_json("rows.jsonl", orient="records", lines=True)
        >>> lh.tasks.arc_challenge(path="rows.jsonl")[0].answer
        'iron'
    """
    splits = ("test", "validation", "train")
    benchmark = _Benchmark("arc_challenge", "allenai/ai2_arc", "ARC-Challenge", splits, _arc, "arc_challenge")
    return benchmark.trials(n, split, seed, path, chat)


@typed
def mmlu(
    *,
    n: int | None = None,
    subjects: str | Sequence[str] | None = None,
    split: str | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Knowledge of 57 subjects, four choices by letter: MMLU, `cais/mmlu` (Hendrycks et al., arXiv 2009.03300).

    The prompt names the subject and lists the choices; the answer is a letter. `subjects` restricts the questions, for example
    to "abstract_algebra"; None for all, ValueError for an unknown one. Splits are "test" (the default), "validation" and
    "dev". A local copy has the columns `question`, `subject`, `choices` or `A` to `D`, and `answer` (0 to 3 or A to D), in
    lower or upper case. Other arguments and errors as in `hellaswag`. Published accuracies correspond to `choice`, mostly
    five-shot; here the prompt is zero-shot. Questions that follow the same passage are a group.

    Example:
        >>> row = {"question": "Which is a metal?", "subject": "chemistry", "choices": ["iron", "air", "tea", "ice"], "answer": 0}
        >>> pd.DataFrame([row]).to_json("rows.jsonl", orient="records", lines=True)
        >>> print(lh.tasks.mmlu(path="rows.jsonl")[0].question)
        Which is a metal?
        A. iron
        B. air
        C. tea
        D. ice
    """
    benchmark = _Benchmark("mmlu", "cais/mmlu", "all", ("test", "validation", "dev"), _lettered, "lettered")
    return benchmark.trials(n, split, seed, path, chat, subjects)


@typed
def wmdp(
    *,
    n: int | None = None,
    subject: str = "bio",
    split: str | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Hazardous knowledge, four choices by letter: WMDP, `cais/wmdp` (Li et al., arXiv 2403.03218).

    `subject` is "bio", "chem" or "cyber" (ValueError otherwise); for a local copy it states the subject of its rows. The
    only split is "test". Prompts as in `mmlu`, other arguments and errors as in `hellaswag`.

    Example:
        >>> row = '{"question": "Which is a gas?", "choices": ["air", "wood", "iron", "wine"], "answer": 0}'
        >>> _ = Path("rows.jsonl").write_text(row)
        >>> lh.tasks.wmdp(path="rows.jsonl")[0].answer
        'A'
    """
    check_known("subject", subject, HAZARDS)

    def item(row: DataRow) -> _Item:
        return _lettered(replace(row, fields={**row.fields, "subject": HAZARDS[subject]}))

    benchmark = _Benchmark(f"wmdp-{subject}", "cais/wmdp", f"wmdp-{subject}", ("test",), item, "lettered")
    return benchmark.trials(n, split, seed, path, chat)


def _chosen(items: list[tuple[DataRow, _Item]], subjects: str | Sequence[str] | None) -> list[tuple[DataRow, _Item]]:
    """The items of these subjects; the ValueError for an unknown one suggests the closest."""
    if subjects is None:
        return items
    wanted = [subjects] if isinstance(subjects, str) else list(subjects)
    have = sorted({item.subject for _, item in items})
    for subject in wanted or [""]:
        if subject not in have:
            near = difflib.get_close_matches(subject, have, n=3) or have
            raise ValueError(f"unknown subject {subject!r}: use {', '.join(near)}")
    return [(row, item) for row, item in items if item.subject in wanted]


def _hellaswag(row: DataRow) -> _Item:
    """Cleans up the WikiHow texts, which have headings in brackets, as the harness does."""

    def clean(text: str) -> str:
        return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ").strip()

    subject = row.text("activity_label")
    context = f"{subject}: {row.text('ctx_a')} {row.text('ctx_b', empty=True).capitalize()}"
    endings = tuple(clean(text) for text in _texts(row, "endings"))
    gold = _place(row, "label", tuple(map(str, range(len(endings)))))
    source = row.fields.get("source_id")
    return _Item(clean(context), endings, gold, subject, group=f"hellaswag {source}" if source else "")


def _boolq(row: DataRow) -> _Item:
    field = "label" if "label" in row.fields else "answer"
    gold = _place(row, field, ("0", "1"), ("False", "True"))
    passage = row.text("passage")
    return _Item(row.text("question"), ("no", "yes"), gold, passage=passage, group=f"boolq {digest(passage)}")


def _arc(row: DataRow) -> _Item:
    choices = row.fields.get("choices")
    if not isinstance(choices, dict):
        raise row.fault("choices", "be {'text': [..], 'label': [..]}")
    inner = DataRow(f"{row.where}, choices", row.number, choices)
    texts, labels = _texts(inner, "text"), _texts(inner, "label")
    if len(texts) != len(labels):
        raise ValueError(f"{inner.where}: {len(texts)} texts but {len(labels)} labels; their numbers must be equal")
    return _Item(row.text("question"), texts, _place(row, "answerKey", labels))


def _lettered(row: DataRow) -> _Item:
    """A question that lists its choices by letter; the letters are the answer choices."""
    row = replace(row, fields={name.lower(): value for name, value in row.fields.items()})
    columns = [letter.lower() for letter in LETTERS]
    texts = _texts(row, "choices") if "choices" in row.fields else tuple(row.text(column) for column in columns)
    if len(texts) != len(LETTERS):
        raise ValueError(f"{row.where}: field 'choices' has {len(texts)} texts, but must have {len(LETTERS)}")
    listed = (f"{letter}. {text}" for letter, text in zip(LETTERS, texts, strict=True))
    question = row.text("question")
    passage = question.rpartition("\n")[0]
    group = f"passage {digest(passage)}" if passage else ""
    gold = _place(row, "answer", ("0", "1", "2", "3"), LETTERS)
    return _Item("\n".join((question, *listed)), LETTERS, gold, row.text("subject"), group=group)


def _texts(row: DataRow, field: str) -> tuple[str, ...]:
    """A field with a list of two or more strings, which may be empty."""
    return tuple(text.strip() for text in row.texts(field, least=2, empty=True))


def _place(row: DataRow, field: str, *names: Sequence[str]) -> int:
    """The index of the right choice, which the field gives in one of several notations (`names`)."""
    value = str(row.fields.get(field, "")).strip()
    for each in names:
        folded = [name.casefold() for name in each]
        if value.casefold() in folded:
            return folded.index(value.casefold())
    raise row.fault(field, f"be one of {' or '.join(', '.join(each) for each in names)}")
