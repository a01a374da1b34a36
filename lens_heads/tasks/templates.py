"""Few-shot templates and judges, stored as data in `data/templates/*.json`."""

from __future__ import annotations

from typing import Any

from lens_heads.runs.reading import read_json
from lens_heads.tasks.books import data
from lens_heads.trials.judges import Judge, judge_of


def template(name: str) -> dict[str, Any]:
    """A template file: "template" contains {question} and ends where the answer begins, "question" phrases one question."""
    return read_json(data("templates", f"{name}.json"))


def judge(shots: dict[str, Any], **fields: Any) -> Judge:
    """The judge of a template file, whose "judge" object holds the fields of `Judge`; keyword arguments override them."""
    return judge_of(**{**shots["judge"], **fields})
