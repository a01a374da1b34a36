"""Roles of heads over a series of checkpoints: which emerged, which were lost, which were kept   (Thinking Sparks)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pandas as pd

from lens_heads.compare.checkpoints import compare_checkpoints
from lens_heads.compare.overlap import head_overlaps
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.runs import checks
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.typed import typed, typed_methods
from lens_heads.runs.warned import users_line

if TYPE_CHECKING:
    import plotly.graph_objects as go

STATUSES = ("emergent", "lost", "kept", "unclear")


@typed_methods
@dataclass(frozen=True, eq=False)
class CheckpointSeries(Drawn):
    """`heads`: a row per head: a column of scores per checkpoint, ranks first and last, status.

    `steps`: a row per pair of neighbours, and last first against last: before, after, emergent, lost, kept (names), how many
    of the top k both share, how many are expected by chance (any heads; as many in each layer), and p of at least as many.

    `k`: size of the top sets.

    Example:
        >>> series = lh.compare.checkpoint_series({"step 1": scores, "step 2": scores}, k=2)
        >>> series.steps["kept"].iloc[0]
        'L1H0, L0H0'
    """

    heads: pd.DataFrame
    steps: pd.DataFrame
    k: int

    @property
    def frame(self) -> pd.DataFrame:
        """`heads`: a row per head."""
        return self.heads

    def of(self, status: str) -> list[str]:
        """The names of the heads that are emergent, lost, kept or unclear from the first checkpoint to the last."""
        if status not in STATUSES:
            raise ValueError(f"status={status!r}: use one of {', '.join(STATUSES)}")
        return list(self.heads.loc[self.heads["status"] == status, "head"])

    def plot(self, *, title: str | None = None) -> go.Figure:
        """A map of the heads, coloured by what became of them from the first checkpoint to the last."""
        from lens_heads import plots

        at = [Head.parse(head) for head in self.heads["head"]]
        kinds = self.heads["status"].where(self.heads["status"].isin(STATUSES), "")
        frame = self.heads.assign(layer=[head.layer for head in at], index=[head.head for head in at], kind=kinds)
        last = self.steps.iloc[-1]
        return plots.kind_map(frame, STATUSES, title=title or f"Heads from {last['before']} to {last['after']}")


@typed
def checkpoint_series(
    checkpoints: Mapping[str, HeadScores], *, k: int = 20, alpha: float = 0.05, n: int = 4000, seed: int = 0
) -> CheckpointSeries:
    """Compare the scores of one architecture at several checkpoints, in order.

    Args:
        checkpoints: by name, in order, scores of one method on the same trials, such as
            `ranking.importance(attribution_patch(model, pairs, "kl", ig_steps=5))`, which are shares of all heads and so
            compare across checkpoints.
        k, alpha, n, seed: as in `compare_checkpoints`, which decides on emergent, lost and kept heads.

    Raises ValueError for fewer than two checkpoints, and as `compare_checkpoints` does.

    Example:
        >>> series = lh.compare.checkpoint_series({"step 1": scores, "step 2": scores}, k=2)
        >>> series.steps[["before", "after", "emergent", "lost"]].iloc[0].tolist()
        ['step 1', 'step 2', '', '']
    """
    names = list(checkpoints)
    if len(names) < 2:
        raise ValueError(f"{len(names)} checkpoint: a series needs at least two")
    taken = next((name for name in names if name in ("head", "rank_first", "rank_last", "status")), None)
    if taken is not None:
        raise ValueError(f"checkpoint {taken!r}: the table of heads has a column of that name; give it another one")
    checks.whole_number("k", k)
    steps = [re.findall(r"\d+", name) for name in names]
    counted = [int(found[-1]) for found in steps if found]
    if len(counted) == len(names) and counted not in (sorted(counted), sorted(counted, reverse=True)):
        warnings.warn(
            f"checkpoints are compared in the order given, {', '.join(names)}: pass them in the order of training",
            stacklevel=users_line(),
        )
    pairs = [*pairwise(names), *([(names[0], names[-1])] if len(names) > 2 else [])]
    rows = []
    frame = pd.DataFrame()
    for before, after in pairs:
        frame = compare_checkpoints(checkpoints[before], checkpoints[after], k=k, alpha=alpha, n=n, seed=seed)
        tops = {name: checkpoints[name].top(k) for name in (before, after)}
        shape = (checkpoints[after].n_layers, checkpoints[after].n_heads)
        (shared,) = head_overlaps(tops, shape=shape).to_dict("records")
        row = {"before": before, "after": after}
        row |= {
            status: ", ".join(frame.loc[frame["status"] == status, "head"]) for status in ("emergent", "lost", "kept")
        }
        row |= {"shared": shared["overlap"], "expected": shared["expected_overlap"], "p": shared["p_value"]}
        row |= {"expected_in_layers": shared["layer_matched_overlap"], "p_in_layers": shared["layer_matched_p_value"]}
        rows.append(row)
    heads = frame[["head", "rank_before", "rank_after", "status"]].rename(
        columns={"rank_before": "rank_first", "rank_after": "rank_last"}
    )
    for place, (name, scores) in enumerate(checkpoints.items(), 1):
        heads.insert(place, name, [scores[head] for head in heads["head"]])
    return CheckpointSeries(heads.reset_index(drop=True), pd.DataFrame(rows), k)
