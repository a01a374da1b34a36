"""DocumentTrial: a query and the documents it is about, as text and as tokens.

The prompt is that of QRHead's released code, written out and tokenized as one string:
`user header + " Here are some paragraphs:" + sep + "[1] title\\ntext" + ... + sep + ASK + sep + "Query: " + query + end`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from lens_heads.runs import checks
from lens_heads.runs.typed import held
from lens_heads.trials.encoded import check_id, token_ids
from lens_heads.trials.fields import groups, span, text
from lens_heads.trials.tokenizing import chat_frame, prompt_offsets

INTRO = " Here are some paragraphs:"
ASK = "Please find information that are relevant to the following query in the paragraphs above."
NULL_QUERY = "N/A"
"""The query without content, whose attention is subtracted for calibration."""


class Frame(NamedTuple):
    """The text around the prompt and between its parts."""

    prefix: str
    suffix: str
    separator: str


FRAMES = {
    "llama3": Frame(
        "<|start_header_id|>user<|end_header_id|>", "<|eot_id|><|start_header_id|>assistant<|end_header_id|>", " \n\n"
    ),
    "qwen2.5": Frame("<|im_start|>user", "<|im_end|>\n<|im_start|>assistant", "\n\n"),
}
"""The frames of QRHead's code; each is recognized by the first special token of its prefix."""


@dataclass(frozen=True)
class Document:
    """One text of a trial; `id` is empty until the trial assigns one.

    `title`: shown before the text, if there is one.

    Example:
        >>> lh.Document("Paris is in France.", title="Paris").id
        ''
    """

    text: str
    title: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        for what in ("text", "title"):
            text("a document", what, getattr(self, what))

    @property
    def written(self) -> str:
        """The text as it appears in the prompt after its number."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True)
class DocumentTrial:
    """A query, documents, and which of them contain the answer.

    `documents` are `Document`s or plain texts; those without an id are numbered "1", "2", ... by position. `gold` are
    ids of documents. `answer` is stored but not used here. `group`: as in `Trial`.

    Raises ValueError for an empty query, no documents, an empty document, two documents with the same id or text, no gold
    id, and a gold id that no document has.

    `meta`: what to group results by.

    Example:
        >>> trial = lh.DocumentTrial("paris", "Where is Paris?", ("Paris is in France.", "Rome is in Italy."), gold=("1",))
        >>> [document.id for document in trial.documents]
        ['1', '2']
    """

    id: str
    query: str
    documents: tuple[Document, ...]
    gold: tuple[str, ...]
    answer: str = ""
    meta: dict[str, Any] = field(default_factory=dict)
    group: str | tuple[str, ...] = ""

    def __post_init__(self) -> None:
        check_id(self.id)
        owner = f"trial {self.id}"
        object.__setattr__(self, "documents", numbered(self.documents, owner))
        text(owner, "query", self.query, empty=False)
        object.__setattr__(self, "group", groups(owner, self.group))
        gold = self.gold if isinstance(self.gold, Iterable) and not isinstance(self.gold, str) else [self.gold]
        for one in (gold := list(gold)):
            if not isinstance(one, str) and checks.whole(one) is None:
                raise ValueError(f"{owner}: gold {self.gold!r} must be ids of documents, such as '1'")
        object.__setattr__(self, "gold", tuple(dict.fromkeys(str(one) for one in gold)))
        known = [document.id for document in self.documents]
        if not self.gold:
            raise ValueError(f"{owner} has no gold document: pass the ids of those with the answer, e.g. {known[0]!r}")
        for one in self.gold:
            if one not in known:
                raise ValueError(f"{owner}: there is no document {one!r} to be gold: the ids are {', '.join(known)}")

    def encode(self, tokenizer: Any, *, frame: str | None = None) -> EncodedDocuments:
        """The trial in tokens; see `lens_heads.trials.documents.encode`."""
        encoded = encode(self.id, self.query, self.documents, tokenizer, self.gold, frame)
        return replace(encoded, meta=self.meta, group=self.group)

    def shuffled(self, seed: int) -> DocumentTrial:
        """The trial with its documents in a random order that depends only on the seed and the trial's id; ids are kept."""
        documents = list(self.documents)
        random.Random(f"{checks.seed(seed)}-{self.id}").shuffle(documents)
        return replace(self, documents=tuple(documents))


def numbered(documents: Iterable[Document | str], owner: str) -> tuple[Document, ...]:
    """Documents with ids. ValueError for no documents, an empty one, and two with the same id or text."""
    listed = [documents] if isinstance(documents, str | Document) else held(f"{owner}: documents", documents, list[Any])
    if not listed:
        raise ValueError(f"{owner} has no documents: pass at least one")
    found: dict[str, Document] = {}  # By text.
    for number, given in enumerate(listed, 1):
        document = given if isinstance(given, Document) else Document(text(owner, f"document {number}", given))
        document = replace(document, id=str(document.id) or str(number))
        if not document.text.strip():
            raise ValueError(f"{owner}: document {document.id} is empty: omit it")
        if any(document.id == other.id for other in found.values()):
            raise ValueError(f"{owner}: two documents have the id {document.id!r}: ids must be unique in a trial")
        if (same := found.setdefault(document.written, document)) is not document:
            what = f"documents {same.id} and {document.id} are the same text"
            raise ValueError(f"{owner}: {what}, so a ranking cannot distinguish them: omit one")
    return tuple(found.values())


@dataclass(frozen=True, eq=False)
class EncodedDocuments:
    """A document trial in tokens.

    `tokens` is the prompt with the query, `null_tokens` the one with "N/A". Both agree up to `ask`, the position of the
    first token of "Please find", where the query rows begin. `documents` are half-open spans, each beginning with its
    number `[i]`; `tags` counts the tokens of each number. `gold` are indices into `documents`.
    """

    id: str
    tokens: Int[Tensor, " position"]
    null_tokens: Int[Tensor, " other_position"]
    ask: int
    documents: tuple[tuple[int, int], ...]
    tags: tuple[int, ...]
    gold: tuple[int, ...]
    meta: dict[str, Any] = field(default_factory=dict)
    group: str | tuple[str, ...] = ""

    def __post_init__(self) -> None:
        check_id(self.id)
        owner = f"trial {self.id}"
        for what in ("tokens", "null_tokens"):
            object.__setattr__(self, what, token_ids(getattr(self, what), owner, what))
        shortest = min(len(self.tokens), len(self.null_tokens))
        checks.whole_number(f"{owner}: ask", self.ask, 1, shortest - 1, ", before the last token of both prompts")
        spans = tuple(span(owner, f"document {i}", one, self.ask) for i, one in enumerate(self.documents))
        object.__setattr__(self, "documents", spans)
        if not spans or len(self.tags) != len(spans):
            raise ValueError(
                f"{owner}: {len(spans)} documents and {len(self.tags)} tags: pass one tag for each document"
            )
        for tag in self.tags:
            checks.whole_number(f"{owner}: tags", tag, 0)
        for one in self.gold:
            checks.whole_number(f"{owner}: gold", one, 0, len(spans) - 1, ", the index of a document")
        if len(set(self.gold)) < len(self.gold):
            raise ValueError(f"{owner}: gold={self.gold!r} lists a document twice")

    def __len__(self) -> int:
        return max(len(self.tokens), len(self.null_tokens))


AnyDocuments: TypeAlias = DocumentTrial | EncodedDocuments


def frame_of(tokenizer: Any, frame: str | None = None) -> Frame:
    """A frame by name, or that of the tokenizer: a known one, else that of its chat template, else an empty one.

    ValueError for an unknown name.
    """
    if frame is None:
        known = tokenizer.get_vocab()
        own = next((one for one in FRAMES.values() if one.prefix.split(">")[0] + ">" in known), None)
        return own or Frame(*chat_frame(tokenizer, None), "\n\n")
    if frame not in FRAMES:
        raise ValueError(f"frame={frame!r}: use {', '.join(map(repr, FRAMES))}, or None for the tokenizer's own")
    return FRAMES[frame]


def encode(
    trial_id: str,
    query: str,
    documents: Sequence[Document],
    tokenizer: Any,
    gold: Sequence[str] = (),
    frame: str | None = None,
) -> EncodedDocuments:
    """Query and documents in tokens; spans come from the tokenizer's character offsets.

    A token that begins inside a document and extends into the separator (".\\n\\n" is one in Qwen) belongs to the document.
    Raises ValueError for a tokenizer without offsets.
    """
    around = frame_of(tokenizer, frame)
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"trial {trial_id}: document spans need character offsets: load the tokenizer with use_fast=True"
        )
    text, spans, tags = around.prefix + INTRO + around.separator, [], []
    for number, document in enumerate(documents, 1):
        tag, start = f"[{number}]", len(text)
        text += f"{tag} {document.written}"
        spans.append((start, len(text)))
        tags.append((start, start + len(tag)))
        text += around.separator
    ask = len(text)

    def whole(asked: str) -> tuple[list[int], list[tuple[int, int]]]:
        return prompt_offsets(tokenizer, f"{text}{ASK}{around.separator}Query: {asked}{around.suffix}")

    tokens, offsets = whole(query)
    null_tokens, _ = whole(NULL_QUERY)
    first = _inside(offsets, ask, ask + len(ASK))[0]
    if tokens[:first] != null_tokens[:first]:
        raise ValueError(
            f"trial {trial_id}: with the tokenizer of {tokenizer.name_or_path}, the query changes the tokens of the "
            "documents before it: use a frame whose separator keeps them apart"
        )
    ids = [document.id for document in documents]
    return EncodedDocuments(
        id=trial_id,
        tokens=torch.tensor(tokens),
        null_tokens=torch.tensor(null_tokens),
        ask=first,
        documents=tuple(_inside(offsets, *span) for span in spans),
        tags=tuple(end - start for start, end in (_inside(offsets, *tag) for tag in tags)),
        gold=tuple(ids.index(one) for one in gold),
    )


def _inside(offsets: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int]:
    """The half-open span of the tokens that contain any character of [start, end)."""
    inside = [i for i, (a, b) in enumerate(offsets) if a < end and b > start and b > a]
    return inside[0], inside[-1] + 1
