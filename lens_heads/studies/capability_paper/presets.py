"""How large the study is, by name: which capabilities, how many trials, masks and heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lens_heads.interventions.ablate import KINDS
from lens_heads.localize.heads import DESIGNED, SEARCHES
from lens_heads.localize.lasso import FOLDS
from lens_heads.studies.capability_paper.capabilities import HUB, OFFLINE, Capability
from lens_heads.trials.trial import Trial

LEAD, PASS = "css", "locos"
"""The method of the study, and the one that reads heads from a single pass, where trials have needles."""


@dataclass(frozen=True)
class Preset:
    """One size of the study.

    `n_select` trials of a capability find its heads, `n_test` others, and as many of its kin, show what ablating them costs.
    `n_masks`, `sparsity`: as in `localize`. `k` heads are a capability's; universal ones are among those of `at_least`.
    `ks`: points of the curves. `random_draws`: random sets that damage is held against, `curve_draws` of each kind in the curves.
    `methods` are compared on the capability
    `compared`, unless they ask for more than `most_evaluations` (one-shot greedy for one per head of the model, greedy for
    about k). `kind`: one of `ablate`'s that needs neither reference nor options.

    Raises ValueError for a `compared` whose heads are not looked for, unknown methods or none of the lead's, and sizes that
    nothing can be measured with.
    """

    capabilities: dict[str, Capability]
    n_select: int = 100
    n_test: int = 100
    n_masks: int = 200
    sparsity: float = 0.02
    k: int = 5
    at_least: int = 3
    ks: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    random_draws: int = 5
    curve_draws: int = 5
    methods: tuple[str, ...] = (LEAD, "csb", "elastic_net", "one_shot", "greedy", PASS)
    compared: str = "retrieval"
    most_evaluations: int = 2000
    kind: str = "zero"
    batch_size: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.compared not in self.localized:
            raise ValueError(
                f"compared={self.compared!r} is none of the capabilities whose heads are looked for: "
                f"{', '.join(self.localized) or 'there is none'}"
            )
        known = (*DESIGNED, *SEARCHES, PASS)
        unknown = next((method for method in self.methods if method not in known), None)
        if unknown is not None or LEAD not in self.methods:
            wrong = f"holds the unknown method {unknown!r}" if unknown is not None else f"lacks {LEAD!r}"
            raise ValueError(f"methods={', '.join(self.methods)} {wrong}: use {LEAD!r} and any of {', '.join(known)}")
        if self.k not in self.ks:
            raise ValueError(f"k={self.k} is none of ks={', '.join(map(str, self.ks))}: the curves pass through it")
        if self.kind not in KINDS or KINDS[self.kind].reference is not None or KINDS[self.kind].options:
            ready = [name for name, kind in KINDS.items() if kind.reference is None and not kind.options]
            raise ValueError(
                f"kind={self.kind!r}: the study ablates by {' or '.join(map(repr, ready))}, which need no more"
            )
        least = {"n_select": 1, "random_draws": 2, "curve_draws": 1, "at_least": 2, "n_masks": FOLDS}
        small = next((name for name, least in least.items() if getattr(self, name) < least), None)
        if small is not None:
            raise ValueError(f"{small}={getattr(self, small)}: at least {least[small]} is needed")
        few = next((name for name, one in self.capabilities.items() if one.count(self.n_test) < 2), None)
        if few is not None:
            raise ValueError(f"n_test={self.n_test} is fewer than two trials of {few!r}: intervals need more")

    def mask_seed(self, name: str) -> int:
        """Each capability's masks are its own: heads that fall together in some would go together for all of them."""
        return self.seed + list(self.capabilities).index(name)

    @property
    def localized(self) -> dict[str, Capability]:
        """The capabilities whose heads are looked for; the others are general tasks."""
        return {name: one for name, one in self.capabilities.items() if one.select is not None}

    def selection(self) -> dict[str, list[Trial]]:
        """By capability, the trials that find its heads."""
        return {name: one.trials(one.select, self.n_select) for name, one in self.localized.items() if one.select}

    def evaluation(self) -> dict[str, list[Trial]]:
        """By capability and general task, the trials that heads are ablated on."""
        return {name: one.trials(one.test, self.n_test) for name, one in self.capabilities.items()}

    def kin(self) -> dict[str, list[Trial]]:
        """By capability, trials of other data, where there are any."""
        return {name: one.trials(one.kin, self.n_test) for name, one in self.localized.items() if one.kin}


QUICK = ("arithmetic", "retrieval", "capitals", "induction")

PRESETS: dict[str, Preset] = {
    "packaged": Preset(
        OFFLINE,
        n_select=8,
        n_test=10,
        n_masks=48,
        sparsity=0.06,
        ks=(1, 2, 5, 10),
        random_draws=4,
        curve_draws=2,
        most_evaluations=400,
    ),
    "quick": Preset(
        {name: OFFLINE[name] for name in QUICK},
        n_select=4,
        n_test=4,
        n_masks=30,
        sparsity=0.1,
        ks=(1, 5),
        random_draws=3,
        curve_draws=1,
        methods=(LEAD, "elastic_net", PASS),
        most_evaluations=60,
    ),
    "paper": Preset(HUB, compared="gsm8k"),
}
"""`packaged` and `quick` need no download and suit models of some hundred million parameters, of whose 72 or 270 heads the
paper's sparsity would ablate one or five at a time: more of them per mask, so that fewer masks do. `quick` leaves out the
two capabilities that are asked with choices. `paper` has the sizes of the paper, with data from the hub, `mbpp` where generated
code may be run and `swearing` where there is a list of words; greedy search, which on a model of 1,024 heads would decode 100
solutions 5,110 times, takes a preset of one's own with more of `most_evaluations`."""


def of_capabilities(plan: Preset, capabilities: Sequence[str] | None = None, **given: Any) -> Preset:
    """The preset with some of its capabilities, and with what the user gives to those that need it.

    Capabilities that need what is not given are left out, unless they are named. Where the one that methods are compared on
    is not among those named, the first one is.

    Raises ValueError for an unknown capability, one that lacks what it needs, and something given that none needs.
    """
    known = plan.capabilities
    unknown = next((name for name in capabilities or () if name not in known), None)
    if unknown is not None:
        raise ValueError(f"there is no capability {unknown!r} in this preset: use {', '.join(known)}")
    chosen = {name: one for name, one in known.items() if capabilities is None or name in capabilities}
    given = {name: value for name, value in given.items() if value}
    unasked = next((name for name in given if all(one.needs != name for one in chosen.values())), None)
    if unasked is not None:
        raise ValueError(f"{unasked} is given, but none of {', '.join(chosen)} needs it: omit it")
    ready = _ready(chosen, given, named=capabilities is not None)
    compared = plan.compared
    if compared not in ready:
        compared = next((name for name, one in ready.items() if one.select is not None), compared)
    return replace(plan, capabilities=ready, compared=compared)


def _ready(chosen: Mapping[str, Capability], given: Mapping[str, Any], named: bool) -> dict[str, Capability]:
    """The capabilities that have all they need."""
    found = {}
    for name, one in chosen.items():
        if one.needs is None or one.needs in given:
            found[name] = one if one.needs is None else one.given(given[one.needs])
        elif named:
            raise ValueError(f"capability {name!r} needs {one.needs}: give it (--{one.needs.replace('_', '-')})")
    return found
