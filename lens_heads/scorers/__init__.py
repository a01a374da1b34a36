"""The written-out table of methods. A scorer is a function of a LayerView; one file each."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor

from lens_heads.scorers.attention_mass import attention_mass
from lens_heads.scorers.attention_spatial import attention_spatial
from lens_heads.scorers.contrastive import contrastive
from lens_heads.scorers.copy import copy
from lens_heads.scorers.dla import dla
from lens_heads.scorers.headkv import headkv
from lens_heads.scorers.locos import locos
from lens_heads.view import LayerView

Rows = Literal["answer", "generated", "prompt"]


@dataclass(frozen=True)
class Scorer:
    """One method: its function of a LayerView giving one score per head, and what it needs of the pass.

    `rows`: "answer" (rows that produce the answer), "generated" (all generated steps), "prompt" (last 8 prompt rows).
    `gated`: only trials the model answered count; without it a trial counts whenever it has the rows. `signed`: scores
    can be negative, which sign-flip tests need.
    """

    name: str
    score: Callable[[LayerView], Float[Tensor, " head"]]
    rows: Rows = "answer"
    gated: bool = True
    paper: str = ""
    signed: bool = True

    def __post_init__(self) -> None:
        if self.rows not in get_args(Rows):
            raise ValueError(f"scorer {self.name}: rows={self.rows!r}: use one of {', '.join(get_args(Rows))}")


SCORERS: dict[str, Scorer] = {
    scorer.name: scorer
    for scorer in (
        Scorer("locos", locos, "answer", True, "Gema et al., arXiv 2607.01002"),
        Scorer("attention_spatial", attention_spatial, "answer", True, "the attention half of LOCOS, arXiv 2607.01002"),
        Scorer("attention_mass", attention_mass, "answer", True, "attention to the needle, no contrast", signed=False),
        Scorer("dla", dla, "answer", True, "direct logit attribution; Elhage et al. 2021"),
        Scorer("copy", copy, "generated", True, "retrieval score; Wu et al., arXiv 2404.15574", signed=False),
        Scorer("contrastive", contrastive, "generated", True, "answer steps against other steps", signed=False),
        Scorer("headkv", headkv, "prompt", False, "HeadKV; Fu et al., arXiv 2410.19258", signed=False),
    )
}


def resolve(methods: Iterable[str | Scorer] | str) -> list[Scorer]:
    """Scorers by name (or your own `Scorer`). ValueError suggests the nearest name for an unknown one."""
    chosen: list[Scorer] = []
    for method in [methods] if isinstance(methods, str) else methods:
        if isinstance(method, Scorer):
            chosen.append(method)
        elif method in SCORERS:
            chosen.append(SCORERS[method])
        else:
            known = {_words(name): name for name in SCORERS}
            close = difflib.get_close_matches(_words(str(method).lower()), known, n=1, cutoff=0.4)
            hint = f"did you mean {known[close[0]]!r}? " if close else ""
            raise ValueError(f"unknown method {method!r}: {hint}the methods are {', '.join(SCORERS)}")
    if not chosen:
        raise ValueError(f"no methods given: choose from {', '.join(SCORERS)}")
    return list({scorer.name: scorer for scorer in chosen}.values())


def _words(name: str) -> str:
    """A name with its words in alphabetical order: "spatial_attention" is a misspelt "attention_spatial"."""
    return "_".join(sorted(name.split("_")))
