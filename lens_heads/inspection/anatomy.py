"""Properties of the heads that a method found: kv groups, concentration of the score, what they copy, where they look.

`kv_groups` and `concentration` need only scores; `literalness` and `provenance` run one pass over trials. `compare` compares
two methods, and `ablation` ablates heads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, Unpack, get_args

import pandas as pd
import torch
from jaxtyping import Bool, Float
from scipy import stats as scipy_stats
from torch import Tensor

from lens_heads.heads.head import AnyHeads
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.units import check_group
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.workers import shared
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.runs import checks
from lens_heads.runs.drawn import OneRow
from lens_heads.runs.options import RunOptions
from lens_heads.runs.typed import typed
from lens_heads.trials.trial import AnyTrial

Source = Literal["needle", "sink", "answer mention", "question", "neighbourhood", "bulk"]
"""The kinds of attended keys, in the order in which `provenance` tests them."""

NEIGHBOURHOOD = 16
"""How many of the last positions, including the row's own, count as a row's neighbourhood."""


@dataclass(frozen=True)
class KvGroups(OneRow):
    """How the top k heads are distributed over the model's `groups` kv groups of `group` query heads each.

    `covered` groups contain at least one of them; `expected` is the exact mean of that for k random heads; the fullest
    group contains `largest`. If `covered` is below `expected`, the heads tend to share keys and values.

    Example:
        >>> found = lh.inspection.kv_groups(scores, k=2, group=2)
        >>> found.covered, found.largest
        (2, 1)
    """

    k: int
    group: int
    groups: int
    covered: int
    expected: float
    largest: int


@typed
def kv_groups(scores: HeadScores, *, k: int, group: int) -> KvGroups:
    """How many kv groups the top k heads cover, compared with random heads.

    A group is missed by k random heads of N with probability C(N - group, k) / C(N, k) (hypergeometric), so
    expected = N / group * (1 - that). `group` is `head_geometry(model).group`, query heads per kv head.

    Raises ValueError for scores of kv heads, a group that does not divide the heads of a layer, or k outside 1 to the
    number of heads.

    `scores`: of query heads.

    Example:
        >>> found = lh.inspection.kv_groups(scores, k=2, group=2)
        >>> found.covered, found.groups
        (2, 4)
    """
    check_group(scores, "query_head", group)
    top = scores.top(checks.whole_number("k", k))
    held = Counter((head.layer, head.head // group) for head in top)
    n = len(scores.flat)
    missed = float(scipy_stats.hypergeom.pmf(0, n, group, len(top)))
    return KvGroups(len(top), group, n // group, len(held), n / group * (1 - missed), max(held.values()))


@dataclass(frozen=True)
class Concentration(OneRow):
    """How few heads carry a method's positive score.

    `top_1`, `top_5`, `top_10`: share of the total positive score in the best 1, 5, 10 % of all heads (rounded up to whole
    heads). `gini`: Gini coefficient of the positive parts, 0 if all heads are equal, (n - 1) / n if one has everything.
    `half`: how many heads carry half of the total. `positive`: how many of the `n` heads are above zero.

    Example:
        >>> found = lh.inspection.concentration(scores)
        >>> found.top_1 <= found.top_5 <= found.top_10
        True
    """

    n: int
    positive: int
    top_1: float
    top_5: float
    top_10: float
    gini: float
    half: int


@typed
def concentration(scores: HeadScores) -> Concentration:
    """Shares, Gini coefficient and half-count of max(score, 0) over all heads. ValueError if no head is above zero.

    gini = sum_i (2 i - n - 1) x_i / (n sum_i x_i), x ascending from i = 1.

    `scores`: of all heads.

    Example:
        >>> found = lh.inspection.concentration(scores)
        >>> found.n, found.half, found.top_1 > 0.5
        (8, 1, True)
    """
    x = (scores.sign * scores.flat).double().clamp(min=0).sort(descending=True).values
    n, total = len(x), float(x.sum())
    if total == 0:
        raise ValueError(f"{scores.method}: no head scores above zero, so concentration is undefined")
    carried = x.cumsum(0)
    shares = [float(carried[-(-n * percent // 100) - 1]) / total for percent in (1, 5, 10)]
    place = torch.arange(n, 0, -1, dtype=torch.float64)
    gini = float(((2 * place - n - 1) * x).sum()) / (n * total)
    half = int((carried < total / 2 * (1 - 1e-12)).sum()) + 1  # Rounding must not make equal heads miss the half.
    return Concentration(n, int((x > 0).sum()), shares[0], shares[1], shares[2], gini, half)


@typed
@shared
def literalness(
    model: Model,
    trials: Iterable[AnyTrial],
    *,
    teacher_forced: bool = False,
    direction: str | Path = "raw",
    **run: Unpack[RunOptions],
) -> HeadScores:
    """Share of a head's positive contribution from the needle that comes from literal copies: 0 to 1.

    The sum over answer steps t and needle positions j with x_j = y_t of max(phi[t, j], 0), divided by the same sum over all
    needle positions; phi is as in `locos`. A literal copy has the same token, or one that differs only by the space before it. If
    the needle does not contain the answer's tokens, every head has 0.

    Returns:
        HeadScores "literal_share": `values` is the ratio of the sums over trials, `per_trial` the ratio in each trial. If
        the denominator is 0 (the head writes nothing from the needle towards the answer), both are 0, not NaN. `values` is
        not the mean of `per_trial`, which `interval` resamples; score files keep both.

    Raises ValueError as `score_heads` does.

    `teacher_forced`, `direction`: as in `score_heads`.

    Cost: as `score_heads`: a pass for each trial, and the decoding of its answer unless it is forced.

    Example:
        >>> share = lh.inspection.literalness(model, trials, teacher_forced=True)
        >>> copier, writer = heads
        >>> round(share.values[copier.layer, copier.head].item(), 2), round(share.values[writer.layer, writer.head].item(), 2)
        (1.0, 0.0)
    """
    parts = [
        Scorer("literal contribution", partial(_positive, literal=True), signed=False),
        Scorer("needle contribution", partial(_positive, literal=False), signed=False),
    ]
    found = score_heads(model, trials, parts, teacher_forced=teacher_forced, direction=direction, **run)
    copied, whole = (found[part.name] for part in parts)
    values = _share(copied.per_trial.double().sum(0), whole.per_trial.double().sum(0))
    return replace(whole, method="literal_share", values=values, per_trial=_share(copied.per_trial, whole.per_trial))


def _positive(view: LayerView, literal: bool) -> Float[Tensor, " head"]:
    """Sum over rows and needle positions of max(phi, 0); with `literal` only where the key holds the row's next token."""
    inside = slice(*view.needle)
    counted = view.phi[..., inside].clamp(min=0)
    if literal:
        keys = torch.arange(*view.needle, device=view.tokens.device)
        counted = counted * view.says_next(keys[:, None]).T
    return counted.sum((-1, -2))


def _share(part: Float[Tensor, "..."], whole: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    return torch.where(whole > 0, part / torch.where(whole > 0, whole, 1), 0)


@typed
@shared
def provenance(
    model: Model,
    trials: Iterable[AnyTrial],
    heads: AnyHeads,
    *,
    sink: bool = True,
    teacher_forced: bool = False,
    **run: Unpack[RunOptions],
) -> pd.DataFrame:
    """Where heads look while the answer is written: the kind of each answer row's most attended key.

    The first of these that applies:
        needle: inside the needle.
        sink: position 0.
        answer mention: the token that the row produces, but for a space before it, outside the needle.
        question: inside the question's span; never, if the trial's span is unknown.
        neighbourhood: one of the last 16 positions, including the row's own.
        bulk: anything else.

    With `sink=False`, position 0 is ignored, since most heads attend to it most, whatever their function.

    Returns:
        One row per head, in the given order: head ("L12H1"), the share of each kind (mean over a trial's answer steps, then
        over trials; shares sum to one), and trials, the number that count.

    Raises ValueError as `score_heads` does, and for no heads or a head that the model does not have.

    `teacher_forced`: as in `score_heads`.

    Cost: as `score_heads`: a pass for each trial, and the decoding of its answer unless it is forced.

    Example:
        >>> lh.inspection.provenance(model, trials, heads, teacher_forced=True)[["head", "needle", "bulk"]]
           head  needle  bulk
        0  L1H0     1.0   0.0
        1  L0H0     1.0   0.0
    """
    chosen = head_geometry(model).check_heads(heads)
    if not chosen:
        raise ValueError("no heads given: pass some, e.g. ['L12H1'], or select the best with scores.top(k)")
    kinds: tuple[Source, ...] = get_args(Source)
    looks = [Scorer(f"attention to {kind}", partial(_looks_at, kind=kind, sink=sink), signed=False) for kind in kinds]
    found = score_heads(model, trials, looks, teacher_forced=teacher_forced, **run)
    shares = {kind: [found[f"attention to {kind}"][head] for head in chosen] for kind in kinds}
    trials_counted = len(found["attention to bulk"].trial_ids)
    return pd.DataFrame({"head": [str(head) for head in chosen], **shares, "trials": trials_counted})


def _looks_at(view: LayerView, kind: Source, sink: bool = True) -> Float[Tensor, " head"]:
    """Share of the rows whose most attended key is of this kind."""
    at = view.pattern.argmax(-1) if sink else view.pattern[..., 1:].argmax(-1) + 1
    own = view.row_positions
    start, end = view.question or (0, 0)
    fits: dict[Source, Bool[Tensor, "head row"]] = {
        "needle": (at >= view.needle[0]) & (at < view.needle[1]),
        "sink": at == 0,
        "answer mention": view.says_next(at),
        "question": (at >= start) & (at < end),
        "neighbourhood": at > own - NEIGHBOURHOOD,
        "bulk": torch.ones_like(at).bool(),
    }
    order = get_args(Source)
    before = [fits[earlier] for earlier in order[: order.index(kind)]]
    taken = torch.stack(before).any(0) if before else torch.zeros_like(fits[kind])
    return (fits[kind] & ~taken).float().mean(-1)
