"""Do two tasks share their circuits? Indirect objects (IOI) and coloured objects, and whether moved attention repairs the second.

Both circuits are traced by path patching from the logits backwards, on counterfactual pairs: heads that write to the logits,
then heads that feed their queries, and so on. The 4 % of all heads with the largest effect make a stage. Shared heads stand
beside what chance gives among all heads, and with as many heads in each layer.

Then, on coloured objects that were not traced, attention is moved at the last token: that of the heads which steer IOI's
writers, to the wrong colours (the paper's repair), and that of the writers to the right one, each beside 40 sets of random
heads of the same layers.

Prints tables and appends JSON, model by model, to benchmarks/results/circuits.jsonl; what was run stays in --out.

Run: python benchmarks/circuits.py [--models gemma-3-270m,smollm2-135m-instruct] [--pairs 8] [--trials 60]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from record import append

import lens_heads as lh
from lens_heads import compare
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.conditions import Condition
from lens_heads.ranking.causal.paths import Component

SHARE, DRAWS, METRICS = 0.04, 40, ("greedy_match", "logprob")
COMPONENTS: tuple[Component, ...] = ("q", "v")


def effect(curve: AblationCurve) -> dict[str, Any]:
    """What moving the heads' attention changes, and how that ranks among random heads of the same layers."""
    none, *_ = curve.conditions()
    (k,) = curve.meta["ks"]
    moved, like = Condition.top("moved", k), Condition.random_like("moved", k)
    found: dict[str, Any] = {"heads": curve.heads(moved).split(",")}
    for metric in METRICS:
        change, beyond = (curve.difference(moved, other, metric) for other in (none, like))
        means = {name: float(curve.values(one, metric).mean()) for name, one in (("before", none), ("after", moved))}
        means["random"] = float(curve.values(like, metric).mean())
        rank = lh.stats.rank_p(means["after"], curve.draws(like, metric).mean().to_numpy(), harmful="higher")
        found[metric] = {**means, "change": change, "beyond": beyond, "rank": rank.rank, "p": rank.p}
    return found


def one(name: str, args: argparse.Namespace) -> dict[str, Any]:
    model = lh.load_model(name)
    tasks = {
        "ioi": lh.tasks.ioi(n=args.pairs, split="select", seed=0),
        "colored_objects": lh.tasks.colored_objects(n=args.pairs, split="select", seed=0),
    }
    circuits = {
        task: lh.ranking.trace_circuit(
            model, trials, components=COMPONENTS, share=SHARE, out=args.out / name / task, progress=False
        )
        for task, trials in tasks.items()
    }
    reuse = compare.circuit_reuse(circuits).iloc[0].to_dict()
    print(name, circuits, reuse, sep="\n", flush=True)
    test = lh.tasks.colored_objects(n=args.trials, split="test", seed=1)
    writers, steering = (circuits["ioi"].stages[number].heads for number in (0, 1))
    repairs = {
        "others": effect(
            lh.evidence.repair(
                model,
                test,
                steering,
                towards="others",
                controls=lh.Controls(("random", "random_like"), DRAWS),
                progress=False,
            )
        ),
        "answer": effect(
            lh.evidence.repair(
                model,
                test,
                writers,
                towards="answer",
                controls=lh.Controls(("random", "random_like"), DRAWS),
                progress=False,
            )
        ),
    }
    print(repairs, flush=True)
    traced = {
        task: {"gap": found.gap, "pairs": found.meta["pairs"], "stages": found.frame.to_dict("records")}
        for task, found in circuits.items()
    }
    return {"circuits": traced, "reuse": reuse, "trials": args.trials, "repairs": repairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark-circuits"))
    args = parser.parse_args()
    torch.manual_seed(0)
    for name in args.models.split(","):
        append("circuits", {"model": name, "share": SHARE, "components": COMPONENTS, **one(name, args)})


if __name__ == "__main__":
    main()
