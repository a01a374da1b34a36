"""What heads wrote at the last row of other prompts, one prompt for each trial: the reference of interchange interventions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.made_on import MadeOn
from lens_heads.interventions.activations import check_finite, run_activations
from lens_heads.model.geometry import Model
from lens_heads.model.identity import identified
from lens_heads.model.run_folders import folder_for
from lens_heads.model.support import require
from lens_heads.model.workers import shared
from lens_heads.runs import engine
from lens_heads.runs.identity import ModelIdentity
from lens_heads.runs.options import LoopOptions, Run
from lens_heads.runs.shards import Result
from lens_heads.runs.typed import typed, typed_fields
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.digests import Encoded, prompt_digest, trials_digest
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial


@dataclass(frozen=True, eq=False)
class RowActivations:
    """`z` [trial, layer, head, d_head] at the last row of donor prompts: the first donor is for the first trial, and so on.

    `trial_ids`, `prompts`: of the donors, with hashes of their tokens. `model`: the model that ran.

    Example:
        >>> found = lh.row_activations(model, trials[:2])
        >>> found.trial_ids, tuple(found.z.shape)
        (('planted-0-0', 'planted-0-1'), (2, 2, 4, 32))
    """

    z: Float[Tensor, "trial layer head d_head"]
    trial_ids: tuple[str, ...]
    model: ModelIdentity = ModelIdentity("")
    prompts: tuple[str, ...] = ()

    made_on: ClassVar[tuple[MadeOn, ...]] = ()
    """Nothing leaks from donors: another trial may well be one. That none is its own is checked where trials run."""

    def __repr__(self) -> str:
        return f"RowActivations({list(self.z.shape)}, {self.model})"

    def __post_init__(self) -> None:
        typed_fields(self)
        check_finite("z", self.z, "the rows of the donors")
        if len(self.z) != len(self.trial_ids):
            raise ValueError(f"z has rows of {len(self.z)} donors, but there are {len(self.trial_ids)} trial_ids")

    def check(self, shape: HeadGeometry) -> None:
        """ValueError if these are from a model of another shape."""
        if tuple(self.z.shape[1:]) != (shape.n_layers, shape.n_heads, shape.d_head):
            raise ValueError(
                f"the rows of the donors have shape {tuple(self.z.shape[1:])} [layer, head, d_head], but {shape.name} has "
                f"{(shape.n_layers, shape.n_heads, shape.d_head)}: compute row_activations(model, donors) on this model"
            )

    def check_trials(self, trials: Sequence[Encoded], *, what: str = "trials") -> None:
        """ValueError unless there is a donor for each trial, and none is its own."""
        if len(self.z) != len(trials):
            raise ValueError(
                f"there are {len(self.z)} donors, but {len(trials)} {what}: pass one for each, in their order"
            )
        own = [one.id for one, prompt in zip(trials, self.prompts, strict=False) if prompt_digest(one) == prompt]
        if own:
            raise ValueError(
                f"{len(own)} of the {what} are their own donors ({own[0]!r}, ...), which changes nothing: take other prompts, "
                "such as tasks.exchange_questions(trials)"
            )


@typed
@shared
def row_activations(model: Model, trials: Iterable[AnyTrial] | AnyTrial, **run: Unpack[LoopOptions]) -> RowActivations:
    """`z` of every head at the last row of each prompt, where the answer begins: the reference of kind "interchange".

    With the same passages and their distractors' questions (`tasks.exchange_questions`) as donors, heads get what they would
    write if the other thing were asked: a head that only writes names changes nothing. With the donors in another order, they
    get what they write in another passage, which is resample ablation.

    Args:
        trials: the donors, one for each trial that is evaluated, in their order.
        **run: see `runs.options.LoopOptions`.

    Cost: a forward a donor. Memory: 4 bytes per donor, layer, head and d_head. ValueError for prompts beyond the context window,
    and where a donor fails, since the others would go to other trials.

    `model`: as in `rank`. Source: interchange interventions (Geiger et al., arXiv 2106.02997),
    here on heads at one row.

    Example:
        >>> few = planted.trials(4, seed=5)
        >>> donors = lh.row_activations(model, planted.trials(4, seed=6))
        >>> with lh.ablate(model, heads, kind="interchange", reference=donors):
        ...     found = lh.evaluate(model, few, generate=False)
        >>> len(found.trial_ids)
        4
    """
    options, shape = Run.of(run), require(model, "row_activations", "writes")
    encoded = encode_all(trials, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab, answered=False)

    def work(batch: list[EncodedTrial]) -> list[Result]:
        return [Result({"z": rows(trial)}, {}) for trial in batch]

    def rows(trial: EncodedTrial) -> Float[Tensor, "layer head d_head"]:
        return run_activations(model, trial.tokens, trial.id, len(trial) - 1).z[:, 0]

    identity = identified(model, "activations")
    settings = {**identity.settings, "method": "row activations", "trials": trials_digest(encoded)}
    folder = folder_for(model, options.out, settings)
    results = engine.run(encoded, work, folder=folder, progress=options.progress, description="rows of donors")
    failed = next((trial.id for trial, result in zip(encoded, results, strict=True) if not result.keep), None)
    if failed is not None:
        raise ValueError(f"donor {failed} failed (see the warning), so that its trial would have none: leave both out")
    z = torch.stack([result.arrays["z"] for result in results]).float()
    prompts = tuple(map(prompt_digest, encoded))
    return RowActivations(z, tuple(trial.id for trial in encoded), identity, prompts)
