"""QRHead's format from local files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lens_heads.tasks.qrhead import qrhead

ROWS: list[dict[str, Any]] = [
    {
        "idx": "q1",
        "question": "Who ran?",
        "paragraphs": [
            {"idx": "d1", "title": "Dog", "paragraph_text": "A dog ran far away."},
            {"idx": "d2", "title": "Cat", "paragraph_text": "The cat sat."},
        ],
        "gt_docs": ["d1"],
    },
    {
        "idx": "q2",
        "question": "Who sat?",
        "paragraphs": [{"idx": "0", "paragraph_text": "The cat sat."}, {"idx": "1", "paragraph_text": "It rained."}],
        "gt_docs": ["0"],
    },
]


def file(tmp_path: Path, rows: list[dict[str, Any]]) -> Path:
    path = tmp_path / "detection.json"
    path.write_text(json.dumps(rows))
    return path


def test_rows_become_trials(tmp_path: Path) -> None:
    one, two = qrhead(file(tmp_path, ROWS))
    assert (one.id, one.query, one.gold) == ("q1", "Who ran?", ("d1",))
    assert one.documents[0].written == "Dog\nA dog ran far away."
    assert two.documents[0].written == "The cat sat."
    (short,) = qrhead(file(tmp_path, ROWS), n=1, words=2)
    assert short.documents[0].written == "Dog\nA dog"
    assert {d.id for d in qrhead(file(tmp_path, ROWS), shuffle=3)[0].documents} == {"d1", "d2"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": ""}, "row 1: field 'question' is missing or empty; it must contain text"),
        ({"paragraphs": []}, "row 1: field 'paragraphs' must be a list of {idx, paragraph_text} objects"),
        ({"gt_docs": None}, "row 1: field 'gt_docs' must be a list"),
        ({"gt_docs": ["d7"]}, "row 1: trial q1: there is no document 'd7' to be gold"),
        ({"paragraphs": [{"idx": "d1"}]}, "row 1, paragraph 1: field 'paragraph_text' is missing"),
    ],
)
def test_wrong_rows_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        qrhead(file(tmp_path, [{**ROWS[0], **change}]))
    with pytest.raises(ValueError, match="n=5 is out of range: there are 2 questions; use 1 to 2"):
        qrhead(file(tmp_path, ROWS), n=5)
