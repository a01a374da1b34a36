"""BABILong: who is where and what is where, told in sentences scattered through a long text.

Kuratov et al., NeurIPS 2024, arXiv 2406.10149; the questions are those of bAbI (Weston et al., arXiv 1502.05698).
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from lens_heads.tasks import prose
from lens_heads.tasks.rows import Row, enough, hub_rows, local_rows, packaged_rows
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

HUB = "RMT-team/babilong"
CHARACTERS_PER_TOKEN = 4.5
"""Of the packaged prose, roughly, by the tokenizers of current models."""

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
    """Questions about people and things that move, judged as BABILong does: the right label, and no other.

    Args:
        source: "packaged", 40 made-up stories of each kind "qa1" (where is someone: one fact decides), "qa2" (where is
            something: two facts) and "qa3" (where was it before: three), with other people, rooms and words than
            bAbI's; or "hub", the benchmark.
        task: "qa1" to "qa10", of the packaged stories "qa1" to "qa3".
        config: of the hub: how long the texts are, "0k" (the story alone), "1k", "2k", ..
        n: trials; fewer than there are means a random draw. None for all.
        seed: of the draw, and of the prose.
        context_length: for "packaged": spread the story, in its order, through so much made-up prose that both have
            about so many tokens (at 4.5 characters each). 0 for the story alone.
        path: for "hub", a local copy of the task's rows instead.
        chat: as in `Trial`. False by default, for chat models too: the few examples are a text to go on with.

    Returns:
        Trials without needle, with ids such as "babilong-qa2-07" or "babilong-qa2-4k-12"; `meta` holds kind, task and
        source.

    Raises:
        FileNotFoundError, ValueError: naming the file, the row and the field; an unknown source or task; arguments that
            do not go together; more trials than there are rows.

    Differs from the benchmark: its own instructions and examples are not used; the story is not set apart by tags.
    """
    shots = template("babilong")
    if source not in ("packaged", "hub"):
        raise ValueError(f"there is no source {source!r}: use 'packaged' or 'hub' (with path= for a local copy)")
    if task not in shots[source]:
        raise ValueError(f"there is no task {task!r} in {source}: use {', '.join(shots[source])}")
    if source == "packaged" and (path is not None or config != "0k"):
        raise ValueError("path= and config= are for source='hub': make packaged stories longer with context_length=")
    if source == "hub" and context_length:
        raise ValueError("context_length= is for source='packaged': the hub has texts of each length, config='4k'")
    if context_length < 0:
        raise ValueError(f"context_length={context_length}: give a number of tokens, or 0 for the story alone")
    rows, where = _rows(source, task, config, path)
    rng = random.Random(seed)
    drawn = rng.sample(rows, enough(n, len(rows), f"rows in {where}"))
    return [_trial(row, source, task, config, context_length, rng, chat) for row in drawn]


def _rows(source: str, task: str, config: str, path: str | Path | None) -> tuple[list[Row], str]:
    if source == "packaged":
        return [row for row in packaged_rows("babilong") if row.fields["task"] == task], f"the packaged {task}"
    if path is not None:
        return local_rows(path, f"{HUB}, {config}, {task}"), str(path)
    return hub_rows(HUB, config=config, split=task), f"{HUB} {config} {task}"


def _trial(
    row: Row, source: str, task: str, config: str, context_length: int, rng: random.Random, chat: bool | None
) -> Trial:
    shots = template("babilong")
    kind = shots[source][task]
    story, question, target = (row.text(field) for field in ("input", "question", "target"))
    unknown = [part for part in target.split(",") if part.lower() not in [label.lower() for label in kind["labels"]]]
    if unknown:
        raise ValueError(
            f"{row.where}: field 'target' is {target!r}, and {unknown[0]!r} is no answer to {task}: it takes "
            f"{', '.join(kind['labels'])}; give the task that these rows are of"
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
    """A story whose sentences stand, in order, at random places between those of made-up prose.

    There is as much prose as both need to have so many characters: none when the story alone has them.
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
