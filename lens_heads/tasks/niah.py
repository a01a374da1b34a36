"""Needle in a haystack, as used by Wu et al. to detect retrieval heads (arXiv 2404.15574)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from lens_heads.runs import checks
from lens_heads.runs.reading import parse_json, user_path
from lens_heads.runs.typed import typed
from lens_heads.tasks.books import at_least, read_book
from lens_heads.tasks.rows import json_lines
from lens_heads.tasks.sampling import depths_grid, lengths_grid, stratified
from lens_heads.trials.trial import Trial

PLAIN = "{haystack}\nBased on the content of the book, Question: {question}\nAnswer:"
BOOK = "<book>{haystack}</book>\nBased on the content of the book, Question: {question}\nAnswer:"


@typed
def niah(
    folder: str | Path,
    *,
    lengths: int | Sequence[int] = 20,
    depths: int | Sequence[float] = 10,
    n: int | None = None,
    chat: bool | None = None,
    seed: int = 0,
) -> list[Trial]:
    """Trials from a folder in the format of Wu et al.'s `haystack_for_detect`, or of HeadKV's (Fu et al., arXiv 2410.19258).

    Args, besides those of `lens_heads.tasks`:
        folder: contains `needles.jsonl`, with one {"needle", "question", "real_needle"} per line, and for needle i the
            texts `part{i}/*.txt`, counted from 1; or from 0, as HeadKV does, where there is a `part0`. A text may be a JSON
            page of the hub's data viewer, as Wu et al.'s are. A line's "answer", which HeadKV has, is what is asked for.
        n: number of trials, stratified over (needle, depth).
        chat: see `Trial`; True also puts the text between <book> tags, as they do for chat models.

    Returns:
        Trials with ids such as "niah-1-len1000-depth11". The answer is `real_needle` (or "answer"), and the needle span is
        that of `real_needle` within the needle (its `needle_focus`). Each needle is a group.

    Raises:
        ValueError: a faulty line, or as many parts from 0 as from 1, so that it can't be told which needle is whose.
        FileNotFoundError: a needle without texts.

    Differs from their code: the span is tracked, not searched by token overlap; only the texts of a viewer page are read,
    not the surrounding JSON; sentences end at `.`, `!` and `?`, not only at `.`; the question starts on a new line.

    Example:
        >>> Path("part1").mkdir()
        >>> _ = Path("part1/text.txt").write_text("It rained all day. Nobody went out. " * 100)
        >>> _ = Path("needles.jsonl").write_text('{"needle": "The key is red.", "question": "Which key?", "real_needle": "red"}')
        >>> trial = lh.tasks.niah(".", lengths=[100], depths=[0.5])[0]
        >>> trial.id, trial.needle
        ('niah-1-len100-depth50', 'The key is red.')
    """
    folder = user_path(folder, "folder")
    checks.seed(seed)
    grid, at = lengths_grid(lengths), depths_grid(depths)
    needles = _needles(folder / "needles.jsonl")
    first = _first_part(folder, len(needles))
    trials = [
        replace(
            needle,
            id=f"niah-{number}-len{length}-depth{100 * depth:g}",
            haystack=haystack,
            template=BOOK if chat else PLAIN,
            depth=depth,
            length=length,
            chat=chat,
            meta={"needle": number, "book": book.name},
        )
        for number, needle in enumerate(needles, 1)
        for book in [folder / f"part{number - 1 + first}"]
        for haystack in [at_least(_novel(book, number), max(grid))]
        for length in grid
        for depth in at
    ]
    return stratified(trials, n, attrgetter("group", "depth"), seed)


def _needles(file: Path) -> list[Trial]:
    """Trials without a haystack, one per line.

    The focus is `real_needle` as spelled in the needle: one of theirs is capitalized only in `real_needle`.
    """
    trials: list[Trial] = []
    for row in json_lines(file, "needle, question, real_needle"):
        needle, question, real = (row.text(field) for field in ("needle", "question", "real_needle"))
        found = re.findall(re.escape(real), needle, re.IGNORECASE)
        if len(found) != 1:
            raise row.fault("real_needle", f"occur once in {needle!r}, not {len(found)} times")
        answer = row.text("answer") if row.fields.get("answer") else real
        trials.append(Trial(row.where, question, answer, needle=needle, needle_focus=found[0], group=f"niah {needle}"))
    if not trials:
        raise ValueError(f"{file}: the file contains no needle: write one JSON object per line")
    return trials


def _first_part(folder: Path, needles: int) -> int:
    """The number of the first needle's part: 0 in HeadKV's folders, else 1."""
    if not (folder / "part0").is_dir():
        return 1
    if (folder / f"part{needles}").is_dir():
        raise ValueError(
            f"{folder} has part0 to part{needles} for {needles} needles, so it is not clear which is whose: remove part0 "
            f"(counted from 1) or part{needles} (counted from 0)"
        )
    return 0


def _novel(folder: Path, needle: int) -> str:
    files = [file for file in sorted(folder.glob("*.txt")) if not file.with_suffix(".plain.txt").is_file()]
    if not files:
        raise FileNotFoundError(
            f"{folder} contains no .txt file: put the haystack of needle {needle} of needles.jsonl there"
        )
    return "\n\n".join(_plain(read_book(file), file) for file in files)


def _plain(text: str, file: Path) -> str:
    """The texts of a data viewer page, or the text itself."""
    if not text.startswith('{"features"'):
        return text
    page = parse_json(text, str(file))
    try:
        return "\n\n".join(row["row"]["text"] for row in page["rows"])
    except (KeyError, TypeError):
        raise ValueError(
            f'{file}: begins like a data viewer page, but lacks {{"rows": [{{"row": {{"text"}}}}]}}; use plain text'
        ) from None
