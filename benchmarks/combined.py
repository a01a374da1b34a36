"""Does a ranking made of others find more harmful heads per pass than the best of the table does?

Candidates, the functions below: the mean rank of exact LOCOS (the direct part) and of the attribution of ablation (direct and
indirect); the best of the cheap rankings on the selection trials; and, from a shortlist of 2k heads that cheap rankings propose,
those that cost most alone, those that backward elimination keeps, or those that greedy search takes on every third trial. All
are judged by `lh.studies.methods` beside what they are made of, on trials that none has seen; greedy search over all heads is the
mark.

Appends JSON, cell by cell, to benchmarks/results/combined.jsonl; what was run stays in --out, for the same command.

Run: python benchmarks/combined.py [--models gemma-3-270m,smollm2-135m-instruct] [--tasks ioi,induction]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import append

import lens_heads as lh
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.localize.measure import MaskedMetric
from lens_heads.model.identity import identify
from lens_heads.studies.ranking_methods.material import Material
from lens_heads.studies.ranking_methods.methods import Method, measured
from lens_heads.studies.ranking_methods.presets import Preset
from lens_heads.trials.digests import made_on

ONE_PASS = ("locos_exact", "dla_exact", "locos", "attention_spatial")
BESIDE = (*ONE_PASS, "attribute_ablation", "css", "greedy", "random_numbers")
PRESET = Preset(12, 12, 32, 20, 16, masks=120, searched=1400, draws=40, few=12, kept_draws=12, planted=0)


def proposals(material: Material) -> dict[str, HeadScores]:
    """The cheap rankings: four scores from one pass, and attribution from one with gradients; four passes in all."""
    found: dict[str, HeadScores] = {}
    if material.needled:
        found |= lh.score_heads(material.model, material.needled, list(ONE_PASS), teacher_forced=True, progress=False)
    means = material.reference
    found["attribute_ablation"] = lh.attribute_ablation(material.model, material.trials, "mean", means, progress=False)
    return found


def lowest(metric: MaskedMetric, sets: Sequence[Sequence[Head]]) -> list[int]:
    """The places of the sets, the most harmful to ablate first: one run each."""
    values = metric(np.stack([metric.mask(heads) for heads in sets])).mean(1)
    return [int(at) for at in np.argsort(values, kind="stable")]


def ordered(name: str, first: Sequence[Head], lead: HeadScores, material: Material) -> HeadScores:
    """A ranking that is only an order: the given heads, then the lead's others."""
    heads = [*first, *(head for head in lead.ranking() if head not in set(first))]
    values = torch.zeros(lead.n_layers, lead.n_heads)
    for place, head in enumerate(heads):
        values[head.layer, head.head] = len(heads) - place
    rows, ids = values.expand(len(material.trials), -1, -1), [trial.id for trial in material.trials]
    about: dict[str, Any] = {"model": identify(material.model), "made_on": made_on(list(material.trials))}
    return HeadScores.from_trials(name, rows, ids, order=tuple(heads), selected=True, score_unit="rank", **about)


def rank_sum(material: Material) -> HeadScores:
    """The mean rank by exact LOCOS and by the attribution of ablation."""
    found = proposals(material)
    both = [found[name] for name in ("locos_exact", "attribute_ablation") if name in found]
    places = [{head: place for place, head in enumerate(one.ranking())} for one in both]
    return ordered("rank_sum", sorted(places[0], key=lambda head: sum(one[head] for one in places)), both[0], material)


def led(material: Material) -> tuple[MaskedMetric, HeadScores, list[Head]]:
    """The metric, the cheap ranking whose top k is most harmful, and a shortlist: its top k, then others' in turn, up to 2k."""
    metric, found, k = measured(material), proposals(material), material.k
    rankings = list(found.values())
    lead = rankings[lowest(metric, [one.top(k) for one in rankings])[0]]
    in_turn = [one.top(k)[place] for place in range(k) for one in rankings]
    return metric, lead, list(dict.fromkeys([*lead.top(k), *in_turn]))[: 2 * k]


def best_of(material: Material) -> HeadScores:
    """The cheap ranking whose top k heads cost the selection trials most."""
    _, lead, _ = led(material)
    return ordered("best_of", lead.top(material.k), lead, material)


def shortlist(material: Material) -> HeadScores:
    """The shortlist by what each of its heads costs alone."""
    metric, lead, listed = led(material)
    return ordered("shortlist", [listed[at] for at in lowest(metric, [[head] for head in listed])], lead, material)


def elimination(material: Material) -> HeadScores:
    """The shortlist ablated as a whole; the head that is missed least is given back, until one is left."""
    metric, lead, left = led(material)
    back: list[Head] = []
    while len(left) > 1:
        back.append(left.pop(lowest(metric, [[one for one in left if one != head] for head in left])[0]))
    return ordered("elimination", [*left, *reversed(back)], lead, material)


def greedy_shortlist(material: Material) -> HeadScores:
    """Greedy search among the shortlist, on every third trial."""
    _, lead, listed = led(material)
    metric = measured(replace(material, trials=material.trials[::3]))
    chosen: list[Head] = []
    while len(chosen) < material.k:
        left = [head for head in listed if head not in chosen]
        chosen.append(left[lowest(metric, [[*chosen, head] for head in left])[0]])
    return ordered("greedy_shortlist", chosen, lead, material)


CANDIDATES: tuple[Callable[[Material], HeadScores], ...] = (rank_sum, best_of, shortlist, elimination, greedy_shortlist)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    parser.add_argument("--tasks", default="ioi,induction,capitals,arithmetic,retrieval")
    parser.add_argument("--out", type=Path, default=Path("runs/combined"))
    parser.add_argument("--trials", type=int, default=PRESET.test, help="test trials")
    parser.add_argument("--select", type=int, default=PRESET.select, help="selection trials")
    given = parser.parse_args()
    preset = replace(PRESET, test=given.trials, select=given.select)
    methods = [*BESIDE, *(Method(one.__name__, "combined", one, passes=lambda *_: 30.0) for one in CANDIDATES)]
    for name in given.models.split(","):
        model = lh.load_model(name)
        for task in given.tasks.split(","):
            bench = lh.studies.methods(model, task, methods, preset, given.out)
            cell, columns = bench.cell(), ["method", "passes", "damage", "area", "share", "share_low", "share_high"]
            rows = bench.frame[columns].to_dict("records")
            for row in rows:
                if row["method"] in cell.methods:
                    row["beyond_locos_exact"] = list(cell.beyond(str(row["method"]), "locos_exact"))
            append("combined", {"model": cell.model, "task": task, "k": cell.k, "best": cell.best, "rows": rows})
            print(lh.recommend(bench))


if __name__ == "__main__":
    main()
