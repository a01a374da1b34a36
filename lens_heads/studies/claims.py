"""A paper's claims, each with a verdict from the interval measured here.

Every study keeps its claims, with the published numbers, estimands and thresholds, in `claims.json`, which is written before a
run and printed with it; its `claims.py` holds the rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lens_heads.evidence.verdicts import DOES_NOT, HOLDS, UNTOLD
from lens_heads.stats import Interval
from lens_heads.studies.presets import beside


def published(module: str) -> dict[str, Any]:
    """The content of the `claims.json` next to a module."""
    return beside(module, "claims.json")


@dataclass(frozen=True)
class Found:
    """What was measured for a claim: a number with its 95 % interval or p-value, a short text, and the verdict."""

    value: float
    low: float
    high: float
    text: str
    verdict: str
    p: float = math.nan

    @classmethod
    def nothing(cls, why: str) -> Found:
        """Nothing was measured."""
        return cls(math.nan, math.nan, math.nan, why, UNTOLD)

    @classmethod
    def by(cls, decides: Interval[float], text: str, verdict: str, p: float = math.nan) -> Found:
        """What an interval decides."""
        return cls(decides.value, decides.low, decides.high, text, verdict, p)

    def row(self, claim: Mapping[str, Any], **names: Any) -> dict[str, Any]:
        """The claim as a row of a table; `names` fill the placeholders in its texts."""
        texts = {"claim": claim["claim"].format(**names), "paper": claim["paper"], "found": self.text}
        numbers = {"value": self.value, "low": self.low, "high": self.high, "p": self.p}
        verdict = {"verdict": self.verdict, "holds_if": claim["holds"].format(**names)}
        return {"id": claim["id"], **texts, **numbers, **verdict}


def above(low: float, high: float, at: float, possible: bool = True) -> str:
    """Is the number above a threshold? The whole interval decides; unless `possible`, the claim cannot hold."""
    return HOLDS if low > at and possible else DOES_NOT if high < at else UNTOLD


def at_most(low: float, high: float, at: float, possible: bool = True) -> str:
    """Is the number no larger than a threshold? As in `above`."""
    return HOLDS if high <= at and possible else DOES_NOT if low > at else UNTOLD
