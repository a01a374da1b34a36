"""The rank of one set of heads among random ones: how often does a random set do at least as much harm?

The +1 counts the observed set among the random ones, so that a p value is never 0 and holds its level (Phipson and Smyth,
"Permutation P-values should never be zero", 2010). One call for each null: uniform draws, and draws matched by layer.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from lens_heads.runs import checks
from lens_heads.runs.drawn import as_html
from lens_heads.runs.typed import typed

if TYPE_CHECKING:
    import pandas as pd

HARMFUL = {"lower": operator.le, "higher": operator.ge}
"""Which values are at least as harmful: lower ones of a metric, higher ones of a drop."""


class RandomRank(NamedTuple):
    """`p` = `rank` / (`draws` + 1). `rank` is the lead's among the draws and itself: 1 is the most harmful.

    Example:
        >>> lh.stats.rank_p(-3.0, np.array([-1.0, -0.5, 0.0]))
        RandomRank(p=0.25, rank=1, draws=3)
    """

    p: float
    rank: int
    draws: int

    @property
    def frame(self) -> pd.DataFrame:
        """One row: p, rank, draws."""
        import pandas as pd

        return pd.DataFrame([self._asdict()])

    _repr_html_ = as_html


@typed
def rank_p(
    observed: float | Float[np.ndarray, " trial"],
    random: Float[np.ndarray, " draw"] | Float[np.ndarray, "draw trial"],
    *,
    harmful: Literal["lower", "higher"] = "lower",
) -> RandomRank:
    """Rank and one-sided p of a lead among random sets: (1 + #{random at least as harmful}) / (draws + 1). Ties count.

    Args:
        observed: what the lead leaves of a metric, or costs; a number, or one per trial.
        random: the same for every random set, in the same unit; [draw, trial] on the lead's own trials. Means are compared.
        harmful: "lower" if a lower value is more harmful (a metric), "higher" if a higher one is (a drop).

    Raises ValueError for no draws, trials that differ in number, an unknown `harmful`, and numbers that are not finite.

    Example:
        >>> lh.stats.rank_p(2.5, np.array([0.1, 0.3, 0.2, 2.6]), harmful="higher")
        RandomRank(p=0.4, rank=2, draws=4)
    """
    if harmful not in HARMFUL:
        raise ValueError(f"unknown harmful {harmful!r}. Choose from {', '.join(HARMFUL)}.")
    lead, others = checks.finite_values("observed", observed), checks.finite_values("random", random)
    if others.ndim not in (1, 2) or others.size == 0 or others.shape[1:] != lead.shape:
        found = f"observed of shape {list(lead.shape)} and random of shape {list(others.shape)}"
        raise ValueError(f"{found}: must be [] and [draw], or [trial] and [draw, trial], with at least one draw")
    # One mean over one array: equal sets tie to the last bit.
    values = np.concatenate([lead[None], others]).reshape(len(others) + 1, -1).mean(1)
    rank = 1 + int(HARMFUL[harmful](values[1:], values[0]).sum())
    return RandomRank(rank / (len(others) + 1), rank, len(others))
