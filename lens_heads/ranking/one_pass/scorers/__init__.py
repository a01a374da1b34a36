"""The tables of methods. A scorer is a function of a view, in a file of its own."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from jaxtyping import Float
from torch import Tensor

from lens_heads.model.support import Need
from lens_heads.ranking.one_pass.layer_view import copied
from lens_heads.ranking.one_pass.scorer import Probe, Scorer
from lens_heads.ranking.one_pass.scorers.attention_mass import attention_mass, attention_mass_no_sink
from lens_heads.ranking.one_pass.scorers.attention_spatial import attention_spatial, attention_spatial_no_sink
from lens_heads.ranking.one_pass.scorers.context_divergence import (
    context_divergence,
    context_divergence_cosine,
    context_divergence_relative,
)
from lens_heads.ranking.one_pass.scorers.contrastive import contrastive
from lens_heads.ranking.one_pass.scorers.copy import copy, copy_tokens
from lens_heads.ranking.one_pass.scorers.core import core
from lens_heads.ranking.one_pass.scorers.dla import dla
from lens_heads.ranking.one_pass.scorers.duplicate import duplicate
from lens_heads.ranking.one_pass.scorers.entropy import entropy
from lens_heads.ranking.one_pass.scorers.far_mass import far_mass
from lens_heads.ranking.one_pass.scorers.headkv import headkv
from lens_heads.ranking.one_pass.scorers.induction import echo, induction
from lens_heads.ranking.one_pass.scorers.locos import locos
from lens_heads.ranking.one_pass.scorers.locos_parts import locos_beside, locos_name, locos_rest
from lens_heads.ranking.one_pass.scorers.previous import previous
from lens_heads.ranking.one_pass.scorers.qr import qr, qr_ndcg
from lens_heads.ranking.one_pass.scorers.receiver import receiver
from lens_heads.ranking.one_pass.scorers.sink import sink
from lens_heads.ranking.one_pass.scorers.span import span, span_tokens
from lens_heads.ranking.one_pass.scorers.summed_attention import summed_attention
from lens_heads.ranking.one_pass.scorers.task_kv import task_kv, task_kv_write
from lens_heads.ranking.one_pass.scorers.token_map import token_map, token_map_raw
from lens_heads.runs import checks

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


NAMED_SCORERS: dict[str, Scorer] = {
    scorer.name: scorer
    for scorer in (
        Scorer(
            "copy_tokens", copy_tokens, "generated", True, "Wu et al., arXiv 2404.15574, as published", signed=False
        ),
        Scorer("locos_name", locos_name, paper="the part of LOCOS from the answer's own tokens", reads_needle=False),
        Scorer("locos_beside", locos_beside, paper="the part of LOCOS beside these", reads_needle=False),
        Scorer("locos_rest", locos_rest, paper="the part of LOCOS from the rest of the needle", reads_needle=False),
        Scorer(
            "task_kv",
            task_kv,
            "prompt",
            False,
            "Task-KV, semantic distance",
            False,
            reads_needle=False,
            prompt_rows=32,
            within_layers=True,
        ),
        Scorer(
            "task_kv_write",
            task_kv_write,
            "prompt",
            False,
            "Task-KV, of writes",
            False,
            reads_needle=False,
            prompt_rows=32,
        ),
    )
}
"""Methods of needles that run only if they are named."""


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


REPEATED_SCORERS: dict[str, Scorer] = {
    scorer.name: scorer
    for scorer in (
        Scorer(
            "induction",
            induction,
            probe="repeated",
            counted="repeats",
            paper="RazorAttention; Olsson et al.",
            signed=False,
        ),
        Scorer("echo", echo, probe="repeated", counted="repeats", paper="RazorAttention", signed=False),
    )
}


TEXT_SCORERS: dict[str, Scorer] = {
    scorer.name: scorer
    for scorer in (
        Scorer("previous", previous, probe="text", paper="previous-token heads; Olsson et al. 2022", signed=False),
        Scorer(
            "duplicate",
            duplicate,
            probe="text",
            counted="seen_before",
            paper="duplicate-token heads; Wang et al., arXiv 2211.00593",
            signed=False,
        ),
        Scorer(
            "span", span, probe="text", paper="local and global heads, relative to the row's position", signed=False
        ),
        Scorer("span_tokens", span_tokens, probe="text", paper="Attention Illuminates", signed=False),
        Scorer("sink", sink, probe="text", paper="attention sinks; Xiao et al., arXiv 2309.17453", signed=False),
        Scorer("entropy", entropy, probe="text", paper="entropy of attention, normalised", signed=False),
        Scorer(
            "receiver",
            receiver,
            "totals",
            probe="text",
            needs=frozenset({"received"}),
            paper="Thought Anchors, arXiv 2506.19143",
        ),
        Scorer(
            "far_mass",
            far_mass,
            "totals",
            probe="text",
            needs=frozenset({"q_mean"}),
            paper="forward-only stand-in for DuoAttention (kvpress)",
            signed=False,
        ),
    )
}


PAIR_SCORERS: dict[str, Scorer] = {
    scorer.name: scorer
    for scorer in (
        Scorer("context_divergence", context_divergence, probe="pair", paper="VHD, arXiv 2412.13949", signed=False),
        Scorer(
            "context_divergence_relative",
            context_divergence_relative,
            probe="pair",
            paper="VHD, arXiv 2412.13949",
            signed=False,
        ),
        Scorer(
            "context_divergence_cosine",
            context_divergence_cosine,
            probe="pair",
            paper="VHD, arXiv 2412.13949",
            signed=False,
        ),
    )
}


WEIGHT_SCORERS: dict[str, Scorer] = {
    scorer.name: scorer
    for scorer in (
        Scorer("token_map", token_map, probe="weights", paper="Successor Heads, arXiv 2312.09230", signed=False),
        Scorer("token_map_raw", token_map_raw, probe="weights", paper="its printed formula", signed=False),
    )
}


TABLES: dict[Probe, dict[str, Scorer]] = {
    "needle": SCORERS,
    "documents": DOCUMENT_SCORERS,
    "repeated": REPEATED_SCORERS | TEXT_SCORERS,
    "text": TEXT_SCORERS,
    "pair": PAIR_SCORERS,
    "weights": WEIGHT_SCORERS,
}
"""The methods by what they are computed on. A repeated probe is a text, so it also has the methods of texts."""
ONLY_NAMED = ("receiver", "far_mass", "token_map_raw")
"""Methods that run only if they are named: short texts or models without rotary positions have none, or another corrects them."""


def resolve(methods: Iterable[str | Scorer] | str | Scorer | None, probe: Probe = "needle") -> list[Scorer]:
    """Scorers by name, or your own; None for all of the probe's that any text and model have.

    ValueError for an unknown name, with the nearest known one, and for a method that is computed on something else.
    """
    table, every = TABLES[probe], dict(NAMED_SCORERS)
    every |= {name: found for known in TABLES.values() for name, found in known.items()}
    chosen: list[Scorer] = []
    usual = [name for name in table if name not in ONLY_NAMED]
    for method in usual if methods is None else [methods] if isinstance(methods, str | Scorer) else methods:
        found = table.get(method, every.get(method)) if isinstance(method, str) else method
        if not isinstance(found, Scorer) and callable(found):
            called = getattr(found, "__name__", "mine")
            raise TypeError(f"{found!r:.60} is a bare function: wrap it as lh.Scorer({called!r}, {called})")
        if not isinstance(found, Scorer):
            known = {_words(name): name for name in every}
            close = difflib.get_close_matches(_words(str(method).lower()), known, n=1, cutoff=0.4)
            hint = f"did you mean {known[close[0]]!r}? " if close else ""
            raise ValueError(f"unknown method {method!r}: {hint}the methods are {', '.join(table)}")
        if found.probe != probe and (probe, found.probe) != ("repeated", "text"):
            raise ValueError(
                f"{found.name} reads {READS[found.probe]}, but was given {READS[probe]}: "
                f"use {', '.join(table)}, or {REMEDIES[found.probe]}"
            )
        chosen.append(found)
    if not chosen:
        raise ValueError(f"no methods given: choose from {', '.join(table)}")
    named: dict[str, Scorer] = {}
    for scorer in chosen:
        if named.setdefault(scorer.name, scorer) is not scorer:
            raise ValueError(f"two scorers are called {scorer.name!r}: give one of them another name")
    return list(named.values())


READS: dict[Probe, str] = {
    "needle": "needles",
    "documents": "documents",
    "repeated": "a repeated block of tokens",
    "text": "plain texts",
    "pair": "runs with and without context",
    "weights": "weights",
}
REMEDIES: dict[Probe, str] = {
    "needle": "pass trials with a needle",
    "documents": "pass DocumentTrials",
    "repeated": "pass lh.repeated_blocks(model)",
    "text": "pass lh.plain_texts(texts)",
    "pair": "pass lh.context_pairs(trials)",
    "weights": "pass lh.token_maps(maps)",
}


_OF_PATTERNS = frozenset({
    "attention_spatial", "attention_spatial_no_sink", "attention_mass", "attention_mass_no_sink", "contrastive", "headkv",
})  # fmt: skip
"""Methods of needles that read patterns alone."""
_OF_Z = frozenset({"dla", "dla_exact"})


def needs_of(scorer: Scorer, exact: bool) -> tuple[Need, ...]:
    """What a method of needles rests on; a user's own may read everything. `exact`: the run's direction is."""
    if is_ours(scorer) and scorer.name in _OF_PATTERNS:
        return ("pattern",)
    reads: tuple[Need, ...] = (
        ("writes",) if is_ours(scorer) and scorer.name in _OF_Z else ("pattern", "values", "writes")
    )
    return (*reads, "closing") if exact or scorer.direction == "exact" else reads


def is_ours(scorer: Scorer) -> bool:
    """Whether it is one of the library's own scorers, which change nothing in their view."""
    return any(table.get(scorer.name) is scorer for table in (*TABLES.values(), NAMED_SCORERS))


def scored(scorer: Scorer, view: Any, n_heads: int, rows: int | None = None) -> Float[Tensor, "head *row"]:
    """A scorer's result, on the CPU. ValueError unless it is one score per head, or per head and row if `rows` says how many.

    A user's own scorer reads copies, because `view.pattern[..., 0] = 0` would otherwise reach other scorers and the model.
    """
    score = checks.numbers(scorer.score(view if is_ours(scorer) else copied(view)))
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
