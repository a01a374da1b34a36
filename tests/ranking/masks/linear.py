"""A linear response to masks of 48 heads, of which four matter."""

from __future__ import annotations

import numpy as np

from lens_heads.ranking.masks.designs import draw_masks

PLANTED = (3, 17, 40)
"""Of 48 heads in 6 layers, those whose ablation hurts; ablating head 9 helps."""
TRUE = np.zeros(48)
TRUE[[*PLANTED, 9]] = -0.3, -0.2, -0.15, 0.1
BASE = 0.8


def planted(trials: int = 0, noise: float = 0.02, n_masks: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Masks [mask, 6, 8] and a linear response with noise, of each trial if any."""
    masks = draw_masks("stratified", n_masks, 6, 8, 0.1, seed=seed)
    exact = BASE + masks.reshape(n_masks, -1) @ TRUE
    generator = np.random.default_rng(seed)
    if not trials:
        return masks, exact + noise * generator.standard_normal(n_masks)
    return masks, exact[:, None] + noise * generator.standard_normal((n_masks, trials))


def first(coefficients: np.ndarray, k: int = 3) -> set[int]:
    return set(np.argsort(coefficients.ravel())[:k].tolist())
