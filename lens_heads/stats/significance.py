"""Which of many p values are small enough: the false discovery rate."""

from __future__ import annotations

import reprlib

import torch
from jaxtyping import Bool, Float
from scipy import stats as scipy_stats
from torch import Tensor

from lens_heads.runs import checks
from lens_heads.runs.typed import typed


@typed
def benjamini_hochberg(p: Float[Tensor, "..."], *, alpha: float = 0.05) -> Bool[Tensor, "..."]:
    """Which hypotheses the Benjamini-Hochberg procedure rejects at false discovery rate alpha.

    `p`: the p-values, which may depend on each other positively. (Benjamini and Hochberg 1995)

    Example:
        >>> lh.stats.benjamini_hochberg(torch.tensor([0.001, 0.02, 0.6])).tolist()
        [True, True, False]
    """
    checks.share("alpha", alpha, "0.05")
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p={reprlib.repr(p.tolist())}: must be p values, from 0 to 1")
    adjusted = scipy_stats.false_discovery_control(p.double().numpy().ravel())
    return torch.from_numpy(adjusted <= alpha).reshape(p.shape)
