"""patch: heads write what they wrote in another run. It is `ablate` of kind "patch", with the clean run made on the way."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from lens_heads.heads.head import AnyHeads
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.activations import TrialActivations, run_activations
from lens_heads.model.geometry import Model
from lens_heads.model.support import require
from lens_heads.runs.blocks import block
from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.pairs import Positions, check_positions
from lens_heads.trials.trial import AnyTrial


@typed
@block
def patch(
    model: Model,
    heads: AnyHeads,
    clean: AnyTrial | TrialActivations,
    *,
    positions: Positions = "answer",
) -> Iterator[None]:
    """Inside the block, the heads write what they wrote in the clean run, at the positions of that run.

    Args:
        heads: as in `ablate`.
        clean: the run to copy from: a trial (its prompt and gold answer; not its counterfactual), or existing
            activations, for which `positions` is ignored. A trial is run now, under the hooks now on the model.
        positions: "answer" patches only the rows that produce the gold answer, "all" every row of the run.

    Works in any forward pass, cached or batched with left padding. Contexts nest; the innermost acts last.

    Raises ValueError for a head that does not exist or an unknown `positions`.

    Example:
        >>> clean = lh.trial_activations(model, trials[0])
        >>> with lh.ablate(model, heads, kind="zero"), lh.patch(model, heads, clean):
        ...     patched = lh.evaluate(model, trials[0], generate=False)
        >>> patched.metrics["greedy_match"].item()
        1.0
    """
    check_positions(positions)
    shape = require(model, "patch", "writes")
    shape.check_heads(heads)
    if not isinstance(clean, TrialActivations):
        (trial,) = encode_all(clean, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
        run = torch.cat([trial.tokens, trial.answer_tokens[:-1]])
        clean = run_activations(model, run, trial.id, len(trial) - 1 if positions == "answer" else 0)
    with ablate(model, heads, kind="patch", reference=clean):
        yield
