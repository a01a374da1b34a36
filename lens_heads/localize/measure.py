"""MaskedMetric: a task's metrics as a function of which heads are ablated, with as little of the model run as that takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Unpack

import numpy as np
import torch
from jaxtyping import Bool, Float

from lens_heads.ablation.choices import CHOICE_METRICS, without_choices
from lens_heads.ablation.evaluation import FORCED_METRICS, answer_batch, check_metric
from lens_heads.ablation.independence import check_reference
from lens_heads.heads.head import Head
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.ablation import Ablation, Reference
from lens_heads.interventions.options import AblationRun, ablation_run
from lens_heads.interventions.replay import MOST_BYTES, Prefilled, prefilled, shared_beginning, together
from lens_heads.model.forward import Cache, fast_attention
from lens_heads.model.geometry import Model, geometry, require_raw_weights
from lens_heads.model.hooks import has_hooks
from lens_heads.model.identity import folder_for, identify
from lens_heads.model.modes import evaluating
from lens_heads.runs import engine
from lens_heads.runs.store import Result
from lens_heads.trials.digests import trials_digest
from lens_heads.trials.encoding import encode_all
from lens_heads.trials.trial import AnyTrial

Level = Literal["query_head", "kv_group"]
LEVELS: tuple[Level, ...] = ("query_head", "kv_group")


class MaskedMetric:
    """A metric of `evaluate` on fixed trials, under any set of ablated heads (masks: True is ablated).

    Heads are ablated at all positions, while the prompt is read and while decoding. Every trial's unablated prefill is kept
    (as far as `replay.MOST_BYTES` allows), and a mask's run starts at its lowest ablated layer; what all prompts begin with
    (few-shot examples) is run once for all of them. Whatever was measured is never measured again: masks are remembered, and
    stored one by one in the run folder `out`, with all metrics, so that the same trials under another metric of the kind
    cost nothing.

    `level`: "query_head", masks [layer, head]; or "kv_group", masks [layer, kv head], which ablate all query heads that
    read the kv head. `requested` are the different masks asked for so far, stored ones included; whoever counts evaluations
    may clear it. `share_run` is how much of the prompts was run (tokens times layers), of what plain forwards would have run.

    Raises ValueError for processed weights, a metric that is not measured on these trials, an unknown level, whatever
    `ablate` refuses, and a reference from these trials.
    """

    def __init__(
        self,
        model: Model,
        trials: Iterable[AnyTrial] | AnyTrial,
        metric: str = "logprob",
        kind: str | Ablation = "zero",
        reference: Reference | None = None,
        level: Level = "query_head",
        **options: Unpack[AblationRun],
    ) -> None:
        require_raw_weights(model)
        self.model, self.metric, self.level, self.shape = model, metric, level, geometry(model)
        self.ablation, self.options = ablation_run(model, kind, reference, options, batch_size=8)
        if level not in LEVELS:
            raise ValueError(f"level={level!r}: use {' or '.join(map(repr, LEVELS))}")
        self.room = 0 if metric in FORCED_METRICS else self.options.max_new_tokens
        self.trials = encode_all(trials, model.tokenizer, self.shape.n_ctx, self.room, self.shape.d_vocab)
        check_metric(metric, self.trials, generate=self.room > 0)
        if metric not in CHOICE_METRICS:  # They would cost more than the answers.
            self.trials = without_choices(self.trials)
        check_reference(
            self.ablation.reference, self.trials, "trials that are measured", "compute it on a third, untouched split"
        )
        self.identity = identify(model)
        self.settings = {**self.identity.settings, **self.ablation.settings, "level": level}
        self.settings |= {"trials_digest": trials_digest(self.trials), "max_new_tokens": self.room}
        self.folder = folder_for(model, self.options.out, self.settings)
        self._blocks = together(self.trials, self.options.batch_size)
        self._kept: list[Prefilled | None] | None = None
        self._shared: Prefilled | None = None
        self.requested: set[bytes] = set()
        self._known: dict[bytes, Result] = {}
        self._passes = {"run": 0, "all": 0}

    @property
    def units(self) -> tuple[int, int]:
        """Layers, and heads or kv groups in each: the shape of one mask."""
        return self.shape.n_layers, self.shape.n_heads if self.level == "query_head" else self.shape.n_kv_heads

    @property
    def share_run(self) -> float:
        """NaN before anything was run (masks may all have been stored)."""
        return self._passes["run"] / self._passes["all"] if self._passes["all"] else float("nan")

    @property
    def base(self) -> Float[np.ndarray, " trial"]:
        """The metric with nothing ablated."""
        return self(np.zeros((1, *self.units), dtype=bool))[0]

    def __call__(self, masks: Bool[np.ndarray, "mask layer head"]) -> Float[np.ndarray, "mask trial"]:
        """The metric of every trial under every mask.

        A mask whose run failed has NaN in its row, was warned about, and is not tried again (it is not stored either, so a
        new `MaskedMetric` does). When every new mask fails, the first error is raised.
        """
        masks = np.asarray(masks, dtype=bool)
        if masks.ndim != 3 or masks.shape[1:] != self.units:
            raise ValueError(
                f"masks of shape {masks.shape} do not fit {self.shape.name}: [mask, {self.units}] is needed"
            )
        if has_hooks(self.model):
            raise ValueError(
                f"{self.shape.name} has hooks attached (an ablation?), and measurements are kept: end the context first"
            )
        self.requested |= {mask.tobytes() for mask in masks}
        new = {mask.tobytes(): mask for mask in masks if mask.tobytes() not in self._known}
        results = engine.run(
            list(new.values()),
            lambda batch: [self._measure(mask) for mask in batch],
            key=lambda mask: f"mask {np.packbits(mask).tobytes().hex()}",
            folder=self.folder,
            progress=self.options.progress,
            description="ablating masks",
        )
        self._known |= dict(zip(new, results, strict=True))
        found = np.full((len(masks), len(self.trials)), np.nan)
        for row, result in zip(found, (self._known[mask.tobytes()] for mask in masks), strict=True):
            if result.keep:
                row[:] = result.arrays[self.metric].double().numpy()
        return found

    def heads(self, mask: Bool[np.ndarray, "layer head"]) -> list[Head]:
        """The query heads that a mask ablates."""
        group = 1 if self.level == "query_head" else self.shape.group
        return [
            Head(int(layer), int(unit) * group + i)
            for layer, unit in zip(*mask.nonzero(), strict=True)
            for i in range(group)
        ]

    def mask(self, heads: Sequence[Head]) -> Bool[np.ndarray, "layer head"]:
        """The mask that ablates these heads (of its own level: kv heads, where masks are of kv groups)."""
        found = np.zeros(self.units, dtype=bool)
        for head in heads:
            found[head.layer, head.head] = True
        return found

    def _measure(self, mask: Bool[np.ndarray, "layer head"]) -> Result:
        heads = self.heads(mask)
        lowest = min((head.layer for head in heads), default=self.shape.n_layers)
        by_trial: dict[str, dict[str, Any]] = {}
        kept = self._prefilled()
        with ablate(self.model, heads, self.ablation):
            beginning = self._begin(lowest)
            for block, filled in zip(self._blocks, kept, strict=True):
                results = answer_batch(self.model, block, self.room, filled=filled, layer=lowest, beginning=beginning)
                by_trial |= {trial.id: result.record for trial, result in zip(block, results, strict=True)}
        self._count(lowest, kept)
        records = [by_trial[trial.id] for trial in self.trials]
        arrays = {
            name: torch.tensor([float(record[name]) for record in records])
            for name, value in records[0].items()
            if not isinstance(value, str) and all(name in record for record in records)
        }
        for name, values in arrays.items():  # All, for a later call may ask for another.
            bad = (~torch.isfinite(values)).nonzero()
            if len(bad):
                raise ValueError(
                    f"{name} of trial {self.trials[int(bad[0])].id} is not finite with "
                    f"{', '.join(map(str, heads)) or 'nothing'} ablated: load the model in float32 or bfloat16"
                )
        return Result(arrays, {"heads": [str(head) for head in heads]})

    @torch.no_grad()
    def _begin(self, lowest: int) -> Cache | None:
        """What all prompts begin with, under the ablation that is hooked on now."""
        if self._shared is None or lowest >= self.shape.n_layers:
            return None
        with evaluating(self.model), fast_attention(self.model):
            return self._shared.replay(self.model, lowest)

    def _prefilled(self) -> list[Prefilled | None]:
        """Every block's unablated prefill; None for those that would take too much memory."""
        if self._kept is None:
            same = all(len({len(trial) for trial in block}) == 1 for block in self._blocks)
            self._shared = shared_beginning(self.model, self.trials) if same else None
            self._kept, used = [], 0
            for block in self._blocks:
                found = prefilled(self.model, block, shared=self._shared) if used < MOST_BYTES else None
                self._kept.append(found)
                used += found.bytes if found is not None else 0
        return self._kept

    def _count(self, lowest: int, kept: list[Prefilled | None]) -> None:
        """Passes of tokens through layers, of this mask and as plain forwards would need them."""
        tokens = sum(len(trial) - 1 for trial in self.trials)
        fresh = sum(
            len(trial) - 1
            for block, filled in zip(self._blocks, kept, strict=True)
            if filled is None
            for trial in block
        )
        again = sum(filled.tokens.numel() for filled in kept if filled is not None)
        again += 0 if self._shared is None else self._shared.tokens.numel()
        self._passes["run"] += fresh * self.shape.n_layers + again * (self.shape.n_layers - lowest)
        self._passes["all"] += tokens * self.shape.n_layers
