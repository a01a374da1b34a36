"""How large the study is and which trials it uses, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lens_heads import tasks
from lens_heads.ablation.conditions import CONTROLS
from lens_heads.scoring.scorers import SCORERS
from lens_heads.studies.calls import TaskCall, described
from lens_heads.trials.trial import Trial

HEADLINE = 50 / (36 * 32)
"""The paper's headline ablates 50 of Qwen3-8B's 36 x 32 heads; other models lose the same share."""

TASK = "retrieval"
"""What the test trials are called in tables."""

FACTORIAL = ("locos", "dla", "attention_spatial", "attention_mass")
"""RQ2: with and without the OV circuit, with and without the spatial contrast."""

ATTENTION = ("attention_spatial", "attention_mass", "copy", "contrastive", "headkv")
"""The methods that look at attention alone: the baselines."""


@dataclass(frozen=True)
class Preset:
    """One size of the study.

    `select` finds the heads, `test` evaluates them; `spared` are tasks that should not suffer (RQ4), `downstream` ones that
    should (RQ5). `ks` and `seeds` are as in `ablation_curve`. `judge_text_everywhere`: decode and judge under every
    ablation instead of at the headline k alone. `cri_trials` test trials are patched, `recovery_trials` test trials
    ablated and mended with `recovery_draws` random controls, `read_heads` heads looked into; none leaves the stage out.
    Without `downstream` tasks texts are judged on the test trials alone. `teacher_forced` takes gold answers for detection,
    for models that answer nothing. `exact`: score LOCOS by the exact read-out too. `exclusive`: ablate the heads that only one of two methods
    finds. `k`: the headline's number of heads, None
    for as large a share as the paper's.
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

    def trials(self, call: TaskCall) -> list[Trial]:
        """The trials of one of the calls."""
        name, arguments = call
        return tasks.load(name, **arguments)

    def described(self) -> dict[str, str]:
        """What is asked in each task, in a few words."""
        calls = {TASK: self.test, **self.spared, **self.downstream}
        return {task: described(call) for task, call in calls.items()}

    def headline_k(self, heads: int) -> int:
        """As large a share of the model's heads as the paper's 50 are of Qwen3-8B's, at least one."""
        return max(1, round(HEADLINE * heads)) if self.k is None else min(self.k, heads)


def _packaged(select: int, test: int, spared: int, downstream: int, context_length: int, **more: Any) -> Preset:
    return Preset(
        select=("packaged", {"split": "select", "n": select, "context_length": context_length, "seed": 0}),
        test=("packaged", {"split": "test", "n": test, "context_length": context_length, "seed": 1}),
        spared={
            "parametric": ("parametric", {"n": spared}),
            "arithmetic": ("arithmetic", {"n": spared, "digits": 1}),
        },
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
    """The first part of the argument: which heads, and what ablating them costs beside controls."""
    return replace(
        _packaged(select, test, spared, 0, context_length, **more),
        downstream={},
        cri_trials=0,
        recovery_trials=0,
        read_heads=0,
        exact=False,
        exclusive=False,
        k=5,
    )


PRESETS: dict[str, Preset] = {
    "demo-quick": _demo(8, 6, 4, 320, ks=(1, 5), ablated=("locos", "copy"), calibrate=6, controls=("bottom", "random")),
    "demo": _demo(
        28,
        12,
        6,
        320,
        ks=(1, 5, 10),
        ablated=("locos", "attention_spatial", "copy"),
        calibrate=12,
        controls=("bottom", "random"),
    ),
    "demo-full": _demo(100, 100, 50, 400, ks=(1, 2, 5, 10, 20), judge_text_everywhere=True),
    "packaged": _packaged(20, 12, 12, 14, 320, ks=(1, 3, 6, 12), recovery_trials=12),
    "quick": _packaged(
        6,
        5,
        3,
        3,
        280,
        ks=(1,),
        seeds=2,
        ablated=(*FACTORIAL, "copy"),
        cri_trials=3,
        recovery_trials=2,
        recovery_draws=3,
    ),
    "paper": _nolima("paper"),
    "scripts": _nolima("scripts"),
}
"""`demo` is what `lens-heads demo` runs: detection, ablation and judged texts. `packaged` needs no download
and suits models of some hundred million parameters; `paper` and `scripts` are the grids of
the paper as documented and as its job scripts ran, on NoLiMa, PopQA, MuSiQue and BABILong from the hub."""
