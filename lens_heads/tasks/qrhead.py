"""QRHead's detection sets: questions over documents, some of which are gold (Zhang et al., EMNLP 2025)."""

from __future__ import annotations

from pathlib import Path

from lens_heads.runs import checks
from lens_heads.runs.digests import digest
from lens_heads.runs.typed import typed
from lens_heads.tasks.rows import DataRow, table
from lens_heads.tasks.sampling import enough
from lens_heads.trials.documents import Document, DocumentTrial

HUB = "PrincetonPLI/QRHead"


@typed
def qrhead(
    path: str | Path | None = None,
    *,
    n: int | None = None,
    words: int | None = None,
    shuffle: int | None = None,
    split: str = "train",
    config: str | None = None,
) -> list[DocumentTrial]:
    """Document trials in QRHead's format.

    Args, besides those of `lens_heads.tasks`:
        n: number of trials, the first ones; None for all.
        words: truncate every document to this many words (400 in the paper's BEIR experiments).
        shuffle: seed for shuffling each trial's documents, as rule "ndcg" expects; None keeps their order.
        split, config: split and config of the hub's dataset, `PrincetonPLI/QRHead`.

    Rows have the fields `idx`, `question`, `paragraphs` (each with `idx`, `paragraph_text`, optionally `title`) and
    `gt_docs`. Questions with the same gold documents are a group.

    Example:
        >>> documents = [{"idx": "a", "paragraph_text": "Paris is in France."}, {"idx": "b", "paragraph_text": "It rained."}]
        >>> row = {"idx": "q1", "question": "Where is Paris?", "gt_docs": ["a"], "paragraphs": documents}
        >>> pd.DataFrame([row]).to_json("rows.jsonl", orient="records", lines=True)
        >>> trial = lh.tasks.qrhead("rows.jsonl")[0]
        >>> trial.query, trial.gold
        ('Where is Paris?', ('a',))
    """
    if words is not None:
        checks.whole_number("words", words, remedy=", or None for whole documents")
    if shuffle is not None:
        checks.seed(shuffle, "shuffle")
    rows = table(path, HUB, split=split, config=config)
    trials = [_trial(row, words) for row in rows[: enough(n, len(rows), "questions")]]
    return trials if shuffle is None else [trial.shuffled(shuffle) for trial in trials]


def _trial(row: DataRow, words: int | None) -> DocumentTrial:
    paragraphs = row.rows("paragraphs", "idx, paragraph_text")
    documents = []
    for each in paragraphs:
        text = each.verbatim("paragraph_text")
        text = " ".join(text.split()[:words]) if words else text
        documents.append(Document(text, str(each.fields.get("title") or ""), each.text("idx")))
    if not isinstance(row.fields.get("gt_docs"), list):
        raise row.fault("gt_docs", "be a list of paragraph ids")
    gold = tuple(map(str, row.fields["gt_docs"]))
    name, query = row.text("idx"), row.text("question")
    whole = sorted(paragraph.text("paragraph_text") for paragraph in paragraphs if paragraph.text("idx") in gold)
    try:
        return DocumentTrial(name, query, tuple(documents), gold, group=f"qrhead {digest(whole)}")
    except ValueError as error:
        raise ValueError(f"{row.where}: {error}") from None
