"""MuSiQue: questions that need facts from several paragraphs (Trivedi et al., TACL 2022, arXiv 2108.00573)."""

from __future__ import annotations

import random
import re
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.tasks.rows import DataRow, packaged_rows, table
from lens_heads.tasks.sampling import SPLITS, check_known, check_split, drawn
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.containment import squad
from lens_heads.trials.trial import Trial

HUB = "bdsaglam/musique"
ANSWER = "answer paragraph"

_EARLIER_STEPS = re.compile(r"^\d+hop\d*__(?:\d+_)+")
"""In an id of the hub, which lists the ids of its steps (2hop__482757_12019), all but the last one."""


@typed
def musique(
    source: str = "packaged",
    *,
    n: int | None = None,
    seed: int = 0,
    hops: int | None = None,
    split: str | None = None,
    distractors: int | None = None,
    needle: str | None = None,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Multi-hop questions over their paragraphs, judged by MuSiQue's exact match; the metric `token_f1` is its F1.

    Args, besides those of `lens_heads.tasks`:
        source: "packaged", 60 original questions about fictional people and places, short enough for small models; or
            "hub", the validation split of the answerable questions, `bdsaglam/musique` (2 to 4 hops, 20 paragraphs each).
        hops: only questions with this many hops; None for any. 1 asks only the last step of every question, with the earlier
            answers filled in: not a MuSiQue question, but one that small models can answer.
        split: of the packaged questions; the two share no name.
        distractors: number of non-supporting paragraphs to keep, chosen at random; None for all.
        needle: "answer paragraph" makes the paragraph with the answer the trial's needle, in its original position, so that
            heads can be scored on the trial. None (the default) leaves all paragraphs in the haystack.

    Returns:
        Trials with ids such as "musique-2hop__select_01"; `meta` holds the source and the number of hops. Questions with
        the same last step are a group, and so are a question and its last step asked alone.

    Rows that say `answerable: false` (half of MuSiQue-Full) are left out with a warning: their answer stands in no paragraph.
    ValueError if all do.

    Differs from the benchmark: two examples come first, and predictions of the supporting paragraphs, and of whether a
    question of MuSiQue-Full can be answered, are not judged.

    Example:
        >>> trial = lh.tasks.musique(n=1, hops=2)[0]
        >>> trial.question, trial.answer
        ('In which town was the designer of the Galolent Bridge born?', 'Neskikhaven')
    """
    check_known("source", source, ("packaged", "hub"), " (with path= for a local copy)")
    if needle not in (None, ANSWER):
        raise ValueError(f"unknown needle={needle!r}: use {ANSWER!r}, or None for trials without a needle")
    for name, value, least in (("hops", hops, 1), ("distractors", distractors, 0)):
        if value is not None:
            checks.whole_number(name, value, least, remedy=", or None for all")
    items = [_item(row) for row in _answerable(_rows(source, split, path))]
    kept = [item.last_step() for item in items] if hops == 1 else [i for i in items if hops is None or i.hops == hops]
    if not kept:
        have = sorted({item.hops for item in items})
        raise ValueError(f"hops={hops}: no question has that many; use {', '.join(map(str, have))}, 1 or None")
    rng = random.Random(checks.seed(seed))
    chosen = drawn(kept, n, f"questions in {source} (hops={hops})", rng)
    return [_trial(item.fewer(distractors, rng), source, needle, chat) for item in chosen]


class _Paragraph(NamedTuple):
    text: str
    supports: bool


@dataclass(frozen=True)
class _Item:
    """A validated row; `holder` is the index of the paragraph that contains the answer, None if there is none."""

    where: str
    id: str
    hops: int
    question: str
    answers: tuple[str, ...]
    paragraphs: tuple[_Paragraph, ...]
    holder: int | None
    last: str

    def last_step(self) -> _Item:
        """The item with its last step as the question; ValueError without a decomposition."""
        if not self.last:
            raise ValueError(
                f"{self.where}: hops=1 requires field 'question_decomposition', a list of {{question, answer}} objects"
            )
        return replace(self, id=f"{self.id}-last", hops=1, question=self.last)

    def fewer(self, distractors: int | None, rng: random.Random) -> _Item:
        """The item with at most `distractors` non-supporting paragraphs, in their original order."""
        if distractors is None:
            return self
        spare = [i for i, paragraph in enumerate(self.paragraphs) if not paragraph.supports]
        dropped = set(rng.sample(spare, max(0, len(spare) - distractors)))
        left = [i for i in range(len(self.paragraphs)) if i not in dropped]
        holder = left.index(self.holder) if self.holder is not None else None
        return replace(self, paragraphs=tuple(self.paragraphs[i] for i in left), holder=holder)


def _rows(source: str, split: str | None, path: str | Path | None) -> list[DataRow]:
    if source == "packaged":
        if path is not None:
            raise ValueError("path= requires source='hub': the packaged questions are shipped")
        check_split(split)
        return [row for half in SPLITS if split in (None, half) for row in packaged_rows(f"musique_{half}")]
    if split is not None:
        raise ValueError(
            f"split={split!r} requires source='packaged': the hub's questions all come from its validation split"
        )
    return table(path, HUB, config="answerable", split="validation")


def _answerable(rows: list[DataRow]) -> list[DataRow]:
    """The rows without those that say that they can't be answered; their twins that can have the same ids."""
    kept = [row for row in rows if row.flag("answerable", default=True)]
    left_out = f"{len(rows) - len(kept)} of {len(rows)} rows say answerable: false (MuSiQue-Full)"
    if not kept:
        raise ValueError(f"{left_out}, and none is left: pass a copy of MuSiQue-Answerable, or of both kinds")
    if len(kept) < len(rows):
        warnings.warn(f"{left_out}: left out, since their answer stands in no paragraph", stacklevel=users_line())
    return kept


def _item(row: DataRow) -> _Item:
    question, answer = row.text("question"), row.text("answer")
    aliases = row.texts("answer_aliases", empty=True) if row.fields.get("answer_aliases") else []
    shown = template("musique")["paragraph"]
    known = "title, paragraph_text, is_supporting"
    paragraphs = tuple(
        _Paragraph(
            supports=each.flag("is_supporting"),
            text=shown.replace("{title}", each.text("title")).replace("{text}", each.text("paragraph_text")),
        )
        for each in row.rows("paragraphs", known)
    )
    answers = tuple(dict.fromkeys((answer, *(alias for alias in aliases if alias.strip()))))
    name = str(row.fields.get("id") or row.number)
    named = re.match(r"(\d+)hop", name)
    hops = int(named[1]) if named else sum(paragraph.supports for paragraph in paragraphs)
    steps = row.rows("question_decomposition", "question, answer") if row.fields.get("question_decomposition") else []
    holder = _holder(steps, answers, paragraphs)
    return _Item(row.where, name, hops, question, answers, paragraphs, holder, _last_step(steps))


def _holder(steps: list[DataRow], answers: tuple[str, ...], paragraphs: tuple[_Paragraph, ...]) -> int | None:
    """The supporting paragraph of the last step if it contains an answer, else the last one that does."""
    holding = [
        i
        for i, paragraph in enumerate(paragraphs)
        if paragraph.supports and any(f" {squad(answer)} " in f" {squad(paragraph.text)} " for answer in answers)
    ]
    last = steps[-1].fields.get("paragraph_support_idx") if steps else None
    return last if type(last) is int and last in holding else holding[-1] if holding else None


def _last_step(steps: list[DataRow]) -> str:
    """The last question of the decomposition, with "#1", "#2", .. replaced by the answers of those steps."""
    last = str(steps[-1].fields.get("question") or "") if steps else ""
    for step in steps[:-1]:
        last = last.replace(f"#{step.number}", str(step.fields.get("answer") or ""))
    return last


def _trial(item: _Item, source: str, needle: str | None, chat: bool | None) -> Trial:
    """With a needle, the paragraphs around it become part of the template, which keeps the needle in its position."""
    shots = template("musique")
    texts = [paragraph.text for paragraph in item.paragraphs]
    haystack, prompt, depth = "\n\n".join(texts), shots["template"], 0.5
    if needle:
        if item.holder is None:
            raise ValueError(
                f"{item.where}: no supporting paragraph contains the answer {item.answers[0]!r}; use needle=None"
            )
        before, after = "\n\n".join(texts[: item.holder]), "\n\n".join(texts[item.holder + 1 :])
        slots = "\n\n".join(part for part in (before, "{haystack}", after) if part)
        prompt, depth, haystack = prompt.replace("{haystack}", slots), len(before) / len(haystack), ""
    return Trial(
        id=f"musique-{item.id}",
        question=item.question,
        answer=item.answers[0],
        aliases=item.answers[1:],
        haystack=haystack,
        needle=texts[item.holder] if needle and item.holder is not None else "",
        template=prompt,
        depth=depth,
        chat=chat,
        meta={"kind": f"{item.hops}-hop", "hops": item.hops, "source": source},
        judge=judge(shots),
        group=f"musique {_EARLIER_STEPS.sub('', item.id).removesuffix('-last')}",
    )
