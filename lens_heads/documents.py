"""DocumentTrial: a query over documents of which some hold the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Document:
    text: str
    title: str = ""
    id: str = ""


@dataclass(frozen=True)
class DocumentTrial:
    id: str
    query: str
    documents: tuple[Document, ...]
    gold: tuple[str, ...]
    answer: str = ""
    meta: dict[str, Any] = field(default_factory=dict)
