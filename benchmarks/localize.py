"""How many evaluations find the heads of retrieval: compressed sensing against greedy searches, and against plain forwards.

Heads are found on packaged trials of the split "select" and ablated on others, of "test". For every method and number of
evaluations: the damage of the five heads found (nats of the gold answer's log-probability per token, zero ablation), and the
first number of evaluations from which it stays at 90 % of the reference's: of iterative greedy search on models of up to
100 heads, which is the slow one, else of one-shot greedy. Compressed sensing draws its masks anew with every seed.

Then, in the same process, what a mask costs, on a sample of masks: `MaskedMetric` against plain loops of full forwards, one
trial at a time, with TransformerLens's `run_with_hooks` on the same model and with Hugging Face's own model (sdpa, logits of
the answer rows only) and a forward pre-hook. All have to give the same numbers to 1e-4. Our seconds of a mask are with its
share of the prefills, which --masks masks have in common. A mask costs the more, the lower its lowest head: `seconds` of a
method are those of its own masks, by a line through a sample of these and of single heads.

Last, do the heads agree with those of LOCOS and of activation patching (CRI) on the same trials: overlap of the top five and
ten, with what chance gives.

Prints tables and appends JSON, model by model, to benchmarks/results/localize.jsonl; masks that were run stay in --out, for the
same command.

Run: python benchmarks/localize.py [--models gemma-3-270m,smollm2-135m-instruct] [--trials 12] [--masks 160] [--seeds 3]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import append
from torch import Tensor

import lens_heads as lh
from lens_heads.heads.grouping import groups_of
from lens_heads.model import folders
from lens_heads.model import gguf as gguf_files
from lens_heads.ranking.masks.designs import draw_masks
from lens_heads.ranking.masks.localize import localize
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.stats import crossed_interval

TARGETS = {"share_of_the_loops_time": 0.7, "agreement": 1e-4, "reached": 0.9}
LENGTH, K, STEP, SPARSITY = 250, 5, 20, 0.05
GREEDY_UP_TO = 100
"""Heads of a model on which iterative greedy search is run."""


def damage(judge: MaskedMetric, heads: Sequence[lh.Head]) -> dict[str, Any]:
    """What ablating the heads costs on trials they were not found on."""
    lost = torch.from_numpy(judge.base - judge(judge.mask(heads)[None]))
    damage, low, high = crossed_interval(lost, groups=groups_of(judge.trials))
    return {"damage": damage, "low": low, "high": high, "heads": [str(head) for head in heads]}


def searches(measured: MaskedMetric, judge: MaskedMetric, masks: int, seeds: int) -> dict[str, list[dict[str, Any]]]:
    """Damage by evaluations of every method; compressed sensing once per seed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for method in ("css", "csb"):
        found[method] = []
        for seed in range(seeds):
            for n in range(STEP, masks + 1, STEP):
                scores = localize(measured, method=method, n_masks=n, sparsity=SPARSITY, k=K, seed=seed)
                row = {"seed": seed, "evaluations": scores.evaluations, **damage(judge, scores.top(K))}
                row |= {"held_out_r2": scores.fit["held_out_r2"], "layers": layers_run(measured)}
                found[method].append(row)
    scores = localize(measured, method="one_shot")
    row = {"seed": 0, "evaluations": scores.evaluations, "layers": layers_run(measured)}
    found["one_shot"] = [row | damage(judge, scores.top(K))]
    if int(np.prod(measured.units)) <= GREEDY_UP_TO:
        order = localize(measured, method="greedy", k=K).top(K)
        rounds = np.cumsum([1] + [int(np.prod(measured.units)) - i for i in range(K)])
        found["greedy"] = [
            {"seed": 0, "evaluations": int(rounds[i]), "layers": layers_run(measured), **damage(judge, order[:i])}
            for i in range(1, K + 1)
        ]
    return found


def layers_run(measured: MaskedMetric) -> float:
    """Layers that the masks asked for last run, on the mean: those from their lowest ablated head on."""
    masks = [np.frombuffer(mask, dtype=bool).reshape(measured.units) for mask in measured.requested]
    return float(np.mean([layers_of(mask) for mask in masks]))


def layers_of(mask: np.ndarray) -> int:
    """Layers from the mask's lowest ablated head on."""
    return len(mask) - int(mask.any(1).argmax()) if mask.any() else 0


def reached(rows: list[dict[str, Any]], reference: float) -> list[int | None]:
    """By seed, the evaluations from which on the damage stays at 90 % of the reference; None where it does not get there."""
    ends = []
    for seed in sorted({row["seed"] for row in rows}):
        last = None
        for row in reversed([row for row in rows if row["seed"] == seed]):
            if row["damage"] < TARGETS["reached"] * reference:
                break
            last = row["evaluations"]
        ends.append(last)
    return ends


def summary(method: str, rows: list[dict[str, Any]], reference: float, cost: dict[str, Any]) -> dict[str, Any]:
    """A method at its most evaluations, by seed, and what it takes to 90 % of the reference."""
    ends, last = reached(rows, reference), list({row["seed"]: row for row in rows}.values())
    most = round(float(np.mean([row["evaluations"] for row in last])))
    each = cost["seconds_of_any"] + cost["seconds_per_layer"] * float(np.mean([row["layers"] for row in last]))
    return {
        "method": method,
        "evaluations": most,
        "seconds": most * each,
        "damage": [(row["damage"], row["low"], row["high"]) for row in last],
        "evaluations_to_90": ends,
        "seconds_to_90": [None if end is None else end * each for end in ends],
    }


def plain_hooks(model: Any, trials: Sequence[Any], heads: Sequence[lh.Head]) -> list[float]:
    """`run_with_hooks`, one full forward per trial."""
    by_layer = {layer: [head.head for head in heads if head.layer == layer] for layer in {head.layer for head in heads}}

    def zero(z: Tensor, hook: Any, at: list[int]) -> Tensor:
        z[:, :, at] = 0
        return z

    hooks = [
        (f"blocks.{layer}.attn.hook_z", lambda z, hook, at=at: zero(z, hook, at)) for layer, at in by_layer.items()
    ]
    return [answer_logprob(model.run_with_hooks(whole(trial), fwd_hooks=hooks)[0, :-1], trial) for trial in trials]


def plain_hugging_face(hf: Any, d_head: int, trials: Sequence[Any], heads: Sequence[lh.Head]) -> list[float]:
    """One forward per trial with pre-hooks on the output projections."""

    def zero(module: Any, args: Any, at: int) -> None:
        args[0][..., at * d_head : (at + 1) * d_head] = 0

    handles = [
        hf.model.layers[head.layer].self_attn.o_proj.register_forward_pre_hook(
            lambda module, args, at=head.head: zero(module, args, at)
        )
        for head in heads
    ]
    try:
        return [
            answer_logprob(hf(whole(trial)[:, :-1], logits_to_keep=len(trial.answer_tokens)).logits[0], trial)
            for trial in trials
        ]
    finally:
        for handle in handles:
            handle.remove()


def whole(trial: Any) -> Tensor:
    return torch.cat([trial.tokens, trial.answer_tokens])[None]


def answer_logprob(logits: Tensor, trial: Any) -> float:
    """Mean log-probability of the answer from the logits of rows that end with those that give it."""
    rows = logits[-len(trial.answer_tokens) :].float().log_softmax(-1)
    return float(rows.gather(-1, trial.answer_tokens[:, None]).mean())


def seconds_to_measure(measured: MaskedMetric, mask: np.ndarray) -> float:
    started = time.perf_counter()
    measured(mask[None])
    return time.perf_counter() - started


@torch.no_grad()
def costs(name: str, model: Any, trials: Sequence[Any], sample: int, masks_in_all: int) -> dict[str, Any]:
    """Seconds of a mask, ours and of the loops, which have to agree."""
    source = gguf_files.local_source(name)
    assert source is not None
    hf = folders.load_local(source, torch.float32)["hf_model"].eval()
    hf.set_attn_implementation("sdpa")
    measured = MaskedMetric(model, trials, progress=False)
    started = time.perf_counter()
    _ = measured.base  # Prefills, kept from then on.
    setup = time.perf_counter() - started
    masks = draw_masks("stratified", sample, *measured.units, SPARSITY, seed=99)
    alone = np.eye(int(np.prod(measured.units)), dtype=bool).reshape(-1, *measured.units)[
        :: -(-len(masks[0].ravel()) // sample)
    ]
    seconds_of = partial(seconds_to_measure, measured)
    timed = [seconds_of(mask) for mask in masks]
    share_run, ours, mine = measured.share_run, measured(masks), float(np.mean(timed)) + setup / masks_in_all
    timed += [seconds_of(mask) for mask in alone]
    line = np.polyfit([layers_of(mask) for mask in [*masks, *alone]], timed, 1)
    loops: dict[str, Callable[[list[lh.Head]], list[float]]] = {
        "transformer_lens": lambda heads: plain_hooks(model, measured.trials, heads),
        "hugging_face": lambda heads: plain_hugging_face(hf, model.cfg.d_head, measured.trials, heads),
    }
    found: dict[str, Any] = {"setup_seconds": setup, "seconds_per_mask": mine, "share_run": share_run}
    found |= {"seconds_per_layer": float(line[0]), "seconds_of_any": float(line[1]) + setup / masks_in_all}
    found |= {"tokens": sum(map(len, measured.trials)), "masks": sample}
    for loop, run in loops.items():
        started = time.perf_counter()
        theirs = [run(measured.heads(mask)) for mask in masks]
        seconds = (time.perf_counter() - started) / sample
        error = float(np.abs(np.array(theirs) - ours).max())
        found[loop] = {"seconds_per_mask": seconds, "share": mine / seconds, "largest_difference": error}
        print(
            f"{name:24} a mask {mine:5.2f} s ({share_run:.0%} of the prompts run)   {loop:17} {seconds:5.2f} s   "
            f"share {mine / seconds:.2f} (at most {TARGETS['share_of_the_loops_time']})   largest difference {error:.1e}",
            flush=True,
        )
        if error > TARGETS["agreement"]:
            raise SystemExit(f"{loop} and MaskedMetric differ by {error}")
    return found


def agreement(model: Any, trials: Sequence[Any], scores: lh.HeadScores) -> list[dict[str, Any]]:
    """Overlap of the heads with those of LOCOS and CRI on the same trials."""
    locos = lh.score_heads(model, trials, ["locos"], progress=False)["locos"]
    answered = [trial for trial in trials if trial.id in locos.trial_ids]
    others = {"locos": locos, "cri": lh.patch_heads(model, answered, positions="all", progress=False)}
    rows = []
    for other, ranking in others.items():
        for k in (K, 2 * K):
            found = lh.compare.overlap(scores, ranking, k=k)
            row = {"with": other, "k": k, "shared": len(found.both), "chance": found.expected_overlap}
            rows.append(
                row | {"p": found.p_value, "layer_matched": found.layer_matched_overlap, "trials": len(answered)}
            )
            print(f"{'':24} css and {other:6} top {k:2}: {found!r}", flush=True)
    return rows


def cost(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """What a mask costs on prompts that share nothing, and on few-shot prompts."""
    model, sums = lh.load_model(name), lh.tasks.arithmetic(n=args.trials, digits=1)
    both = {"retrieval": retrieval(args), "arithmetic": sums}
    return {task: costs(name, model, trials, args.sample, args.masks) for task, trials in both.items()}


def retrieval(args: argparse.Namespace) -> list[Any]:
    return lh.tasks.packaged(split="select", n=args.trials, context_length=LENGTH, seed=0)


def one(name: str, cost: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    model, trials = lh.load_model(name), retrieval(args)
    test = lh.tasks.packaged(split="test", n=args.trials, context_length=LENGTH, seed=1)
    measured = MaskedMetric(model, trials, progress=False, out=args.out / name / "select")
    judge = MaskedMetric(model, test, progress=False, out=args.out / name / "test")
    found = searches(measured, judge, args.masks, args.seeds)
    reference = found.get("greedy", found["one_shot"])[-1]["damage"]
    table = [summary(method, rows, reference, cost["retrieval"]) for method, rows in found.items()]
    for row in table:
        ends = zip(row["evaluations_to_90"], row["seconds_to_90"], strict=True)
        listed = ", ".join("not reached" if end is None else f"{end} ({s:.0f} s)" for end, s in ends)
        damages = ", ".join(f"{value:.2f} [{low:.2f}, {high:.2f}]" for value, low, high in row["damage"])
        print(
            f"{name:24} {row['method']:9} {row['evaluations']:4} evaluations ({row['seconds']:.0f} s): damage {damages}; 90 % of "
            f"{reference:.2f} after {listed}",
            flush=True,
        )
    scores = localize(measured, method="css", n_masks=args.masks, sparsity=SPARSITY, k=K)
    return {
        "trials": args.trials,
        "context_length": LENGTH,
        "sparsity": SPARSITY,
        "base": float(judge.base.mean()),
        "reference": reference,
        "cost": cost,
        "reached": table,
        "searches": found,
        "agreement": agreement(model, trials, scores),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--masks", type=int, default=160)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sample", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark-localize"))
    args = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # Few masks repeat on small models.
    costs_of = {
        name: cost(name, args) for name in args.models.split(",")
    }  # First, on a machine that does nothing else.
    for name, known in costs_of.items():
        append("localize", {"targets": TARGETS, "k": K, "model": name, **one(name, known, args)})


if __name__ == "__main__":
    main()
