"""Presets of the table of methods: how many trials, heads, masks and random sets."""

from __future__ import annotations

from dataclasses import dataclass

from lens_heads.runs import checks
from lens_heads.studies.presets import read_presets


@dataclass(frozen=True)
class Preset:
    """One size of the table.

    Trials: `select` rank the heads, `calibrate` more give the means that replace ablated heads, `test` judge every ranking (the
    first `pairs` of them by faithfulness), `other` those of the task that should not suffer.

    `ks`: numbers of heads to ablate; `k`, one of them, is the table's. `masks`: random masks of methods that draw some.
    `searched`: a method that needs more passes than this is left out. `draws`: random sets of heads, on the first `few`
    trials; `kept_draws` of them for faithfulness. `rerun`: of the methods whose trials cannot be halved, those that run
    twice more, for stability. `planted`: models with planted heads.
    """

    select: int = 6
    calibrate: int = 6
    test: int = 12
    pairs: int = 8
    other: int = 8
    ks: tuple[int, ...] = (1, 2, 5, 12)
    k: int = 5
    masks: int = 80
    searched: int = 150
    draws: int = 20
    few: int = 6
    kept_draws: int = 5
    rerun: tuple[str, ...] = ()
    planted: int = 5
    batch_size: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        checks.whole_fields(self, select=2, calibrate=1, test=5, pairs=5, other=5, masks=20, draws=2, few=5)
        checks.whole_fields(self, kept_draws=2, searched=0, planted=0, batch_size=1, seed=0)
        checks.whole_numbers("ks", self.ks)
        if self.k not in self.ks:
            raise ValueError(f"k={self.k} is none of ks={self.ks}: the table shows one of them")


PRESETS = read_presets(__name__, Preset)
"""`quick` leaves out whatever takes more than 40 passes, `default` more than 150; `thorough` takes hours."""
