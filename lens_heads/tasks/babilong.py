"""BABILong: who and what is where, told in sentences scattered through a long text.

Kuratov et al., NeurIPS 2024, arXiv 2406.10149; the questions are those of bAbI (Weston et al., arXiv 1502.05698).
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from lens_heads.tasks import prose
from lens_heads.tasks.rows import Row, packaged_rows, table
from lens_heads.tasks.sampling import check_known, enough
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

HUB = "RMT-team/babilong"
CHARACTERS_PER_TOKEN = 4.5
"""Approximate value for the packaged prose under current tokenizers."""

_SENTENCE = re.compile(r'(?<=[.?!])\s+(?=["A-Z])|(?<=[.?!]")\s+(?=["A-Z])')


def babilong(
    source: str = "packaged",
    task: str = "qa2",
    config: str = "0k",
    n: int | None = None,
    seed: int = 0,
    context_length: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Questions about moving people and things, judged as in BABILong: the right label must occur, and no other.

    Args:
        source: "packaged", 40 original stories each of "qa1" (where is someone: one supporting fact), "qa2" (where is
            something: two facts) and "qa3" (where was it before: three facts), with people, rooms and words that differ
            from bAbI's; or "hub", the benchmark.
        task: "qa1" to "qa10"; for packaged stories "qa1" to "qa3".
        config: for "hub", the text length: "0k" (the story alone), "1k", "2k", ..
        n: number of trials, drawn at random; None for all.
        seed: random seed for the draw and the prose.
        context_length: for "packaged", the target length in tokens (at 4.5 characters each): the story's sentences are
            spread, in order, through that much synthetic prose. 0 for the story alone.
        path: for "hub", a local copy of the task's rows.
        chat: see `Trial`. False by default even for chat models, since the few-shot prompt is text to continue.

    Returns:
        Trials without needle, with ids such as "babilong-qa2-07" or "babilong-qa2-4k-12"; `meta` holds kind, task and
        source.

    Raises:
        FileNotFoundError, ValueError: missing or faulty data (named by file, row and field), unknown source or task,
            incompatible arguments, or `n` out of range.

    Differs from the benchmark: its instructions and examples are not used, and no tags mark off the story.
    """
    shots = template("babilong")
    check_known("source", source, ("packaged", "hub"), " (with path= for a local copy)")
    check_known(f"{source} task", task, shots[source])
    if source == "packaged" and (path is not None or config != "0k"):
        raise ValueError("path= and config= require source='hub': use context_length= to lengthen packaged stories")
    if source == "hub" and context_length:
        raise ValueError("context_length= requires source='packaged': choose the hub's text length with config='4k'")
    if context_length < 0:
        raise ValueError(f"context_length={context_length} must be a number of tokens, or 0 for the story alone")
    rows, where = _rows(source, task, config, path)
    rng = random.Random(seed)
    drawn = rng.sample(rows, enough(n, len(rows), f"rows in {where}"))
    return [_trial(row, source, task, config, context_length, rng, chat) for row in drawn]


def _rows(source: str, task: str, config: str, path: str | Path | None) -> tuple[list[Row], str]:
    if source == "packaged":
        return [row for row in packaged_rows("babilong") if row.fields["task"] == task], f"the packaged {task}"
    where = f"{HUB} {config} {task}" if path is None else str(path)
    return table(path, HUB, config=config, split=task), where


def _trial(
    row: Row, source: str, task: str, config: str, context_length: int, rng: random.Random, chat: bool | None
) -> Trial:
    shots = template("babilong")
    kind = shots[source][task]
    story, question, target = (row.text(field) for field in ("input", "question", "target"))
    unknown = [part for part in target.split(",") if part.lower() not in [label.lower() for label in kind["labels"]]]
    if unknown:
        raise ValueError(
            f"{row.where}: field 'target' is {target!r}, but {unknown[0]!r} is not an answer of {task} "
            f"({', '.join(kind['labels'])}); pass the task= of these rows"
        )
    name = str(row.fields.get("id") or f"{task}-{config}-{row.number}")
    return Trial(
        id=f"babilong-{name}" + (f"-{context_length}" if context_length else ""),
        question=question,
        answer=target,
        haystack=spread(story, round(context_length * CHARACTERS_PER_TOKEN), rng),
        template=kind["template"],
        chat=chat,
        meta={"kind": task, "task": task, "source": source, "context_length": context_length},
        judge=judge(shots, labels=kind["labels"]).without(question),
    )


def spread(story: str, characters: int, rng: random.Random) -> str:
    """A story with its sentences, in order, at random positions in synthetic prose.

    The prose fills the text up to `characters`; there is none if the story alone is that long.
    """
    paragraphs = prose.haystack(words=max(45_000, characters // 2)).split("\n\n")
    at = rng.randrange(len(paragraphs))
    filler: list[str] = []
    length = len(story)
    for paragraph in paragraphs[at:] + paragraphs[:at]:
        for sentence in _SENTENCE.split(paragraph):
            if length + len(sentence) + 1 > characters:
                break
            filler.append(sentence)
            length += len(sentence) + 1
        else:
            continue
        break
    facts = _SENTENCE.split(story)
    places = sorted(rng.randint(0, len(filler)) for _ in facts)
    for place, fact in reversed(list(zip(places, facts, strict=True))):
        filler.insert(place, fact)
    return " ".join(filler)
