"""How unlike every head of one model is every head of another, part by part of their signatures.

Every part is scaled so that two unrelated heads are 1 apart on average, and equal ones 0. What becomes of the distances is
in `correspondence.py`.
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
from lens_heads.compare.depth import relative_depths
from lens_heads.compare.signatures import Signatures
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import HeadGeometry
from lens_heads.stats import bootstrap_means

PARTS = ("depth", "patterns", "scores", "cka")
"""What a signature can consist of."""


@dataclass(frozen=True, eq=False)
class Side:
    """What is known about the heads of one model; `signatures` None when no part reads texts."""

    shape: HeadGeometry
    signatures: Signatures | None
    scores: Mapping[str, HeadScores]

    def score_means(self, n: int, seed: int) -> Float[np.ndarray, "sample head method"]:
        """Mean scores of n resamples of each method's trials; methods with equally many are resampled alike."""
        means = [bootstrap_means(scores.per_trial.flatten(1), n, seed).numpy() for scores in self.scores.values()]
        return np.stack(means, -1) if means else np.zeros((n, 0, 0))


class Draw(NamedTuple):
    """The data that distances are computed from: how often each text counts, and the mean scores of either model."""

    texts: Float[Tensor, " text"]
    scores_a: Float[np.ndarray, "head method"]
    scores_b: Float[np.ndarray, "head method"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Both models' heads and the parts they are compared in."""

    a: Side
    b: Side
    parts: tuple[str, ...]

    def whole(self) -> Draw:
        """All texts once, all trials once."""
        scores = [
            np.stack([found.values.double().flatten().numpy() for found in side.scores.values()], -1)
            if side.scores
            else np.zeros((0, 0))
            for side in (self.a, self.b)
        ]
        return Draw(torch.ones(self._texts), scores[0], scores[1])

    def resampled(self, n: int, seed: int) -> Iterator[Draw]:
        """n resamples: the texts, the same for both models, and the trials of each model's scores on their own."""
        rng, count = np.random.default_rng(seed), self._texts
        scores = self.a.score_means(n, seed + 1), self.b.score_means(n, seed + 2)
        for i in range(n):
            texts = np.bincount(rng.integers(count, size=count), minlength=count) if count else np.zeros(0)
            yield Draw(torch.from_numpy(texts).float(), scores[0][i], scores[1][i])

    def distances(self, draw: Draw) -> dict[str, Float[np.ndarray, "head_a head_b"]]:
        """The distance of every pair of heads in every part.

        depth: squared difference of relative depth over twice its variance, over the heads of both models.
        patterns, scores: mean over statistics (methods) of half the squared difference, each z-scored within its model.
        cka: 1 - CKA of what heads write.
        """
        found: dict[str, Float[np.ndarray, "head_a head_b"]] = {}
        for part in self.parts:
            if part == "depth":
                depths = [relative_depths(s.n_layers).repeat(s.n_heads) for s in (self.a.shape, self.b.shape)]
                spread = np.concatenate(depths).var() or 1.0
                found[part] = (depths[0][:, None] - depths[1]) ** 2 / (2 * spread)
            elif part == "patterns":
                found[part] = _apart(*(_patterns(side, draw.texts) for side in (self.a, self.b)))
            elif part == "scores":
                found[part] = _apart(draw.scores_a, draw.scores_b)
            else:
                between, of_a, of_b = (torch.tensordot(draw.texts, each, dims=1) for each in self._products)
                found[part] = 1 - cka_of(between, of_a, of_b).double().numpy()
        return found

    @property
    def _texts(self) -> int:
        return len(self.a.signatures.grams) if self.a.signatures is not None else 0

    @cached_property
    def _products(
        self,
    ) -> tuple[Float[Tensor, "text head_a head_b"], Float[Tensor, "text head_a"], Float[Tensor, "text head_b"]]:
        """Sums of HSIC_1 of each text: every resample is a weighted sum of these."""
        assert self.a.signatures is not None
        assert self.b.signatures is not None
        a, b = self.a.signatures.grams, self.b.signatures.grams
        between = torch.stack([products(x, y) for x, y in zip(a, b, strict=True)])
        return between, torch.stack([norms(x) for x in a]), torch.stack([norms(y) for y in b])


def _patterns(side: Side, texts: Float[Tensor, " text"]) -> Float[np.ndarray, "head statistic"]:
    assert side.signatures is not None
    means = torch.tensordot(texts, side.signatures.patterns, dims=1) / texts.sum()
    return means.flatten(0, 1).double().numpy()


def _apart(
    x: Float[np.ndarray, "head_a feature"], y: Float[np.ndarray, "head_b feature"]
) -> Float[np.ndarray, "head_a head_b"]:
    """Half the mean squared difference of z-scores."""
    return cdist(_z_scores(x), _z_scores(y), "sqeuclidean") / (2 * x.shape[1])


def _z_scores(x: Float[np.ndarray, "head feature"]) -> Float[np.ndarray, "head feature"]:
    """Over heads; 0 for a feature that all heads share, up to the rounding of a mean over trials."""
    spread = x.std(0)
    tells = spread > 1e-6 * np.abs(x).max(0)
    return np.divide(x - x.mean(0), spread, out=np.zeros_like(x), where=tells)
