"""What the LOCOS study asks, finds and claims: its presets, the finding, and the rules that judge the headline claims.

Texts, estimands and thresholds are in `claims.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from lens_heads import sanity
from lens_heads.answering.ability import Ability
from lens_heads.answering.question_need import QuestionNeed
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.recovery_results import Recovery
from lens_heads.evidence.verdicts import (
    HOLDS,
    UNTOLD,
    Verdict,
    breaks,
    costs_more,
    harms,
    negligible,
    spared,
)
from lens_heads.heads.conditions import Condition
from lens_heads.heads.controls import CONTROLS
from lens_heads.heads.scores import HeadScores
from lens_heads.ranking.one_pass.scorers import SCORERS
from lens_heads.runs import checks
from lens_heads.stats import Interval, Precision
from lens_heads.studies.claims import Claim, margin, published, row, shares
from lens_heads.studies.finding import Finding, meaning, records
from lens_heads.studies.presets import TaskCall, described, read_presets, trials_of
from lens_heads.trials.trial import Trial

HEADLINE = 50 / (36 * 32)
"""The paper's headline result ablates 50 of Qwen3-8B's 36 x 32 heads; other models lose the same share."""

CONTROLLED = ("random_initialised", "exchanged_needles", "permuted_answers")
"""Negative controls: of the model, and of the test trials."""

TASK = "retrieval"
"""The name of the test trials in tables."""


PARTS = ("dla", "attention_spatial", "attention_spatial_no_sink", "attention_mass")
"""What LOCOS is compared with in RQ2: its parts, and attention without the sink."""

ATTENTION = ("attention_spatial", "attention_spatial_no_sink", "attention_mass", "copy", "contrastive", "headkv")
"""The baselines: methods that use attention alone."""

HEADLINE_METHODS = ("locos", "locos_exact", *PARTS)
"""What the headline ablates besides the best baseline and the rivals."""

OTHER_QUESTION = "counterfactual"
"""The kind of ablation that gives heads what they write where the same passage is asked another trial's question."""
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

    With `sets` (0 skips this), the heads are also ranked among so many random sets, ablated in other ways where the answer
    begins, and selected again on trials of two other seeds.

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
    sets: int = 0
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
            self, rivals=0, sets=0, cri_trials=0, recovery_trials=0, recovery_draws=0, read_heads=0, text_trials=1
        )
        checks.whole_fields(self, max_trials=1, draws=1, few=1, few_others=1, curve_trials=1)
        checks.whole_numbers("ks", self.ks)
        if self.k not in ("half", "share"):
            checks.whole_number("k", self.k, remedy=", or 'half' or 'share' for a rule")
        if self.control not in (None, *CONTROLLED):
            raise ValueError(f"control={self.control!r}: use {', '.join(CONTROLLED)}, or None")
        Precision(self.precision, self.max_trials)

    def tested(self) -> list[Trial]:
        """The test trials, after the negative control if it is one of trials."""
        found = trials_of(self.test)
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


LEAD = "locos"


@dataclass(frozen=True, eq=False, kw_only=True)
class LocosFinding(Finding):
    """What the study found in one model.

    `scores` is by method, `questions` by id of a test trial. `k` and `baseline`, the attention method whose heads cost most,
    were chosen on selection trials. `able`: whether the model can choose between two needles, and `question`: whether these
    trials need theirs; or why that cannot be told. `kinds`: the headline under other ablations. `headline` (at k, by
    task) is judged, `curve` runs over k, `texts` is by task. `cri`, `literal` and `recovered` are None if the preset skips their
    stages; `cri` and `recovered` are sentences if they could not be measured.
    """

    k: int
    baseline: str
    scores: dict[str, HeadScores]
    headline: dict[str, AblationCurve]
    curve: AblationCurve
    texts: dict[str, AblationCurve]
    questions: dict[str, str]
    question: QuestionNeed | str = ""
    able: Ability | str = ""
    kinds: dict[str, AblationCurve] = field(default_factory=dict)
    cri: HeadScores | str | None = None
    literal: HeadScores | None = None
    recovered: Recovery | str | None = None

    @property
    def patched(self) -> HeadScores | None:
        """CRI of every head, if it was measured."""
        return measured(self.cri)

    @property
    def ranked(self) -> dict[str, HeadScores]:
        """Every ranking by name."""
        others = {"cri": self.patched, "literal_share": self.literal}
        return {**self.scores, **{name: found for name, found in others.items() if found is not None}}

    @property
    def effect(self) -> Interval[float]:
        """What LOCOS's heads cost retrieval beyond random heads, in nats, which margins are compared with."""
        return harms(self.headline[TASK], LEAD, self.k).cost

    def notes(self) -> dict[str, Any]:
        note = self.recovered.examples if isinstance(self.recovered, Recovery) else self.recovered
        return {
            "k": self.k,
            "question_note": meaning(self.question, self.able),
            "heads": len(self.scores[LEAD].flat),
            "best_attention_baseline": self.baseline,
            "outcomes": self.scores[LEAD].outcomes,
            "right_answers": {
                str(one): right.values(one, "contains").mean()
                for right in [next(iter(self.texts.values()))]
                for one in right.conditions()
            },
            "top": {name: records(ranked(name, found).head(10)) for name, found in self.ranked.items()},
            "patching_note": self.cri if isinstance(self.cri, str) else None,
            "recovery_note": note,
        }


def measured(cri: HeadScores | str | None) -> HeadScores | None:
    """The scores, where there are any; not the reason why there are none."""
    return cri if isinstance(cri, HeadScores) else None


def ranked(name: str, found: HeadScores) -> pd.DataFrame:
    """The heads with intervals. The literal share has none: it is a ratio of sums, which no mean over trials estimates."""
    return found.frame if name != "literal_share" else found.ranked


def asked_claims(plan: Preset) -> list[Claim]:
    """The claims about tasks that a preset runs. Rivals cost hundreds of runs, so that not every preset has them."""
    tasks = plan.described()
    return [
        claim
        for claim in published(__name__)["claims"]
        if claim["task"] in tasks
        and (plan.rivals or claim.get("other") not in RIVALS)
        and (plan.sets or claim["rule"] != "asked")
    ]


def best_baseline(found: AblationCurve, k: int) -> str:
    """The attention method whose k best heads cost most on selection trials; a k that was not run takes the nearest."""
    known = [name for name in ATTENTION if name in found.rankings]
    if not known:
        raise ValueError(f"no attention method was scored: add one of {', '.join(ATTENTION)} to the preset's methods")
    nearest = min({one.k for one in found.conditions() if one.k}, key=lambda size: (abs(size - k), size))
    return min(known, key=lambda name: found.values(Condition.top(name, nearest), "logprob").mean())


def claims(finding: LocosFinding, calls: Mapping[str, str]) -> pd.DataFrame:
    """One row per claim; `calls` describes each task. Claims about a task, or a rival, that was not measured are omitted."""
    rows = []
    for claim in published(__name__)["claims"]:
        curve = finding.headline.get(claim["task"])
        unasked = claim["rule"] == "asked" and OTHER_QUESTION not in finding.kinds
        if curve is None or unasked or (claim.get("other") in RIVALS and claim["other"] not in curve.rankings):
            continue
        found = RULES[claim["rule"]](curve, claim, finding)
        about = {"measured_on": calls.get(claim["task"], claim["task"]), "metric": "logprob", "k": finding.k}
        about |= {"trials": found.trials, "would_tell": found.would_tell, "sets_would_tell": found.sets_would_tell}
        rows.append({**row(claim, found), **shares(found), **about})
    return pd.DataFrame(rows).astype({"would_tell": float, "sets_would_tell": float})


def _beats_parts(curve: AblationCurve, claim: Claim, finding: LocosFinding) -> Verdict:
    """The claim is about every part, so all must be measured, and the one that is told least decides."""
    missing = [name for name in PARTS if name not in curve.rankings]
    if missing:
        return Verdict(claim["claim"], UNTOLD, f"not ablated: {', '.join(missing)}")
    found = {name: costs_more(curve, LEAD, name, finding.k) for name in PARTS}
    every = ", ".join(f"{name} {verdict.cost.value:+.2f}" for name, verdict in found.items())
    worst = min(found.values(), key=lambda verdict: (verdict.word == HOLDS, verdict.cost.low))
    return replace(worst, question=claim["claim"], because=f"{every} nats")


RULES: dict[str, Callable[[AblationCurve, Claim, LocosFinding], Verdict]] = {
    "breaks": lambda curve, claim, found: breaks(curve, claim["ranking"], found.k, share=claim["threshold"]),
    "costs_more": lambda curve, claim, found: costs_more(
        curve, claim["ranking"], found.baseline if claim["other"] == "baseline" else claim["other"], found.k
    ),
    "beats_parts": _beats_parts,
    "negligible": lambda curve, claim, found: negligible(curve, found.k, margin=margin(claim, found.effect)),
    "harms": lambda curve, claim, found: harms(curve, claim["ranking"], found.k),
    "asked": lambda curve, claim, found: harms(found.kinds[OTHER_QUESTION], claim["ranking"], found.k),
    "spared": lambda curve, claim, found: spared(curve, claim["ranking"], found.k, margin=margin(claim, found.effect)),
}
