"""Circuit: heads found stage after stage, from the logits backwards, and what each stage writes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.typed import typed_methods

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage: which receivers its senders write to, and each sender's share of the gap; `heads` are the best of them."""

    name: str
    receivers: tuple[Head, ...]
    scores: HeadScores
    heads: tuple[Head, ...]


@typed_methods
@dataclass(frozen=True, eq=False)
class Circuit(Drawn):
    """The `stages` of a trace, from the logits backwards. `gap`: mean metric of the clean minus that of the corrupt run.

    `shape`: layers, and heads in each. `meta`: the settings.

    Example:
        >>> circuit = lh.ranking.trace_circuit(model, pairs)
        >>> circuit.stages[0].name, circuit.stages[0].heads == tuple(heads[:1])
        ('to the logits', True)
    """

    stages: tuple[Stage, ...]
    gap: float
    shape: tuple[int, int]
    meta: dict[str, Any]

    @property
    def heads(self) -> list[Head]:
        """All heads of the circuit, those of earlier stages first."""
        return list(dict.fromkeys(head for stage in self.stages for head in stage.heads))

    @property
    def frame(self) -> pd.DataFrame:
        """A row per stage and head: stage, head, share of the gap, receivers.

        Without intervals: the heads were chosen on these pairs, which therefore cannot say how good they are.
        """
        rows = [
            {"stage": stage.name, "head": str(head), "share": stage.scores[head]}
            | {"receivers": ", ".join(map(str, stage.receivers)) or "logits"}
            for stage in self.stages
            for head in stage.heads
        ]
        return pd.DataFrame(rows, columns=["stage", "head", "share", "receivers"])

    def plot(self, *, title: str | None = None) -> go.Figure:
        """A map of the heads, coloured by the first stage that has them; hover has their shares of the gap in every stage."""
        from lens_heads import plots

        named = {f"{number} {stage.name}": stage for number, stage in enumerate(self.stages, 1)}
        rows = []
        for head in self.stages[0].scores.heads:
            kind = next((name for name, stage in named.items() if head in stage.heads), "")
            row = {"head": str(head), "layer": head.layer, "index": head.head, "kind": kind}
            rows.append(row | {name: stage.scores[head] for name, stage in named.items()})
        return plots.kind_map(
            pd.DataFrame(rows), list(named), title=title or f"A circuit of {self.meta.get('model', 'a model')}"
        )

    def __repr__(self) -> str:
        found = "; ".join(f"{stage.name}: {', '.join(map(str, stage.heads))}" for stage in self.stages)
        return f"Circuit({found})"
