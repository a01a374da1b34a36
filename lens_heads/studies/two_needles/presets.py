"""Presets of the study of choices: which passages it uses, and how many."""

from __future__ import annotations

from dataclasses import dataclass

from lens_heads.runs import checks
from lens_heads.studies.presets import TaskCall, described, read_presets

TASK = "choice"
"""The name of the test trials in tables."""

METRIC = "choice_margin"

LEAD = "locos"
CONTRASTED = ("locos_choice", "dla_choice", "attention_mass_vs_distractor", "locos_vs_distractor")
"""Methods that use the second needle: the direction from its answer to the right one, or its span."""
METHODS = ("locos", "locos_exact", "dla", "attention_mass", "copy", *CONTRASTED)
PATCHED = "patching"
"""Every head patched from the prompt that asks for the other needle: the ranking that sees what the question selects."""

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
