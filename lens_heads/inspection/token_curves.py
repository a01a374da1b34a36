"""Curves over a text: how far local heads look back (WAAD), and how much later tokens look back to each (FAI).

"Attention Illuminates LLM Reasoning": the heads of a layer with the smallest and the largest span are local and global.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.heads.scores import HeadScores
from lens_heads.model.belonging import check_scores_of
from lens_heads.model.geometry import Model
from lens_heads.model.identity import warn_of_change
from lens_heads.model.support import require
from lens_heads.ranking.one_pass.row_view import RowView
from lens_heads.ranking.one_pass.scorers import TEXT_SCORERS
from lens_heads.ranking.one_pass.text_pass import ROWS, read_text, stream_rows
from lens_heads.runs import checks
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.typed import typed, typed_methods
from lens_heads.trials.texts import AnyText, plain_texts

if TYPE_CHECKING:
    import plotly.graph_objects as go

WINDOW, NEAR, FAR, SHARE, PREPLAN = 10, 10, 50, 0.3, 0.4


@typed_methods
@dataclass(frozen=True, eq=False)
class TokenCurve(Drawn):
    """A number for every token of a text. NaN where it is not defined.

    `name`: of what it shows. `values` [position], `tokens` and `words`: the text, as ids and as it reads.

    Example:
        >>> lh.token_curves(model, "ijk(a=A)lmn?A")["WAAD"].words[-2:]
        ('?', 'A')
    """

    name: str
    values: Float[Tensor, " position"]
    tokens: Int[Tensor, " position"]
    words: tuple[str, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """One row per token: position, token (as text), value."""
        return pd.DataFrame({"position": range(len(self.words)), "token": self.words, "value": self.values.numpy()})

    def top(self, n: int) -> list[int]:
        """The positions of the n largest values, largest first."""
        values = np.nan_to_num(self.values.numpy(), nan=-np.inf)
        order = np.argsort(-values, kind="stable")[: checks.whole_number("n", n, 0, len(values))]
        return [int(i) for i in order if np.isfinite(values[i])]

    def jumps(self, *, share: float = PREPLAN) -> list[int]:
        """The positions t of the `share` largest |c[t] - c[t + 1]|, in order: the paper's "preplan" tokens."""
        change = (self.values[:-1] - self.values[1:]).abs()
        known = torch.isfinite(change).nonzero()[:, 0]
        kept = known[change[known].argsort(descending=True, stable=True)][
            : round(checks.share("share", share) * len(known))
        ]
        return sorted(int(i) for i in kept)

    def plot(self, *, title: str | None = None) -> go.Figure:
        """The curve over the text, with every token named on hover."""
        from lens_heads import plots

        return plots.token_curve(self.name, self.words, self.values.numpy(), title=title)


@typed
def token_curves(
    model: Model,
    text: AnyText,
    *,
    span: HeadScores | None = None,
    window: int = WINDOW,
    near: int = NEAR,
    far: int = FAR,
    share: float = SHARE,
) -> dict[str, TokenCurve]:
    """WAAD and FAI of one text, from its whole attention, a few rows at a time.

        WAAD[t] = sum_s L[t, s] min(t - s, window)        L: mean pattern of the local heads of all layers
        FAI[s]  = mean over rows t with near <= t - s <= far of G[t, s]        G: the same of the global heads

    Args:
        text: a string, a (prompt, response) pair, or token ids.
        span: the scores "span" of `score_heads`, by which the `share` lowest heads of each layer are local and the `share`
            highest global; measured on this text if None.

    FAI is NaN for tokens with no row so far after them, WAAD before the counted rows. Differs from the paper: all layers,
    where its training used five in the middle third; and heads are sorted by `span`, relative and without the sink, where the
    paper takes `span_tokens`. Pass scores of that name as `span` for its own.

    `model`: that reads the text.

    Cost: a pass over the text, and one more to measure `span` where none is given.

    Example:
        >>> list(lh.token_curves(model, "ijk(a=A)lmn?A"))
        ['WAAD', 'FAI']
    """
    for name, value in (("window", window), ("near", near), ("far", far)):
        checks.whole_number(name, value)
    if far < near:
        raise ValueError(f"far={far}: must be at least near={near}")
    shape = require(model, "token_curves", "pattern")
    warn_of_change(model, "curves")
    (encoded,) = plain_texts([text]).encode(model.tokenizer, shape)
    if span is None:
        spans = read_text(model, encoded, [TEXT_SCORERS["span"]])["span"]
    else:
        shape.check_scores(span, "span")
        check_scores_of(model, {"span": span})
        spans = span.values
    k = max(1, round(checks.share("share", share, "0.3") * shape.n_heads))
    ranked = torch.argsort(spans, dim=-1, stable=True)
    n, layers = len(encoded), shape.n_layers
    looked, received, rows = torch.full((n,), torch.nan), torch.zeros(n), torch.zeros(n)

    def see(view: RowView) -> None:
        local, distant = (view.pattern[heads].mean(0) for heads in (ranked[view.layer, :k], ranked[view.layer, -k:]))
        counted, at = view.counted, view.row_positions.cpu()
        back = (local * view.distances.clamp(max=window)).sum(-1) / layers
        looked[at[counted.cpu()]] = looked[at[counted.cpu()]].nan_to_num(0) + back[counted].cpu()
        there = counted[:, None] & (view.distances >= near) & (view.distances <= far)
        received[: there.shape[1]] += (distant * there).sum(0).cpu() / layers
        rows[: there.shape[1]] += there.sum(0).cpu() / layers

    stream_rows(model, encoded, see, ROWS)
    words = tuple(model.tokenizer.decode([token]) for token in encoded.tokens.tolist())
    fai = torch.where(rows > 0, received / rows.clamp(min=1e-9), torch.nan)
    made: dict[str, Any] = {"WAAD": looked, "FAI": fai}
    return {name: TokenCurve(name, values, encoded.tokens, words) for name, values in made.items()}
