"""QRHead's detection sets: questions over documents, some of which are gold   (Zhang et al., EMNLP 2025)"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lens_heads.tasks.rows import Row, table
from lens_heads.tasks.sampling import enough
from lens_heads.trials.documents import Document, DocumentTrial

HUB = "PrincetonPLI/QRHead"


def qrhead(
    path: str | Path | None = None,
    n: int | None = None,
    words: int | None = None,
    shuffle: int | None = None,
    split: str = "train",
    config: str | None = None,
) -> list[DocumentTrial]:
    """Document trials in QRHead's format.

    Args:
        path: a file or folder of rows (.json, .jsonl, .parquet); None loads `PrincetonPLI/QRHead` from the hub.
        n: number of trials, the first ones; None for all.
        words: truncate every document to this many words (400 in the paper's BEIR experiments).
        shuffle: seed for shuffling each trial's documents, as rule "ndcg" expects; None keeps their order.
        split, config: split and config of the hub's dataset.

    Rows have the fields `idx`, `question`, `paragraphs` (each with `idx`, `paragraph_text`, optionally `title`) and
    `gt_docs`. Raises ValueError, which names the row and the field, or FileNotFoundError if the data is missing.
    """
    rows = table(path, HUB, split=split, config=config)
    trials = [_trial(row, words) for row in rows[: enough(n, len(rows), "questions")]]
    return trials if shuffle is None else [trial.shuffled(shuffle) for trial in trials]


def _trial(row: Row, words: int | None) -> DocumentTrial:
    paragraphs, gold = row.fields.get("paragraphs"), row.fields.get("gt_docs")
    if not isinstance(paragraphs, list) or not paragraphs:
        raise ValueError(f"{row.where}: field 'paragraphs' must be a list of paragraphs, got {paragraphs!r}")
    if not isinstance(gold, list):
        raise ValueError(f"{row.where}: field 'gt_docs' must be a list of paragraph ids, got {gold!r}")
    try:
        return DocumentTrial(
            id=row.text("idx"),
            query=row.text("question"),
            documents=tuple(_document(paragraph, words) for paragraph in paragraphs),
            gold=tuple(str(one) for one in gold),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{row.where}: a paragraph has no {error}; each must have idx and paragraph_text") from None
    except ValueError as error:
        raise ValueError(f"{row.where}: {error}") from None


def _document(paragraph: dict[str, Any], words: int | None) -> Document:
    text = str(paragraph["paragraph_text"])
    return Document(
        " ".join(text.split()[:words]) if words else text, str(paragraph.get("title") or ""), str(paragraph["idx"])
    )
