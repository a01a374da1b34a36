"""What a forward takes, to compare a model before and after."""

from __future__ import annotations

import torch
from torch.utils.benchmark import Timer

from lens_heads.model.forward import Cache, fast_attention, prefill
from lens_heads.model.geometry import Model, geometry
from lens_heads.model.modes import evaluating


@torch.no_grad()
def prefill_seconds(model: Model, tokens: int = 512) -> float:
    """The median seconds of a prefill of so many tokens (at most the context window), with sdpa where the model can."""
    shape = geometry(model)
    given = torch.ones(1, min(tokens, shape.n_ctx), dtype=torch.long, device=model.W_U.device)

    def run() -> None:
        with fast_attention(model):
            prefill(model, given, Cache(model, 1))

    with evaluating(model):
        run()
        return (
            Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
            .blocked_autorange(min_run_time=1.0)
            .median
        )
