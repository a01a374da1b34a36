"""Rankings made of others: does any find more harmful heads per pass than the methods that it is made of?

`CANDIDATES` are functions of `Material`, as the table of methods takes them (`methods.py` judges them there):

- `rank_sum`: the mean rank by exact LOCOS (the direct part, by projection) and by the attribution of ablation (with the indirect
  part, by gradient).
- `attribute_logit`: the attribution of ablation, of the answer's logit above the mean logit. The gradient of the log-probability,
  which it replaces, vanishes where the model is sure.
- `locos_in_turn`, `attribute_in_turn`: the first head of exact LOCOS, or of `attribute_logit`; then, with it ablated, the first
  of the others; and so on. What takes an ablated head's place shows in the next pass.
- `best_of`: of the cheap rankings, the one whose top k heads cost the selection trials most.
- `shortlist`, `elimination`, `greedy_shortlist`: from 2k heads that the cheap rankings propose, those that cost most alone; those
  that backward elimination keeps; those that greedy search takes on every third trial.

One became a method of the library: `lens_heads.ranking.masks.in_turn`. It was made after a first look at ioi and induction on the
packaged models; the other cells are its test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

import lens_heads as lh
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.ranking.baselines import on_material
from lens_heads.ranking.masks.in_turn import in_turn
from lens_heads.ranking.masks.localize import masked_metric
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method

ONE_PASS = ("locos_exact", "dla_exact", "locos", "attention_spatial")


def one_pass(material: Material, names: Sequence[str]) -> dict[str, HeadScores]:
    """Scores from one teacher-forced pass."""
    return lh.score_heads(material.model, material.needled, list(names), teacher_forced=True, progress=False)


def attribute_logit(material: Material) -> HeadScores:
    """Three passes: one with gradients."""
    means = material.reference
    return lh.attribute_ablation(
        material.model, material.trials, kind="mean", reference=means, metric="answer_logit", progress=False
    )


def proposals(material: Material) -> dict[str, HeadScores]:
    """The cheap rankings: four scores from one pass, and attribution from one with gradients; four passes in all."""
    return {**one_pass(material, ONE_PASS), "attribute_logit": attribute_logit(material)}


def lowest(metric: MaskedMetric, sets: Sequence[Sequence[Head]]) -> list[int]:
    """The places of the sets, the most harmful to ablate first: one run each."""
    values = metric(np.stack([metric.mask(heads) for heads in sets])).mean(1)
    return [int(at) for at in np.argsort(values, kind="stable")]


def ordered(name: str, heads: Iterable[Head], material: Material) -> HeadScores:
    """A ranking that is only an order: the heads as given, each where it is named first."""
    order = list(dict.fromkeys(heads))
    shape = lh.head_geometry(material.model)
    values = torch.zeros(shape.n_layers, shape.n_heads)
    for place, head in enumerate(order):
        values[head.layer, head.head] = len(order) - place
    rows = values.expand(len(material.trials), -1, -1)
    return on_material(name, rows, material, order=tuple(order), selected=True, score_unit="rank")


def rank_sum(material: Material) -> HeadScores:
    """Four passes."""
    means = material.reference
    both = [one_pass(material, ["locos_exact"])["locos_exact"]]
    both.append(lh.attribute_ablation(material.model, material.trials, kind="mean", reference=means, progress=False))
    places = [{head: place for place, head in enumerate(one.ranking())} for one in both]
    return ordered("rank_sum", sorted(places[0], key=lambda head: sum(one[head] for one in places)), material)


def locos_in_turn(material: Material) -> HeadScores:
    """k passes."""
    ablation = masked_metric(material).ablation
    heads = in_turn(material.model, ablation, material.k, lambda: one_pass(material, ["locos_exact"])["locos_exact"])
    return ordered("locos_in_turn", heads, material)


def attribute_in_turn(material: Material) -> HeadScores:
    """3 k passes."""
    heads = in_turn(material.model, masked_metric(material).ablation, material.k, lambda: attribute_logit(material))
    return ordered("attribute_in_turn", heads, material)


def led(material: Material) -> tuple[MaskedMetric, HeadScores, list[Head]]:
    """The metric, the cheap ranking whose top k is most harmful, and a shortlist: its top k, then others' in turn, up to 2k."""
    metric, found, k = masked_metric(material), proposals(material), material.k
    rankings = list(found.values())
    lead = rankings[lowest(metric, [one.top(k) for one in rankings])[0]]
    in_order = [one.top(k)[place] for place in range(k) for one in rankings]
    return metric, lead, list(dict.fromkeys([*lead.top(k), *in_order]))[: 2 * k]


def best_of(material: Material) -> HeadScores:
    """Nine passes."""
    _, lead, _ = led(material)
    return ordered("best_of", lead.ranking(), material)


def shortlist(material: Material) -> HeadScores:
    """Nine passes and 2 k runs."""
    metric, lead, listed = led(material)
    heads = [listed[at] for at in lowest(metric, [[head] for head in listed])]
    return ordered("shortlist", [*heads, *lead.ranking()], material)


def elimination(material: Material) -> HeadScores:
    """Nine passes and some 2 k^2 runs: the head that is missed least is given back, until one is left."""
    metric, lead, left = led(material)
    back: list[Head] = []
    while len(left) > 1:
        back.append(left.pop(lowest(metric, [[one for one in left if one != head] for head in left])[0]))
    return ordered("elimination", [*left, *reversed(back), *lead.ranking()], material)


def greedy_shortlist(material: Material) -> HeadScores:
    """Nine passes and some 1.5 k^2 runs on a third of the trials."""
    _, lead, listed = led(material)
    metric = masked_metric(replace(material, trials=material.trials[::3]))
    chosen: list[Head] = []
    while len(chosen) < material.k:
        left = [head for head in listed if head not in chosen]
        chosen.append(left[lowest(metric, [[*chosen, head] for head in left])[0]])
    return ordered("greedy_shortlist", [*chosen, *lead.ranking()], material)


CANDIDATES = tuple(
    Method(one.__name__, "combined", one, "needle", lambda *_: 30.0)
    for one in (
        rank_sum,
        attribute_logit,
        locos_in_turn,
        attribute_in_turn,
        best_of,
        shortlist,
        elimination,
        greedy_shortlist,
    )
)
