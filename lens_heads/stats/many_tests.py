"""Many p values at once: the false discovery rate, and the family-wise error rate under a null that all share."""

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


@typed
def family_wise_p(values: Float[Tensor, "*item"], null: Float[Tensor, "draw *item"]) -> Float[Tensor, "*item"]:
    """p = (1 + #{draws whose largest item is at least the value}) / (draws + 1): Westfall and Young's single-step maxT.

    The chance that any item without an effect gets p <= alpha is at most alpha, however the items depend on each other, as
    long as a draw could as well have been the data. float64; the smallest p is 1 / (draws + 1).

    Raises ValueError unless all is finite, there is a draw, and every draw has the shape of the values.

    `null`: what draws without an effect gave, in the same unit.

    Example:
        >>> lh.stats.family_wise_p(torch.tensor([9.0, 1.0]), torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]])).tolist()
        [0.25, 1.0]
    """
    if len(null) == 0 or null.shape[1:] != values.shape:
        raise ValueError(
            f"null of shape {list(null.shape)}: must be [draw, *{list(values.shape)}], with at least one draw"
        )
    for name, given in (("values", values), ("null", null)):
        checks.finite_values(name, given)
    largest = null.reshape(len(null), -1).amax(1).sort().values
    below = torch.searchsorted(largest, values.contiguous())
    return (1 + len(largest) - below).double() / (len(largest) + 1)
