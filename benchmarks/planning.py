"""How far what `--plan` says is from what runs take here.

On packaged trials of some lengths: scoring with gold answers and with decoding, random masks of five heads, and every head
patched at the answer's rows and at all positions. Seconds are per trial; a call scores several. The rates of this machine are
measured first. Memory is the peak (resident set) of a fresh process that scores one trial.

Prints a table and appends JSON to benchmarks/results/planning.jsonl.

Run: python benchmarks/planning.py [--models gemma-3-270m,smollm2-135m-instruct] [--lengths 200,1000,4000]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from record import append, timed
from score_pass import NEW_TOKENS, fixed, trials

import lens_heads as lh
from lens_heads.heads.sets import every_head, random_heads
from lens_heads.model.planning import Machine, Sizes, jobs, shape_of
from lens_heads.model.timing import this_machine
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.trials.pairs import TokenPair, make_pairs

SETS, K = 8, 5
SCORED = 4
"""Trials of a call that scores: what a call does once, such as the fingerprint of the weights, is not in a plan."""
LONGEST = 1000
"""Prompts above this are scored and patched at the answer's rows only; the rest takes many minutes."""


def runs(model: Any, length: int) -> tuple[Sizes, dict[str, Callable[[], Any]]]:
    """What is measured, by the name of its job, and its sizes."""
    scored, shape = trials(model.tokenizer, length, SCORED), lh.head_geometry(model)
    encoded = scored[0]
    pairs = make_pairs([encoded], model.tokenizer, shape)
    changed = len(TokenPair.of(pairs[0])) - TokenPair.of(pairs[0]).divergence
    sizes = Sizes(len(encoded), len(encoded.answer_tokens), NEW_TOKENS, SETS, K, SETS, changed)
    heads = every_head(shape.n_layers, shape.n_heads)
    quiet: dict[str, Any] = {"progress": False}

    def ablated() -> None:
        metric = MaskedMetric(model, [encoded], **quiet)
        metric(np.stack([metric.mask(random_heads(heads, K, seed)) for seed in range(SETS)]))

    ways: dict[str, Callable[[], Any]] = {
        "score, gold answers": lambda: lh.score_heads(model, scored, teacher_forced=True, **quiet),
        "score, decoding": lambda: lh.score_heads(model, scored, max_new_tokens=NEW_TOKENS, **quiet),
        "patch every head, answer rows": lambda: lh.patch_heads(model, pairs, positions="answer", **quiet),
    }
    if length <= LONGEST:
        ways["localize by masks"] = ablated
        ways["patch every head, all positions"] = lambda: lh.patch_heads(model, pairs, positions="all", **quiet)
    return sizes, ways


@torch.no_grad()
def times(name: str, lengths: list[int]) -> dict[str, Any]:
    """Planned and measured seconds by job and length; the least of two runs."""
    fixed()
    shape = shape_of(name)
    machine = this_machine(shape, torch.float32)
    memory = [peak(name, length, machine) for length in lengths]  # While this process, whose child counts it, is small.
    model = lh.load_model(name)
    rows = []
    for length in lengths:
        sizes, ways = runs(model, length)
        planned = {job.name: job for job in jobs(shape, machine, sizes)}
        for what, work in ways.items():
            seconds = min(timed(work)[1] for _ in range(2)) / (SCORED if what.startswith("score") else 1)
            ratio = planned[what].seconds / seconds
            rows.append({"run": what, "tokens": sizes.context, "planned": planned[what].seconds, "seconds": seconds})
            print(
                f"{name:24} {sizes.context:6} {what:34} {seconds:8.2f} s   planned / measured {ratio:.2f}", flush=True
            )
    return {"rates": asdict(machine), "rows": rows, "memory": memory}


def peak(name: str, length: int, machine: Machine) -> dict[str, Any]:
    """Planned and measured memory of scoring one trial, MiB."""
    command = [sys.executable, __file__, "--models", name, "--lengths", str(length), "--one"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    planned = machine.memory(shape_of(name), found["tokens"]) / 2**20
    print(
        f"{name:24} {found['tokens']:6} memory {found['mib']:.0f} MiB   planned / measured {planned / found['mib']:.2f}"
    )
    return {"tokens": found["tokens"], "planned": planned, "mib": found["mib"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    parser.add_argument("--lengths", default="200,1000,4000")
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    lengths = [int(length) for length in args.lengths.split(",")]
    if args.one:
        model = lh.load_model(args.models)
        (encoded,) = trials(model.tokenizer, lengths[0])
        lh.score_heads(model, [encoded], teacher_forced=True, progress=False)
        mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"tokens": len(encoded), "mib": mib}))
        return
    if args.model:
        print(json.dumps(times(args.model, lengths)))
        return
    results = {}
    for name in args.models.split(","):
        command = [sys.executable, __file__, "--model", name, "--lengths", args.lengths]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        *said, found = done.stdout.strip().splitlines()
        print("\n".join(said), flush=True)
        results[name] = json.loads(found)
    append("planning", results)


if __name__ == "__main__":
    main()
