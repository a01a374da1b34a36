"""How often sparse recovery finds planted heads, by number of masks and share of heads ablated, against ablating one by one.

Of 1,024 heads (32 layers of 32) five cost .1 to .3 of a task metric of .8 when ablated. Ablated together their costs add up
("linear", not below 0) or saturate (.8 exp(-sum / .8)); the metric is the share of right answers to 100 questions, so its
noise is binomial (sd about .04). A run has found all when the five most negative coefficients are the five planted heads;
"share" is how many of them are among those. Beside it, with as many evaluations: one randomly chosen head ablated at a time,
and with 1,024 evaluations every head.

Prints tables and appends JSON to benchmarks/results/recovery.jsonl. Run: python benchmarks/recovery.py [--seeds 50]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from lens_heads.ranking.masks.designs import draw_masks
from lens_heads.ranking.masks.lasso import REGRESSIONS
from lens_heads.ranking.masks.sparse_fit import solve_masks

LAYERS = HEADS = 32
PLANTED, BASE, QUESTIONS = 5, 0.8, 100
RESPONSES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda cost: np.maximum(BASE - cost, 0),
    "saturating": lambda cost: BASE * np.exp(-cost / BASE),
}
MASKS, SPARSITIES = (100, 200, 400), (0.01, 0.02, 0.05)
METHOD_CASES = ((100, 0.05), (200, 0.01), (200, 0.02))
METHOD_OPTIONS: dict[str, dict[str, Any]] = {
    **{method: {"method": method} for method in REGRESSIONS},
    "lasso, shrunk": {"debias": False},
    "lasso_1se, shrunk": {"method": "lasso_1se", "debias": False},
}


def planted(seed: int) -> Float[np.ndarray, " head"]:
    """What ablating each head costs: five random heads .1 to .3, the others nothing."""
    generator = np.random.default_rng(seed)
    costs = np.zeros(LAYERS * HEADS)
    costs[generator.choice(len(costs), PLANTED, replace=False)] = generator.uniform(0.1, 0.3, PLANTED)
    return costs


def measured(
    masks: Bool[np.ndarray, "mask head"], costs: Float[np.ndarray, " head"], response: str, seed: int
) -> Float[np.ndarray, " mask"]:
    """Share of right answers under each mask."""
    right = np.random.default_rng(seed + 1_000_000).binomial(QUESTIONS, RESPONSES[response](masks @ costs))
    return right / QUESTIONS


def share_found(scores: Float[np.ndarray, " head"], costs: Float[np.ndarray, " head"]) -> float:
    """Share of the planted heads among the five lowest scores; a score that is not negative finds nothing."""
    lowest = np.argsort(scores, kind="stable")[:PLANTED]
    return float((costs[lowest[scores[lowest] < 0]] > 0).sum() / PLANTED)


def by_masks(
    seed: int,
    n_masks: int,
    sparsity: float,
    response: str,
    sign: int = 1,
    design: str = "stratified",
    **options: Any,
) -> float:
    """Share found by `recover` from masks; `sign=-1` flips the response, which must find nothing."""
    costs = planted(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # 100 masks of 1 % leave heads out: that is what is measured.
        masks = draw_masks(design, n_masks, LAYERS, HEADS, sparsity, seed=seed)
        seen = measured(masks.reshape(n_masks, -1), costs, response, seed)
        found = solve_masks(masks, sign * seen, base=sign * BASE, **options)
    return share_found(found.ravel(), costs)


def one_by_one(seed: int, n_evaluations: int, response: str) -> float:
    """Share found by ablating one head at a time, as many random heads as there are evaluations."""
    costs = planted(seed)
    tried = np.random.default_rng(seed).permutation(len(costs))[:n_evaluations]
    change = np.zeros(len(costs))
    change[tried] = measured(np.eye(len(costs), dtype=bool)[tried], costs, response, seed) - BASE
    return share_found(change, costs)


def summary(shares: Iterable[float]) -> dict[str, float]:
    """Mean share found, and how often it is all."""
    listed = np.array(list(shares))
    return {"share": round(float(listed.mean()), 3), "all": round(float((listed == 1).mean()), 3)}


def shown(row: dict[str, float]) -> str:
    return f"{row['share']:.2f} / {row['all']:.2f}"


def main() -> None:
    from record import append  # Not at the top: tests import this file from elsewhere.

    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=50)
    seeds = range(parser.parse_args().seeds)
    started, results = time.perf_counter(), {}
    for response in RESPONSES:
        table = results[response] = {}
        print(
            f"\n{response}: share found / all found\n{'masks':8}{'1 by 1':>14}"
            + "".join(f"{p:>14}" for p in SPARSITIES)
        )
        for n in MASKS:
            table[f"{n} heads one by one"] = summary(one_by_one(seed, n, response) for seed in seeds)
            for p in SPARSITIES:
                table[f"{n} masks of {p}"] = summary(by_masks(seed, n, p, response) for seed in seeds)
            cells = [row for name, row in table.items() if name.startswith(f"{n} ")]
            print(f"{n:<8}" + "".join(f"{shown(row):>14}" for row in cells), flush=True)
        everyone = table["1024 heads one by one"] = summary(
            one_by_one(seed, LAYERS * HEADS, response) for seed in seeds
        )
        print(f"{1024:<8}{shown(everyone):>14}")
    print("\nsaturating, by method" + "".join(f"{f'{n} of {p}':>14}" for n, p in METHOD_CASES))
    for name, options in METHOD_OPTIONS.items():
        rows = results.setdefault("methods", {})[name] = {
            f"{n} masks of {p}": summary(by_masks(seed, n, p, "saturating", **options) for seed in seeds)
            for n, p in METHOD_CASES
        }
        print(f"{name:21}" + "".join(f"{shown(row):>14}" for row in rows.values()), flush=True)
    append("recovery", {"seeds": len(seeds), "seconds": round(time.perf_counter() - started), **results})


if __name__ == "__main__":
    main()
