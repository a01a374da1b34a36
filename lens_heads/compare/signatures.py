"""What each head of one model does on common texts, in a form that can be compared with heads of another model.

Every text is read twice in a row in one forward pass. The first reading yields what heads write at the end of every word
(`cka.py`) and most pattern statistics, the second induction. Patterns are held for one layer at a time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from rich.progress import track
from torch import Tensor

from lens_heads.compare.cka import Grams, centred_grams
from lens_heads.heads.depth import relative_depths
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.sets import every_head
from lens_heads.model.forward import Cache, advance
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.hooks import hooked
from lens_heads.model.identity import warn_of_change
from lens_heads.model.modes import evaluating
from lens_heads.model.support import require
from lens_heads.ranking.one_pass.common_texts import common_texts
from lens_heads.ranking.one_pass.row_view import RowView
from lens_heads.ranking.one_pass.scorers.entropy import entropy
from lens_heads.ranking.one_pass.scorers.induction import induction
from lens_heads.ranking.one_pass.scorers.previous import previous
from lens_heads.ranking.one_pass.scorers.sink import sink
from lens_heads.ranking.one_pass.scorers.span import span_tokens
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.typed import typed
from lens_heads.trials.tokenizing import prompt_offsets

STATISTICS = ("entropy", "distance", "sink", "previous", "induction")
"""The numbers that describe a head's attention pattern on plain text and mean the same in every model."""

MIN_WORDS = 4
"""Required by the unbiased HSIC."""


@dataclass(frozen=True, eq=False)
class Signatures(Tabled):
    """The result of `head_signatures`: float32 on the CPU.

    `patterns` has the `STATISTICS`. `grams`: for each text, the centred Gram matrices [layer * head, pair of words] of
    `hook_z` at the end of every word, one tensor per minibatch.

    `model`: whose heads they are.

    Example:
        >>> signatures = lh.compare.head_signatures(model, ["It rained. Nobody went out all day."] * 2)
        >>> len(signatures.patterns), len(signatures.grams)
        (2, 2)
    """

    model: str
    patterns: Float[Tensor, "text layer head statistic"]
    grams: tuple[Grams, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """One row per head: layer, head, name, relative depth, and the pattern statistics (mean over texts)."""
        _, layers, heads, _ = self.patterns.shape
        means = self.patterns.mean(0)
        there = [head for head in every_head(layers, heads) if not means[head.layer, head.head].isnan().any()]
        rows = [{"layer": head.layer, "head": head.head, "name": str(head)} for head in there]
        at = [head.layer for head in there]
        by_statistic = means[at, [head.head for head in there]].numpy().T
        columns = {"depth": relative_depths(layers)[at]} | dict(zip(STATISTICS, by_statistic, strict=True))
        return pd.DataFrame(rows).assign(**columns)

    def __repr__(self) -> str:
        texts, layers, heads, _ = self.patterns.shape
        return f"Signatures({self.model}: {layers} layers x {heads} heads, {texts} texts)"


@dataclass(frozen=True)
class SignatureReading:
    """A text in one model's tokens, twice in a row: its start, its length, and the last token of every word."""

    tokens: Int[Tensor, " position"]
    start: int
    length: int
    words: list[int]


@typed
def head_signatures(model: Model, texts: Sequence[str] | None = None, *, progress: bool = True) -> Signatures:
    """Pattern statistics and Gram matrices of every head on `texts` (default: `common_texts()`).

    Texts begin as the model's own tokenizer begins them (BOS or none). Words are separated by white space, and a word is
    represented by its last token, so that all tokenizers are compared at the same places. CKA also picks up position: between
    the two packaged models, a head's mean best CKA is 0.59 on the same four texts and 0.39 on texts in another order.

    Raises ValueError for texts that `match_heads` rejects, or a tokenizer without character offsets; TypeError for a model
    that is not a TransformerLens model.

    `progress`: whether to show a bar.

    Cost: a pass over each text twice in a row.

    Example:
        >>> signatures = lh.compare.head_signatures(model, ["It rained. Nobody went out all day."] * 2)
        >>> len(signatures.grams)
        2
    """
    shape = require(model, "head_signatures", "pattern")
    warn_of_change(model, "signatures")
    found = readings(model, common_texts() if texts is None else texts)
    with torch.no_grad(), evaluating(model):
        seen = [_run(model, shape, one) for one in track(found, "reading", disable=not progress, transient=True)]
    return Signatures(shape.name, torch.stack([patterns for patterns, _ in seen]), tuple(grams for _, grams in seen))


def _run(
    model: Model, shape: HeadGeometry, reading: SignatureReading
) -> tuple[Float[Tensor, "layer head statistic"], list[Float[Tensor, "head_of_model pair"]]]:
    """One forward pass: pattern statistics of every layer, and Gram matrices of all heads."""
    statistics: list[Tensor] = []
    grams: list[list[Tensor]] = []

    def see_pattern(pattern: Tensor, hook: Any) -> None:
        statistics.append(pattern_statistics(pattern[0].float(), reading.start, reading.length).cpu())

    def see_z(z: Tensor, hook: Any) -> None:
        words = shape.by_head(z, int(hook.name.split(".")[1]))[0, reading.words].float()
        grams.append([gram.cpu() for gram in centred_grams(words)])

    seeing = {"hook_pattern": see_pattern, "hook_z": see_z}
    hooks = [(f"blocks.{layer}.attn.{name}", see) for layer in shape.attending for name, see in seeing.items()]
    tokens = reading.tokens[None].to(model.W_U.device)
    with hooked(model, hooks):
        advance(model, tokens, Cache(model, 1), tokens.new_zeros(1), logits=0)
    found = shape.stacked(dict(zip(shape.attending, statistics, strict=True)), heads=-2)
    return found.masked_fill(shape.holes[..., None], torch.nan), [
        torch.cat(layers) for layers in zip(*grams, strict=True)
    ]


def pattern_statistics(
    pattern: Float[Tensor, "head row key"], start: int, length: int
) -> Float[Tensor, "head statistic"]:
    """The statistics of one layer on a text that is read twice in a row.

    The text's `length` tokens begin at position `start` and repeat immediately; anything before them (BOS) occurs once. All
    statistics but induction are means over rows t = 1 .. start + length - 1 (the first reading). All lie between 0 and 1;
    A is the pattern:

        entropy     -sum_j A[t, j] ln A[t, j] / ln(t + 1): 1 is uniform attention
        distance    sum_j A[t, j] (t - j) / t: 0 is attention to the row itself, 1 to position 0
        sink        A[t, 0]
        previous    A[t, t - 1]
        induction   A[t, t - length + 1] in the second reading: the token that followed the first occurrence

    On a sliding-window layer, keys outside the window count as keys with attention 0. The functions are those of `score_heads`.
    """
    once = start + length
    rows, tokens = torch.arange(pattern.shape[-2], device=pattern.device), torch.zeros(pattern.shape[-1])
    first = RowView(0, pattern[:, 1:once, :once], rows[1:once], tokens)
    again = RowView(
        0, pattern[:, once : once + length - 1], rows[once : once + length - 1], tokens, once, length, start
    )
    distance = span_tokens(first) / first.row_positions
    per_row = (entropy(first), distance, sink(first), previous(first), induction(again))
    return torch.stack([values.mean(-1) for values in per_row], -1)


def readings(model: Model, texts: Sequence[str]) -> list[SignatureReading]:
    """All texts in tokens, checked: raises ValueError as `head_signatures` does."""
    shape = head_geometry(model)
    if len(texts) < 2:
        raise ValueError(f"{len(texts)} texts: at least 2 are required to estimate stability by resampling")
    if not getattr(model.tokenizer, "is_fast", False):
        raise ValueError(f"the tokenizer of {shape.name} has no character offsets. Load its fast version.")
    return [_reading(model.tokenizer, shape, text, f"text {number}") for number, text in enumerate(texts)]


def _reading(tokenizer: Any, shape: HeadGeometry, text: str, name: str) -> SignatureReading:
    ends = [word.end() for word in re.finditer(r"\S+", text)]
    tokens, offsets = prompt_offsets(tokenizer, text)
    inside = [i for i, (left, right) in enumerate(offsets) if right > left]
    if min(len(ends), len(inside)) < MIN_WORDS:
        counts = f"{len(ends)} words in {len(inside)} tokens"
        raise ValueError(f"{name} has {counts}, but needs at least {MIN_WORDS} of each: {text!r}")
    start, end = inside[0], inside[-1] + 1
    length = end - start
    if start + 2 * length > shape.n_ctx:
        found = f"{name} has {length} tokens and is read twice, but the context of {shape.name} is {shape.n_ctx}"
        raise ValueError(f"{found}. Shorten it to at most {(shape.n_ctx - start) // 2} tokens.")
    lefts = [offsets[i][0] for i in inside]
    words = [inside[max(bisect_left(lefts, word_end) - 1, 0)] for word_end in ends]
    return SignatureReading(torch.tensor(tokens[:end] + tokens[start:end]), start, length, words)
