"""Presets of the LOCOS study: which trials it uses, and how many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lens_heads.ablation.conditions import CONTROLS
from lens_heads.runs import checks
from lens_heads.scoring.scorers import SCORERS
from lens_heads.studies.calls import TaskCall, described, trials_of
from lens_heads.trials.trial import Trial

HEADLINE = 50 / (36 * 32)
"""The paper's headline result ablates 50 of Qwen3-8B's 36 x 32 heads; other models lose the same share."""

TASK = "retrieval"
"""The name of the test trials in tables."""

FACTORIAL = ("locos", "dla", "attention_spatial", "attention_mass")
"""RQ2: with and without the OV circuit, with and without the spatial contrast."""

ATTENTION = ("attention_spatial", "attention_mass", "copy", "contrastive", "headkv")
"""The baselines: methods that use attention alone."""


@dataclass(frozen=True)
class Preset:
    """One size of the study.

    Trials: `select` finds heads and `test` ablates them; the tasks of `spared` should not suffer (RQ4), those of `downstream`
    should (RQ5). Without `downstream`, texts are judged on the test trials alone. `calibrate` trials give the means of mean
    ablation. `teacher_forced` scores gold answers, for models that cannot answer.

    Ablation: `ks` and `controls` are as in `ablation_curve`, `seeds` is the number of random draws. `k` is the headline's
    number of heads; None takes the paper's share of heads. `judge_text_everywhere` judges text under every ablation, not only
    at the headline k. `exclusive` also ablates the heads that only one of two methods finds. `exact` also scores LOCOS with
    the exact read-out.

    Further stages: `cri_trials` test trials are patched; `recovery_trials` are ablated and restored, with `recovery_draws`
    random controls; `read_heads` heads are inspected. 0 skips the stage.
    """

    select: TaskCall
    test: TaskCall
    spared: dict[str, TaskCall]
    downstream: dict[str, TaskCall]
    ks: tuple[int, ...]
    seeds: int = 3
    methods: tuple[str, ...] = tuple(SCORERS)
    ablated: tuple[str, ...] = tuple(SCORERS)
    calibrate: int = 50
    kind: str = "mean"
    judge_text_everywhere: bool = False
    max_new_tokens: int = 8
    detect_new_tokens: int = 12
    batch_size: int = 8
    cri_trials: int = 12
    recovery_trials: int = 6
    recovery_draws: int = 20
    read_heads: int = 10
    teacher_forced: bool = False
    only_flipped: bool = True
    exact: bool = True
    exclusive: bool = True
    controls: tuple[str, ...] = CONTROLS
    k: int | None = None

    def __post_init__(self) -> None:
        checks.whole_fields(self, seeds=0, calibrate=1, max_new_tokens=1, detect_new_tokens=1, batch_size=1)
        checks.whole_fields(self, cri_trials=0, recovery_trials=0, recovery_draws=0, read_heads=0)
        checks.whole_numbers("ks", self.ks)
        if self.k is not None:
            checks.whole_number("k", self.k, remedy=", or None for the paper's share of heads")

    def trials(self, call: TaskCall) -> list[Trial]:
        """The trials of one of the calls."""
        return trials_of(call)

    def described(self) -> dict[str, str]:
        """Every task's call, in short."""
        calls = {TASK: self.test, **self.spared, **self.downstream}
        return {task: described(call) for task, call in calls.items()}

    def headline_k(self, heads: int) -> int:
        """The headline's number of heads in a model with this many."""
        return max(1, round(HEADLINE * heads)) if self.k is None else min(self.k, heads)


def _packaged(select: int, test: int, spared: int, downstream: int, context_length: int, **more: Any) -> Preset:
    return Preset(
        select=("packaged", {"split": "select", "n": select, "context_length": context_length, "seed": 0}),
        test=("packaged", {"split": "test", "n": test, "context_length": context_length, "seed": 1}),
        spared={"parametric": ("parametric", {"n": spared}), "arithmetic": ("arithmetic", {"n": spared, "digits": 1})},
        downstream={
            "musique": ("musique", {"n": downstream, "split": "test"}),
            "babilong": ("babilong", {"n": downstream, "task": "qa1"}),
        },
        **more,
    )


def _nolima(preset: str) -> Preset:
    return Preset(
        select=("nolima", {"preset": preset}),
        test=("nolima", {"preset": "evaluation"}),
        spared={
            "parametric": ("parametric", {"n": 200}),
            "popqa": ("parametric", {"source": "popqa", "n": 500}),
            "arithmetic": ("arithmetic", {"n": 200}),
        },
        downstream={
            "musique": ("musique", {"source": "hub", "n": 500}),
            "babilong": ("babilong", {"source": "hub", "task": "qa2", "config": "4k"}),
        },
        ks=(1, 5, 10, 20, 50, 100),
        judge_text_everywhere=True,
        max_new_tokens=100,
        detect_new_tokens=50,
        cri_trials=100,
        recovery_trials=100,
        read_heads=50,
    )


def _demo(select: int, test: int, spared: int, context_length: int, **more: Any) -> Preset:
    """The first part of the study: which heads, and what ablating them costs compared with controls."""
    skipped: dict[str, Any] = dict(
        downstream={}, cri_trials=0, recovery_trials=0, read_heads=0, exact=False, exclusive=False
    )
    return replace(_packaged(select, test, spared, 0, context_length, **more), **skipped, k=5)


_FEW = ("bottom", "random")
PRESETS: dict[str, Preset] = {
    "demo-quick": _demo(8, 6, 4, 320, ks=(1, 5), ablated=("locos", "copy"), calibrate=6, controls=_FEW),
    "demo": _demo(
        28, 12, 6, 320, ks=(1, 5, 20), ablated=("locos", "attention_spatial", "copy"), calibrate=12, controls=_FEW
    ),
    "demo-full": _demo(100, 100, 50, 400, ks=(1, 2, 5, 10, 20), judge_text_everywhere=True),
    "packaged": _packaged(20, 12, 12, 14, 320, ks=(1, 3, 6, 12), recovery_trials=12),
    "quick": replace(
        _packaged(6, 5, 3, 3, 280, ks=(1,), seeds=2, ablated=(*FACTORIAL, "copy")),
        cri_trials=3,
        recovery_trials=2,
        recovery_draws=3,
    ),
    "paper": _nolima("paper"),
    "scripts": _nolima("scripts"),
}
"""`lens-heads demo` runs the demo presets: detection, ablation and judged texts. `packaged` and `quick` need no download and
suit models with a few hundred million parameters. `paper` and `scripts` are the paper's grids, as documented and as run by
its job scripts, on NoLiMa, PopQA, MuSiQue and BABILong from the hub."""
