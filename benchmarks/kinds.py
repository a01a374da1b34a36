"""Do heads of a kind carry the behaviour that their score claims? Every ranking beside random heads, on four behaviours.

Scores that need no trials (repeated tokens, text, weights) rank the heads of a model once; the others are measured on
selection trials of each behaviour. The top 4 % of the heads of every ranking are ablated (mean over the selection trials) on
test trials, beside 40 sets of random heads; rankings that claim a behaviour (`CLAIMS`, fixed before the run) also beside 40
sets with as many heads in each layer. Rankings that claim nothing show what is special about those that do. The share of
heads was set after drafts of six and eight other trials on Gemma-3-270m, which has four heads a layer: there, random sets of
the same layers often hold the very heads that they are compared with, so that few claims can be told. "copying" and
"successor" are `token_map_raw`, the printed formula; by the published threshold neither model has a successor head.

Prints tables and appends JSON, model by model, to benchmarks/results/kinds.jsonl; what was run stays in --out, for the same
command.

Run: python benchmarks/kinds.py [--models gemma-3-270m,smollm2-135m-instruct] [--trials 24]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from record import append

import lens_heads as lh
from lens_heads.heads.scores import HeadScores
from lens_heads.stats import mean_interval

SHARE, SELECT, DRAWS, RANDOM_TRIALS, BLOCK, COPIES = 0.04, 24, 40, 6, 50, 3
CLAIMS = {
    "induction": ("induction", "echo", "attribute_ablation"),
    "look-ups": ("induction", "echo", "copying", "attribute_ablation"),
    "succession": ("successor", "attribute_ablation"),
    "retrieval": ("context_divergence_relative", "attribute_ablation"),
}
"""Which rankings claim to carry a behaviour; on the others they are beside the point."""


def trials_of(behaviour: str, split: str, n: int) -> list[Any]:
    """Trials of a behaviour; the splits share none."""
    seed = 0 if split == "select" else 2
    tasks = {
        "induction": lambda: lh.tasks.induction(n=n, split=split, seed=seed),
        "look-ups": lambda: lh.tasks.key_value(n=n, pairs=6, characters=8, split=split, seed=seed),
        "succession": lambda: lh.tasks.succession(n=n, split=split, seed=seed),
        "retrieval": lambda: lh.tasks.packaged(split=split, n=n, context_length=300, seed=seed),
    }
    return tasks[behaviour]()


def without_trials(model: Any) -> dict[str, HeadScores]:
    """The rankings of a model that need no trials."""
    blocks = [lh.repeated_blocks(model, block=BLOCK, copies=COPIES, seed=seed) for seed in range(3)]
    found = dict(lh.score_heads(model, blocks, ["induction", "echo", "previous"], progress=False))
    texts = lh.plain_texts(lh.ranking.common_texts(n=4))
    found |= lh.score_heads(model, texts, ["sink", "span"], progress=False)
    maps = lh.score_heads(model, lh.token_maps(), ["token_map_raw"], progress=False)["token_map_raw"]
    by_map = lh.ranking.by_map(maps)
    return found | {name: by_map[name] for name in ("copying", "successor")}


def on_trials(model: Any, trials: list[Any], means: Any) -> dict[str, HeadScores]:
    """The rankings that are measured on a behaviour's selection trials."""
    found = {"attribute_ablation": lh.attribute_ablation(model, trials, kind="mean", reference=means, progress=False)}
    if trials[0].needle:  # Elsewhere there is nothing to leave out.
        found |= lh.score_heads(model, lh.context_pairs(trials), ["context_divergence_relative"], progress=False)
    return found


def judged(model: Any, behaviour: str, fixed: dict[str, HeadScores], n: int, out: Path) -> dict[str, Any]:
    """What the heads of every ranking cost one behaviour, and whether that is more than random heads cost."""
    given, test = trials_of(behaviour, "select", SELECT), trials_of(behaviour, "test", n)
    select, others = given[::2], given[1::2]
    means = lh.mean_activations(model, others, n=None, progress=False)
    rankings = fixed | on_trials(model, select, means)
    k = max(1, round(SHARE * model.cfg.n_layers * model.cfg.n_heads))
    controls = lh.Controls(("random", "random_like"), draws=DRAWS, trials=RANDOM_TRIALS, of=CLAIMS[behaviour])
    how: dict[str, Any] = {"generate": False, "batch_size": 8, "reference": means, "out": out, "progress": False}
    curve = lh.ablation_curve(model, {behaviour: test}, rankings, ks=(k,), controls=controls, **how)
    rows = []
    for method in rankings:
        verdict = lh.verdicts.harms(curve, method)
        heads = [str(head) for head in rankings[method].top(k)]
        claimed = method in CLAIMS[behaviour]
        rows.append({"method": method, "claimed": claimed, "heads": heads, **verdict.row()})
        print(f"{'claimed' if claimed else '':8} {verdict}", flush=True)
    values = torch.tensor(curve.values(lh.Condition.none(), "logprob").to_numpy())
    _, low, high = map(float, mean_interval(values))
    return {"k": k, "trials": n, "base": float(values.mean()), "base_low": low, "base_high": high, "methods": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark-kinds"))
    args = parser.parse_args()
    for name in args.models.split(","):
        model = lh.load_model(name, dtype=torch.bfloat16)
        fixed = without_trials(model)
        found = {one: judged(model, one, fixed, args.trials, args.out / name / one) for one in CLAIMS}
        about = {"model": name, "dtype": "bfloat16", "share": SHARE, "select": SELECT // 2, "draws": DRAWS}
        append("kinds", {**about, "random_trials": RANDOM_TRIALS, "behaviours": found})


if __name__ == "__main__":
    main()
