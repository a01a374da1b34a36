"""Presets of the LOCOS study: which trials it uses, and how many."""

from __future__ import annotations

from dataclasses import dataclass, field

from lens_heads import sanity
from lens_heads.heads.controls import CONTROLS
from lens_heads.ranking.one_pass.scorers import SCORERS
from lens_heads.runs import checks
from lens_heads.stats import Precision
from lens_heads.studies.presets import TaskCall, described, read_presets, trials_of
from lens_heads.trials.trial import Trial

HEADLINE = 50 / (36 * 32)
"""The paper's headline result ablates 50 of Qwen3-8B's 36 x 32 heads; other models lose the same share."""

CONTROLLED = ("random_initialised", "exchanged_needles", "permuted_answers")
"""Negative controls: of the model, and of the test trials."""

TASK = "retrieval"
"""The name of the test trials in tables."""

FACTORIAL = ("locos", "dla", "attention_spatial", "attention_mass")
"""RQ2: with and without the OV circuit, with and without the spatial contrast."""

PARTS = ("dla", "attention_spatial", "attention_spatial_no_sink", "attention_mass")
"""What LOCOS is compared with in RQ2: its parts, and attention without the sink."""

ATTENTION = ("attention_spatial", "attention_spatial_no_sink", "attention_mass", "copy", "contrastive", "headkv")
"""The baselines: methods that use attention alone."""

HEADLINE_METHODS = ("locos", "locos_exact", *PARTS)
"""What the headline ablates besides the best baseline and the rivals."""

RIVALS = ("one_shot", "patching")
"""Rankings that take a run per head and trial: every head ablated alone, and every head patched."""


@dataclass(frozen=True)
class Preset:
    """One size of the study.

    Trials: `select` finds heads, chooses k and the best baseline (on its first `choose` trials); `test` ablates heads. The
    tasks of `spared` should not suffer (RQ4), those of `downstream` should (RQ5). `calibration` names the prompts whose means
    replace ablated activations on a task, without the task's own trials; tasks without take those of `select`. `calibrate`:
    how many.
    `teacher_forced` scores gold answers, for models that cannot answer.

    Headline: at one k, LOCOS, its parts and the best baseline on test trials, until the interval of LOCOS's cost has the
    half-width `precision` (nats) or `max_trials` ran; beside `draws` uniform and as many layer-matched sets of random heads on
    the first `few` trials (`few_others` on other tasks). `k`: "half" (claims.json), "share" (the paper's), or a number.

    On `rivals` selection trials every head is also ablated alone and patched; both rankings join headline and curve.

    Curve: `ablated` methods at every k of `ks`, on `curve_trials` trials, with `controls` and `seeds` random draws.
    `exclusive` also ablates the heads that only one of two methods finds. Texts: `text_trials` answers are decoded and judged
    with no heads and with LOCOS's ablated; `judge_text_everywhere` decodes on the curve, too.

    Further stages: `cri_trials` test trials are patched; `recovery_trials` are ablated and restored, with `recovery_draws`
    random controls; `read_heads` heads are inspected. 0 skips the stage.

    `control`: a negative control in place of the experiment, after which nothing may hold: "random_initialised" (an untrained
    model), "exchanged_needles" or "permuted_answers" (test trials).
    """

    select: TaskCall
    test: TaskCall
    spared: dict[str, TaskCall]
    downstream: dict[str, TaskCall]
    ks: tuple[int, ...]
    calibration: dict[str, TaskCall] = field(default_factory=dict)
    choose: int = 12
    rivals: int = 0
    k: int | str = "half"
    precision: float = 0.25
    max_trials: int = 60
    draws: int = 40
    few: int = 20
    few_others: int = 12
    seeds: int = 8
    methods: tuple[str, ...] = tuple(SCORERS)
    ablated: tuple[str, ...] = tuple(SCORERS)
    calibrate: int = 50
    kind: str = "mean"
    judge_text_everywhere: bool = False
    curve_trials: int = 12
    text_trials: int = 12
    max_new_tokens: int = 8
    detect_new_tokens: int = 12
    batch_size: int = 8
    cri_trials: int = 12
    recovery_trials: int = 6
    recovery_draws: int = 20
    read_heads: int = 10
    teacher_forced: bool = False
    only_flipped: bool = True
    exclusive: bool = True
    controls: tuple[str, ...] = CONTROLS
    control: str | None = None

    def __post_init__(self) -> None:
        checks.whole_fields(self, seeds=0, calibrate=1, max_new_tokens=1, detect_new_tokens=1, batch_size=1, choose=1)
        checks.whole_fields(
            self, rivals=0, cri_trials=0, recovery_trials=0, recovery_draws=0, read_heads=0, text_trials=1
        )
        checks.whole_fields(self, max_trials=1, draws=1, few=1, few_others=1, curve_trials=1)
        checks.whole_numbers("ks", self.ks)
        if self.k not in ("half", "share"):
            checks.whole_number("k", self.k, remedy=", or 'half' or 'share' for a rule")
        if self.control not in (None, *CONTROLLED):
            raise ValueError(f"control={self.control!r}: use {', '.join(CONTROLLED)}, or None")
        Precision(self.precision, self.max_trials)

    def trials(self, call: TaskCall) -> list[Trial]:
        """The trials of one of the calls."""
        return trials_of(call)

    def tested(self) -> list[Trial]:
        """The test trials, after the negative control if it is one of trials."""
        found = self.trials(self.test)
        return list(getattr(sanity, self.control)(found)) if self.control in CONTROLLED[1:] else found

    def described(self) -> dict[str, str]:
        """Every task's call, in short."""
        calls = {TASK: self.test, **self.spared, **self.downstream}
        return {task: described(call) for task, call in calls.items()}

    def fixed_k(self, heads: int) -> int | None:
        """The headline's number of heads in a model with this many; None if selection trials choose it."""
        if self.k == "half":
            return None
        return max(1, round(HEADLINE * heads)) if self.k == "share" else min(int(self.k), heads)


PRESETS = read_presets(__name__, Preset)
"""`lens-heads demo` runs the demo presets: detection, ablation and judged texts. `packaged`, `thorough` (hours) and `quick`
need no download and suit models with a few hundred million parameters; the `negative-` presets are `packaged` where no claim
that heads matter may hold (`negative-needles` without the downstream tasks, whose needles are not exchanged). `paper` and
`scripts` are the paper's grids, as documented and as run by its job scripts, on NoLiMa, PopQA, MuSiQue and BABILong from the
hub."""
