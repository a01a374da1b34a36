"""Which of many scores exceed zero: sign-flip permutation tests and the false discovery rate."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from scipy import stats as scipy_stats
from torch import Tensor

from lens_heads.runs import checks


def sign_flip_p(values: Float[Tensor, "trial ..."], n: int = 10_000, seed: int = 0) -> Float[Tensor, "..."]:
    """One-sided p-value of mean > 0 under random sign flips of whole trials: (hits + 1) / (n + 1), never zero."""
    checks.whole_number("n", n)
    checks.seed(seed)
    trials = len(values)
    if trials == 0:
        raise ValueError("cannot test: there are no trials")
    flat = values.reshape(trials, -1).double()
    observed = flat.mean(0)
    generator = torch.Generator().manual_seed(seed)
    hits, slack = torch.zeros_like(observed), 1e-6 * flat.abs().mean(0)
    for start in range(0, n, 1000):
        rows = min(1000, n - start)
        signs = torch.randint(0, 2, (rows, trials), generator=generator).double() * 2 - 1
        # A tie counts as a hit. float32 values rarely tie to the last bit, hence the tolerance.
        hits += (signs @ flat / trials >= observed - slack).sum(0)
    return ((hits + 1) / (n + 1)).reshape(values.shape[1:]).float()


def benjamini_hochberg(p: Float[Tensor, "..."], alpha: float = 0.05) -> Bool[Tensor, "..."]:
    """Which hypotheses the Benjamini-Hochberg procedure rejects at false discovery rate alpha."""
    adjusted = scipy_stats.false_discovery_control(p.double().numpy().ravel())
    return torch.from_numpy(adjusted <= alpha).reshape(p.shape)
