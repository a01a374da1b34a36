"""What a forward takes, to compare a model before and after."""

from __future__ import annotations

from statistics import median

import torch
from torch.utils.benchmark import Timer

from lens_heads.model.forward import Cache, fast_attention, prefill
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.modes import evaluating
from lens_heads.runs import checks
from lens_heads.runs.typed import typed

ROUNDS = 7


@typed
@torch.no_grad()
def prefill_ratio(before: Model, after: Model, *, tokens: int = 512) -> float:
    """The time of a prefill of so many tokens (at most the context window) by `after`, as a share of that by `before`.

    Both are timed in turn, several times, and the median of the ratios is returned: other work on the machine disturbs it least.
    Attention is sdpa where the models can.

    Example:
        >>> 0 < lh.deploy.prefill_ratio(model, model, tokens=16) < 100
        True
    """
    checks.whole_number("tokens", tokens)
    one, other = _timer(before, tokens), _timer(after, tokens)
    with evaluating(before), evaluating(after):
        return median([other.timeit(1).mean / one.timeit(1).mean for _ in range(ROUNDS)])


def _timer(model: Model, tokens: int) -> Timer:
    given = torch.ones(1, min(tokens, head_geometry(model).n_ctx), dtype=torch.long, device=model.W_U.device)

    def run() -> None:
        with fast_attention(model):
            prefill(model, given, Cache(model, 1))

    return Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
