"""Does bfloat16 find the same heads, and say the same of them, as float32? On a sample of the trials of the LOCOS study.

Each is run whole in its own precision: heads are scored on selection trials, LOCOS's are ablated on test trials beside those of
two baselines and random heads, and the same verdicts are asked.

Run: python benchmarks/half_precision.py --model gemma-3-270m    appends to results/half_precision.jsonl (about ten minutes)
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import record
import torch

import lens_heads as lh

METHODS = ["locos", "locos_exact", "dla", "attention_spatial"]
K, SELECT, TEST, DRAWS = 12, 20, 20, 10


def measured(name: str, dtype: torch.dtype) -> tuple[dict[str, lh.HeadScores], lh.AblationCurve]:
    """The scores, and what the heads of every ranking cost, in one precision."""
    model = lh.load_model(name, dtype=dtype)
    select = lh.tasks.packaged(split="select", n=SELECT, context_length=320)
    test = lh.tasks.packaged(split="test", n=TEST, context_length=320, seed=1)
    scores = lh.score_heads(model, select, METHODS, teacher_forced=True, batch_size=8)
    controls = lh.Controls(("random", "no_needle"), draws=DRAWS)
    means, how = lh.mean_activations(model, select), {"generate": False, "batch_size": 8}
    curve = lh.ablation_curve(model, {"retrieval": test}, scores, ks=(K,), controls=controls, reference=means, **how)
    return scores, curve


def compared(one: lh.AblationCurve, other: lh.AblationCurve, condition: lh.Condition) -> dict[str, Any]:
    """What a set of heads costs every trial in both precisions. The heads may differ: each precision ablates its own."""
    costs = []
    for curve in (one, other):
        costs.append(curve.values(lh.Condition.none(), "logprob") - curve.values(condition, "logprob"))
    a, b = costs[0], costs[1][costs[0].index]
    _, low, high = lh.stats.mean_interval(torch.tensor((b - a).to_numpy()))
    return {
        "float32": float(a.mean()),
        "bfloat16": float(b.mean()),
        "difference": float((b - a).mean()),
        "low": float(low),
        "high": float(high),
        "correlation": float(np.corrcoef(a, b)[0, 1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gemma-3-270m")
    name = parser.parse_args().model
    (scores, curve), (half, rough) = (measured(name, dtype) for dtype in (torch.float32, torch.bfloat16))
    rankings = {
        method: {
            "spearman": lh.compare.rank_correlation(scores[method], half[method]),
            "shared": len(set(scores[method].top(K)) & set(half[method].top(K))),
        }
        for method in METHODS
    }
    conditions = {method: lh.Condition.top(method, K) for method in METHODS} | {"random": lh.Condition.random(K)}
    costs = {which: compared(curve, rough, condition) for which, condition in conditions.items()}
    said = zip(lh.verdicts.judge(curve), lh.verdicts.judge(rough), strict=True)
    verdicts = [{"question": a.question, "float32": a.word, "bfloat16": b.word} for a, b in said]
    found = {"model": name, "k": K, "select": SELECT, "test": TEST, "rankings": rankings}
    record.append("half_precision", {**found, "costs": costs, "verdicts": verdicts})
    print(found, costs, verdicts, sep="\n")


if __name__ == "__main__":
    main()
