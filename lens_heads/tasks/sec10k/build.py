"""Builds trials (for ablation) and document trials (for detection) from a filing and the sentence that states a fact."""

from __future__ import annotations

import random
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from lens_heads.tasks.sec10k.filings import Filing
from lens_heads.tasks.sec10k.sentences import Span, sentences, words
from lens_heads.tasks.sec10k.settings import settings
from lens_heads.tasks.sec10k.statements import Statement, names
from lens_heads.tasks.sec10k.values import variants, written
from lens_heads.trials.documents import Document, DocumentTrial
from lens_heads.trials.judges import judge_of
from lens_heads.trials.trial import Trial


class Instance(NamedTuple):
    """A fact of a filing and the sentence that states it."""

    filing: Filing
    task: str
    statement: Statement

    @property
    def id(self) -> str:
        return f"sec10k-{self.task}-{self.filing.id}"

    @property
    def asked(self) -> dict[str, Any]:
        """What the settings say about the task."""
        return settings()["tasks"][self.task]

    @property
    def answer(self) -> str:
        """The value as spelled in the sentence; a state by its name."""
        return self.statement.value if self.asked["kind"] == "state" else self.statement.value_text

    @property
    def group(self) -> str:
        """The company, by its CIK without leading zeros, as in `half`."""
        return f"sec10k {self.filing.cik.lstrip('0')}"

    @property
    def meta(self) -> dict[str, Any]:
        """The fields to group trials by."""
        return {
            "kind": self.task,
            "task": self.task,
            "filing": self.filing.id,
            "cik": self.filing.cik,
            "year": self.filing.year,
            "section": self.statement.section,
            "only": self.statement.only,
            "extracted": self.statement.extracted,
        }


def trial(instance: Instance, length: int, seed: int, chat: bool | None) -> Trial:
    """The stating sentence, in the middle of about `length` words from the filing's other sections (see `haystack`).

    Aliases of the answer are the fact and its variants.
    """
    statement = instance.statement
    aliases = dict.fromkeys((*variants(instance.asked["kind"], statement.value), statement.value_text))
    around = haystack(instance, length, seed)
    return Trial(
        id=instance.id,
        question=instance.asked["question"],
        answer=instance.answer,
        aliases=tuple(alias for alias in aliases if alias != instance.answer),
        haystack=around,
        needle=statement.text,
        template=settings()["template"],
        chat=chat,
        meta=instance.meta | {"words": len(words(around))},
        group=instance.group,
        judge=judge_of(**settings()["judge"]),
    )


def haystack(instance: Instance, length: int, seed: int) -> str:
    """A passage of whole sentences from the other sections, in document order: `length` words, or all if there are fewer.

    No sentence in it contains the value in any spelling; for a registrant's name, not even a shorter form ("Nuance"),
    which the study's judge would accept. Seed and trial id determine where the passage begins.
    """
    kind, statement = instance.asked["kind"], instance.statement
    values = names(instance.filing) if kind == "name" else ()
    held = re.compile("|".join(written(kind, value) for value in (statement.value, *values)))
    others = [text for name, text in instance.filing.sections.items() if name != statement.section]
    pieces = without([piece for text in others for piece in _pieces(text)], held)
    ends = list(accumulate(len(words(piece)) for piece in pieces))
    spare = ends[-1] - length if ends else 0
    start = bisect_right(ends, random.Random(f"{seed}-{instance.id}").randint(0, spare)) if spare > 0 else 0
    end = bisect_left(ends, (ends[start - 1] if start else 0) + length) + 1
    return "".join(pieces[start:end]).strip()


def without(pieces: list[str], held: re.Pattern[str]) -> list[str]:
    """The pieces of a text that contain no match of the pattern, alone or joined."""
    while matches := [found.span() for found in held.finditer("".join(pieces))]:
        pieces = [
            piece
            for piece, end in zip(pieces, accumulate(map(len, pieces)), strict=True)
            if not any(end - len(piece) < to and at < end for at, to in matches)
        ]
    return pieces


def _pieces(text: str) -> list[str]:
    """The sentences of a section, each with the white space that joins it to the next: a space or a line break."""
    spans = sentences(text)
    gaps = [text[end:start] for (_, end), (start, _) in pairwise(spans)]
    joins = ["\n" if "\n" in gap else " " for gap in gaps] + ["\n\n"]
    return [text[start:end] + join for (start, end), join in zip(spans, joins, strict=False)]


def documents(instance: Instance, chunk_words: int, n_documents: int | None, seed: int) -> DocumentTrial:
    """The gold section and the others in document order, in chunks that never split a sentence that states the value.

    Chunks with such a sentence are gold. `n_documents` chunks are drawn from the other sections, or all are kept.
    """
    filing, statement = instance.filing, instance.statement
    stated = [(statement.section, statement.start, statement.end), *statement.others]
    made: list[tuple[str, Document, bool]] = []
    for section, text in filing.sections.items():
        keep = [(start, end) for name, start, end in stated if name == section]
        for number, (start, end) in enumerate(chunks(text, keep, chunk_words), 1):
            title = section.replace("item_", "Item ")
            document = Document(text=text[start:end], title=title, id=f"{section}-{number}")
            made.append((section, document, any(start <= at and to <= end for at, to in keep)))
    others = [at for at, (section, _, _) in enumerate(made) if section != statement.section]
    if n_documents is not None and n_documents < len(others):
        dropped = set(others) - set(random.Random(f"{seed}-{instance.id}").sample(others, n_documents))
        made = [each for at, each in enumerate(made) if at not in dropped]
    return DocumentTrial(
        id=instance.id,
        query=instance.asked["question"],
        documents=tuple(document for _, document, _ in made),
        gold=tuple(document.id for _, document, gold in made if gold),
        answer=instance.answer,
        meta=instance.meta,
        group=instance.group,
    )


def chunks(text: str, keep: Sequence[Span], size: int) -> list[Span]:
    """The spans of chunks of at most `size` words, or more where a `keep` span, which is never split, is longer."""
    units: list[tuple[int, int, int]] = []
    for start, end in words(text):
        kept = next(((at, to) for at, to in keep if start < to and at < end), None)
        if kept and units and units[-1][1] > kept[0]:
            units[-1] = (units[-1][0], max(end, units[-1][1]), units[-1][2] + 1)
        else:
            units.append((start, max(end, kept[1]) if kept else end, 1))
    spans: list[Span] = []
    held = size
    for start, end, count in units:
        if held + count > size:
            spans.append((start, end))
            held = 0
        spans[-1] = (spans[-1][0], end)
        held += count
    return spans
