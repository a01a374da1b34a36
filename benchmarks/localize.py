"""How many evaluations find the heads of retrieval: compressed sensing against greedy searches, and against plain forwards.

Heads are found on packaged trials of the split "select" and ablated on others, of "test". For every method and number of
evaluations: the damage of the five heads found (nats of the gold answer's log-probability per token, zero ablation), and the
first number of evaluations from which it stays at 90 % of the reference's: of iterative greedy search on models of up to
100 heads, which is the slow one, else of one-shot greedy. Compressed sensing draws its masks anew with every seed.

Then, in the same process, what a mask costs, on a sample of masks: `MaskedMetric` against plain loops of full forwards, one
trial at a time, with TransformerLens's `run_with_hooks` on the same model and with Hugging Face's own model (sdpa, logits of
the answer rows only) and a forward pre-hook. All have to give the same numbers to 1e-4. Our seconds of a mask are with its
share of the prefills, which --masks masks have in common. `seconds` of a method are its evaluations times that.

Last, do the heads agree with those of LOCOS and of activation patching (CRI) on the same trials: overlap of the top five and
ten, with what chance gives.

Prints tables and appends JSON to benchmarks/results/localize.jsonl; masks that were run stay in --out, for the same command.

Run: python benchmarks/localize.py [--models gemma-3-270m,smollm2-135m-instruct] [--trials 12] [--masks 160] [--seeds 3]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import append
from torch import Tensor

import lens_heads as lh
from lens_heads import gguf_files
from lens_heads.localize import MaskedMetric, draw_masks, localize
from lens_heads.stats import bootstrap_interval

TARGETS = {"share_of_the_loops_time": 0.7, "agreement": 1e-4, "reached": 0.9}
LENGTH, K, STEP, SPARSITY = 250, 5, 20, 0.05
GREEDY_UP_TO = 100
"""Heads of a model on which iterative greedy search is run."""


def damage(judge: MaskedMetric, heads: Sequence[lh.Head]) -> dict[str, Any]:
    """What ablating the heads costs on trials they were not found on."""
    lost = torch.from_numpy(judge.base - judge(judge.mask(heads)[None])[0])
    low, high = bootstrap_interval(lost)
    return {
        "damage": float(lost.mean()),
        "low": float(low),
        "high": float(high),
        "heads": [str(head) for head in heads],
    }


def searches(measured: MaskedMetric, judge: MaskedMetric, masks: int, seeds: int) -> dict[str, list[dict[str, Any]]]:
    """Damage by evaluations of every method; compressed sensing once per seed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for method in ("css", "csb"):
        found[method] = []
        for seed in range(seeds):
            for n in range(STEP, masks + 1, STEP):
                scores = localize(measured, method, n, SPARSITY, K, seed=seed)
                row = {"seed": seed, "evaluations": scores.meta["evaluations"], **damage(judge, scores.top(K))}
                found[method].append(row | {"held_out_r2": scores.meta["fit"]["held_out_r2"]})
    scores = localize(measured, "one_shot")
    found["one_shot"] = [{"seed": 0, "evaluations": scores.meta["evaluations"], **damage(judge, scores.top(K))}]
    if int(np.prod(measured.units)) <= GREEDY_UP_TO:
        order = localize(measured, "greedy", k=K).top(K)
        rounds = np.cumsum([1] + [int(np.prod(measured.units)) - i for i in range(K)])
        found["greedy"] = [
            {"seed": 0, "evaluations": int(rounds[i]), **damage(judge, order[:i])} for i in range(1, K + 1)
        ]
    return found


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
    found = [
        answer_logprob(hf(whole(trial)[:, :-1], logits_to_keep=len(trial.answer_tokens)).logits[0], trial)
        for trial in trials
    ]
    for handle in handles:
        handle.remove()
    return found


def whole(trial: Any) -> Tensor:
    return torch.cat([trial.tokens, trial.answer_tokens])[None]


def answer_logprob(logits: Tensor, trial: Any) -> float:
    """Mean log-probability of the answer from the logits of rows that end with those that give it."""
    rows = logits[-len(trial.answer_tokens) :].float().log_softmax(-1)
    return float(rows.gather(-1, trial.answer_tokens[:, None]).mean())


@torch.no_grad()
def costs(name: str, model: Any, trials: Sequence[Any], sample: int, masks_in_all: int) -> dict[str, Any]:
    """Seconds of a mask, ours and of the loops, which have to agree."""
    source = gguf_files.local_source(name)
    assert source is not None
    hf = gguf_files.load_local(source, torch.float32)["hf_model"].eval()
    hf.set_attn_implementation("sdpa")
    measured = MaskedMetric(model, trials, progress=False)
    started = time.perf_counter()
    _ = measured.base  # Prefills, kept from then on.
    setup = time.perf_counter() - started
    masks = draw_masks("stratified", sample, *measured.units, SPARSITY, seed=99)
    started = time.perf_counter()
    ours = measured(masks)
    mine = (time.perf_counter() - started) / sample + setup / masks_in_all
    loops: dict[str, Callable[[list[lh.Head]], list[float]]] = {
        "transformer_lens": lambda heads: plain_hooks(model, measured.trials, heads),
        "hugging_face": lambda heads: plain_hugging_face(hf, model.cfg.d_head, measured.trials, heads),
    }
    found: dict[str, Any] = {"setup_seconds": setup, "seconds_per_mask": mine, "share_run": measured.share_run}
    found |= {"tokens": sum(map(len, measured.trials)), "masks": sample}
    for loop, run in loops.items():
        started = time.perf_counter()
        theirs = [run(measured.heads(mask)) for mask in masks]
        seconds = (time.perf_counter() - started) / sample
        error = float(np.abs(np.array(theirs) - ours).max())
        found[loop] = {"seconds_per_mask": seconds, "share": mine / seconds, "largest_difference": error}
        print(
            f"{name:24} a mask {mine:5.2f} s ({measured.share_run:.0%} of the prompts run)   {loop:17} {seconds:5.2f} s   "
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
            found = lh.compare.overlap(scores, ranking, k)
            row = {"with": other, "k": k, "shared": len(found.both), "chance": found.expected_overlap}
            rows.append(
                row | {"p": found.p_value, "layer_matched": found.layer_matched_overlap, "trials": len(answered)}
            )
            print(f"{'':24} css and {other:6} top {k:2}: {found!r}", flush=True)
    return rows


def one(name: str, args: argparse.Namespace) -> dict[str, Any]:
    model = lh.load_model(name)
    trials = lh.tasks.packaged(split="select", n=args.trials, context_length=LENGTH, seed=0)
    test = lh.tasks.packaged(split="test", n=args.trials, context_length=LENGTH, seed=1)
    cost = {
        "retrieval": costs(name, model, trials, args.sample, args.masks),
        "arithmetic": costs(name, model, lh.tasks.arithmetic(n=args.trials, digits=1), args.sample, args.masks),
    }
    measured = MaskedMetric(model, trials, progress=False, out=args.out / name / "select")
    judge = MaskedMetric(model, test, progress=False, out=args.out / name / "test")
    found = searches(measured, judge, args.masks, args.seeds)
    reference = found.get("greedy", found["one_shot"])[-1]["damage"]
    table = []
    for method, rows in found.items():
        ends, best = reached(rows, reference), rows[-1]
        seconds = [None if end is None else end * cost["retrieval"]["seconds_per_mask"] for end in ends]
        table.append({"method": method, "evaluations_to_90": ends, "seconds_to_90": seconds, "damage": best["damage"]})
        listed = ", ".join(
            "not reached" if end is None else f"{end} ({s:.0f} s)" for end, s in zip(ends, seconds, strict=True)
        )
        print(
            f"{name:24} {method:9} {best['evaluations']:4} evaluations: damage {best['damage']:.2f} [{best['low']:.2f}, "
            f"{best['high']:.2f}]; 90 % of {reference:.2f} after {listed}",
            flush=True,
        )
    scores = localize(measured, "css", args.masks, SPARSITY, K)
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
    results: dict[str, Any] = {"targets": TARGETS, "k": K}
    for name in args.models.split(","):
        results[name] = one(name, args)
    append("localize", results)


if __name__ == "__main__":
    main()
