"""Distances between the heads of two models, separately for each part of their signatures.

Every part is scaled so that unrelated heads are 1 apart on average and equal heads 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.spatial.distance import cdist
from torch import Tensor

from lens_heads.compare.cka import cka_of, norms, products
from lens_heads.compare.signatures import Signatures
from lens_heads.heads.depth import relative_depths
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.scores import HeadScores
from lens_heads.stats import bootstrap_means

PARTS = ("depth", "patterns", "scores", "cka")
"""The parts of a signature."""


@dataclass(frozen=True, eq=False)
class Side:
    """What is known about the heads of one model; `signatures` is None if no part reads texts."""

    shape: HeadGeometry
    signatures: Signatures | None
    scores: Mapping[str, HeadScores]


class Draw(NamedTuple):
    """The data behind one set of distances: the weight of each text, and both models' mean scores, method by method."""

    texts: Float[Tensor, " text"]
    scores_a: list[Float[Tensor, " head_a"]]
    scores_b: list[Float[Tensor, " head_b"]]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Both models' heads, and the parts that compare them."""

    a: Side
    b: Side
    parts: tuple[str, ...]

    def whole(self) -> Draw:
        """Every text and every trial once."""
        scores = ([found.flat.double() for found in side.scores.values()] for side in (self.a, self.b))
        return Draw(torch.ones(self._texts), *scores)

    def resampled(self, n: int, seed: int) -> Iterator[Draw]:
        """n resamples: of the texts, identical for both models, and of the trials of scores, independently for each model."""
        rng, count = np.random.default_rng(seed), self._texts
        scores = [
            [bootstrap_means(found.flat_trials, n=n, seed=own_seed) for found in side.scores.values()]
            for side, own_seed in ((self.a, seed + 1), (self.b, seed + 2))
        ]
        for i in range(n):
            texts = np.bincount(rng.integers(count, size=count), minlength=count) if count else np.zeros(0)
            yield Draw(torch.from_numpy(texts).float(), *([means[i] for means in side] for side in scores))

    def distances(self, draw: Draw) -> dict[str, Float[np.ndarray, "head_a head_b"]]:
        """The distance of every pair of heads in every part.

        depth: squared difference of relative depth, over twice its variance over the heads of both models.
        patterns, scores: mean over statistics (methods) of half the squared difference, z-scored within each model.
        cka: 1 - CKA of the heads' outputs.
        """
        found: dict[str, Float[np.ndarray, "head_a head_b"]] = {}
        for part in self.parts:
            if part == "depth":
                depths = [
                    relative_depths(s.n_layers)[[head.layer for head in s.every_head()]]
                    for s in (self.a.shape, self.b.shape)
                ]
                spread = np.concatenate(depths).var() or 1.0
                found[part] = (depths[0][:, None] - depths[1]) ** 2 / (2 * spread)
            elif part == "patterns":
                found[part] = _apart(*(_patterns(side, draw.texts) for side in (self.a, self.b)))
            elif part == "scores":
                means = (torch.stack(scores, -1).numpy() for scores in (draw.scores_a, draw.scores_b))
                found[part] = _apart(*means)
            else:
                between, of_a, of_b = (torch.tensordot(draw.texts, each, dims=1) for each in self._products)
                found[part] = 1 - cka_of(between, of_a, of_b).double().numpy()
        return found

    @property
    def _texts(self) -> int:
        return len(self.a.signatures.grams) if self.a.signatures is not None else 0

    @cached_property
    def _products(self) -> list[Float[Tensor, "text *head"]]:
        """Summed HSIC_1 of each text, of a with b, a with a, and b with b; that of a resample is a weighted sum of these."""
        assert self.a.signatures is not None
        assert self.b.signatures is not None
        a, b = self.a.signatures.grams, self.b.signatures.grams
        return [torch.stack([*values]) for values in (map(products, a, b), map(norms, a), map(norms, b))]


def _patterns(side: Side, texts: Float[Tensor, " text"]) -> Float[np.ndarray, "head statistic"]:
    assert side.signatures is not None
    means = torch.tensordot(texts, side.signatures.patterns, dims=1) / texts.sum()
    return means[~means.isnan().any(-1)].double().numpy()


def _apart(
    x: Float[np.ndarray, "head_a feature"], y: Float[np.ndarray, "head_b feature"]
) -> Float[np.ndarray, "head_a head_b"]:
    """Half the mean squared difference of z-scores."""
    return cdist(_z_scores(x), _z_scores(y), "sqeuclidean") / (2 * x.shape[1])


def _z_scores(x: Float[np.ndarray, "head feature"]) -> Float[np.ndarray, "head feature"]:
    """Over heads; 0 for a feature that is constant up to the rounding of a mean over trials."""
    spread = x.std(0)
    varies = spread > 1e-6 * np.abs(x).max(0)
    return np.divide(x - x.mean(0), spread, out=np.zeros_like(x), where=varies)
