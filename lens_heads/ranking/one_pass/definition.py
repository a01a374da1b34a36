"""Scorer: one method, what it is computed on, and what it needs from the pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.styles import Marker
from lens_heads.runs import checks
from lens_heads.runs.typed import typed_fields
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial

Probe = Literal["needle", "documents", "repeated", "text", "pair", "weights"]
"""What is put into the model, and so what a scorer sees. "text" scorers also take a repeated probe, which is a text too."""
Rows = Literal["answer", "generated", "prompt", "choice", "query", "every", "totals"]
Reading = Literal["run", "exact"]

ROWS: dict[str, tuple[Rows, ...]] = {
    "needle": ("answer", "generated", "prompt", "choice"),
    "documents": ("query",),
    "repeated": ("every",),
    "text": ("every", "totals"),
    "pair": ("answer",),
    "weights": ("every",),
}
"""The rows that scorers of each probe may read; the first is the default."""
READS: dict[Probe, str] = {
    "needle": "needles",
    "documents": "documents",
    "repeated": "a repeated block of tokens",
    "text": "plain texts",
    "pair": "runs with and without context",
    "weights": "weights",
}
REMEDIES: dict[Probe, str] = {
    "needle": "pass trials with a needle",
    "documents": "pass DocumentTrials",
    "repeated": "pass lh.repeated_blocks(model)",
    "text": "pass lh.plain_texts(texts)",
    "pair": "pass lh.context_pairs(trials)",
    "weights": "pass lh.token_maps(maps)",
}
PHI = ("weights", "values", "writes", "unembedding")
"""What contributions rest on: the weight of a position, its value, what heads write, and its read-out by the unembedding."""
PARTS = ("pattern", *PHI)
"""What a method of needles may rest on: attention, where weights are shares of it, and what contributions rest on."""
COUNTED = ("counted", "repeats", "seen_before")
"""The properties of a `RowView` that say which rows a mean runs over."""
NEEDS = ("received", "q_mean", "distractors", "wrong")
"""The sums over a text that scorers of totals may need ("q_mean" brings keys and the rotation), and what trials must have."""
_PROBE_OF: dict[str, Probe] = {"query": "documents", "every": "text", "totals": "text"}


@dataclass(frozen=True)
class Scorer:
    """One method: a function from a view to one score per head, and what it needs from the pass.

    `probe`: what it is computed on, by default that of its `rows`. `rows`, of needles: "answer" (rows that produce the
    answer), "generated" (all generated steps), "prompt" (the last `prompt_rows` of the prompt), "choice" (the row of the
    answer's first token, whose direction is that of the right answer minus that of the trial's `wrong` one); of documents:
    "query" (the query's rows); of texts: "every" (a function of a `RowView` that gives [head, row]; the mean runs over the rows
    `counted`, a property of the view) or "totals" (a function of `TextTotals`, of which it reads `needs`). `needs` of a method
    of needles: "distractors" and "wrong", if it reads these of a trial.
    `gated`: only trials that the model answered count; otherwise every trial with the rows does. `signed`: scores can be
    negative, as a test of mean > 0 requires. `rule`: which published detection rule it is, if there are several.
    `contrastive`: compares gold documents with others, so a trial whose documents are all gold does not count.
    `direction`: the read-out that `view.phi` has, "run" (the `direction=` of `score_heads`) or always "exact".
    `within_layers`: scores of different layers have different scales, so that heads rank inside their layer
    (`sets.best_of_each_layer`).
    `only_named`: it runs only if it is named, since short texts or models without rotary positions have none, or another corrects
    it. `fails`: when it misleads.
    `label`, `unit`, `marker`: in figures and tables, the written name (default: the name), the unit of its scores, and colour and
    symbol (default: by the name).
    `reads_needle`: the score depends on where the needle is. One that does not, such as `dla`, has no null from other spans.
    `reads`, of needles: the `PARTS` of the model that it rests on, by default all; a model that lacks one is refused.
    `after_copy`, of repeated tokens: it looks for the place so many tokens after the row's own token in the copy before. None:
    anywhere.
    `name`: under which its scores stand. `paper`: its source.

    Example:
        >>> looked = lh.Scorer("looked", lambda view: view.pattern[..., slice(*view.needle)].sum(-1).mean(-1))
        >>> [planted.roles[head] for head in lh.rank(model, trials, looked)["looked"].top(4)]
        ['writer', 'decoy', 'copier', 'suppressor']
    """

    name: str
    score: Callable[[Any], Float[Tensor, "head *row"]]
    rows: Rows = None  # type: ignore[assignment]  # the first of the probe's
    gated: bool = True
    paper: str = ""
    signed: bool = True
    rule: str = ""
    contrastive: bool = False
    direction: Reading = "run"
    reads_needle: bool = True
    probe: Probe = None  # type: ignore[assignment]  # that of the rows
    counted: str = "counted"
    needs: frozenset[str] = frozenset()
    prompt_rows: int = 8
    within_layers: bool = False
    only_named: bool = False
    fails: str = ""
    label: str = ""
    unit: str = ""
    marker: Marker | None = None
    reads: frozenset[str] = frozenset(PARTS)
    after_copy: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ValueError(f"scorer name {self.name!r}: must be a non-empty string")
        if not callable(self.score):
            raise TypeError(f"scorer {self.name}: {self.score!r} must be a function of a view")
        typed_fields(self)
        checks.whole_number(f"scorer {self.name}: prompt_rows", self.prompt_rows)
        if self.after_copy is not None:
            checks.count(f"scorer {self.name}: after_copy", self.after_copy, 0)
        given = self.probe is not None
        object.__setattr__(self, "probe", self.probe if given else _PROBE_OF.get(self.rows, "needle"))
        self._check("probe", self.probe, get_args(Probe))
        object.__setattr__(self, "rows", ROWS[self.probe][0] if self.rows is None else self.rows)
        self._check("rows", self.rows, ROWS[self.probe] if given else get_args(Rows))
        self._check("counted", self.counted, COUNTED)
        for name in sorted(self.needs):
            self._check("needs", name, NEEDS)
        for name in sorted(self.reads):
            self._check("reads", name, PARTS)
        self._check("direction", self.direction, get_args(Reading))

    def _check(self, field: str, value: object, known: tuple[str, ...]) -> None:
        if value not in known:
            raise ValueError(f"scorer {self.name}: {field}={value!r}: use one of {', '.join(known)}")


def lacking(scorer: Scorer, trials: Iterable[EncodedTrial]) -> str:
    """What the trials lack for a method of needles, in words; empty if nothing."""
    if "distractors" in scorer.needs and (found := without_distractor(trials)):
        return found
    without = next((trial.id for trial in trials if trial.wrong is None), None) if "wrong" in scorer.needs else None
    if without is None:
        return ""
    return (
        f"it compares the answer with a wrong one, and trial {without} has none that begins with another token: give wrong=, "
        "or a distractor with such an answer"
    )


def without_distractor(trials: Iterable[AnyTrial]) -> str:
    """What to say of trials of which one has no distractor; empty if all have."""
    without = next((trial.id for trial in trials if not trial.distractors), None)
    if without is None:
        return ""
    return (
        f"it compares the needle with a distractor, and trial {without} has none: give Trial(distractors=), or take "
        "tasks.packaged(distractors=1)"
    )
