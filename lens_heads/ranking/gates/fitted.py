"""Fitted: what a training found. And the way from trials to it, which all methods share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.identity import identified, identify
from lens_heads.model.run_folders import folder_for
from lens_heads.model.support import require
from lens_heads.ranking.gates.gate import Gate
from lens_heads.ranking.gates.training import State, Training, TrainingOptions, settings_of, train, training_of
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.store import RunFolder
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.digests import made_on, trials_digest
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial

HELD_OUT = 5
"""Every so manieth trial is for validation, where a method keeps the best of it."""


@dataclass(frozen=True, eq=False)
class Fitted(Tabled):
    """What a training found.

    `scores`: of every head, from one "trial", the training. `parameter` [layer, ...]: what was learned, float32 on the CPU.
    `history`: a row per validation, with the step, the mean loss since the last (penalty included), and that of validation.

    Example:
        >>> fitted = lh.ranking.duo(model, trials, sink=1, recent=4, steps=2)
        >>> fitted.scores.unit
        'kv_head'
    """

    scores: HeadScores
    parameter: Float[Tensor, "layer ..."]
    history: pd.DataFrame = field(repr=False)

    @property
    def frame(self) -> pd.DataFrame:
        """The frame of `scores`: a row per head, best first."""
        return self.scores.frame

    def __repr__(self) -> str:
        return f"Fitted({self.scores!r})"


@dataclass(frozen=True, eq=False)
class TrainingData:
    """A model with its trials in tokens, those for validation apart, and the run folder."""

    model: Model
    trials: list[EncodedTrial]
    validation: list[EncodedTrial]
    training: Training
    folder: RunFolder | None
    progress: bool

    @classmethod
    def of(
        cls,
        model: Model,
        gate: Gate,
        trials: Iterable[AnyTrial] | AnyTrial,
        defaults: Training,
        given: TrainingOptions,
        validates: bool = False,
        about: Mapping[str, Any] | None = None,
    ) -> TrainingData:
        """Checked before anything runs. `validates`: every fifth trial is for validation. `about`: further settings of the run.

        ValueError for trials that do not fit the context window, and fewer than five where some are for validation.
        """
        training, out, progress = training_of(given, defaults)
        shape = require(model, gate.name, *gate.needs)
        encoded = encode_all(trials, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
        held = encoded[HELD_OUT - 1 :: HELD_OUT] if validates else []
        if validates and not held:
            raise ValueError(
                f"{gate.name}: {len(encoded)} trials: every fifth one is for validation, so give at least {HELD_OUT}"
            )
        settings = {
            **identified(model, "gates").settings,
            **settings_of(gate, training),
            "trials": trials_digest(encoded),
        }
        folder = folder_for(model, out, settings | dict(about or {}))
        kept = [trial for trial in encoded if not any(trial is one for one in held)]
        return cls(model, kept, held, training, folder, progress)

    def fit(self, gate: Gate, begin: Tensor | None = None, name: str = "") -> Fitted:
        """Train a gate on the trials; the best of validation, if there is any, else the last."""
        validation, folder = self.validation, self.folder
        state = train(self.model, gate, self.trials, self.training, validation, folder, begin, self.progress, name)
        found = self.fitted(gate, state)
        if folder is not None:
            found.scores.save(folder.score_file(name or gate.name))
        return found

    def fitted(self, gate: Gate, state: State) -> Fitted:
        assert state.best is not None
        best = state.best.detach().cpu()
        values = head_geometry(self.model).with_holes(gate.read(best), unit=gate.unit)
        history = pd.DataFrame(state.history)
        about = {
            "unit": gate.unit,
            "selected": True,
            "model": identify(self.model),
            "made_on": made_on([*self.trials, *self.validation]),
        }
        meta = {**settings_of(gate, self.training), "best_loss": state.best_loss}
        scores = HeadScores.from_trials(gate.name, values[None], ["training"], meta=meta, **about)
        return Fitted(scores, best, history)
