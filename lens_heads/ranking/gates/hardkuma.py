"""HardKuma gates (Bastings et al. 2019), as LycheeDecode (arXiv 2602.04541) trains them: open or closed, within a budget."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model.geometry import Model
from lens_heads.ranking.gates.duo import Duo, Full, check_streaming, fit_streaming
from lens_heads.ranking.gates.fitted import Fitted
from lens_heads.ranking.gates.gate import GateBatch
from lens_heads.ranking.gates.methods import streaming, training_method
from lens_heads.ranking.gates.training import Training, TrainingOptions
from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.trials.trial import AnyTrial

DEFAULTS = Training(steps=300, lr=0.01)
"""LycheeDecode takes 3,000 steps."""
LOW, WIDTH, EDGE = -0.1, 1.2, 0.001
"""Draws are stretched to LOW .. LOW + WIDTH and clipped to 0 .. 1; uniform numbers keep EDGE away from 0 and 1."""


@dataclass(frozen=True)
class HardKuma(Duo):
    """Gates z = clip(1.2 x - .1, 0, 1), x Kumaraswamy(a, b), drawn anew in every step; the parameter is log a, log b.

    penalty = lambda relu(density - target), density the mean of 1 - P(z = 0); lambda grows by exp(`lag` (density - target)).
    """

    density: float
    lag: float

    name: ClassVar[str] = "hardkuma"
    carry: ClassVar[float] = 2.0

    def start(self, shape: HeadGeometry, seed: int) -> Float[Tensor, "layer kv_head 2"]:
        return torch.zeros(shape.n_layers, shape.n_kv_heads, 2)

    def read(self, parameter: Float[Tensor, "layer kv_head 2"]) -> Float[Tensor, "layer kv_head"]:
        """The mean of x: above .5, a head is one of retrieval."""
        a, b = parameter.exp().unbind(-1)
        beta = torch.lgamma(1 + 1 / a) + torch.lgamma(b) - torch.lgamma(1 + 1 / a + b)
        return b * beta.exp()

    def alphas(self, parameter: Float[Tensor, "layer kv_head 2"], batch: GateBatch) -> Float[Tensor, "layer kv_head"]:
        if batch.step < 0:
            return stretched(self.read(parameter))
        generator = torch.Generator().manual_seed((batch.seed * 1_000_003 + batch.step) % checks.LARGEST_SEED)
        u = torch.rand(parameter.shape[:-1], generator=generator).to(parameter)
        a, b = parameter.exp().unbind(-1)
        return stretched((1 - (1 - (EDGE + (1 - 2 * EDGE) * u)) ** (1 / b)) ** (1 / a))

    def penalty(self, parameter: Float[Tensor, "layer kv_head 2"], carried: float) -> Float[Tensor, ""]:
        return carried * torch.relu(self._excess(parameter))

    def after(self, parameter: Float[Tensor, "layer kv_head 2"], carried: float) -> float:
        try:
            return carried * math.exp(self.lag * float(self._excess(parameter)))
        except OverflowError:  # Infinity ends the training with a reason.
            return math.inf

    def clamp(self, parameter: Float[Tensor, "layer kv_head 2"]) -> None:
        parameter.clamp_(-5, 5)

    def _excess(self, parameter: Float[Tensor, "layer kv_head 2"]) -> Float[Tensor, ""]:
        return (1 - closed(parameter)).mean() - self.density


def stretched(x: Tensor) -> Tensor:
    """The gate of a draw."""
    return (LOW + WIDTH * x).clamp(0, 1)


def closed(parameter: Float[Tensor, "... 2"]) -> Float[Tensor, "..."]:
    """P(z = 0) of log a and log b: 1/12 at a = b = 1."""
    a, b = parameter.exp().unbind(-1)
    return 1 - (1 - (-LOW / WIDTH) ** a) ** b


@typed(**DEFAULTS.options)
def hardkuma(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial | None = None,
    *,
    density: float = 0.25,
    sink: int = 16,
    recent: int = 64,
    full: Full = "mixed",
    lag: float = 0.001,
    **training: Unpack[TrainingOptions],
) -> Fitted:
    """Train gates of kv heads that are open or closed by chance, with a share `density` of them open (LycheeDecode).

    Args:
        density: the share of kv heads whose gate is not 0. LycheeDecode's is 1/12 of 32-layer models.
        lag: how fast the weight of the budget follows its excess.
        trials, sink, recent, full, **training: as in `duo`, but 300 steps, lr .01.

    Returns a `Fitted` with scores of unit "kv_head": the mean of the gate's distribution before it is stretched and clipped;
    above .5 a head is one of retrieval. Raises ValueError as `duo` does.

    The loss is DuoAttention's; LycheeDecode distils the logits of a whole text. The parameter is log a and log b, since both
    are positive.

    `model`: as there.

    Cost: `steps` passes forward and backward of `batch_size` trials, and the validation trials forward every `validate_every`
    steps.

    Example:
        >>> fitted = lh.ranking.hardkuma(model, trials, sink=1, recent=4, steps=2)
        >>> fitted.scores.unit
        'kv_head'
    """
    check_streaming(sink, recent, full)
    gate = HardKuma(sink, recent, full, 0.0, checks.share("density", density, "0.25"), checks.finite("lag", lag, 0))
    return fit_streaming(model, gate, trials, DEFAULTS, training)


METHODS = (
    training_method(
        "hardkuma", streaming(hardkuma), 2, teacher=1, label="HardKuma", paper="LycheeDecode, arXiv 2602.04541",
        fails="as duo_gate; its draws make heads near the budget trade places",
    ),
)  # fmt: skip
