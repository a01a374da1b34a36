"""What the study of choices asks, finds and claims: its presets, the finding, and the rules that judge it.

Texts, estimands and thresholds are in `claims.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from lens_heads.answering.ability import Ability
from lens_heads.answering.question_need import QuestionNeed
from lens_heads.evidence.areas import areas
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.verdicts import DOES_NOT, HOLDS, UNTOLD, Verdict, harms
from lens_heads.heads.conditions import Condition
from lens_heads.heads.grouping import COLUMNS
from lens_heads.heads.scores import HeadScores
from lens_heads.runs import checks
from lens_heads.stats import Interval
from lens_heads.studies.claims import Claim, nothing, published, row, told
from lens_heads.studies.finding import Finding
from lens_heads.studies.presets import TaskCall, described, read_presets
from lens_heads.trials.trial import AnyTrial

TASK = "choice"
"""The name of the test trials in tables."""

METRIC = "choice_margin"

LEAD = "locos"
CONTRASTED = ("locos_choice", "dla_choice", "attention_mass_vs_distractor", "locos_vs_distractor")
"""Methods that use the second needle: the direction from its answer to the right one, or its span."""
METHODS = ("locos", "locos_exact", "dla", "attention_mass", "copy", *CONTRASTED)
PATCHED = "patching"
"""Every head patched from the prompt that asks for the other needle: the ranking that sees what the question selects."""

CARRYING = ("locos", "locos_exact", "attention_mass", PATCHED)
"""The rankings of which it is claimed that their heads carry the choice."""

KINDS = ("mean", "zero", "resample", "counterfactual")
"""What stands in for ablated heads at the row where the answer begins: their mean over prompts, nothing, what they write there in
another passage, or in the same passage if the other needle is asked for. The first decides; the others must have its sign."""
EVERYWHERE = "mean, all rows"
"""The first kind at all rows of a prompt, on fewer trials: it also takes what heads do while they read."""


@dataclass(frozen=True)
class Preset:
    """One size of the study.

    `select` and `test` are passages with two needles of one kind, each of which is asked for in turn. Only passages of which the
    model answers both questions are used: the first `choose` of them rank heads and choose each method's k, the first
    `max_trials` questions of them judge.

    `ks`: numbers of heads. `draws`: sets of random heads, on the first `few` questions. `whole`: questions on which heads are
    ablated at all rows, with `whole_ks` and `whole_draws`. `alone`: how many of each leading method's heads are also exchanged
    alone. `control`: "random_initialised", an untrained model, which fails the ability gate.
    """

    select: TaskCall
    test: TaskCall
    ks: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    choose: int = 30
    max_trials: int = 240
    draws: int = 40
    few: int = 40
    whole: int = 40
    whole_ks: tuple[int, ...] = (4, 16)
    whole_draws: int = 10
    alone: int = 8
    batch_size: int = 4
    control: str | None = None

    def __post_init__(self) -> None:
        checks.whole_fields(self, choose=1, max_trials=2, draws=1, few=1, whole=0, whole_draws=1, alone=0, batch_size=1)
        checks.whole_numbers("ks", self.ks)
        checks.whole_numbers("whole_ks", self.whole_ks)
        if self.control not in (None, "random_initialised"):
            raise ValueError(f"control={self.control!r}: use 'random_initialised', or None")

    def described(self) -> dict[str, str]:
        """The calls of both halves, in short."""
        return {"select": described(self.select), "test": described(self.test)}


PRESETS = read_presets(__name__, Preset)
"""`direct`, `onehop` and `twohop`: questions that share words with the needle, that share none, and that take two steps; with
`-chat`, framed by the model's chat template, on fewer passages."""


COUNTERFACTUAL = "counterfactual"


@dataclass(frozen=True, eq=False, kw_only=True)
class ChoosingFinding(Finding):
    """What the study found in one model.

    `able`: what it can do of the test passages. `question`: whether answers need their question. `passages`: how many of the
    test half it was given, of how many it answers both questions, and of how many of these the two answers begin with different
    tokens, so that scores can tell them apart. The rest is empty for a model that does not do the task:
    `k`, each method's own; `scores` by method; `curves` by kind of ablation; `literal` share of every head.
    """

    able: Ability
    question: QuestionNeed | str
    passages: dict[str, int]
    k: dict[str, int] = field(default_factory=dict)
    scores: dict[str, HeadScores] = field(default_factory=dict)
    curves: dict[str, AblationCurve] = field(default_factory=dict)
    literal: HeadScores | None = None

    @property
    def sentence(self) -> str:
        """What the model does, and what may therefore be said."""
        given, right, told = (self.passages[name] for name in ("all", "both right", "told apart"))
        passed = f"{right} of {given} passages pass, of {told} of which the answers begin with different tokens"
        limit = "" if self.curves else " Nothing is said of its heads for this task."
        return f"{self.model} {self.able}; {passed}.{limit}"

    def notes(self) -> dict[str, Any]:
        return {
            "ability": str(self.able),
            "does": self.able.does,
            "chance": self.able.chance,
            "question_note": str(self.question),
            "passages": self.passages,
            "k": self.k,
            "methods": list(self.scores),
        }


MEASURED = ("choice", METRIC, "logprob")
"""What is stored of every passage."""


def ability_table(able: Ability, trials: Sequence[AnyTrial] = ()) -> pd.DataFrame:
    """A row per passage: trial, its style where `trials` tell it, its groups, and what was measured under either question."""
    styles = {trial.id: trial.meta["style"] for trial in trials if "style" in trial.meta}
    rows: dict[str, Any] = {"trial": able.asked.trial_ids}
    rows |= {"style": [styles.get(id, "") for id in able.asked.trial_ids]}
    rows |= dict(zip(COLUMNS, able.asked.groups, strict=False))
    for part in ("asked", "exchanged"):
        metrics = getattr(able, part).metrics
        rows |= {f"{name}_{part}": metrics[name].tolist() for name in MEASURED}
    return pd.DataFrame(rows)


def by_style(able: pd.DataFrame, curve: AblationCurve, k: int) -> pd.DataFrame:
    """A row per style of haystack: passages, the share of right choices and the margin over both questions, and of the questions
    that judge the margin intact and without LOCOS's k heads. Three styles are too few for an interval over them.

    `able`: of `ability_table`. `curve`: of the first kind.
    """
    style = dict(zip(able["trial"], able["style"], strict=True))
    margins = [curve.values(one, METRIC) for one in (Condition.none(), Condition.top(LEAD, k))]
    of = margins[0].index.str.removesuffix("-exchanged").map(style)
    rows = []
    for name, own in able.groupby("style"):
        row = {"style": name, "passages": len(own)}
        row |= {each: own[[f"{each}_asked", f"{each}_exchanged"]].mean(axis=None) for each in ("choice", METRIC)}
        intact, without = (float(values[of == name].mean()) for values in margins)
        rows.append(row | {"judged": int((of == name).sum()), "intact": intact, "without": without})
    return pd.DataFrame(rows)


def by_kind(curves: Mapping[str, AblationCurve], metric: str, lead: str) -> pd.DataFrame:
    """`areas` under every kind of ablation, one after the other."""
    parts = [
        areas(curve, metric=metric, lead=lead).assign(kind=kind) for kind, curve in curves.items() if kind != EVERYWHERE
    ]
    return pd.concat(parts, ignore_index=True)


def looked_at(found: ChoosingFinding) -> pd.DataFrame:
    """A row per head that was exchanged alone: what that takes of the choice, where it looks, its literal share, and its rank by
    every method. Intervals hold for all heads together (Bonferroni); attention is the share on either needle."""
    curve = found.curves[COUNTERFACTUAL]
    places = {name: {str(head): at + 1 for at, head in enumerate(one.ranking())} for name, one in found.scores.items()}
    rows = []
    alone = [one for one in curve.conditions() if one.set == "given"]
    for condition in alone:
        cost = curve.difference(Condition.none(), condition, METRIC, level=1 - 0.05 / len(alone))
        name = curve.difference(Condition.none(), condition, "logprob")
        row = {"head": condition.method, "cost": cost.value, "low": cost.low, "high": cost.high, "answer": name.value}
        row |= {"literal": float("nan") if found.literal is None else found.literal[condition.method]}
        row |= _looks(found.scores, condition.method)
        rows.append(row | {f"rank by {method}": at[condition.method] for method, at in places.items()})
    return pd.DataFrame(rows).sort_values("cost", ascending=False, ignore_index=True)


def _looks(scores: Mapping[str, HeadScores], head: str) -> dict[str, float]:
    """How much of a head's attention is on the needle that is asked for, and on the other; without the methods, nothing."""
    if not {"attention_mass", "attention_mass_vs_distractor"} <= {*scores}:
        return {}
    needle = scores["attention_mass"][head]
    return {"to needle": needle, "to other": needle - scores["attention_mass_vs_distractor"][head]}


def by_rank(curve: AblationCurve, k: Mapping[str, int]) -> pd.DataFrame:
    """A row per claimed ranking: its k, how many random sets stand beside its heads, and the one-sided p of its rank there."""
    rows = []
    for name in curve.rankings:
        found = harms(curve, name, k[name], metric=METRIC)
        rows.append({"method": name, "k": k[name], "sets": found.sets, "p": found.p, "trials": found.trials})
    return pd.DataFrame(rows)


def by_meaning(heads: pd.DataFrame) -> int:
    """How many of these heads carry the choice alone without copying: interval above 0, and a literal share below a half."""
    return int(((heads["low"] > 0) & (heads["literal"] < 0.5)).sum())


def claims(found: ChoosingFinding) -> pd.DataFrame:
    """One row per claim. Of a model that does not do the task, nothing but that is told."""
    rows = []
    for claim in published(__name__)["claims"]:
        lacking = [name for name in (claim.get("ranking"), claim.get("other")) if name and name not in found.scores]
        if claim["rule"] != "ability" and not found.curves:
            one = nothing("the model is not shown to do this task")
        elif claim["rule"] != "ability" and lacking:
            one = nothing(f"{lacking[0]} ranked nothing")
        else:
            one = RULES[claim["rule"]](found, claim)
        about = {"metric": claim["metric"], "k": found.k.get(claim.get("ranking", ""), None)}
        one = replace(one, because=f"{one.because}{one.more}")
        rows.append(row(claim, one) | about | {"trials": _trials(found)})
    return pd.DataFrame(rows).astype({"k": float, "p": float})


def _trials(found: ChoosingFinding) -> int:
    """The questions that judge."""
    return len(found.curves["mean"].values(Condition.none(), METRIC)) if found.curves else 0


def _ability(found: ChoosingFinding, claim: Claim) -> Verdict:
    return told(Verdict("", UNTOLD, str(found.able), found.able.choice()), found.able.chance)


def _carries(found: ChoosingFinding, claim: Claim) -> Verdict:
    """Under the first kind the heads cost more than random ones and take more than the threshold; under all they cost more."""
    name = claim["ranking"]
    harm = {kind: harms(curve, name, found.k[name], metric=METRIC) for kind, curve in kinds(found).items()}
    first = harm["mean"]
    share = found.curves["mean"].benefit_lost(Condition.top(name, found.k[name]), METRIC)
    word = first.word
    if word == HOLDS:
        word = told(Verdict("", UNTOLD, "", share), claim["threshold"]).word
    if word == HOLDS and not all(one.cost.value > 0 for one in harm.values()):
        word = UNTOLD
    each = ", ".join(f"{kind} {one.cost.value:+.2f}" for kind, one in harm.items())
    text = f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}] of the choice; beyond random heads, {each} nats"
    return replace(first, word=word, because=text)


def _ahead(found: ChoosingFinding, claim: Claim) -> Verdict:
    """By area over log k: the interval under the first kind decides, and the sign must be the same under all."""
    gaps = {kind: _gap(curve, claim) for kind, curve in kinds(found).items()}
    each = ", ".join(f"{kind} {gap.value:+.2f}" for kind, gap in gaps.items())
    first = told(
        Verdict("", UNTOLD, f"{each} nats, mean over log k", gaps["mean"], trials=_trials(found)), claim["threshold"]
    )
    sign = {HOLDS: 1, DOES_NOT: -1}.get(first.word, 0)
    same = all(gap.value * sign > 0 for gap in gaps.values())
    return first if same or not sign else replace(first, word=UNTOLD)


def _gap(curve: AblationCurve, claim: Claim) -> Interval[float]:
    table = areas(curve, metric=claim["metric"], lead=claim["ranking"]).set_index("method")
    value, low, high = (float(table.loc[claim["other"], name]) for name in ("ahead", "ahead_low", "ahead_high"))  # type: ignore[arg-type]  # a cell
    return Interval(value, low, high)


def _turns(found: ChoosingFinding, claim: Claim) -> Verdict:
    """With what the heads write if the other needle is asked for, the model prefers the other answer."""
    curve, name = found.curves[COUNTERFACTUAL], claim["ranking"]
    rows = curve.frame[(curve.frame["metric"] == METRIC) & (curve.frame["set"] == "top")]
    row = rows[(rows["method"] == name) & (rows["k"] == found.k[name])].iloc[0]
    turned = Interval(-row["value"], -row["high"], -row["low"])
    text = f"margin {row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}] nats with the other question's heads"
    return told(Verdict("", UNTOLD, text, turned, trials=_trials(found)), claim["threshold"])


def kinds(found: ChoosingFinding) -> dict[str, AblationCurve]:
    """The curves at the row where the answer begins, by kind."""
    return {kind: curve for kind, curve in found.curves.items() if kind != EVERYWHERE}


RULES: dict[str, Callable[[ChoosingFinding, Claim], Verdict]] = {
    "ability": _ability,
    "carries": _carries,
    "ahead": _ahead,
    "turns": _turns,
}
