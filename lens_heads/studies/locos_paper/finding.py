"""What the study found on one model, and every number of it as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from lens_heads.ablation.curves import AblationCurve
from lens_heads.causal import Recovery
from lens_heads.heads.scores import HeadScores
from lens_heads.studies.locos_paper.claims import LEAD
from lens_heads.studies.runner import Finding, records


@dataclass(frozen=True, eq=False, kw_only=True)
class LocosFinding(Finding):
    """`scores` by method; `baseline` is the attention method whose heads cost most at the headline `k`.

    `recovered` is a sentence where no example could be recovered. `questions` of the test trials by id. `cri`, `literal` and
    `recovered` are None where the preset leaves their stages out.
    """

    k: int
    baseline: str
    scores: dict[str, HeadScores]
    curve: AblationCurve
    texts: AblationCurve
    questions: dict[str, str]
    cri: HeadScores | None = None
    literal: HeadScores | None = None
    recovered: Recovery | str | None = None

    @property
    def ranked(self) -> dict[str, HeadScores]:
        """Every ranking by name."""
        others = {"cri": self.cri, "literal_share": self.literal}
        return {**self.scores, **{name: found for name, found in others.items() if found is not None}}

    def notes(self) -> dict[str, Any]:
        """What the JSON says beside the tables."""
        note = self.recovered.examples if isinstance(self.recovered, Recovery) else self.recovered
        return {
            "k": self.k,
            "best_attention_baseline": self.baseline,
            "outcomes": self.scores[LEAD].meta["outcomes"],
            "right_answers": {str(one): self.texts.values(one, "contains").mean() for one in self.texts.conditions()},
            "top": {name: records(ranked(name, found).head(10)) for name, found in self.ranked.items()},
            "recovery_note": note,
        }


def ranked(name: str, found: HeadScores) -> pd.DataFrame:
    """The heads with intervals; of the literal share, a ratio of sums, the bootstrap of per-trial values is no interval."""
    return found.to_frame(interval=name != "literal_share")


def curve_frames(curve: AblationCurve, texts: AblationCurve, spared: list[str]) -> dict[str, pd.DataFrame]:
    """The ablations as tables."""
    frames = {"ablation": curve.frame, "texts": texts.frame, "differences": curve.differences("logprob", lead=LEAD)}
    return frames | {f"dissociation_{task}": curve.dissociation(task, "logprob") for task in spared}
