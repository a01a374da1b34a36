"""Method: a way to rank heads, as a value, with what there is to know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.styles import Marker
from lens_heads.ranking.material import Material
from lens_heads.ranking.one_pass.definition import READS, REMEDIES, Scorer, lacking, without_distractor
from lens_heads.runs import checks
from lens_heads.runs.typed import typed_fields
from lens_heads.trials.trial import AnyTrial

Rank: TypeAlias = Callable[[Material], HeadScores]
Needs = Literal[
    "",
    "needle",
    "needle and distractor",
    "needle and wrong answer",
    "needle, distractor and wrong answer",
    "pairs",
    "pairs and others",
    "documents",
    "texts",
    "token maps",
]
Passes: TypeAlias = Callable[[HeadGeometry, int, int], float]
LACKS = {
    "needle": "the prompts hold neither a needle nor their answer",
    "pairs": "the task has no counterfactual prompts",
    "others": "there are no other trials of the task: give calibration=",
}
"""What to say of trials that lack what a method needs."""


@dataclass(frozen=True)
class Method:
    """A way to rank heads: a function from `Material` to `HeadScores`, and what there is to know of it.

    `family`: what kind of method it is; figures colour methods by it. `needs`: what the material must have. `passes`: about how
    many plain passes over the trials it takes on a model of this shape, with so many masks and a search for k heads. `halves`:
    per-trial scores cannot be halved, because all trials together choose what is scored, so that stability takes two runs on
    half of the trials each. `only_named`: it is no part of all methods (`None` in `studies.bench`). `signed`: its scores can be
    negative, as a test of mean > 0 requires; None: whether any is. `paper`: its source. `fails`: when it misleads.
    `label`, `unit`, `marker`: in figures and tables, the written name (default: the name), the unit of its scores, and colour and
    symbol (default: by the name).
    `scorer`: what it reads off a pass, which such methods share. `name`: under which its ranking stands. `made_on`: models and
    tasks that it was made on, whose cells tables of methods show apart.

    Example:
        >>> first_layers = lh.Method("first_layers", "own", lambda material: lh.sanity.random_ranking(material.model))
        >>> list(lh.rank(model, trials, first_layers))
        ['first_layers']
    """

    name: str
    family: str
    rank: Rank = field(repr=False)
    needs: Needs = ""
    passes: Passes = field(default=lambda shape, masks, k: 1.0, repr=False)
    halves: bool = False
    only_named: bool = False
    signed: bool | None = None
    paper: str = ""
    fails: str = ""
    label: str = ""
    unit: str = ""
    marker: Marker | None = field(default=None, repr=False)
    scorer: Scorer | None = field(default=None, repr=False)
    made_on: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ValueError(f"method name {self.name!r}: must be a non-empty string")
        if not callable(self.rank):
            raise TypeError(f"method {self.name}: {self.rank!r} must be a function of Material")
        typed_fields(self)
        checks.one_of(f"method {self.name}: needs", self.needs, get_args(Needs))
        if not self.takes_trials and self.scorer is None:
            raise ValueError(
                f"method {self.name}: needs={self.needs!r} takes a Scorer, which says what it reads: pass lh.Scorer(...) itself"
            )
        object.__setattr__(self, "label", self.label or self.name.replace("_", " "))

    def missing(self, material: Material) -> str:
        """What the material lacks for this method, in words; empty if nothing."""
        if "needle" in self.needs and not material.needled:
            return LACKS["needle"]
        if "pairs" in self.needs and not material.pairs:
            return LACKS["pairs"]
        found = self.lacks(material.trials, bool(material.others))
        return found or (lacking(self.scorer, material.needled) if self.scorer else "")

    def lacks(self, trials: Iterable[AnyTrial], others: bool) -> str:
        """What can be said of it before there is a model: from the trials' texts, and whether there are `others`."""
        if not self.takes_trials and self.scorer is not None:
            return f"it reads {READS[self.scorer.probe]}: {REMEDIES[self.scorer.probe]} in place of trials"
        if "others" in self.needs and not others:
            return LACKS["others"]
        return without_distractor(trials) if "distractor" in self.needs else ""

    @property
    def takes_trials(self) -> bool:
        """Whether it ranks by trials of a task, or by none."""
        return self.needs not in ("documents", "texts", "token maps")


def total(shape: HeadGeometry) -> int:
    """How many heads a model has."""
    return shape.size


def every_head(shape: HeadGeometry, masks: int, k: int) -> float:
    """Passes of a method that runs the model once for every head."""
    return float(total(shape))


def k_rounds(shape: HeadGeometry, masks: int, k: int) -> float:
    """Passes of a search that runs every head that is left, k times."""
    return float(sum(total(shape) - chosen for chosen in range(k)))
