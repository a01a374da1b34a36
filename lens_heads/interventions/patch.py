"""patch: heads write what they wrote in another run. It is `ablate` of kind "patch", with the clean run made on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lens_heads.heads.head import AnyHeads
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.activations import TrialActivations, run_activations
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.support import require
from lens_heads.runs.typed import typed
from lens_heads.trials.pairs import Positions, TokenPair, check_positions, make_pairs
from lens_heads.trials.trial import AnyTrial


@typed
@contextmanager
def patch(
    model: Model,
    heads: AnyHeads,
    clean: TokenPair | AnyTrial | TrialActivations,
    *,
    positions: Positions = "answer",
) -> Iterator[None]:
    """Inside the block, the heads write what they wrote in the clean run, at the positions of that run.

    Args:
        heads: as in `ablate`.
        clean: the run to copy from: a TokenPair (its clean side), a trial (its prompt and gold answer), or existing
            activations, for which `positions` is ignored. Pairs and trials are run now, under the hooks now on the model.
        positions: "answer" patches only the rows that produce the gold answer, "all" every row of the run.

    Works in any forward pass, cached or batched with left padding. Contexts nest; the innermost acts last.

    Raises ValueError for a head that does not exist or an unknown `positions`.
    """
    check_positions(positions)
    require(model, "patch", "writes").check_heads(heads)
    reference = clean if isinstance(clean, TrialActivations) else _clean_run(model, clean, positions)
    with ablate(model, heads, kind="patch", reference=reference):
        yield


def _clean_run(model: Model, clean: TokenPair | AnyTrial, positions: Positions) -> TrialActivations:
    # Only the clean side is run, so a trial needs no corruption.
    (pair,) = make_pairs(clean, model.tokenizer, head_geometry(model), lambda trial: trial.tokens, distinct=False)
    start, end = pair.answer
    return run_activations(model, pair.clean[: end - 1], pair.id, start - 1 if positions == "answer" else 0)
