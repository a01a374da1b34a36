"""Presets of the study of capabilities: which capabilities, and how many trials, masks and heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lens_heads.interventions.ablate import KINDS
from lens_heads.ranking.masks.lasso import FOLDS
from lens_heads.ranking.masks.localize import DESIGNED, SEARCHES
from lens_heads.runs import checks
from lens_heads.stats.intervals import FEWEST
from lens_heads.studies.capability_paper.capabilities import CAPABILITIES, Capability
from lens_heads.studies.presets import read_presets

LEAD, PASS = "css", "locos"
"""The study's own method, and the one that scores heads in a single pass, for trials with needles."""
CONTROLS = (None, "random_initialised", "permuted_answers")


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
        ready = [name for name, kind in KINDS.items() if kind.reference is None and not kind.options]
        if self.kind not in ready:
            raise ValueError(
                f"kind={self.kind!r}: use {' or '.join(map(repr, ready))}, which need no reference or options"
            )
        if self.control not in CONTROLS:
            raise ValueError(f"control={self.control!r}: use one of {', '.join(map(repr, CONTROLS))}")
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
