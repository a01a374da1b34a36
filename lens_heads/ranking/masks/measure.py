"""MaskedMetric: a task's metrics as a function of the ablated heads, running as little of the model as possible."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Unpack, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float

from lens_heads.answering.choices import CHOICE_METRICS, without_choices
from lens_heads.answering.evaluation import FORCED_METRICS, answer_batch, check_metric
from lens_heads.heads.head import Head, Unit
from lens_heads.interventions.ablate import ablate_each
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.interventions.independence import check_reference
from lens_heads.interventions.options import AblationRun, ablation_run
from lens_heads.interventions.replay import MOST_BYTES, Prefilled, at_once, prefilled, shared_beginning, together
from lens_heads.model.belonging import check_owner
from lens_heads.model.forward import Cache, fast_attention
from lens_heads.model.geometry import Model, head_geometry, require_raw_weights
from lens_heads.model.hooks import has_hooks
from lens_heads.model.identity import identified
from lens_heads.model.modes import evaluating
from lens_heads.model.run_folders import folder_for
from lens_heads.ranking.masks.designs import as_booleans
from lens_heads.runs import engine
from lens_heads.runs.shards import Result
from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.digests import made_on, trials_digest
from lens_heads.trials.trial import AnyTrial

SHARES = 8
"""In how many batches many masks run at least, so that several workers find something to do."""


class MaskedMetric:
    """A metric of `evaluate` on fixed trials, as a function of the ablated heads (masks: True is ablated).

    Heads are ablated at all positions, both in the prompt and while decoding. Every trial's unablated prefill is kept (up to
    `replay.MOST_BYTES`), and a mask's run starts at its lowest ablated layer, side by side with those of other masks. A prefix
    that all prompts share (few-shot examples) is run once for all of them. No mask is measured twice: results are kept in memory
    and, mask by mask, in the run folder `out`. They include all metrics, so another metric of the same kind on the same trials
    costs nothing.

    `unit`: "query_head" for masks [layer, head], or "kv_head" for masks [layer, kv head], which ablate all query heads that
    read the kv head. `requested` holds the distinct masks asked for so far, stored ones included; clear it to count anew.
    `share_run` is the share of a plain forward pass's work on the prompts (tokens times layers) that was done.

    Raises ValueError for processed weights, a metric that these trials do not support, an unknown unit, a reference computed
    on these trials, and whatever `ablate` refuses.

    `model`: whose heads are ablated.

    Example:
        >>> measured = lh.ranking.MaskedMetric(model, trials[:2])
        >>> lh.ranking.greedy(measured, 2)[0]
        [Head(1, 0), Head(0, 0)]
    """

    @typed(batch_size=8)
    def __init__(
        self,
        model: Model,
        trials: Iterable[AnyTrial] | AnyTrial,
        *,
        metric: str = "logprob",
        kind: str | Ablation = "zero",
        unit: Unit = "query_head",
        **options: Unpack[AblationRun],
    ) -> None:
        require_raw_weights(model)
        self.model, self.metric, self.shape = model, metric, head_geometry(model)
        self.unit: Unit = unit
        self.ablation, self.options = ablation_run(model, kind, options)
        if unit not in get_args(Unit):
            raise ValueError(f"unit={unit!r}: use {' or '.join(map(repr, get_args(Unit)))}")
        if unit == "kv_head":
            self.shape.check_kv_heads("unit='kv_head'")
        self.room = 0 if metric in FORCED_METRICS else self.options.max_new_tokens
        self.trials = encode_all(trials, model.tokenizer, self.shape.n_ctx, self.room, self.shape.d_vocab)
        self.ablation.check_spans(self.trials, room=self.room)
        check_metric(metric, self.trials, generate=self.room > 0)
        if metric not in CHOICE_METRICS:  # Scoring the choices would cost more than the answers.
            self.trials = without_choices(self.trials)
        check_reference(
            self.ablation.reference,
            made_on(self.trials),
            "trials that are measured",
            "compute it on a third, untouched split",
        )
        self.identity = identified(model, "measurements")
        self.settings = {**self.identity.settings, **self.ablation.settings, "unit": unit}
        self.settings |= {"trials_digest": trials_digest(self.trials), "max_new_tokens": self.room}
        self.folder = folder_for(model, self.options.out, self.settings)
        self.requested: set[bytes] = set()
        self._known: dict[bytes, Result] = {}
        self._blocks = together(self.trials, self.options.batch_size)
        self._kept: list[Prefilled | None] | None = None
        self._shared: Prefilled | None = None
        self._passes = {"run": 0, "all": 0}

    @property
    def units(self) -> tuple[int, int]:
        """The shape of one mask: layers, and heads or kv groups in each."""
        return self.shape.n_layers, self.shape.n_heads if self.unit == "query_head" else self.shape.n_kv_heads

    @property
    def there(self) -> Bool[np.ndarray, "layer head"]:
        """Where a mask has a head, or kv group, of the model."""
        return ~self.shape.holes_of(self.unit).numpy()

    @property
    def everyone(self) -> list[Head]:
        """All heads, or kv groups."""
        return self.shape.every_head(unit=self.unit)

    def table(self, values: np.ndarray, *, fill: Any = np.nan) -> np.ndarray:
        """What is known of all heads, in order along the last axis, as tables [..., layer, head]; `fill` where there is none."""
        found = np.full((*values.shape[:-1], *self.units), fill, dtype=values.dtype)
        found[..., self.there] = values
        return found

    @property
    def share_run(self) -> float:
        """NaN before anything is run, e.g. if all masks were stored."""
        return self._passes["run"] / self._passes["all"] if self._passes["all"] else math.nan

    @property
    def base(self) -> Float[np.ndarray, " trial"]:
        """The metric without ablation."""
        return self(np.zeros((1, *self.units), dtype=bool))[0]

    def __call__(self, masks: Bool[np.ndarray, "mask layer head"]) -> Float[np.ndarray, "mask trial"]:
        """The metric of every trial under every mask.

        If a mask's run fails, its row is NaN, with a warning; only a new `MaskedMetric` tries it again. If every new mask
        fails, the first error is raised.
        """
        masks = as_booleans(masks)
        if masks.ndim != 3 or masks.shape[1:] != self.units:
            raise ValueError(f"masks of shape {masks.shape} do not fit {self.shape.name}: must be [mask, {self.units}]")
        if has_hooks(self.model):
            raise ValueError(f"{self.shape.name} has hooks attached (an ablation?): remove them before measuring")
        check_owner(self.model, "what is known of masks was", self.identity, "make a new MaskedMetric", again=False)
        keys = [mask.tobytes() for mask in masks]
        self.requested |= set(keys)
        new = {key: mask for key, mask in zip(keys, masks, strict=True) if key not in self._known}
        results = engine.run(
            list(new.values()),
            self._measure,
            batch_size=lambda mask: min(self._at_once(), math.ceil(len(new) / SHARES)),
            key=lambda mask: f"mask {np.packbits(mask).tobytes().hex()}",
            folder=self.folder,
            progress=self.options.progress,
            description="ablating masks",
        )
        self._known |= dict(zip(new, results, strict=True))
        found = np.full((len(masks), len(self.trials)), np.nan)
        for row, key in zip(found, keys, strict=True):
            if self._known[key].keep:
                row[:] = self._known[key].arrays[self.metric].double().numpy()
        return found

    def heads(self, mask: Bool[np.ndarray, "layer head"]) -> list[Head]:
        """The query heads that a mask ablates."""
        by_head = mask if self.unit == "query_head" else np.repeat(mask, self.shape.group, axis=1)
        return [Head(int(layer), int(head)) for layer, head in np.argwhere(by_head)]

    def mask(self, heads: Sequence[Head]) -> Bool[np.ndarray, "layer head"]:
        """The mask that ablates these heads (kv heads, for masks of kv groups)."""
        found = np.zeros(self.units, dtype=bool)
        for head in heads:
            found[head.layer, head.head] = True
        return found

    def _measure(self, masks: list[Bool[np.ndarray, "layer head"]]) -> list[Result]:
        order, begins = self.ablation.ordered([self.heads(mask) for mask in masks], self.shape.n_layers)
        sets = [self.heads(masks[at]) for at in order]
        records: list[dict[str, dict[str, Any]]] = [{} for _ in sets]
        kept = self._prefilled()
        with ablate_each(self.model, sets, self.ablation):
            beginning = self._begin(begins)
            for block, filled in zip(self._blocks, kept, strict=True):
                results = answer_batch(self.model, block, self.room, filled=filled, begins=begins, beginning=beginning)
                for place, result in enumerate(results):
                    records[place // len(block)][block[place % len(block)].id] = result.record
        for begin in begins:
            self._count(begin, kept)
        found = {at: self._result(heads, record) for at, heads, record in zip(order, sets, records, strict=True)}
        return [found[at] for at in range(len(masks))]

    def _result(self, heads: list[Head], by_trial: dict[str, dict[str, Any]]) -> Result:
        """All metrics of all trials. ValueError for one that is not finite."""
        records = [by_trial[trial.id] for trial in self.trials]
        arrays = {
            name: torch.tensor([float(record[name]) for record in records])
            for name, value in records[0].items()
            if not isinstance(value, str) and all(name in record for record in records)
        }
        for name, values in arrays.items():  # All metrics, because a later call may ask for another one.
            bad = (~torch.isfinite(values)).nonzero()
            if len(bad):
                ablated = ", ".join(map(str, heads)) or "nothing"
                found = f"{name} of trial {self.trials[int(bad[0])].id} is not finite with {ablated} ablated"
                raise ValueError(f"{found}: load the model in float32 or bfloat16")
        return Result(arrays, {"heads": [str(head) for head in heads]})

    @torch.no_grad()
    def _begin(self, begins: list[int]) -> Cache | None:
        """The prefix that all prompts share, under the current ablation."""
        if self._shared is None or min(begins) >= self.shape.n_layers:
            return None
        with evaluating(self.model), fast_attention(self.model):
            return self._shared.replay(self.model, begins)

    def _at_once(self) -> int:
        """How many masks run side by side: as many as the largest block of trials allows, one if its prefill is not kept."""
        kept, shared = self._prefilled(), 0 if self._shared is None else self._shared.tokens.numel()
        if any(filled is None for filled in kept):
            return 1
        lengths = [len(block) * max(map(len, block)) for block in self._blocks]
        if self.ablation.late:
            return at_once(self.model, max(map(len, self._blocks)), max(lengths))
        rows = [filled.tokens.numel() for filled in kept if filled is not None]
        return at_once(self.model, max(shared, *rows), max(lengths))

    def _prefilled(self) -> list[Prefilled | None]:
        """Every block's unablated prefill; None for blocks that would exceed the memory limit."""
        if self._kept is None:
            same = all(len({len(trial) for trial in block}) == 1 for block in self._blocks)
            apart = self.ablation.spans > 0
            self._shared = shared_beginning(self.model, self.trials, apart) if same else None
            self._kept, used = [], 0
            for block in self._blocks:
                found = prefilled(self.model, block, self._shared, apart) if used < MOST_BYTES else None
                self._kept.append(found)
                used += found.bytes if found is not None else 0
        return self._kept

    def _count(self, lowest: int, kept: list[Prefilled | None]) -> None:
        """Add the work of one mask (tokens times layers), done and as plain forward passes would need it."""
        layers, above = self.shape.n_layers, self.shape.n_layers - lowest
        for block, filled in zip(self._blocks, kept, strict=True):
            tokens = sum(len(trial) - 1 for trial in block)
            self._passes["all"] += tokens * layers
            self._passes["run"] += tokens * layers if filled is None else filled.tokens.numel() * above
        if self._shared is not None:
            self._passes["run"] += self._shared.tokens.numel() * above
