"""Scorers as methods: one teacher-forced pass over needles, repeated tokens, or runs with and without context."""

from __future__ import annotations

from typing import Any

from lens_heads.heads.scores import HeadScores
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method, Needs, Rank
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.repeated import repeated_blocks
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.ranking.one_pass.scorers import NAMED_SCORERS, PAIR_SCORERS, REPEATED_SCORERS, SCORERS
from lens_heads.trials.context_pairs import context_pairs

BLOCK = 50
"""Tokens in a block of the repeated-token scores, which is written three times."""


def by_scorer(scorer: Scorer, family: str = "") -> Method:
    """A scorer of needles: one teacher-forced pass. Its family, unless one is given, is that of its direction."""
    family = family or ("exact" if scorer.direction == "exact" else "observational")

    def rank(material: Material) -> HeadScores:
        how: dict[str, Any] = material.loop(scorer.name)
        return score_heads(material.model, material.needled, [scorer], teacher_forced=True, **how)[scorer.name]

    return _method(scorer, family, rank, "needle", scorer=scorer)


def _repeated(scorer: Scorer) -> Method:
    """A score of repeated random tokens, which needs no trials: three blocks."""

    def rank(material: Material) -> HeadScores:
        blocks = [repeated_blocks(material.model, block=BLOCK, copies=3, seed=material.seed * 3 + i) for i in range(3)]
        return score_heads(material.model, blocks, [scorer], **material.loop(scorer.name))[scorer.name]

    return _method(scorer, "observational", rank)


def _context(scorer: Scorer) -> Method:
    """What changes in what a head writes where the needle is left out: two passes."""

    def rank(material: Material) -> HeadScores:
        pairs = context_pairs(material.needled)
        return score_heads(material.model, pairs, [scorer], **material.loop(scorer.name))[scorer.name]

    return _method(scorer, "observational", rank, "needle", passes=lambda shape, masks, k: 2.0)


def _method(of: Scorer, family: str, rank: Rank, needs: Needs = "", **about: Any) -> Method:
    """What the scorer says of itself holds for the method."""
    said = {name: getattr(of, name) for name in ("paper", "fails", "label", "unit", "marker")}
    return Method(of.name, family, rank, needs, **said, **about)


METHODS = (
    *map(by_scorer, SCORERS.values()),
    *map(_repeated, REPEATED_SCORERS.values()),
    _context(PAIR_SCORERS["context_divergence"]),
)
ONLY_NAMED = {name: by_scorer(one) for name, one in NAMED_SCORERS.items()}
"""Methods of needles that run if they are named, and are no part of all methods."""
