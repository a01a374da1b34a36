"""What the LOCOS study found in one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from lens_heads.answering.question_need import QuestionNeed
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.recovery_results import Recovery
from lens_heads.heads.scores import HeadScores
from lens_heads.studies.asked import meaning
from lens_heads.studies.finding import Finding, records

LEAD = "locos"


@dataclass(frozen=True, eq=False, kw_only=True)
class LocosFinding(Finding):
    """What the study found in one model.

    `scores` is by method, `questions` by id of a test trial. `k` and `baseline`, the attention method whose heads cost most,
    were chosen on selection trials. `question`: whether these need theirs, or why that cannot be told. `headline` (at k, by
    task) is judged, `curve` runs over k, `texts` is by task. `cri`, `literal` and `recovered` are None if the preset skips their
    stages; `cri` and `recovered` are sentences if they could not be measured.
    """

    k: int
    baseline: str
    scores: dict[str, HeadScores]
    headline: dict[str, AblationCurve]
    curve: AblationCurve
    texts: dict[str, AblationCurve]
    questions: dict[str, str]
    question: QuestionNeed | str = ""
    cri: HeadScores | str | None = None
    literal: HeadScores | None = None
    recovered: Recovery | str | None = None

    @property
    def patched(self) -> HeadScores | None:
        """CRI of every head, if it was measured."""
        return measured(self.cri)

    @property
    def ranked(self) -> dict[str, HeadScores]:
        """Every ranking by name."""
        others = {"cri": self.patched, "literal_share": self.literal}
        return {**self.scores, **{name: found for name, found in others.items() if found is not None}}

    def notes(self) -> dict[str, Any]:
        note = self.recovered.examples if isinstance(self.recovered, Recovery) else self.recovered
        return {
            "k": self.k,
            "question_note": meaning(self.question),
            "heads": self.scores[LEAD].values.numel(),
            "best_attention_baseline": self.baseline,
            "outcomes": self.scores[LEAD].meta["outcomes"],
            "right_answers": {
                str(one): right.values(one, "contains").mean()
                for right in [next(iter(self.texts.values()))]
                for one in right.conditions()
            },
            "top": {name: records(ranked(name, found).head(10)) for name, found in self.ranked.items()},
            "patching_note": self.cri if isinstance(self.cri, str) else None,
            "recovery_note": note,
        }


def measured(cri: HeadScores | str | None) -> HeadScores | None:
    """The scores, where there are any; not the reason why there are none."""
    return cri if isinstance(cri, HeadScores) else None


def ranked(name: str, found: HeadScores) -> pd.DataFrame:
    """The heads with intervals. The literal share has none: it is a ratio of sums, which no mean over trials estimates."""
    return found.frame if name != "literal_share" else found.ranked
