"""Probes: what `score_heads` puts into a model, where it is no trial with a needle or with documents."""

from lens_heads.scoring.probes.context import ContextPair, PairProbe, pair
from lens_heads.scoring.probes.maps import TokenMap, WeightsProbe, by_map, weights
from lens_heads.scoring.probes.repeated import RepeatedProbe, repeated
from lens_heads.scoring.probes.text import TextProbe, text

__all__ = [
    "ContextPair",
    "PairProbe",
    "RepeatedProbe",
    "TextProbe",
    "TokenMap",
    "WeightsProbe",
    "by_map",
    "pair",
    "repeated",
    "text",
    "weights",
]
