"""Presets of the study of fragile tasks: which reports, how many of them, and how many heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lens_heads.answering.evaluation import FORCED_METRICS, METRICS
from lens_heads.runs import checks
from lens_heads.stats import Precision
from lens_heads.studies.presets import read_presets
from lens_heads.tasks.sec10k.settings import settings

HEADS = 32 * 32
"""Llama-3.1-8B has 1,024 heads, of which the paper's `ks` are; with `relative_k` other models lose the same share."""

METRIC = "logprob"
"""What every claim is judged by: nats per answer token."""

TASKS = tuple(settings()["tasks"])
FRAGILE_NEGATIVES = (None, "random_initialised", "exchanged_needles", "permuted_answers")


@dataclass(frozen=True)
class Preset:
    """One size of the study.

    `documents` are arguments of `sec10k_documents`, whose "select" companies serve to detect heads; `trials` are arguments of
    `sec10k`, whose "test" companies serve to ablate them. n in either is per task. `ks` are numbers of heads: out of 1,024, or
    of any model as they are if not `relative_k`. At `headline_k` claims are judged and heads compared with their partners in
    the other model.

    The matrix has `random_draws` random sets on all trials at every k. The headline has `random_sets` on the first
    `random_trials` of all tasks' trials; with `layer_matched`, also as many with the layers of the pooled ranking's heads;
    its trials end, not before these, at a half-width of `precision` nats, at `max_trials`, or with the trials. Beside
    log-probability, `right` is measured. `generate` decodes `max_new_tokens` and judges the text. Recovery takes
    `recovery_trials` trials per task: with `flipped` those of them that ablation turns from right to wrong; with `fair`,
    controls are also ablated themselves. `control` names a negative control (`lens_heads.sanity`) in which no claim may
    hold.

    Raises ValueError for a `headline_k`, `lead`, `right` or `control` that the other settings do not provide.
    """

    documents: dict[str, Any]
    trials: dict[str, Any]
    ks: tuple[int, ...] = (8, 16, 32, 48, 64, 96, 128)
    headline_k: int = 64
    relative_k: bool = True
    random_draws: int = 5
    random_sets: int = 40
    random_trials: int = 20
    layer_matched: bool = False
    methods: tuple[str, ...] = ("qr", "core", "summed_attention")
    lead: str = "qr"
    kind: str = "zero"
    right: str = "correct"
    generate: bool = True
    max_new_tokens: int = 30
    batch_size: int = 6
    recovery_trials: int = 50
    recovery_draws: int = 20
    flipped: bool = False
    fair: bool = False
    match_texts: int = 16
    tasks: tuple[str, ...] = TASKS
    precision: float = 0.25
    max_trials: int | None = None
    control: str | None = None

    def __post_init__(self) -> None:
        checks.whole_fields(self, random_draws=1, random_sets=1, random_trials=1, max_new_tokens=1, batch_size=1)
        checks.whole_fields(self, headline_k=1, recovery_trials=1, recovery_draws=1, match_texts=2)
        checks.whole_numbers("ks", self.ks)
        Precision(self.precision, 1 if self.max_trials is None else self.max_trials)
        measured = METRICS if self.generate else FORCED_METRICS
        known = {"headline_k": self.ks, "lead": self.methods, "right": measured, "control": FRAGILE_NEGATIVES}
        for name, among in known.items():
            if getattr(self, name) not in among:
                why = f" is not measured with generate={self.generate}" if among is measured else ""
                raise ValueError(f"{name}={getattr(self, name)!r}{why}: use one of {', '.join(map(str, among))}")

    @property
    def foreign(self) -> tuple[str, ...]:
        """The first method besides the lead, if there is one."""
        return tuple(name for name in self.methods if name != self.lead)[:1]

    def by_task(self, made: Callable[..., list[Any]], arguments: dict[str, Any], split: str) -> dict[str, list[Any]]:
        """The trials of every task, made by `sec10k` or `sec10k_documents`."""
        n = None if arguments.get("n") is None else arguments["n"] * len(self.tasks)
        trials = made(**{**arguments, "task": self.tasks, "split": split, "n": n})
        return split_by_task(trials, self.tasks)

    def stops(self, trials: int) -> Precision:
        """When the headline stops adding trials, of so many: not before the random sets have had theirs."""
        most = self.max_trials or trials
        return Precision(self.precision, most, block=max(Precision.block, self.random_trials))

    def size(self, k: int, heads: int) -> int:
        """How many of a model's heads k stands for, at least one: the same share as of 1,024, or k itself."""
        return max(1, round(k * heads / HEADS)) if self.relative_k else min(k, heads)

    def sizes(self, heads: int) -> dict[int, int]:
        """Numbers of heads in this model, with the first of `ks` that each stands for."""
        found: dict[int, int] = {}
        for k in self.ks:
            found.setdefault(self.size(k, heads), k)
        return found

    def words(self) -> dict[str, Any]:
        """What fills the texts of the claims."""
        unit = " of 1,024 heads" if self.relative_k else " heads"
        each = self.trials.get("n")
        every = "all" if each is None else each * len(self.tasks)
        recovered = self.recovery_trials if each is None else min(each, self.recovery_trials)
        return {
            **{
                name: getattr(self, name) for name in ("random_draws", "random_sets", "random_trials", "recovery_draws")
            },
            "headline": f"{self.headline_k}{unit}",
            "ks": f"{', '.join(map(str, self.ks))}{unit}",
            "tasks": len(self.tasks),
            "trials": every,
            "recovered": recovered * len(self.tasks),
            "which": "trials that ablation turns from right to wrong" if self.flipped else "trials",
        }


def split_by_task(trials: list[Any], tasks: tuple[str, ...]) -> dict[str, list[Any]]:
    """The trials of every task, in the order given."""
    return {task: [trial for trial in trials if trial.meta["task"] == task] for task in tasks}


PRESETS = read_presets(__name__, Preset)
"""All but `paper` need no download and suit models with a few hundred million parameters: short excerpts of synthetic reports,
judged by the answer's log-probability and by whether greedy decoding starts with the answer. `quick` is a trial run on four
tasks, in which too few random sets are drawn for claims to hold; `packaged` takes minutes, `thorough` hours; in the `negative`
ones nothing is to be found. `paper` has the paper's sizes, on real filings; it takes 20 chunks besides the section that states
the fact, because a whole filing exceeds a context of 32,768 tokens."""


def on_reports(found: Preset, name: str, path: str | None) -> Preset:
    """The preset of this name on the reports at `path`. Raises ValueError for "paper" without a path."""
    if path is not None:
        return replace(found, documents={**found.documents, "path": path}, trials={**found.trials, "path": path})
    if name == "paper":
        raise ValueError(
            "preset='paper' needs real filings: pass path=, a folder or .zip of edgar-crawler's JSON files"
        )
    return found
