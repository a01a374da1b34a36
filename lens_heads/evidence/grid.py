"""The grid: named sets of heads x tasks x trials under one ablation, each combination run once and stored separately.

Curves, transfer matrices, generality and validations of matches are views of its long table.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import pandas as pd

from lens_heads.answering.evaluation import METRICS, answer_batch, finite
from lens_heads.heads.conditions import BARE, HeadSet
from lens_heads.heads.grouping import labels
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.ablate import ablate_each
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.interventions.independence import check_independent
from lens_heads.interventions.replay import Prefilled, at_once, prefilled, together
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.identity import identified
from lens_heads.model.rope import batched
from lens_heads.model.run_folders import folder_for
from lens_heads.runs import engine
from lens_heads.runs.identity import ModelIdentity
from lens_heads.runs.options import Run
from lens_heads.runs.shards import Result
from lens_heads.runs.store import RunFolder
from lens_heads.runs.warned import users_line
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.digests import made_on, trials_digest
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial

Tasks = Mapping[str, Iterable[AnyTrial]]


@dataclass(frozen=True)
class GridUnit:
    """One trial of one task under one set of ablated heads.

    `block` is the number of the trials that it shares a prefill with, `together` how many units of the block run side by side.
    """

    task: str
    trial: EncodedTrial
    heads: tuple[Head, ...]
    block: int
    together: int

    @property
    def key(self) -> tuple[str, ...]:
        return self.task, self.trial.id, *(head.key for head in self.heads)


@dataclass(frozen=True, eq=False)
class Grid:
    """Tasks in tokens, and the ablation and options under which sets of heads run on them."""

    model: Model
    tasks: dict[str, list[EncodedTrial]]
    ablation: Ablation
    options: Run
    generate: bool = True

    @classmethod
    def of(cls, model: Model, tasks: Tasks, ablation: Ablation, options: Run, generate: bool = True) -> Grid:
        """Encode the trials of every task. ValueError naming the task at fault."""
        if not tasks:
            raise ValueError("there are no tasks: pass {name: trials}")
        shape, room = head_geometry(model), options.room(generate)
        encoded: dict[str, list[EncodedTrial]] = {}
        for name, trials in tasks.items():
            try:
                encoded[name] = encode_all(trials, model.tokenizer, shape.n_ctx, room, shape.d_vocab)
            except ValueError as error:
                raise ValueError(f"task {name!r}: {error}") from error
        ablated = [name for name in encoded if not name.endswith(BARE)]
        if ablation.spans and len(ablated) > 1:
            raise ValueError(
                f"spans or donors are given for each trial, but there are {len(ablated)} tasks ({', '.join(ablated)}): run each "
                "task with its own, or pass one span, 'needle' or 'last'"
            )
        _warn_of_shared({name: encoded[name] for name in ablated})
        for task in ablated:
            ablation.check_spans(encoded[task], room=room)
        return cls(model, encoded, ablation, options, generate)

    @property
    def trials(self) -> list[EncodedTrial]:
        """The trials of all tasks."""
        return [trial for trials in self.tasks.values() for trial in trials]

    @cached_property
    def identity(self) -> ModelIdentity:
        """The model that is measured."""
        return identified(self.model, "metrics")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What stored results depend on, except for the heads, which are in each result's key."""
        return {
            **self.identity.settings,
            **self.ablation.settings,
            "max_new_tokens": self.options.room(self.generate),
            "tasks": {name: trials_digest(trials) for name, trials in self.tasks.items()},
        }

    @cached_property
    def folder(self) -> RunFolder | None:
        """The run folder, if any. ValueError if it has different settings."""
        return folder_for(self.model, self.options.out, self.settings)

    def check_independent(self, rankings: Mapping[str, HeadScores]) -> None:
        """ValueError if rankings were made on any of the trials, or the reference comes from them."""
        check_independent(rankings, self.ablation.reference, made_on(self.trials))

    def run(self, sets: Sequence[HeadSet], start: int = 0, end: int | None = None) -> pd.DataFrame:
        """One row per set and trial: method, set, k, draw, heads, task, trial, group, answer, text, and the metrics.

        Conditions with the same heads share their runs. Of each task, the trials from `start` to `end` are run. A trial that
        fails is omitted, with a warning.
        """
        units = self._units(sets, start, end)
        last: dict[tuple[Any, ...], Prefilled | None] = {}

        def work(batch: list[GridUnit]) -> list[Result]:
            by_heads: dict[tuple[Head, ...], list[GridUnit]] = {}
            for unit in batch:
                by_heads.setdefault(unit.heads, []).append(unit)
            found: dict[tuple[str, ...], Result] = {}
            while by_heads:  # Once, unless a stopped run left sets with different trials.
                trials = [unit.trial for unit in next(iter(by_heads.values()))]
                alike = [heads for heads, mine in by_heads.items() if [unit.trial for unit in mine] == trials]
                some = [unit for heads in alike for unit in by_heads.pop(heads)]
                key = (batch[0].task, *(trial.id for trial in trials))  # Ids are unique within a task.
                if key not in last:
                    last.clear()  # Only one at a time, since they are large.
                    last[key] = prefilled(self.model, trials, apart=self.ablation.spans > 0)
                found |= self._ablated(trials, alike, some, last[key])
            return [found[unit.key] for unit in batch]

        results = engine.run(
            units,
            work,
            key=lambda unit: unit.key,
            group=lambda unit: (unit.task, unit.block),
            folder=self.folder,
            batch_size=lambda unit: unit.together,
            progress=self.options.progress,
            description="ablating",
        )
        return self._table(sets, units, results)

    def _ablated(
        self, trials: list[EncodedTrial], sets: list[tuple[Head, ...]], units: list[GridUnit], filled: Prefilled | None
    ) -> dict[tuple[str, ...], Result]:
        """Trials under sets of heads, side by side, by the keys of the units."""
        order, begins = self.ablation.ordered(sets, int(self.model.cfg.n_layers))
        ordered, room = [sets[at] for at in order], self.options.room(self.generate)
        with ablate_each(self.model, ordered, self.ablation):
            results = answer_batch(self.model, trials, room, filled=filled, begins=begins)
        finite(trials * len(sets), results)
        of = dict(zip(((heads, trial.id) for heads in ordered for trial in trials), results, strict=True))
        return {unit.key: of[unit.heads, unit.trial.id] for unit in units}

    def _units(self, sets: Sequence[HeadSet], start: int, end: int | None) -> list[GridUnit]:
        """Every trial under every distinct set of heads, once.

        All sets run on one block of trials before the next block, because they share its unablated prefill.
        """
        wanted: dict[tuple[str, tuple[Head, ...]], int] = {}
        for one in sets:
            for task in self.tasks if one.tasks is None else one.tasks:
                key = task, tuple(sorted(one.heads))
                wanted[key] = max(wanted.get(key, 0), self._most(one, task))
        units: list[GridUnit] = []
        for task, encoded in self.tasks.items():
            mine = {heads: most for (asked, heads), most in wanted.items() if asked == task}
            # No block has trials on both sides of where some sets end, so that each needs one prefill.
            ends = sorted({start, *(most for most in mine.values() if most > start), len(encoded[:end])})
            parts = [encoded[a : min(b, len(encoded[:end]))] for a, b in pairwise(ends)]
            blocks = [block for part in parts for block in together(part, batched(self.model, self.options.batch_size))]
            for number, block in enumerate(blocks):
                side_by_side = len(block) * self._at_once(block)  # Once a block: it looks at every parameter.
                units += [
                    GridUnit(task, trial, heads, number, side_by_side)
                    for heads, most in mine.items()
                    for trial in block
                    if self._places[task][trial.id] < most
                ]
        return units

    def _at_once(self, block: Sequence[EncodedTrial]) -> int:
        """How many sets of heads run side by side on these trials."""
        length = max(map(len, block))
        return at_once(self.model, len(block) * (1 if self.ablation.late else length), length)

    def _most(self, one: HeadSet, task: str) -> int:
        """How many of a task's trials a set runs on, counted from the first."""
        return len(self.tasks[task]) if one.trials is None else one.trials

    @cached_property
    def _places(self) -> dict[str, dict[str, int]]:
        """Each trial's place in its task."""
        return {task: {trial.id: place for place, trial in enumerate(trials)} for task, trials in self.tasks.items()}

    def _table(self, sets: Sequence[HeadSet], units: list[GridUnit], results: list[Result]) -> pd.DataFrame:
        """One row per condition and trial; heads that belong to several conditions appear in each."""
        found: dict[tuple[Head, ...], list[tuple[GridUnit, Result]]] = {}
        for unit, result in zip(units, results, strict=True):
            if result.keep:
                found.setdefault(unit.heads, []).append((unit, result))
        rows = [
            {"method": one.condition.method, "set": one.condition.set, "k": one.condition.k, "draw": one.draw}
            | {"heads": ",".join(map(str, one.heads)), "task": unit.task, "trial": unit.trial.id}
            | labels(unit.trial)
            | {"answer": unit.trial.answer, "text": str(result.record["text"])}
            | {name: float(result.record[name]) for name in METRICS if name in result.record}
            for one in sets
            for unit, result in found.get(tuple(sorted(one.heads)), [])
            if one.tasks is None or unit.task in one.tasks
            if self._places[unit.task][unit.trial.id] < self._most(one, unit.task)
        ]
        return pd.DataFrame(rows)


def _warn_of_shared(tasks: Mapping[str, list[EncodedTrial]]) -> None:
    """A warning of tasks with prompts in common, each of which says what the other does."""
    prompts = {name: {one.tokens.numpy().tobytes() for one in trials} for name, trials in tasks.items()}
    for one, other in combinations(prompts, 2):
        if both := len(prompts[one] & prompts[other]):
            warnings.warn(
                f"tasks {one!r} and {other!r} have {both} prompts in common, which count for both: give each task its own trials",
                stacklevel=users_line(),
            )
