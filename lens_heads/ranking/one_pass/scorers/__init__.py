"""The tables of methods. A scorer is a function of a view, in a file of its own."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, cast

from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.styles import add_style
from lens_heads.model.support import Need
from lens_heads.ranking.one_pass.definition import PARTS, READS, REMEDIES, Probe, Scorer
from lens_heads.ranking.one_pass.layer_view import copied
from lens_heads.ranking.one_pass.scorers.attention_mass import SCORERS as ATTENTION_MASS
from lens_heads.ranking.one_pass.scorers.attention_spatial import SCORERS as ATTENTION_SPATIAL
from lens_heads.ranking.one_pass.scorers.choice import SCORERS as CHOICE
from lens_heads.ranking.one_pass.scorers.context_divergence import SCORERS as CONTEXT_DIVERGENCE
from lens_heads.ranking.one_pass.scorers.contrastive import SCORERS as CONTRASTIVE
from lens_heads.ranking.one_pass.scorers.copy import SCORERS as COPY
from lens_heads.ranking.one_pass.scorers.core import SCORERS as CORE
from lens_heads.ranking.one_pass.scorers.dla import SCORERS as DLA
from lens_heads.ranking.one_pass.scorers.duplicate import SCORERS as DUPLICATE
from lens_heads.ranking.one_pass.scorers.entropy import SCORERS as ENTROPY
from lens_heads.ranking.one_pass.scorers.far_mass import SCORERS as FAR_MASS
from lens_heads.ranking.one_pass.scorers.headkv import SCORERS as HEADKV
from lens_heads.ranking.one_pass.scorers.induction import SCORERS as INDUCTION
from lens_heads.ranking.one_pass.scorers.locos import SCORERS as LOCOS
from lens_heads.ranking.one_pass.scorers.locos_parts import SCORERS as LOCOS_PARTS
from lens_heads.ranking.one_pass.scorers.previous import SCORERS as PREVIOUS
from lens_heads.ranking.one_pass.scorers.qr import SCORERS as QR
from lens_heads.ranking.one_pass.scorers.receiver import SCORERS as RECEIVER
from lens_heads.ranking.one_pass.scorers.sink import SCORERS as SINK
from lens_heads.ranking.one_pass.scorers.span import SCORERS as SPAN
from lens_heads.ranking.one_pass.scorers.summed_attention import SCORERS as SUMMED_ATTENTION
from lens_heads.ranking.one_pass.scorers.task_kv import SCORERS as TASK_KV
from lens_heads.ranking.one_pass.scorers.token_map import SCORERS as TOKEN_MAP
from lens_heads.ranking.one_pass.scorers.versus import SCORERS as VERSUS
from lens_heads.runs import checks


def _table(*files: tuple[Scorer, ...]) -> dict[str, Scorer]:
    return {scorer.name: scorer for file in files for scorer in file}


_NEEDLE = _table(
    LOCOS, ATTENTION_SPATIAL, ATTENTION_MASS, DLA, COPY, CONTRASTIVE, HEADKV, LOCOS_PARTS, TASK_KV, VERSUS, CHOICE
)
SCORERS = {name: scorer for name, scorer in _NEEDLE.items() if not scorer.only_named}
"""Methods of needles."""
NAMED_SCORERS = {name: scorer for name, scorer in _NEEDLE.items() if scorer.only_named}
"""Methods of needles that run only if they are named."""
DOCUMENT_SCORERS = _table(QR, CORE, SUMMED_ATTENTION)
REPEATED_SCORERS = _table(INDUCTION)
TEXT_SCORERS = _table(PREVIOUS, DUPLICATE, SPAN, SINK, ENTROPY, RECEIVER, FAR_MASS)
PAIR_SCORERS = _table(CONTEXT_DIVERGENCE)
WEIGHT_SCORERS = _table(TOKEN_MAP)


TABLES: dict[Probe, dict[str, Scorer]] = {
    "needle": SCORERS,
    "documents": DOCUMENT_SCORERS,
    "repeated": REPEATED_SCORERS | TEXT_SCORERS,
    "text": TEXT_SCORERS,
    "pair": PAIR_SCORERS,
    "weights": WEIGHT_SCORERS,
}
"""The methods by what they are computed on. A repeated probe is a text, so it also has the methods of texts."""
for _scorer in [*NAMED_SCORERS.values(), *(one for table in TABLES.values() for one in table.values())]:
    add_style(_scorer.name, _scorer.label, _scorer.unit, _scorer.marker)


def resolve_scorers(methods: Iterable[str | Scorer] | str | Scorer | None, probe: Probe = "needle") -> list[Scorer]:
    """Scorers by name, or your own; None for all of the probe's that any text and model have.

    ValueError for an unknown name, with the nearest known one, and for a method that is computed on something else.
    """
    table, every = TABLES[probe], dict(NAMED_SCORERS)
    every |= {name: found for known in TABLES.values() for name, found in known.items()}
    chosen: list[Scorer] = []
    usual = [name for name, scorer in table.items() if not scorer.only_named]
    for method in usual if methods is None else [methods] if isinstance(methods, str | Scorer) else methods:
        found = table.get(method, every.get(method)) if isinstance(method, str) else method
        if not isinstance(found, Scorer) and callable(found):
            called = getattr(found, "__name__", "mine")
            raise TypeError(f"{found!r:.60} is a bare function: wrap it as lh.Scorer({called!r}, {called})")
        if not isinstance(found, Scorer):
            known = {_words(name): name for name in every}
            close = difflib.get_close_matches(_words(str(method).lower()), known, n=1)
            hint = f"did you mean {known[close[0]]!r}? " if close else ""
            hint = "several methods are a list, ['locos', 'dla']; " if "," in str(method) else hint
            raise ValueError(f"unknown method {method!r}: {hint}the methods are {', '.join(table)}; lh.rank has others")
        if found.probe != probe and (probe, found.probe) != ("repeated", "text"):
            raise ValueError(
                f"{found.name} reads {READS[found.probe]}, but was given {READS[probe]}: "
                f"use {', '.join(table)}, or {REMEDIES[found.probe]}"
            )
        add_style(found.name, found.label, found.unit, found.marker)
        chosen.append(found)
    if not chosen:
        raise ValueError(f"no methods given: choose from {', '.join(table)}")
    named: dict[str, Scorer] = {}
    for scorer in chosen:
        if named.setdefault(scorer.name, scorer) is not scorer:
            raise ValueError(f"two scorers are called {scorer.name!r}: give one of them another name")
    return list(named.values())


def needs_of(scorer: Scorer, exact: bool) -> tuple[Need, ...]:
    """What a method of needles rests on. `exact`: the run's direction is."""
    reads = cast(tuple[Need, ...], tuple(part for part in PARTS if part in scorer.reads))
    through_norms = "writes" in reads and (exact or scorer.direction == "exact")
    return (*reads, "closing") if through_norms else reads


def is_ours(scorer: Scorer) -> bool:
    """Whether it is one of the library's own scorers, which change nothing in their view."""
    return any(table.get(scorer.name) is scorer for table in (*TABLES.values(), NAMED_SCORERS))


def scored(scorer: Scorer, view: Any, n_heads: int, rows: int | None = None) -> Float[Tensor, "head *row"]:
    """A scorer's result, on the CPU. ValueError unless it is one score per head, or per head and row if `rows` says how many.

    An error of its own has a note that names it.

    A user's own scorer reads copies, because `view.pattern[..., 0] = 0` would otherwise reach other scorers and the model.
    """
    try:
        score = checks.numbers(scorer.score(view if is_ours(scorer) else copied(view)))
    except Exception as error:
        error.add_note(f"in the scorer {scorer.name!r}")
        raise
    wanted = (n_heads,) if rows is None else (n_heads, rows)
    if not isinstance(score, Tensor) or tuple(score.shape) != wanted:
        found = f"shape {list(score.shape)}" if isinstance(score, Tensor) else type(score).__name__
        each = "head" if rows is None else "head and row"
        raise ValueError(
            f"scorer {scorer.name} returned {found}: it must return one score per {each}, shape {list(wanted)}"
        )
    return score.detach().float().cpu()


def _words(name: str) -> str:
    """A name with its words in alphabetical order: "spatial_attention" is a misspelt "attention_spatial"."""
    return "_".join(sorted(name.split("_")))
