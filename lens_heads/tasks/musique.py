"""MuSiQue: questions that need facts from several paragraphs (Trivedi et al., TACL 2022, arXiv 2108.00573)."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lens_heads.tasks.rows import Row, enough, hub_rows, local_rows, packaged_rows
from lens_heads.tasks.sampling import SPLITS, check_split
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.text import squad
from lens_heads.trials.trial import Trial

HUB = "bdsaglam/musique"
ANSWER = "answer paragraph"


def musique(
    source: str = "packaged",
    n: int | None = None,
    seed: int = 0,
    hops: int | None = None,
    split: str | None = None,
    distractors: int | None = None,
    needle: str | None = None,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Multi-hop questions over their paragraphs, judged by MuSiQue's exact match; its F1 is the metric `token_f1`.

    Args:
        source: "packaged", 60 made-up questions about invented people and places, shipped, short, for small models
            too; or "hub", the validation split of the answerable questions, `bdsaglam/musique` (2 to 4 hops, 20
            paragraphs each).
        n: trials; fewer than there are means a random draw. None for all.
        seed: of the draw.
        hops: only questions with so many; None for any. 1 asks the last step of every question alone, with the answers of
            the earlier ones filled in: no question of MuSiQue, but one that small models can answer.
        split: half of the packaged questions, "select" to find heads, "test" to evaluate them: they share no name.
            None for both.
        distractors: keep only so many of the paragraphs that are not needed, at random; None for all of them.
        needle: "answer paragraph" makes the paragraph that holds the answer the trial's needle, where it stands, so that
            heads can be scored on the trial; None, the default, leaves all paragraphs haystack.
        path: for "hub", a local copy instead (.jsonl, .json or .parquet).
        chat: as in `Trial`. False by default, for chat models too: the few examples are a text to go on with.

    Returns:
        Trials with ids such as "musique-2hop__select_01"; `meta` holds the source and the number of hops.

    Raises:
        FileNotFoundError, ValueError: naming the file, the row and the field; an unknown source, split or needle; more
            trials than there are questions.

    Differs from the benchmark: two examples come first, and the paragraphs that support the answer are not judged.
    """
    if source not in ("packaged", "hub"):
        raise ValueError(f"there is no source {source!r}: use 'packaged' or 'hub' (with path= for a local copy)")
    if needle not in (None, ANSWER):
        raise ValueError(f"needle={needle!r}: use {ANSWER!r}, or None for trials without needle")
    rows = _packaged(split, path) if source == "packaged" else _hub(split, path)
    items = [_item(row) for row in rows]
    kept = [item.last_step() for item in items] if hops == 1 else [i for i in items if hops is None or i.hops == hops]
    if not kept:
        have = sorted({item.hops for item in items})
        raise ValueError(
            f"hops={hops}: the questions have {', '.join(map(str, have))} hops: ask for one of these, 1 or None"
        )
    rng = random.Random(seed)
    drawn = rng.sample(kept, enough(n, len(kept), f"questions in {source} (hops={hops})"))
    return [_trial(item.fewer(distractors, rng), source, needle, chat) for item in drawn]


@dataclass(frozen=True)
class _Paragraph:
    text: str
    supports: bool


@dataclass(frozen=True)
class _Item:
    """A checked row; `holder` is the place of the paragraph that holds the answer, None where none does."""

    where: str
    id: str
    hops: int
    question: str
    answers: tuple[str, ...]
    paragraphs: tuple[_Paragraph, ...]
    holder: int | None
    last: str

    def last_step(self) -> _Item:
        """The item with its last step for a question; ValueError without a decomposition."""
        if not self.last:
            raise ValueError(
                f"{self.where}: field 'question_decomposition' is missing: hops=1 needs it, a list of {{question, answer}}"
            )
        return replace(self, id=f"{self.id}-last", hops=1, question=self.last)

    def fewer(self, distractors: int | None, rng: random.Random) -> _Item:
        """The item with at most so many paragraphs that do not support its answer, in their order."""
        if distractors is None:
            return self
        if distractors < 0:
            raise ValueError(f"distractors={distractors}: give 0 or more, or None for all")
        spare = [i for i, paragraph in enumerate(self.paragraphs) if not paragraph.supports and i != self.holder]
        dropped = set(rng.sample(spare, max(0, len(spare) - distractors)))
        left = [i for i in range(len(self.paragraphs)) if i not in dropped]
        holder = left.index(self.holder) if self.holder is not None else None
        return replace(self, paragraphs=tuple(self.paragraphs[i] for i in left), holder=holder)


def _packaged(split: str | None, path: str | Path | None) -> list[Row]:
    if path is not None:
        raise ValueError("path= is for source='hub': the packaged questions are shipped")
    check_split(split)
    return [row for half in SPLITS if split in (None, half) for row in packaged_rows(f"musique_{half}")]


def _hub(split: str | None, path: str | Path | None) -> list[Row]:
    if split is not None:
        raise ValueError(
            f"split={split!r} is for source='packaged': the hub's questions are those of its validation split"
        )
    if path is not None:
        return local_rows(path, f"{HUB}, answerable, validation")
    return hub_rows(HUB, config="answerable", split="validation")


def _item(row: Row) -> _Item:
    question, answer = row.text("question"), row.text("answer")
    aliases = row.fields.get("answer_aliases") or []
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise ValueError(f"{row.where}: field 'answer_aliases' is {aliases!r}: give a list of texts, or leave it out")
    raw = row.fields.get("paragraphs")
    if not isinstance(raw, list) or not raw:
        raise ValueError(
            f"{row.where}: field 'paragraphs' is {raw!r}: give a list of {{title, paragraph_text, is_supporting}}"
        )
    shown = template("musique")["paragraph"]
    paragraphs = tuple(_paragraph(value, f"{row.where}, paragraph {i}", shown) for i, value in enumerate(raw, 1))
    answers = tuple(dict.fromkeys((answer, *(alias for alias in aliases if alias.strip()))))
    name, last = str(row.fields.get("id") or row.number), _last_step(row)
    holder = _holder(row, answers, paragraphs)
    return _Item(row.where, name, _hops(row, name), question, answers, paragraphs, holder, last)


def _paragraph(raw: Any, where: str, shown: str) -> _Paragraph:
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: is {raw!r}: give an object {{title, paragraph_text, is_supporting}}")
    title, text = (Row(where, 0, raw).text(field) for field in ("title", "paragraph_text"))
    if not isinstance(raw.get("is_supporting"), bool):
        raise ValueError(f"{where}: field 'is_supporting' is {raw.get('is_supporting')!r}: give true or false")
    return _Paragraph(shown.replace("{title}", title).replace("{text}", text), raw["is_supporting"])


def _hops(row: Row, name: str) -> int:
    """By the field `hops`, the id ("2hop__..", "3hop1__.."), the decomposition, or the supporting paragraphs."""
    if isinstance(row.fields.get("hops"), int):
        return row.fields["hops"]
    named = re.match(r"(\d+)hop", name)
    if named:
        return int(named[1])
    steps = row.fields.get("question_decomposition")
    return len(steps) if steps else sum(bool(value["is_supporting"]) for value in row.fields["paragraphs"])


def _holder(row: Row, answers: tuple[str, ...], paragraphs: tuple[_Paragraph, ...]) -> int | None:
    """The supporting paragraph that the last step is answered from; else the last one in which an answer stands."""
    holding = [
        i
        for i, paragraph in enumerate(paragraphs)
        if paragraph.supports and any(f" {squad(answer)} " in f" {squad(paragraph.text)} " for answer in answers)
    ]
    steps = row.fields.get("question_decomposition")
    last = steps[-1].get("paragraph_support_idx") if steps else None
    return last if last in holding else holding[-1] if holding else None


def _last_step(row: Row) -> str:
    """The last question of the decomposition, its "#1", "#2", .. replaced by the answers of those steps."""
    steps = row.fields.get("question_decomposition") or []
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ValueError(
            f"{row.where}: field 'question_decomposition' is {steps!r}: give a list of {{question, answer}}"
        )
    last = str(steps[-1].get("question") or "") if steps else ""
    for number, step in enumerate(steps[:-1], 1):
        last = last.replace(f"#{number}", str(step.get("answer") or ""))
    return last


def _trial(item: _Item, source: str, needle: str | None, chat: bool | None) -> Trial:
    """With a needle, the paragraphs around it go into the template: it then stands exactly where it stood."""
    shots = template("musique")
    texts = [paragraph.text for paragraph in item.paragraphs]
    haystack, prompt, depth = "\n\n".join(texts), shots["template"], 0.5
    if needle:
        if item.holder is None:
            raise ValueError(
                f"{item.where}: the answer {item.answers[0]!r} stands in no supporting paragraph: use needle=None"
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
    )
