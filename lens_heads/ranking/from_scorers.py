"""Scorers as methods: each runs on what its probe is, which for some is made of the trials, or of the vocabulary."""

from __future__ import annotations

from typing import Any

from lens_heads.heads.scores import HeadScores
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method, Needs
from lens_heads.ranking.one_pass.definition import Probe, Scorer
from lens_heads.ranking.one_pass.repeated import repeated_blocks
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.ranking.one_pass.scorers import (
    DOCUMENT_SCORERS,
    NAMED_SCORERS,
    PAIR_SCORERS,
    REPEATED_SCORERS,
    SCORERS,
    TEXT_SCORERS,
    WEIGHT_SCORERS,
)
from lens_heads.trials.context_pairs import context_pairs

BLOCK = 50
"""Tokens in a block of the repeated-token scores, which is written three times."""
NEEDS: dict[Probe, Needs] = {
    "needle": "needle",
    "pair": "needle",
    "repeated": "",
    "documents": "documents",
    "text": "texts",
    "weights": "token maps",
}


def by_scorer(scorer: Scorer, family: str = "", only_named: bool = False) -> Method:
    """A scorer as a method, of which it says all there is to know. Its family, unless one is given, is that of its direction."""
    family = family or ("exact" if scorer.direction == "exact" else "observational")

    def rank(material: Material) -> HeadScores:
        how: dict[str, Any] = material.loop(scorer.name)
        how |= {"teacher_forced": True} if scorer.probe == "needle" else {}
        return score_heads(material.model, _given(scorer.probe, material), [scorer], **how)[scorer.name]

    said: dict[str, Any] = {
        name: getattr(scorer, name) for name in ("paper", "fails", "label", "unit", "marker", "signed")
    }
    passes = 2.0 if scorer.probe == "pair" else 1.0
    return Method(
        scorer.name,
        family,
        rank,
        _needs(scorer),
        lambda shape, masks, k: passes,
        only_named=only_named or scorer.only_named,
        scorer=scorer,
        **said,
    )


def _needs(scorer: Scorer) -> Needs:
    found = NEEDS[scorer.probe]
    if "distractors" in scorer.needs:
        found = "needle, distractor and wrong answer" if "wrong" in scorer.needs else "needle and distractor"
    return "needle and wrong answer" if scorer.needs == {"wrong"} else found


def _given(probe: Probe, material: Material) -> Any:
    """What a scorer runs on: the trials, the same with and without their needle, or three blocks of random tokens."""
    if probe == "repeated":
        return [repeated_blocks(material.model, block=BLOCK, copies=3, seed=material.seed * 3 + i) for i in range(3)]
    return context_pairs(material.needled) if probe == "pair" else material.needled


_FIRST, *_VARIANTS = PAIR_SCORERS.values()
METHODS = (
    *map(by_scorer, (*SCORERS.values(), *REPEATED_SCORERS.values(), _FIRST)),
    # Of the same runs as the first, which stands for them among all methods.
    *(by_scorer(one, only_named=True) for one in _VARIANTS),
    *map(by_scorer, NAMED_SCORERS.values()),
    *(by_scorer(one) for table in (DOCUMENT_SCORERS, TEXT_SCORERS, WEIGHT_SCORERS) for one in table.values()),
)
