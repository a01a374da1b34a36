"""Where NoLiMa's own evaluation puts a needle: at the end of a line, in a window of the book that begins where depth wants."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import Trial


@dataclass(frozen=True)
class LineTrial(Trial):
    """A trial placed as `BookHaystack` in NoLiMa's code does it (Modarressi et al., arXiv 2502.05167).

    `length` counts tokens of the book alone: needle, template and question come on top. The needle ends the first line whose
    break is at or after `depth` of so many tokens, and the window of the book begins `depth * length` tokens before that.
    Other trials cut the book's beginning to `length` and put the needle after a sentence at or below `depth`.

    Differs from their code in one character: at depth 0 no space comes before the needle if whitespace does.
    """

    def encode(self, tokenizer: Any) -> EncodedTrial:
        """The trial in tokens. ValueError for a book without a line that ends there, or too short for the window."""
        before, after = _window(self, tokenizer)
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        placed = self.template.replace("{haystack}", f"{before}{{haystack}}{after}")
        found = Trial(**{**given, "template": placed, "haystack": "", "length": 0}).encode(tokenizer)
        return replace(found, meta={**found.meta, "length": self.length})


def _window(trial: Trial, tokenizer: Any) -> tuple[str, str]:
    """The book's text before and after the needle."""
    tokens, lines = _book(tokenizer, trial.haystack)
    # Not of `length`, and in this order: so their code measures and rounds.
    line = next((at for at in lines if at / (trial.length + 1) - trial.depth >= 0), None)
    if line is None:
        raise ValueError(
            f"trial {trial.id}: no line of the book ends at or after token {trial.depth * (trial.length + 1):.0f}, where "
            f"depth {trial.depth:g} of {trial.length} tokens is: use a longer book with line breaks, or another preset"
        )
    start = line - round(trial.length * trial.depth)
    if start + trial.length > len(tokens):
        raise ValueError(
            f"trial {trial.id}: the book has {len(tokens)} tokens, and a window of {trial.length} from token {start} on "
            "goes beyond: use a longer book or a smaller length"
        )
    before = tokenizer.decode(tokens[start : line + 1])
    after = tokenizer.decode(tokens[line + 1 : start + trial.length]) if line + 1 < start + trial.length else ""
    return before[: max(before.rfind("\n"), 0)], "\n" + after


@lru_cache(maxsize=8)
def _book(tokenizer: Any, text: str) -> tuple[list[int], list[int]]:
    """A book's tokens, and the positions of those with a line break, after position 0."""
    tokens = list(tokenizer(text, add_special_tokens=False).input_ids)
    breaks = {token for token in set(tokens) if "\n" in tokenizer.decode([token])}
    return tokens, [0, *(at for at, token in enumerate(tokens) if at and token in breaks)]
