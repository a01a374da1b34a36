"""Needle against distractor: what a head gives to the needle rather than to the other needle of the same passage"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView
from lens_heads.ranking.one_pass.scorers.attention_mass import SCORERS as ATTENTION_MASS
from lens_heads.ranking.one_pass.scorers.attention_spatial import SCORERS as ATTENTION_SPATIAL
from lens_heads.ranking.one_pass.scorers.contrastive import SCORERS as CONTRASTIVE
from lens_heads.ranking.one_pass.scorers.copy import SCORERS as COPY
from lens_heads.ranking.one_pass.scorers.headkv import SCORERS as HEADKV
from lens_heads.ranking.one_pass.scorers.locos import SCORERS as LOCOS


def versus(scorer: Scorer) -> Scorer:
    """The variant of a method of needles that contrasts the needle with the distractors of the same passage.

    score = s(needle) - mean over distractors of s(distractor), where s(span) is the method with that span in the needle's
    place, and the answer, its direction and the rows are the trial's own. The haystack drops out: what a head gives to any
    sentence that stands out counts for nothing. Distractors are sentences of the needle's kind and about its length. Units:
    those of the method.
    """

    def score(view: LayerView) -> Float[Tensor, "*span head"]:
        beside = torch.stack([scorer.score(view.at(span)) for span in view.distractors])
        return scorer.score(view) - beside.mean(0)

    return replace(
        scorer,
        name=f"{scorer.name}_vs_distractor",
        score=score,
        paper=f"{scorer.name} of the needle minus that of the distractor",
        signed=True,
        only_named=True,
        needs=frozenset({"distractors"}),
        fails="cancels what a head gives to needle and distractor alike, such as writing any name",
        label=f"{scorer.label or scorer.name.replace('_', ' ')}, against distractor",
        marker=None,
    )


_OF_NEEDLES = (*LOCOS, *ATTENTION_SPATIAL, *ATTENTION_MASS, *COPY, *CONTRASTIVE, *HEADKV)
SCORERS = tuple(versus(scorer) for scorer in _OF_NEEDLES if not scorer.only_named)
