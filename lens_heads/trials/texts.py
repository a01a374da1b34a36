"""Plain texts, or prompts with responses, of which every row is read."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.runs import checks
from lens_heads.runs.digests import digest
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.trials.dependent import repeats
from lens_heads.trials.encoded import token_ids
from lens_heads.trials.tokenizing import piece, prompt_start

AnyText: TypeAlias = str | tuple[str, str] | Sequence[int] | Tensor
MIN_DISTANCE = 32


@dataclass(frozen=True, eq=False)
class EncodedText:
    """A text in tokens. Its rows count from position `first` on; `block`, `start`: as in `RowView`; `place`: `EncodedTrial`."""

    id: str
    tokens: Int[Tensor, " position"]
    first: int = 1
    block: int | None = None
    start: int = 0
    min_distance: int = MIN_DISTANCE
    group: str | tuple[str, ...] = ""
    place: tuple[int, int] | None = None
    needle: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def settings(self) -> list[Any]:
        """What identifies it in a run folder."""
        return [self.id, self.tokens.tolist(), self.first, self.block, self.start, self.min_distance]


@dataclass(frozen=True, eq=False)
class TextProbe:
    """Texts for `score_heads`; see `plain_texts`."""

    texts: tuple[AnyText, ...]
    min_distance: int = MIN_DISTANCE

    def __repr__(self) -> str:
        return f"TextProbe({len(self.texts)} texts, min_distance={self.min_distance})"

    def encode(self, tokenizer: Any, shape: HeadGeometry) -> list[EncodedText]:
        """Every text in tokens. ValueError naming the first that is too short or too long, or has ids of another model."""
        found = [self._encode(tokenizer, shape, number, one) for number, one in enumerate(self.texts)]
        again = repeats(one.tokens.numpy().tobytes() for one in found)
        for number in (number for numbers in again for number in numbers):
            found[number] = replace(found[number], group=f"text {digest(found[number].tokens.tolist())}")
        if again:
            warnings.warn(
                f"text-{again[0][0]} and text-{again[0][1]} are the same, so that they count as one in intervals: give each text "
                "once",
                stacklevel=users_line(),
            )
        return found

    def _encode(self, tokenizer: Any, shape: HeadGeometry, number: int, one: AnyText) -> EncodedText:
        name, prompt = f"text-{number}", None
        if isinstance(one, str):
            ids = prompt_start(tokenizer, one)
        elif isinstance(one, tuple) and len(one) == 2 and all(isinstance(part, str) for part in one):
            asked, answered = map(str, one)
            prompt = prompt_start(tokenizer, asked)
            ids = prompt + piece(tokenizer, answered)
        else:
            ids = one
        tokens = token_ids(ids, name, "tokens")  # type: ignore[arg-type]  # checked there
        first = max(1, len(prompt or ()))
        if len(tokens) <= first:
            what = "the response has no tokens" if prompt else f"{len(tokens)} tokens, but a row needs one before it"
            raise ValueError(f"{name}: {what}: pass a longer text")
        check_ids(name, tokens, shape)
        return EncodedText(name, tokens, first, min_distance=self.min_distance)


def check_ids(name: str, tokens: Int[Tensor, " position"], shape: HeadGeometry) -> None:
    """ValueError for ids that the model does not have, and for more tokens than its context."""
    bad = tokens[(tokens < 0) | (tokens >= shape.d_vocab)]
    if len(bad):
        raise ValueError(f"{name}: token id {int(bad[0])}, but {shape.name} has 0 to {shape.d_vocab - 1}")
    if len(tokens) > shape.n_ctx:
        raise ValueError(f"{name}: {len(tokens)} tokens, but the context window of {shape.name} is {shape.n_ctx}")


def listed_texts(texts: Any) -> list[Any]:
    """A list of texts, of which one may be given alone: a string, a tuple of two strings (prompt, response), or token ids."""
    if isinstance(texts, str) or (isinstance(texts, Tensor) and texts.ndim == 1):
        return [texts]
    if isinstance(texts, tuple) and len(texts) == 2 and all(isinstance(part, str) for part in texts):
        return [texts]
    listed = list(texts)
    ids = bool(listed) and all(checks.whole(one) is not None for one in listed)
    return [torch.tensor(listed)] if ids else listed


@typed
def plain_texts(texts: Iterable[AnyText] | AnyText, *, min_distance: int = MIN_DISTANCE) -> TextProbe:
    """A probe of plain texts.

    Args:
        texts: strings; (prompt, response) tuples of strings, of which only the response's rows count; or token ids. One of these
            alone is one text, so two texts come in a list. A string is encoded as the model's own tokenizer does, with a BOS if
            that adds one; ids are taken as they are.
        min_distance: how many tokens back a key must lie to count for `receiver`.

    ValueError for no texts, TypeError for trials.

    Example:
        >>> texts = lh.plain_texts(["It rained all day.", "Nobody went out."])
        >>> list(lh.score_heads(model, texts, ["sink", "entropy"]))
        ['sink', 'entropy']
    """
    checks.whole_number("min_distance", min_distance)
    listed = listed_texts(texts)
    other = next((one for one in listed if hasattr(one, "answer") or hasattr(one, "query")), None)
    if other is not None:
        raise TypeError(
            f"trial {other.id} is no text: pass trials to score_heads themselves, or their tokens as lists of ids"
        )
    if not listed:
        raise ValueError("there are no texts: pass strings, (prompt, response) pairs, or lists of token ids")
    return TextProbe(tuple(listed), min_distance)
