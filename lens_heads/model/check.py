"""check: a report on whether a model behaves as every formula here assumes, to be run on any new model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model import formula_checks
from lens_heads.model.geometry import Model, head_geometry, require_raw_weights
from lens_heads.model.modes import evaluating
from lens_heads.model.probe_run import Check, ProbeRun
from lens_heads.model.support import LENGTH, architecture, measured, prompt, tolerance_of
from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.typed import typed

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 1024
"""The longest sliding window for which the text is made longer than it."""


@dataclass(frozen=True)
class CheckReport(Tabled):
    """The result of `check_model`: `passed`, and one row per statement in `frame`."""

    model: str
    shape: HeadGeometry
    checks: tuple[Check, ...]
    architecture: str = ""

    @property
    def passed(self) -> bool:
        """Whether every identity holds. A shortcut that cannot be taken costs time alone, and does not count."""
        return all(check.passed or check.shortcut for check in self.checks)

    @property
    def frame(self) -> pd.DataFrame:
        import pandas as pd

        rows = [(c.name, c.error, c.tolerance, c.passed, c.note) for c in self.checks]
        return pd.DataFrame(rows, columns=["check", "error", "tolerance", "passed", "note"])

    def __repr__(self) -> str:
        failed = [check.name for check in self.checks if not (check.passed or check.shortcut)]
        names = f"; failed: {', '.join(failed)}" if failed else ""
        return f"CheckReport({self.model}: {len(self.checks) - len(failed)} of {len(self.checks)} hold{names})"


NEEDS = (
    "pattern",
    "weights",
    "values",
    "edits",
    "queries",
    "writes",
    "unembedding",
    "closing",
    "causal",
    "cached",
    "gradients",
    "joined",
)
"""The identities in the order of the report."""


@typed
@torch.no_grad()
def check_model(
    model: Model, *, tokens: Int[Tensor, " position"] | None = None, tolerance: float | None = None
) -> CheckReport:
    """Measure every identity that scores, ablations and patches rest on, on one short text or your own `tokens`.

    These are the identities that are measured on any model before its first use; here all of them, on a text that is longer
    than the shortest sliding window, and with the shortcuts that are taken where they give the same numbers. Errors are relative
    to the magnitude of the compared values. `tolerance` defaults to 1e-3 in float32 and 5e-2 in half precision (bfloat16
    activations carry 8 bits). The model runs in eval mode, with the hooks that are on it, and is restored afterwards. Raises
    ValueError for processed weights; every other failure is a row.

    `model`: of either class.

    Example:
        >>> report = lh.check_model(untrained)
        >>> report.passed, set(report.frame["passed"])
        (True, {True})
    """
    require_raw_weights(model)
    shape = head_geometry(model)
    tolerance = tolerance_of(model) if tolerance is None else checks.finite("tolerance", tolerance, 0)
    # Enough tokens to exceed the shortest sliding window or chunk, if that is cheap.
    window = min((reach for reach in (*shape.windows, *shape.chunks) if reach), default=LENGTH)
    length = max(64, window + 16 if window <= LONGEST else 64)
    ids = prompt(model, length) if tokens is None else torch.as_tensor(tokens)
    with evaluating(model):
        found, one = measured(model, ids, tolerance, NEEDS)
        rows = [row for need in NEEDS for row in found[need]]
        if isinstance(one, ProbeRun):
            rows = [formula_checks.hooks_fire(one), *rows, *formula_checks.shortcuts(one).values()]
    return CheckReport(shape.name, shape, tuple(rows), architecture(model))
