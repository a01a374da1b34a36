"""The heads found, as tables: fits, the best heads, how far draws of masks agree, and which heads capabilities share."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from lens_heads.compare import overlap
from lens_heads.compare.universal import Universal, universal_heads
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.conditions import Condition
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.studies.capability_paper.damage import drops
from lens_heads.studies.capability_paper.presets import Preset, Repeated


def fits(scores: Repeated, costs: dict[str, list[float]]) -> pd.DataFrame:
    """One row per capability and draw of masks: how well few heads explain the effect of the masks, and their damage."""
    return pd.DataFrame(
        [
            {"capability": name, "draw": draw, "metric": found.meta["metric"], "trials": found.meta["n_trials"]}
            | {"base": found.meta["base"], "evaluations": found.meta["evaluations"]}
            | {"chosen_heads": len(found.meta["fit"]["heads"])}
            | {part: found.meta["fit"][part] for part in ("r2", "held_out_r2", "alpha")}
            | {"damage": costs[name][draw] if name in costs else np.nan}
            for name, draws in scores.items()
            for draw, found in enumerate(draws)
        ]
    )


def by_draw(curve: AblationCurve, scores: Repeated, plan: Preset, metrics: dict[str, str]) -> dict[str, list[float]]:
    """What the heads of each draw of masks cost their capability."""
    tops = {name: [Condition.top(name, plan.k)] for name in scores if name in metrics}
    return {name: drops(curve, here, metrics[name], name).mean().tolist() for name, here in tops.items()}


def best_heads(scores: Repeated, k: int) -> pd.DataFrame:
    """One row per capability and head among the top k by any draw of masks: by how many draws, mean coefficient, mean rank."""
    rows: list[dict[str, Any]] = []
    for name, draws in scores.items():
        ranks = [{head: place for place, head in enumerate(found.ranking(), 1)} for found in draws]
        found = sorted({head for each in draws for head in each.ranking()[:k]})
        rows += [
            {"capability": name, "head": str(head), "draws": sum(head in each.ranking()[:k] for each in draws)}
            | {"coefficient": float(np.mean([each[head] for each in draws]))}
            | {"mean_rank": float(np.mean([each[head] for each in ranks]))}
            for head in sorted(found, key=lambda head: sum(each[head] for each in ranks))
        ]
    return pd.DataFrame(rows)


def agreement(scores: Repeated, k: int) -> pd.DataFrame:
    """How far top k heads agree, by Jaccard: one row per capability (its draws of masks) and pair of capabilities.

    Means over all pairs of draws, beside the hypergeometric expectation of random heads; `p` is the largest of the pairs.
    Capabilities with a single draw have no row of their own.
    """
    rows: list[dict[str, Any]] = []
    for a, b in itertools.combinations_with_replacement(scores, 2):
        pairs = itertools.combinations(scores[a], 2) if a == b else itertools.product(scores[a], scores[b])
        found = [overlap(one, other, k=k) for one, other in pairs]
        if found:
            means = {
                part: float(np.mean([getattr(one, part) for one in found])) for part in ("jaccard", "expected_jaccard")
            }
            p = max(one.p_value for one in found)
            rows.append({"a": a, "b": b, "same": a == b, "pairs": len(found), **means, "p": p})
    return pd.DataFrame(rows, columns=["a", "b", "same", "pairs", "jaccard", "expected_jaccard", "p"])


def shared(scores: Repeated, k: int, most: int) -> dict[Head, list[tuple[str, int]]]:
    """The heads in the top k of the most capabilities, then draws of masks: each with the capabilities and draws."""
    found: dict[Head, list[tuple[str, int]]] = defaultdict(list)
    for name, draws in scores.items():
        for draw, each in enumerate(draws):
            for head in each.ranking()[:k]:
                found[head].append((name, draw))
    order = sorted(found, key=lambda head: (-len({name for name, _ in found[head]}), -len(found[head]), head))
    return {head: found[head] for head in order[:most]}


def universal(scores: Repeated, names: Sequence[str], plan: Preset) -> Universal | None:
    """The universal heads of the named capabilities, each by its mean over draws of masks; None with fewer than it takes."""
    if len(names) < plan.at_least:
        return None
    return universal_heads({name: pooled(scores[name]) for name in names}, k=plan.k, at_least=plan.at_least)


def pooled(draws: Sequence[HeadScores]) -> HeadScores:
    """A capability's heads by the mean coefficient over draws of masks."""
    values = torch.stack([one.values for one in draws])
    about: dict[str, Any] = {"best": draws[0].best, "model": draws[0].model}
    return HeadScores.from_trials(draws[0].method, values, [f"draw {at}" for at in range(len(draws))], **about)


def by_luck(found: Universal, n: int = 2000, seed: int = 0) -> float:
    """P(at least as many universal heads) if every capability drew its k heads at random: (hits + 1) / (n + 1)."""
    drawn = np.random.default_rng(seed).random((n, found.n_tasks, found.n_heads)).argsort(-1) < found.k
    hits = ((drawn.sum(1) >= found.at_least).sum(-1) >= len(found.heads)).sum()
    return float((hits + 1) / (n + 1))
