"""BABILong: who and what is where, told in sentences scattered through a long text.

Kuratov et al., NeurIPS 2024, arXiv 2406.10149; the questions are those of bAbI (Weston et al., arXiv 1502.05698).
"""

from __future__ import annotations

import random
import re
from itertools import chain
from pathlib import Path

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks import prose
from lens_heads.tasks.books import LONGEST
from lens_heads.tasks.rows import DataRow, packaged_rows, table
from lens_heads.tasks.sampling import check_known, drawn
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

HUB = "RMT-team/babilong"
CHARACTERS_PER_TOKEN = 4.5
"""Approximate value for the packaged prose under current tokenizers."""

_SENTENCE = re.compile(r'(?<=[.?!])\s+(?=["A-Z])|(?<=[.?!]")\s+(?=["A-Z])')


@typed
def babilong(
    source: str = "packaged",
    *,
    task: str = "qa2",
    config: str = "0k",
    n: int | None = None,
    seed: int = 0,
    context_length: int = 0,
    path: str | Path | None = None,
    chat: bool | None = False,
    whole_words: bool = False,
) -> list[Trial]:
    """Questions about moving people and things, judged as in BABILong: the right label must occur, and no other.

    Args, besides those of `lens_heads.tasks`:
        source: "packaged", 40 original stories each of "qa1" (where is someone: one supporting fact), "qa2" (where is
            something: two facts) and "qa3" (where was it before: three facts), with people, rooms and words that differ
            from bAbI's; or "hub", the benchmark.
        task: "qa1" to "qa10"; for packaged stories "qa1" to "qa3".
        config: for "hub", the text length: "0k" (the story alone), "1k", "2k", ..
        context_length: for "packaged", the target length in tokens (at 4.5 characters each): the story's sentences are
            spread, in order, through that much synthetic prose. 0 for the story alone.
        whole_words: judge labels as whole words, unlike the benchmark.

    Returns:
        Trials without needle, with ids such as "babilong-qa2-07" or "babilong-qa2-4k-12"; `meta` holds kind, task and
        source. A story is a group, whatever its text length.

    Judging is that of `compare_answers` in the benchmark's code: a label counts wherever its letters stand, so that "none" in
    qa7 also names "one" and is never right there; `whole_words=True` mends that. One difference: their code means to cut a
    text before "Question", but looks for the capital in lower case; here it is cut
    (`replace(trial.judge, cut=(".", "<context>", "<example>"))` is theirs).
    Differs from the benchmark: its instructions and examples are not used, no tags mark off the story, and generating ends
    with the first line, not after 20 tokens (`Judge.multiline` of a trial's judge lifts that).

    Example:
        >>> trial = lh.tasks.babilong(n=1, task="qa1")[0]
        >>> trial.id, trial.answer
        ('babilong-qa1-25', 'veranda')
    """
    shots = template("babilong")
    check_known("source", source, ("packaged", "hub"), " (with path= for a local copy)")
    check_known(f"{source} task", task, shots[source])
    if source == "packaged" and (path is not None or config != "0k"):
        raise ValueError("path= and config= require source='hub': use context_length= to lengthen packaged stories")
    if source == "hub" and context_length:
        raise ValueError("context_length= requires source='packaged': choose the hub's text length with config='4k'")
    checks.whole_number("context_length", context_length, 0, LONGEST, " of tokens; 0 is the story alone")
    kind = shots[source][task]
    if source == "packaged":
        rows, where = [row for row in packaged_rows("babilong") if row.fields["task"] == task], f"the packaged {task}"
    else:
        rows, where = table(path, HUB, config=config, split=task), str(path or f"{HUB} {config} {task}")
    rng = random.Random(checks.seed(seed))
    ending = f"-{context_length}" if context_length else ""
    return [
        Trial(
            id=f"babilong-{name or f'{task}-{config}-{row.number}'}{ending}",
            question=question,
            answer=_answer(row, task, kind["labels"]),
            haystack=spread(row.text("input"), round(context_length * CHARACTERS_PER_TOKEN), rng),
            template=kind["template"],
            chat=chat,
            meta={"kind": task, "task": task, "source": source, "context_length": context_length},
            judge=judge(shots, labels=kind["labels"], whole_words=whole_words).without(question),
            group=f"babilong {source} {name or f'{task}-{row.number}'}",
        )
        for row in drawn(rows, n, f"rows in {where}", rng)
        for name, question in [(row.fields.get("id"), row.text("question"))]
    ]


def _answer(row: DataRow, task: str, labels: list[str]) -> str:
    """The right label, or several, separated by commas."""
    target = row.text("target")
    unknown = [part for part in target.split(",") if part.lower() not in [label.lower() for label in labels]]
    if unknown:
        raise ValueError(
            f"{row.where}: field 'target' is {target!r}, but {unknown[0]!r} is not an answer of {task} "
            f"({', '.join(labels)}); pass the task= of these rows"
        )
    return target


def spread(story: str, characters: int, rng: random.Random) -> str:
    """A story with its sentences, in order, at random positions in synthetic prose.

    The prose fills the text up to `characters`; there is none if the story alone is that long.
    """
    paragraphs = prose.haystack(words=max(45_000, characters // 2)).split("\n\n")
    at = rng.randrange(len(paragraphs))
    filler: list[str] = []
    length = len(story)
    for sentence in chain.from_iterable(map(_SENTENCE.split, paragraphs[at:] + paragraphs[:at])):
        length += len(sentence) + 1
        if length > characters:
            break
        filler.append(sentence)
    facts = _SENTENCE.split(story)
    places = sorted(rng.randint(0, len(filler)) for _ in facts)
    for place, fact in reversed(list(zip(places, facts, strict=True))):
        filler.insert(place, fact)
    return " ".join(filler)
