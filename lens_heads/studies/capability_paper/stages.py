"""The stages that find heads. Each is a function whose runs are stored, so that a study can continue."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.independence import check_made_on
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.ranking.masks.localize import DESIGNED, localize
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.ranking.masks.sparse_fit import NothingToExplain
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.runs.warned import users_line
from lens_heads.sanity.answers import permuted_answers
from lens_heads.studies.capability_paper.capabilities import Capability
from lens_heads.studies.capability_paper.presets import LEAD, PASS, Preset
from lens_heads.trials.digests import made_on
from lens_heads.trials.encoding import encode_all
from lens_heads.trials.trial import Trial

Repeated = dict[str, list[HeadScores]]
"""By capability: the scores by each draw of masks."""
Trials = Mapping[str, Sequence[Trial]]


def kin_of(name: str) -> str:
    """The name of a capability's other data in tables, and of the heads found on it."""
    return f"{name}, other data"


def owner(task: str) -> str:
    """The capability that a task, or other data, belongs to."""
    return task.removesuffix(kin_of(""))


@dataclass(frozen=True)
class Asked:
    """The trials by task: those that find heads, and those that test them (capabilities, general tasks, other data)."""

    selection: Trials
    evaluation: Trials
    kin: Trials

    @classmethod
    def of(cls, plan: Preset) -> Asked:
        """Load the trials of a preset, after the negative control if it is one of trials."""
        chosen, heads = plan.capabilities.items(), plan.localized.items()
        selection = {name: one.trials(one.select, plan.n_select) for name, one in chosen if one.select}
        if plan.kin_draws:
            back = {kin_of(name): one.trials(one.kin_select, plan.n_select) for name, one in heads if one.kin_select}
            selection |= back
        evaluation = {name: one.trials(one.test, plan.most_trials) for name, one in chosen}
        kin = {kin_of(name): one.trials(one.kin, plan.most_trials) for name, one in heads if one.kin}
        if plan.control == "permuted_answers":
            evaluation, kin = ({task: permuted_answers(of) for task, of in part.items()} for part in (evaluation, kin))
        return cls(selection, evaluation, kin)  # type: ignore[arg-type]  # permuted text stays text

    @property
    def tests(self) -> dict[str, Sequence[Trial]]:
        """All that heads are ablated on."""
        return {**self.evaluation, **self.kin}


@dataclass(frozen=True, eq=False)
class Bench:
    """What the stages share: the model, the preset, the trials, and the model's folder."""

    model: Model
    plan: Preset
    asked: Asked
    out: Path

    def capability(self, task: str) -> Capability:
        """The capability that a task, or other data, belongs to."""
        return self.plan.capabilities[owner(task)]

    def running(self, task: str, *folder: str) -> dict[str, Any]:
        """Run options for a task."""
        room, out = self.capability(task).max_new_tokens, self.out.joinpath(*folder, task.replace(", ", "-"))
        return {"max_new_tokens": room, "batch_size": self.plan.batch_size, "out": out}

    def masked(self, task: str) -> MaskedMetric:
        """A capability's metric with any set of heads ablated. All methods share its run folder."""
        one, trials = self.capability(task), self.asked.selection[task]
        return MaskedMetric(self.model, trials, one.metric, self.plan.kind, **self.running(task, "masks"))

    def located(self, measured: MaskedMetric, method: str, task: str, draw: int = 0) -> HeadScores:
        """A capability's heads by a method, by a draw of its masks."""
        plan, seed = self.plan, self.plan.mask_seed(owner(task), draw, kin=task != owner(task))
        return localize(measured, method=method, n_masks=plan.n_masks, sparsity=plan.sparsity, k=plan.k, seed=seed)


def check_trials(bench: Bench) -> None:
    """Raise ValueError, before anything is run, for prompts that exceed the context and trials that both find and test heads."""
    model, shape = bench.model, head_geometry(bench.model)

    def encoded(task: str, trials: Sequence[Trial]) -> list[Any]:
        return encode_all(trials, model.tokenizer, shape.n_ctx, bench.capability(task).max_new_tokens, shape.d_vocab)

    chosen_on = {name: made_on(encoded(name, trials)) for name, trials in bench.asked.selection.items()}
    for task, trials in bench.asked.tests.items():
        tested = made_on(encoded(task, trials))
        for name, chosen in chosen_on.items():
            check_made_on(name, chosen, tested)


def localized(bench: Bench, task: str) -> list[HeadScores] | str:
    """A capability's heads by every draw of masks, or why it has none: nothing changes its metric, or too many runs failed."""
    measured, found, reason = bench.masked(task), [], ""
    for draw in range(bench.plan.mask_draws if task == owner(task) else bench.plan.kin_draws):
        try:
            found.append(bench.located(measured, LEAD, task, draw))
        except (NothingToExplain, RuntimeError) as error:
            reason = str(error)
            continue
        found[-1].save(bench.out / "scores" / f"{task.replace(', ', '-')}-{draw}.json")
    return found or reason


def affordable(plan: Preset, heads: int, needles: bool) -> list[str]:
    """The preset's methods that stay within its number of evaluations; the single-pass method also requires needles."""
    cost = {"one_shot": heads, "greedy": sum(heads - added for added in range(plan.k)), PASS: 0}
    cost |= dict.fromkeys(DESIGNED, plan.n_masks)
    allowed = [name for name in plan.methods if name == LEAD or cost[name] <= plan.most_evaluations]
    return [name for name in allowed if name != PASS or needles]


def by_method(bench: Bench, methods: Sequence[str]) -> Repeated:
    """The heads of one capability by every other method that uses masks, from the same trials and shared masks.

    A method that fails is skipped with a warning.
    """
    name, found = bench.plan.compared, {}
    measured = bench.masked(name)
    for method in methods:
        if method in (LEAD, PASS):
            continue
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "(?s).*(masks repeat another|greedy search stopped)", UserWarning)
                found[method] = [bench.located(measured, method, name)]
        except (ValueError, RuntimeError) as error:
            warnings.warn(f"{method} is skipped: {error}", stacklevel=users_line())
    return found


def by_pass(bench: Bench) -> HeadScores:
    """The heads that write the answer and read it from the needle, from one pass over each trial."""
    options: dict[str, Any] = {"teacher_forced": True, "batch_size": bench.plan.batch_size, "out": bench.out / PASS}
    return score_heads(bench.model, bench.asked.selection[bench.plan.compared], [PASS], **options)[PASS]
