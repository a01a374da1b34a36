"""A block of random tokens, repeated: what a head does there, it does by matching tokens and not by what they mean."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.trials.bos import begins
from lens_heads.trials.texts import EncodedText, check_ids
from lens_heads.trials.tokenizing import name_of, vocabulary

LONGEST = 2500
"""RazorAttention's block."""
PARTIAL = "\ufffd"
"""What stands for a part of a character."""


@dataclass(frozen=True, eq=False)
class RepeatedProbe:
    """`tokens` [position]: a block of `block` distinct tokens `copies` times, after a BOS where the model's prompts have one."""

    tokens: Int[Tensor, " position"] = field(repr=False)
    block: int
    copies: int
    seed: int
    vocabulary: str = field(default="", repr=False)

    @property
    def start(self) -> int:
        """The position of the block's first token."""
        return len(self.tokens) - self.block * self.copies

    def encode(self, tokenizer: Any, shape: HeadGeometry) -> list[EncodedText]:
        name = f"repeated-{self.block}x{self.copies}-{self.seed}"
        if self.vocabulary and self.vocabulary != vocabulary(tokenizer):
            raise ValueError(
                f"{name}: its tokens are of another vocabulary than that of {name_of(tokenizer)}: make it again with "
                "repeated_blocks(model)"
            )
        check_ids(name, self.tokens, shape)
        first = self.start + 1
        return [EncodedText(name, self.tokens, first, self.block, self.start)]


@typed
def repeated_blocks(model: Model, *, block: int | None = None, copies: int = 4, seed: int = 0) -> RepeatedProbe:
    """BOS (as `lens_heads.trials.bos` has it), then `block` random tokens, `copies` times   (RazorAttention; Olsson et al. 2022).

    Args:
        block: tokens of the block; None for RazorAttention's 2,500, or as many as the context holds. A few hundred tell the
            same heads in seconds.
        copies: how often the block occurs, at least twice.
        seed: of the random tokens. Several probes of other seeds give intervals.

    The tokens are ordinary ones: no special or added tokens, no parts of characters. Unlike the released code, none occurs twice
    in a block. ValueError for a block that does not fit. Layers whose sliding window does not reach back to the copy before
    score 0 in `induction`, `echo` and `duplicate` by construction: `score_heads` warns, and lists them in
    `meta["blind_layers"]`.

    `model`: whose tokens are drawn.

    Example:
        >>> probe = lh.repeated_blocks(model, block=8)
        >>> list(lh.score_heads(model, probe, ["induction", "previous"]))
        ['induction', 'previous']
    """
    shape = head_geometry(model)
    checks.whole_number("copies", copies, 2)
    checks.seed(seed)
    known, opening = ordinary_tokens(model.tokenizer, shape.d_vocab), begins(model.tokenizer)
    most = min((shape.n_ctx - len(opening)) // copies, len(known))
    if block is None:
        block = min(LONGEST, most)
    if checks.whole_number("block", block, 2) > most:
        raise ValueError(
            f"block={block}: {copies} copies are {block * copies + len(opening)} tokens, but {shape.name} has a context of "
            f"{shape.n_ctx} and {len(known)} ordinary tokens: use a block of at most {most}"
        )
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))[:block]
    return RepeatedProbe(
        torch.cat([torch.tensor(opening, dtype=torch.long), known[order].repeat(copies)]),
        block,
        copies,
        seed,
        vocabulary(model.tokenizer),
    )


@lru_cache(maxsize=8)
def ordinary_tokens(tokenizer: Any, d_vocab: int) -> Int[Tensor, " token"]:
    """Ids of tokens that stand for text: none that is special, added, a byte, or part of a character."""
    outside = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
    ids = sorted(
        number
        for name, number in tokenizer.get_vocab().items()
        if number < d_vocab and number not in outside and not (name.startswith("<0x") and name.endswith(">"))
    )
    written = tokenizer.batch_decode([[number] for number in ids])
    return torch.tensor([number for number, text in zip(ids, written, strict=True) if PARTIAL not in text])


def blind_layers(shape: HeadGeometry, reach: dict[Scorer, int]) -> dict[str, list[int]]:
    """By method, the layers whose sliding window or chunk ends before the tokens that it looks for; a warning names them.

    `reach`: how many tokens back each method looks.
    """
    reaches = [window or chunk for window, chunk in zip(shape.windows, shape.chunks, strict=True)]
    blind = {
        scorer: [layer for layer, far in enumerate(reaches) if far is not None and far <= back]
        for scorer, back in reach.items()
    }
    for back in sorted(set(reach.values())):
        found = [scorer for scorer, far in reach.items() if far == back and blind[scorer]]
        if found:
            layers, names = ", ".join(map(str, blind[found[0]])), ", ".join(scorer.name for scorer in found)
            nearer = "a smaller min_distance" if "received" in found[0].needs else "a shorter block"
            warnings.warn(
                f"{shape.name}: the sliding window of layers {layers} does not reach back {back} tokens, so {names} can only "
                f"be 0 there: use {nearer}",
                stacklevel=users_line(),
            )
    return {scorer.name: layers for scorer, layers in blind.items() if layers}
