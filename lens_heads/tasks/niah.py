"""Needle in a haystack as Wu et al. detect retrieval heads (arXiv 2404.15574)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lens_heads.tasks.books import at_least, parse_json, read_book, read_text
from lens_heads.tasks.sampling import depths_grid, lengths_grid, stratified
from lens_heads.trials.trial import Trial

PLAIN = "{haystack}\nBased on the content of the book, Question: {question}\nAnswer:"
BOOK = "<book>{haystack}</book>\nBased on the content of the book, Question: {question}\nAnswer:"


def niah(
    folder: str | Path,
    *,
    lengths: int | Sequence[int] = 20,
    depths: int | Sequence[float] = 10,
    n: int | None = None,
    chat: bool | None = None,
    seed: int = 0,
) -> list[Trial]:
    """Trials from a folder in the format of Wu et al.'s `haystack_for_detect`.

    Args:
        folder: holds `needles.jsonl`, a line {"needle", "question", "real_needle"} each, and for needle i the texts
            `part{i}/*.txt`. A text may be a page of the hub's data viewer in JSON, as theirs are.
        lengths: tokens of the whole prompt; a list, or a number of them spaced evenly over 1,000..50,000.
        depths: 0 to 1; a list, or a number of them spaced evenly.
        n: draw so many, stratified over (needle, depth), by `seed`; None for all.
        chat: as in `Trial`; True puts the text between <book> tags, as they do for chat models.

    Returns:
        Trials with ids such as "niah-1-len1000-depth11". The answer is `real_needle`, the needle's span that of
        `real_needle` within the needle (its `needle_focus`).

    Raises:
        FileNotFoundError, ValueError: naming file, line and field.

    Differs from their code: the span is tracked, not searched by token overlap; of a viewer page only the texts are
    read, not the JSON around them; sentence ends are `.`, `!` and `?`, not the full stop alone; the question begins on
    a new line.
    """
    folder = Path(folder).expanduser()
    grid, at = lengths_grid(lengths), depths_grid(depths)
    trials: list[Trial] = []
    for number, needle in enumerate(_needles(folder / "needles.jsonl"), 1):
        haystack = at_least(_novel(folder / f"part{number}"), max(grid))
        for length in grid:
            for depth in at:
                trials.append(
                    Trial(
                        id=f"niah-{number}-len{length}-depth{100 * depth:g}",
                        question=needle.question,
                        answer=needle.real,
                        haystack=haystack,
                        needle=needle.text,
                        needle_focus=needle.focus,
                        template=BOOK if chat else PLAIN,
                        depth=depth,
                        length=length,
                        chat=chat,
                        meta={"needle": number, "book": f"part{number}"},
                    )
                )
    if n is None:
        return trials
    return stratified(trials, n, lambda trial: (trial.meta["needle"], trial.depth), seed)


@dataclass(frozen=True)
class _Needle:
    text: str
    focus: str
    question: str
    real: str


def _needles(file: Path) -> list[_Needle]:
    """The needle of every line."""
    needles: list[_Needle] = []
    for number, line in enumerate(read_text(file).splitlines(), 1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        raw = parse_json(line, where)
        if not isinstance(raw, dict):
            raise ValueError(f"{where}: a needle is a JSON object with needle, question and real_needle")
        text, question, real = (_text(raw, field, where) for field in ("needle", "question", "real_needle"))
        needles.append(_Needle(text, _focus(text, real, where), question, real))
    if not needles:
        raise ValueError(f"{file}: there is no needle in it: write one JSON object per line")
    return needles


def _focus(needle: str, real: str, where: str) -> str:
    """`real_needle` as the needle writes it: one of theirs begins with a capital that the needle does not have."""
    found = re.findall(re.escape(real), needle, re.IGNORECASE)
    if len(found) != 1:
        raise ValueError(
            f"{where}: 'real_needle' {real!r} must stand once in 'needle', it is there {len(found)} times: {needle!r}"
        )
    return found[0]


def _text(raw: dict[str, Any], field: str, where: str) -> str:
    value = raw.get(field)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where}: field {field!r} is missing or empty: give it a text")
    return value.strip()


def _novel(folder: Path) -> str:
    files = sorted(folder.glob("*.txt"))
    files = [file for file in files if not file.with_suffix(".plain.txt").is_file()]
    if not files:
        raise FileNotFoundError(
            f"{folder} has no .txt file: needle {folder.name[4:]} of needles.jsonl needs a text there"
        )
    return "\n\n".join(_plain(read_book(file), file) for file in files)


def _plain(text: str, file: Path) -> str:
    """The texts of a data viewer page, or the text itself."""
    if not text.startswith('{"features"'):
        return text
    try:
        return "\n\n".join(row["row"]["text"] for row in json.loads(text)["rows"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f'{file}: begins like a data viewer page, but has no {{"rows": [{{"row": {{"text"}}}}]}}'
        ) from None
