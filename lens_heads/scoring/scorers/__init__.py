"""The tables of methods. A scorer is a function of a LayerView or a DocumentView, in a file of its own."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from jaxtyping import Float
from torch import Tensor

from lens_heads.runs import checks
from lens_heads.scoring.scorers.attention_mass import attention_mass, attention_mass_no_sink
from lens_heads.scoring.scorers.attention_spatial import attention_spatial, attention_spatial_no_sink
from lens_heads.scoring.scorers.contrastive import contrastive
from lens_heads.scoring.scorers.copy import copy
from lens_heads.scoring.scorers.core import core
from lens_heads.scoring.scorers.dla import dla
from lens_heads.scoring.scorers.headkv import headkv
from lens_heads.scoring.scorers.locos import locos
from lens_heads.scoring.scorers.qr import qr, qr_ndcg
from lens_heads.scoring.scorers.summed_attention import summed_attention
from lens_heads.scoring.view import DocumentView, LayerView, copied

Rows = Literal["answer", "generated", "prompt", "query"]
Reading = Literal["run", "exact"]


@dataclass(frozen=True)
class Scorer:
    """One method: a function from a LayerView to one score per head, and what it needs from the pass.

    `rows`: "answer" (rows that produce the answer), "generated" (all generated steps), "prompt" (last 8 prompt rows),
    "query" (the query's rows over documents: a function of a DocumentView, for `DocumentTrial`s, without gate).
    `gated`: only trials that the model answered count; otherwise every trial with the rows does. `signed`: scores can be
    negative, as a test of mean > 0 requires. `rule`: which published detection rule it is, if there are several.
    `contrastive`: compares gold documents with others, so a trial whose documents are all gold does not count.
    `direction`: the read-out that `view.phi` has, "run" (the `direction=` of `score_heads`) or always "exact".
    `reads_needle`: the score depends on where the needle is. One that does not, such as `dla`, has no null from other spans.
    """

    name: str
    score: Callable[[Any], Float[Tensor, " head"]]
    rows: Rows = "answer"
    gated: bool = True
    paper: str = ""
    signed: bool = True
    rule: str = ""
    contrastive: bool = False
    direction: Reading = "run"
    reads_needle: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ValueError(f"scorer name {self.name!r}: must be a non-empty string")
        if not callable(self.score):
            raise TypeError(f"scorer {self.name}: {self.score!r} must be a function of a view")
        for field, known in (("rows", get_args(Rows)), ("direction", get_args(Reading))):
            if getattr(self, field) not in known:
                raise ValueError(f"scorer {self.name}: {field}={getattr(self, field)!r}: use one of {', '.join(known)}")


SCORERS: dict[str, Scorer] = {
    scorer.name: scorer
    for scorer in (
        Scorer("locos", locos, "answer", True, "Gema et al., arXiv 2607.01002"),
        Scorer("locos_exact", locos, "answer", True, "LOCOS through the norms, arXiv 2607.01002", direction="exact"),
        Scorer("attention_spatial", attention_spatial, "answer", True, "the attention half of LOCOS, arXiv 2607.01002"),
        Scorer(
            "attention_spatial_no_sink", attention_spatial_no_sink, paper="attention_spatial without the first position"
        ),
        Scorer("attention_mass", attention_mass, "answer", True, "attention to the needle, no contrast", signed=False),
        Scorer(
            "attention_mass_no_sink",
            attention_mass_no_sink,
            paper="attention_mass without the first position",
            signed=False,
        ),
        Scorer("dla", dla, "answer", True, "direct logit attribution; Elhage et al. 2021", reads_needle=False),
        Scorer("dla_exact", dla, paper="Elhage et al. 2021, through the norms", direction="exact", reads_needle=False),
        Scorer("copy", copy, "generated", True, "retrieval score; Wu et al., arXiv 2404.15574", signed=False),
        Scorer("contrastive", contrastive, "generated", True, "answer steps against other steps", signed=False),
        Scorer("headkv", headkv, "prompt", False, "HeadKV; Fu et al., arXiv 2410.19258", signed=False),
    )
}


DOCUMENT_SCORERS: dict[str, Scorer] = {
    scorer.name: scorer
    for scorer in (
        Scorer("qr", qr, "query", False, "QRScore; Zhang et al., EMNLP 2025", rule="gold_mass"),
        Scorer("qr_ndcg", qr_ndcg, "query", False, "QRScore; Zhang et al., EMNLP 2025", signed=False, rule="ndcg"),
        Scorer("core", core, "query", False, "CoRe, contrastive retrieval heads", signed=False, contrastive=True),
        Scorer(
            "summed_attention", summed_attention, "query", False, "attention from the query, no contrast", signed=False
        ),
    )
}


def resolve(methods: Iterable[str | Scorer] | str | Scorer | None, documents: bool = False) -> list[Scorer]:
    """Scorers by name, or your own; None for all, either those for documents or those for needles.

    ValueError for an unknown name, with the nearest known one, and for a method of the other kind of trial.
    """
    table, other = (DOCUMENT_SCORERS, SCORERS) if documents else (SCORERS, DOCUMENT_SCORERS)
    chosen: list[Scorer] = []
    for method in table if methods is None else [methods] if isinstance(methods, str | Scorer) else methods:
        found = table.get(method, other.get(method)) if isinstance(method, str) else method
        if not isinstance(found, Scorer):
            known = {_words(name): name for name in table}
            close = difflib.get_close_matches(_words(str(method).lower()), known, n=1, cutoff=0.4)
            hint = f"did you mean {known[close[0]]!r}? " if close else ""
            raise ValueError(f"unknown method {method!r}: {hint}the methods are {', '.join(table)}")
        if (found.rows == "query") != documents:
            reads, have = ("documents", "needles") if found.rows == "query" else ("needles", "documents")
            raise ValueError(f"{found.name} reads {reads}, but these trials have {have}: use {', '.join(table)}")
        chosen.append(found)
    if not chosen:
        raise ValueError(f"no methods given: choose from {', '.join(table)}")
    named: dict[str, Scorer] = {}
    for scorer in chosen:
        if named.setdefault(scorer.name, scorer) is not scorer:
            raise ValueError(f"two scorers are called {scorer.name!r}: give one of them another name")
    return list(named.values())


def is_ours(scorer: Scorer) -> bool:
    """Whether it is one of the library's own scorers, which change nothing in their view."""
    return scorer in (*SCORERS.values(), *DOCUMENT_SCORERS.values())


def scored(scorer: Scorer, view: LayerView | DocumentView, n_heads: int) -> Float[Tensor, " head"]:
    """A scorer's result, on the CPU. ValueError unless it is one score per head.

    A user's own scorer reads copies, because `view.pattern[..., 0] = 0` would otherwise reach other scorers and the model.
    """
    score = checks.numbers(scorer.score(view if is_ours(scorer) else copied(view)))
    if not isinstance(score, Tensor) or tuple(score.shape) != (n_heads,):
        found = f"shape {list(score.shape)}" if isinstance(score, Tensor) else type(score).__name__
        raise ValueError(f"scorer {scorer.name} returned {found}: it must return one score per head, shape [{n_heads}]")
    return score.detach().float().cpu()


def _words(name: str) -> str:
    """A name with its words in alphabetical order: "spatial_attention" is a misspelt "attention_spatial"."""
    return "_".join(sorted(name.split("_")))
