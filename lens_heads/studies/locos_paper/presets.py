"""How large the study is and which trials it uses, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lens_heads import tasks
from lens_heads.ablation.curves import MAIN_TASK
from lens_heads.scoring.scorers import SCORERS
from lens_heads.studies.running import TaskCall, described
from lens_heads.trials.trial import Trial

HEADLINE = 50 / (36 * 32)
"""The paper's headline ablates 50 of Qwen3-8B's 36 x 32 heads; other models lose the same share."""

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
    ablated and mended with `recovery_draws` random controls. `teacher_forced` takes gold answers for detection, for models
    that answer nothing.
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

    def trials(self, call: TaskCall) -> list[Trial]:
        """The trials of one of the calls."""
        name, arguments = call
        return tasks.load(name, **arguments)

    def described(self) -> dict[str, str]:
        """What is asked in each task, in a few words."""
        calls = {MAIN_TASK: self.test, **self.spared, **self.downstream}
        return {task: described(call) for task, call in calls.items()}

    def headline_k(self, heads: int) -> int:
        """As large a share of the model's heads as the paper's 50 are of Qwen3-8B's, at least one."""
        return max(1, round(HEADLINE * heads))


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


PRESETS: dict[str, Preset] = {
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
"""`packaged` needs no download and suits models of some hundred million parameters; `paper` and `scripts` are the grids of
the paper as documented and as its job scripts ran, on NoLiMa, PopQA, MuSiQue and BABILong from the hub."""


def preset(which: str | Preset) -> Preset:
    """The preset by name, or one's own. ValueError for an unknown name."""
    if isinstance(which, Preset):
        return which
    if which not in PRESETS:
        raise ValueError(f"preset={which!r}: use {', '.join(PRESETS)}, or a Preset")
    return PRESETS[which]
