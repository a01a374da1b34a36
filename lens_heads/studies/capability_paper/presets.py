"""Presets of the study of capabilities: which capabilities, and how many trials, masks and heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lens_heads import tasks
from lens_heads.answering.evaluation import METRICS
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.ablate import KINDS
from lens_heads.ranking.masks.lasso import FOLDS
from lens_heads.ranking.masks.localize import DESIGNED, SEARCHES
from lens_heads.runs import checks
from lens_heads.stats.intervals import FEWEST
from lens_heads.studies.presets import TaskCall, beside, read_presets, trials_of, tuples
from lens_heads.trials.trial import Trial

Repeated = dict[str, list[HeadScores]]
"""By capability: the scores by each draw of masks."""


@dataclass(frozen=True)
class Capability:
    """The tasks of a capability, as calls without a number of trials.

    `select` finds its heads; None makes it a general task, on which other capabilities' heads are ablated. `test` has other
    items, and `kin` other data of the same capability; `kin_select` finds heads on such data, for the way back. `metric` finds
    heads and measures damage; `right` says which answers are right (0 or 1). `share` scales the preset's numbers of trials, for
    long prompts or costly choices; `most` is how many trials the data has. `max_new_tokens` are decoded; 0 if no metric reads
    text. `needs` names an argument that the user must supply.

    Raises ValueError for unknown metrics.
    """

    select: TaskCall | None
    test: TaskCall
    kin: TaskCall | None = None
    kin_select: TaskCall | None = None
    metric: str = "logprob"
    right: str = "greedy_match"
    share: float = 1.0
    most: int | None = None
    max_new_tokens: int = 0
    needs: str | None = None

    def __post_init__(self) -> None:
        for name in ("metric", "right"):
            if getattr(self, name) not in METRICS:
                raise ValueError(f"{name}={getattr(self, name)!r} is not a metric: use one of {', '.join(METRICS)}")

    def trials(self, call: TaskCall, n: int) -> list[Trial]:
        """The trials of one of the calls, `share` of n."""
        return trials_of(call, n=self.count(n))

    def count(self, n: int) -> int:
        """`share` of n, at least one and at most what the data has."""
        count = max(1, round(self.share * n))
        return count if self.most is None else min(count, self.most)

    def given(self, value: Any) -> Capability:
        """The capability with the argument that it needs, in all calls that take it."""
        needs = self.needs
        assert needs is not None

        def filled(call: TaskCall | None) -> TaskCall | None:
            takes = call is not None and needs in tasks.arguments_of(call[0])
            return (call[0], {**call[1], needs: value}) if call is not None and takes else call

        calls = {name: filled(getattr(self, name)) for name in ("select", "test", "kin", "kin_select")}
        return replace(self, **calls, needs=None)


def kin_of(name: str) -> str:
    """The name of a capability's other data in tables, and of the heads found on it."""
    return f"{name}, other data"


def owner(task: str) -> str:
    """The capability that a task, or other data, belongs to."""
    return task.removesuffix(kin_of(""))


def chance(trials: Sequence[Trial], right: str) -> float:
    """The share of answers that are right without the question, by guessing a choice or giving the most common answer.

    The most common answer is that of the other trials: with few trials, a trial's own answer would inflate it. It is 0 if a
    judge's own rule calls texts right ("correct": a program, a solution, any listed word), because nobody guesses these.
    """
    if right == "correct":
        return 0.0
    most = max(Counter(trial.answer for trial in trials).values())
    commonest = (most - 1) / max(1, len(trials) - 1)
    if right not in ("choice", "choice_norm"):
        return commonest
    return max(commonest, sum(1 / len(trial.choices) for trial in trials) / len(trials))


def with_choices(trials: Sequence[Trial], choices: int = 4, seed: int = 0) -> list[Trial]:
    """The trials with choices: their own, or the answer among answers of other trials; none if all have the same answer."""
    generator, made = np.random.default_rng(seed), []
    for trial in trials:
        others = sorted({other.answer for other in trials} - {trial.answer, *trial.aliases})
        drawn = [others[at] for at in generator.permutation(len(others))[: choices - 1]]
        made.append(trial if trial.choices or not drawn else replace(trial, choices=(trial.answer, *drawn)))
    return made


CAPABILITIES: dict[str, dict[str, Capability]] = {
    group: {name: Capability(**tuples(one)) for name, one in listed.items()}
    for group, listed in beside(__name__, "capabilities.json").items()
}
"""Those in `capabilities.json`, by group.

`offline` need no download. Kin: products for sums and differences, questions that share words with the needle, countries of
cities for capitals, longer lists. Most use the log-probability of the answer, which varies more than that among the choices
(standard deviation over 41 masks of a tenth of Gemma-3-270m's heads, 6 trials: capitals 1.3 nats against 0.04, induction 2.6
against 1.5). Rhymes and continuations use choices, because many answers are right and the log-probability of one says little.

`hub` are the paper's tasks, in accuracy: four capabilities, and four general tasks that their heads should spare. Arithmetic is
the kin of GSM8K, HumanEval that of MBPP. Each split of swearing has half of its 48 scenes, hence 24 trials of 100."""


LEAD, PASS = "css", "locos"
"""The study's own method, and the one that scores heads in a single pass, for trials with needles."""
CAPABILITY_NEGATIVES = (None, "random_initialised", "permuted_answers")


@dataclass(frozen=True)
class Preset:
    """One size of the study.

    `n_select` trials of a capability find its heads; `n_test` other trials, and as many of its kin, measure the damage
    (`max_trials`, if given; in nats, a capability's own trials stop at intervals of half-width `precision`). `n_masks` and
    `sparsity` are as in `localize`, repeated with `mask_draws` draws of masks (`kin_draws` on other data). Each capability has
    `k` heads; universal heads are shared by `at_least` capabilities, and the `candidates` most shared are ablated one by one.
    Damage is compared with `random_draws` random sets of all heads and as many with the same layers, on the first
    `random_trials` trials; so many trials have the curves at `ks`, with `curve_draws` random sets. `methods` are compared on the
    capability `compared`, except those that need more than `most_evaluations` (one-shot greedy needs one per head, greedy about k
    times as many). `kind` is a kind of `ablate` that needs neither reference nor options. `control` is a negative control:
    "random_initialised" (the model) or "permuted_answers" (of the trials that test heads).

    Raises ValueError for a `compared` without selection trials, for unknown methods or a missing lead, an unknown control,
    and for sizes that allow no measurement.
    """

    capabilities: dict[str, Capability]
    n_select: int = 100
    n_test: int = 100
    max_trials: int | None = None
    precision: float = 0.25
    n_masks: int = 200
    sparsity: float = 0.02
    mask_draws: int = 5
    kin_draws: int = 5
    k: int = 5
    at_least: int = 3
    candidates: int = 5
    ks: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    random_draws: int = 40
    random_trials: int = 20
    curve_draws: int = 5
    methods: tuple[str, ...] = (LEAD, "csb", "elastic_net", "one_shot", "greedy", PASS)
    compared: str = "retrieval"
    most_evaluations: int = 2000
    kind: str = "zero"
    batch_size: int = 8
    seed: int = 0
    control: str | None = None

    def __post_init__(self) -> None:
        if self.compared not in self.localized:
            raise ValueError(
                f"compared={self.compared!r}: use a capability with selection trials: {', '.join(self.localized) or 'none'}"
            )
        known = (*DESIGNED, *SEARCHES, PASS)
        unknown = [method for method in self.methods if method not in known]
        if unknown or LEAD not in self.methods:
            wrong = f"holds the unknown method {unknown[0]!r}" if unknown else f"lacks {LEAD!r}"
            raise ValueError(f"methods={', '.join(self.methods)} {wrong}: use {LEAD!r} and any of {', '.join(known)}")
        if self.k not in self.ks:
            raise ValueError(f"k={self.k}: use one of ks={', '.join(map(str, self.ks))}, which the curves pass through")
        ready = [name for name, kind in KINDS.items() if kind.reference is None and not any(kind.options.values())]
        if self.kind not in ready:
            raise ValueError(
                f"kind={self.kind!r}: use {' or '.join(map(repr, ready))}, which need no reference or options"
            )
        if self.control not in CAPABILITY_NEGATIVES:
            raise ValueError(f"control={self.control!r}: use one of {', '.join(map(repr, CAPABILITY_NEGATIVES))}")
        checks.whole_fields(self, n_select=1, n_test=1, mask_draws=1, kin_draws=0, random_draws=2, curve_draws=1)
        checks.whole_fields(
            self, n_masks=FOLDS, k=1, at_least=2, candidates=1, most_evaluations=1, batch_size=1, seed=0
        )
        checks.whole_number("random_trials", self.random_trials, FEWEST, remedy=", as intervals need")
        if self.max_trials is not None:
            checks.whole_number("max_trials", self.max_trials)
        checks.finite("precision", self.precision, 0)
        checks.whole_numbers("ks", self.ks)
        checks.share("sparsity", self.sparsity, "0.02")
        for name, one in self.capabilities.items():
            if one.count(self.most_trials) < FEWEST:
                found = f"{one.count(self.most_trials)} trials of {name!r}"
                raise ValueError(f"n_test={self.n_test} gives {found}: intervals need at least {FEWEST}")

    @property
    def most_trials(self) -> int:
        """The most trials that test a capability, before its share."""
        return self.n_test if self.max_trials is None else self.max_trials

    def mask_seed(self, name: str, draw: int = 0, kin: bool = False) -> int:
        """The seed of a capability's masks. With shared masks, heads that are ablated together would be confounded in all."""
        names = list(self.capabilities)
        return self.seed + names.index(name) + len(names) * (2 * draw + kin)

    @property
    def localized(self) -> dict[str, Capability]:
        """The capabilities to find heads for; the others are general tasks."""
        return {name: one for name, one in self.capabilities.items() if one.select is not None}


def _preset(capabilities: dict[str, list[str]], **sizes: Any) -> Preset:
    """A preset with the named capabilities of a group."""
    ((group, names),) = capabilities.items()
    return Preset({name: CAPABILITIES[group][name] for name in names}, **sizes)


PRESETS = read_presets(__name__, _preset)
"""All but `paper` need no download and suit models with a few hundred million parameters. At the paper's sparsity each
mask would ablate one or five of their 72 or 270 heads; they ablate more per mask, so that fewer masks suffice. Only `thorough`
has the two capabilities with choices, which the packaged models hardly have. Sums of one digit, capitals and continuations have
fewer than 100 trials. `negative-model` and `negative-answers` are `packaged` with nothing to find. `paper` has the paper's
sizes, with data from the hub; `mbpp` needs permission to run generated code, and `swearing` a list of words. It skips greedy
search, which would decode 100 solutions 5,110 times on a model with 1,024 heads, unless you raise `most_evaluations`."""


def of_capabilities(plan: Preset, capabilities: Sequence[str] | None = None, **given: Any) -> Preset:
    """The preset with some of its capabilities, and with the arguments that the user supplies.

    Capabilities whose argument is missing are omitted, unless they are named. If the capability that methods are compared on is
    omitted, the first one replaces it.

    Raises ValueError for an unknown capability, a named one whose argument is missing, and an argument that none needs.
    """
    known = plan.capabilities
    if unknown := [name for name in capabilities or () if name not in known]:
        raise ValueError(f"there is no capability {unknown[0]!r} in this preset: use {', '.join(known)}")
    chosen = {name: one for name, one in known.items() if capabilities is None or name in capabilities}
    given = {name: value for name, value in given.items() if value}
    if unasked := set(given) - {one.needs for one in chosen.values()}:
        name = min(unasked)
        raise ValueError(f"{name}={given[name]!r:.60} is given, but none of {', '.join(chosen)} needs it: omit it")
    ready: dict[str, Capability] = {}
    for name, one in chosen.items():
        if one.needs is None or one.needs in given:
            ready[name] = one if one.needs is None else one.given(given[one.needs])
        elif capabilities is not None:
            raise ValueError(f"capability {name!r} needs {one.needs}: pass it (--{one.needs.replace('_', '-')})")
    localized = [name for name, one in ready.items() if one.select is not None]
    compared = plan.compared if plan.compared in ready else next(iter(localized), plan.compared)
    return replace(plan, capabilities=ready, compared=compared)
