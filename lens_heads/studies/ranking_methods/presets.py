"""What the methods are compared on: sizes, and tasks with their material."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

from lens_heads import tasks
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.ranking.material import Material
from lens_heads.runs import checks
from lens_heads.studies.presets import read_presets
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.exchanges import ask_twice
from lens_heads.trials.pairs import make_pairs


@dataclass(frozen=True)
class Preset:
    """One size of the table.

    Trials: `select` rank the heads, `calibrate` more give the means that replace ablated heads, `test` judge every ranking (the
    first `pairs` of them by faithfulness), `other` those of the task that should not suffer.

    `ks`: numbers of heads to ablate; `k`, one of them, is the table's. `masks`: random masks of methods that draw some.
    `searched`: a method that needs more passes than this is left out. `draws`: random sets of heads, on the first `few`
    trials; `kept_draws` of them for faithfulness. `rerun`: of the methods whose trials cannot be halved, those that run
    twice more, for stability. `planted`: models with planted heads.
    """

    select: int = 6
    calibrate: int = 6
    test: int = 12
    pairs: int = 8
    other: int = 8
    ks: tuple[int, ...] = (1, 2, 5, 12)
    k: int = 5
    masks: int = 80
    searched: int = 150
    draws: int = 20
    few: int = 6
    kept_draws: int = 5
    rerun: tuple[str, ...] = ()
    planted: int = 5
    batch_size: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        checks.whole_fields(self, select=2, calibrate=1, test=5, pairs=5, other=5, masks=20, draws=2, few=5)
        checks.whole_fields(self, kept_draws=2, searched=0, planted=0, batch_size=1, seed=0)
        checks.whole_numbers("ks", self.ks)
        if self.k not in self.ks:
            raise ValueError(f"k={self.k} is none of ks={self.ks}: the table shows one of them")


PRESETS = read_presets(__name__, Preset)
"""`quick` leaves out whatever takes more than 40 passes, `default` more than 150; `thorough` takes hours."""


METRIC, CHOICE = "logprob", "choice_margin"


@dataclass(frozen=True)
class Setup:
    """A task of the table: its name, its arguments, its corruption, the other task that shows specificity, and its metric.

    `corruption`: as in `make_pairs`; None for a task without pairs. `spare`: how many times the wanted trials are loaded, since
    those without a counterfactual of their length are left out.
    """

    task: str
    arguments: dict[str, Any]
    corruption: str | None = "counterfactual"
    other: str = "arithmetic"
    spare: float = 1.0
    metric: str = METRIC

    def load(self, model: Model, split: str, n: int) -> tuple[list[EncodedTrial], list[EncodedTrial]]:
        """The first n trials of a split, in tokens, and their pairs. ValueError if there are fewer."""
        given = {"n": round(self.spare * n), "split": split, **self.arguments}
        known = tasks.arguments_of(self.task)
        listed = tasks.load(self.task, **{name: value for name, value in given.items() if name in known})
        if ask_twice(listed):  # A liking for a name is right under one of its passage's two questions.
            listed = [one for pair in zip(listed, tasks.exchange_questions(listed), strict=True) for one in pair]
        shape = head_geometry(model)
        trials = encode_all(listed, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
        pairs: list[EncodedTrial] = []
        if self.corruption is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # Trials without a pair are left out on purpose.
                pairs = make_pairs(trials, model.tokenizer, shape, corruption=self.corruption)
            paired = {pair.id for pair in pairs}
            trials = [trial for trial in trials if trial.id in paired]
        if len(trials) < n:
            raise ValueError(
                f"task {self.task!r} has only {len(trials)} of {n} {split} trials that make a pair in {shape.name}'s tokens: "
                "use fewer"
            )
        return trials[:n], pairs[:n]


_PASSAGES = {"context_length": 280}
SETUPS: dict[str, Setup] = {
    "retrieval": Setup("packaged", _PASSAGES, "remove"),
    "ioi": Setup("ioi", {}, spare=5.0),
    "arithmetic": Setup("arithmetic", {"digits": 1}, other="capitals"),
    "induction": Setup("induction", {}, spare=1.5),
    "capitals": Setup("capitals", {}, spare=1.4),
    "copy_colors": Setup("copy_colors", {}),
    "greater_than": Setup("greater_than", {}, metric=CHOICE),
    "choice": Setup("packaged", {**_PASSAGES, "distractors": 1, "questions": "direct"}, metric=CHOICE),
}
"""The tasks that are set up by name. Any other task with two halves runs with its default arguments."""


def setup_of(name: str, arguments: dict[str, Any] | None = None) -> Setup:
    """The set-up of a task, with further arguments. ValueError for an unknown task, and for one without two halves."""
    if name not in {*SETUPS, *tasks.TASKS}:
        raise ValueError(f"unknown task {name!r}: use {', '.join(dict.fromkeys([*SETUPS, *tasks.HALVES]))}")
    known = tasks.arguments_of(SETUPS[name].task if name in SETUPS else name)
    wrong = next((given for given in arguments or {} if given not in known), None)
    if wrong is not None:
        raise ValueError(f"task {name!r} has no argument {wrong!r}; its arguments are {', '.join(known)}")
    if name in SETUPS:
        found = SETUPS[name]
        found = replace(found, arguments={**found.arguments, **(arguments or {})})
        if arguments:  # What they refuse shows now, not after the models with planted heads.
            tasks.load(found.task, **{"n": 2, **tasks.to_select(found.task), **found.arguments})
        return found
    if name in tasks.TASKS and name not in tasks.HALVES:
        raise ValueError(
            f"task {name!r} has no halves, so heads cannot be selected on other trials than they are judged on: use "
            f"{', '.join(dict.fromkeys([*SETUPS, *tasks.HALVES]))}"
        )
    if name in tasks.OF_DOCUMENTS:
        raise ValueError(f"task {name!r} makes document trials, and this table judges answers: use lh.score_documents")
    sample = tasks.load(name, **{"n": 2, **tasks.to_select(name), **(arguments or {})})[0]
    corruption = "counterfactual" if sample.corrupt else "remove" if sample.needle else None
    return Setup(name, arguments or {}, corruption)


def gather(model: Model, setup: Setup, select: int, calibrate: int, **more: Any) -> Material:
    """The material of a task: its first `select` selection trials, and the next `calibrate` as others."""
    checks.whole_number("select", select, 2)
    trials, pairs = setup.load(model, "select", select + calibrate)
    found = Material.of(model, trials[:select], pairs[:select], trials[select:], **more)
    _ = found.reference  # Now, since it is no method's cost.
    return found
