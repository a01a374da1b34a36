"""What the explorer shows of a model's heads, as plain values: scores, cards, partners, and what ablating them together costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Head
from lens_heads.heads.matching import HeadMatch
from lens_heads.heads.named import AnyRankings, by_name
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.units import to_query_heads
from lens_heads.inspection.cards import HeadCards
from lens_heads.interventions.activations import MeanActivations
from lens_heads.interventions.checked_kind import check_belongs
from lens_heads.model.belonging import check_owner, check_scores_of
from lens_heads.model.geometry import Model
from lens_heads.plots.theme import method_style
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.ranking.one_pass.scorers import SCORERS
from lens_heads.runs.identity import ModelIdentity
from lens_heads.trials.encoded import EncodedTrial

METHODS = ("locos_exact", "locos", "dla_exact", "attention_spatial", "copy")
WITHOUT_NEEDLE = tuple(
    one.name for one in sorted(SCORERS.values(), key=lambda one: one.direction != "exact") if not one.reads_needle
)
"""Those that do not read where the needle is, the exact ones first."""
CARD = ("kind", "promotes", "writes")
DIGITS = 5


@runtime_checkable
class AblationCurveLike(Protocol):
    """What the explorer shows of an ablation curve: its table, the task it is about, and the model it was measured on."""

    @property
    def frame(self) -> Any: ...
    @property
    def main_task(self) -> str: ...
    @property
    def model(self) -> ModelIdentity: ...
    @classmethod
    def load(cls, folder: Any) -> Any: ...


def default_scores(model: Model, trials: Sequence[EncodedTrial]) -> dict[str, HeadScores]:
    """The scores of an explorer that is given none: five methods from one pass; without needles, direct logit attribution."""
    short = next((trial.id for trial in trials if len(trial) < 2), None)
    if short is not None:
        raise ValueError(
            f"trial {short}: its prompt is a single token, from which nothing can be compared: pass rankings="
        )
    names = METHODS if all(trial.needle is not None for trial in trials) else WITHOUT_NEEDLE
    marked = [replace(trial, needle=trial.needle or (0, 1)) for trial in trials]
    return score_heads(model, marked, names, teacher_forced=True, progress=False)


def check_made(
    model: Model,
    scores: AnyRankings,
    curve: AblationCurveLike | None = None,
    reference: MeanActivations | None = None,
    cards: HeadCards | None = None,
    match: HeadMatch | None = None,
) -> None:
    """ValueError for anything that was made on other weights than this model's. `contents` checks shapes."""
    check_scores_of(model, by_name(scores))
    if curve is not None:
        check_owner(model, "the curve was", curve.model, "ablate this model's heads")
    if reference is not None:
        check_belongs(model, reference)
    if cards is not None:
        check_owner(model, "the cards were", cards.identity, "describe this model")
    if match is not None:
        check_owner(model, "the match was", match.identities[0], "match this model, as the first of both")


def contents(
    shape: HeadGeometry,
    scores: AnyRankings,
    trials: Sequence[str],
    direction: str = "exact",
    curve: AblationCurveLike | None = None,
    cards: HeadCards | None = None,
    match: HeadMatch | None = None,
) -> dict[str, Any]:
    """The explorer's `about`, ready for JSON.

    ValueError for no scores, and for scores, cards or a match of a model of another shape; TypeError for what are no scores.
    """
    rows = _cards(shape, cards)
    named = by_name(scores)
    labels: list[str] = [] if cards is None else list(CARD)
    if match is not None:
        label = f"partner in {match.meta.get('model_b', 'the other model')}"
        labels.append(label)
        for head, partner in _partners(shape, match).items():
            rows.setdefault(head, {})[label] = partner
    return {
        "model": shape.name,
        "layers": shape.n_layers,
        "heads": shape.n_heads,
        "kv": shape.n_kv_heads,
        "windows": list(shape.windows),
        "scores": [_score(name, one, shape) for name, one in named.items()],
        "card_labels": labels,
        "cards": rows,
        "ablated": [] if curve is None else _ablated(curve, {*named, *(one.method for one in named.values())}),
        "ablated_unit": "change of the answer's log-probability (nats per token)",
        "trials": list(trials),
        "direction": direction,
        "unit": "logits",
        "experiments": [],
    }


def best_heads(about: Mapping[str, Any], k: int) -> list[str]:
    """The first k heads of every score, those of the first score first."""
    found: list[str] = []
    for score in about["scores"]:
        places = {
            rank: str(Head(layer, head))
            for layer, row in enumerate(score["ranks"])
            for head, rank in enumerate(row)
            if rank is not None
        }
        found += [places[rank] for rank in sorted(places)[:k]]
    return list(dict.fromkeys(found))


def _score(name: str, scores: HeadScores, shape: HeadGeometry) -> dict[str, Any]:
    one = to_query_heads(scores, shape.group) if scores.unit == "kv_head" else scores
    shape.check_scores(one, f"scores {name!r}")
    _, low, high = one.interval()
    known = bool(low.isfinite().any())
    ranks: list[list[int | None]] = [[None] * shape.n_heads for _ in range(shape.n_layers)]
    for rank, head in enumerate(one.ranking(), 1):
        if one.values[head.layer, head.head].isfinite():
            ranks[head.layer][head.head] = rank
    return {
        "name": name,
        "label": method_style(name).label,
        "unit": one.score_unit,
        "best": one.best,
        "values": _rounded(one.values),
        "ranks": ranks,
        "low": _rounded(low) if known else None,
        "high": _rounded(high) if known else None,
    }


def _rounded(values: Float[Tensor, "layer head"]) -> list[list[float | None]]:
    """Five significant digits; None where there is no number, which JSON lacks."""
    rows = values.double().tolist()
    return [[float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in row] for row in rows]


def _cards(shape: HeadGeometry, cards: HeadCards | None) -> dict[str, dict[str, str]]:
    if cards is None:
        return {}
    known = set(map(str, shape.every_head()))
    other = next((head for head in cards.frame["head"] if head not in known), None)
    if other is not None:
        raise ValueError(f"cards are of {cards.model}, which has a head {other} that {shape.name} lacks")
    return {row["head"]: {label: str(row[label]) for label in CARD} for row in cards.frame.to_dict("records")}


def _partners(shape: HeadGeometry, match: HeadMatch) -> dict[str, str]:
    if match.shape_a != (shape.n_layers, shape.n_heads):
        raise ValueError(
            f"match is of a model of {match.shape_a} layers and heads, {shape.name} has {(shape.n_layers, shape.n_heads)}"
        )
    rows = match.pairs.to_dict("records")
    return {row["head_a"]: f"{row['head_b']} (distance {row['distance']:.2f})" for row in rows}


def _ablated(curve: AblationCurveLike, methods: set[str]) -> list[dict[str, Any]]:
    """A row per ablated set of the curve's main task, of these methods and of none: what it changes, with its interval."""
    frame = curve.frame
    rows = frame[(frame["task"] == curve.main_task) & (frame["metric"] == "logprob") & (frame["set"] != "none")]
    rows = rows[rows["method"].isin([*methods, "any", "none"])]
    return [
        {
            "label": _set(row["method"], row["set"]),
            "k": int(row["k"]),
            "value": -float(row["drop"]),
            "low": None if pd.isna(row["drop_low"]) else -float(row["drop_high"]),
            "high": None if pd.isna(row["drop_low"]) else -float(row["drop_low"]),
        }
        for row in rows.to_dict("records")
    ]


def _set(method: str, which: str) -> str:
    """Which heads a row ablates, in words; the prompt without its needle is no set of heads."""
    if which == "no_needle":
        return "no head, no needle in the prompt"
    if which == "top_no_needle":
        return f"best by {method_style(method).label}, no needle in the prompt"
    named = (
        method_style(which).label
        if method in ("any", "none")
        else f"{method_style(which).label}, {method_style(method).label}"
    )
    return f"best by {method_style(method).label}" if which == "top" else named
