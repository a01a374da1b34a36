"""What sets of ablated heads cost, against the plain loop: one forward of Hugging Face's sdpa model per trial and set.

Masks of `MaskedMetric`, the grid of `ablation_curve` and `knockout_heads`, on short prompts and on long ones, in one process on
the same tokens. The loop runs for a sample of the sets, and its time is scaled to all of them; numbers have to agree to 1e-4.

`--before` names a checkout of earlier code, which is measured beside this one, each in a process of its own.

Prints a table and appends JSON to benchmarks/results/ablating.jsonl.

Run: python benchmarks/ablating.py [--models gemma-3-270m,smollm2-135m-instruct] [--lengths short,long] [--before FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import append, timed
from torch import Tensor

import lens_heads as lh
from lens_heads.answering.choices import without_choices
from lens_heads.evidence.grid import Grid
from lens_heads.heads.conditions import Condition, head_set
from lens_heads.heads.sets import every_head, random_heads
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.model import folders
from lens_heads.model import gguf as gguf_files
from lens_heads.ranking.causal.knockout import kl
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.runs.options import Run
from lens_heads.trials.checked_tokens import encode_all

AGREEMENT = 1e-4
SETS = 40
WAYS = ("masks", "grid", "knockout")


PROMPTS: dict[str, Callable[[], list[lh.Trial]]] = {
    "short": lambda: lh.tasks.load("capitals", n=8, seed=3),
    "long": lambda: lh.tasks.packaged(n=2, context_length=1000, seed=3),
}


class Loop:
    """The plain loop."""

    def __init__(self, name: str, d_head: int) -> None:
        source = gguf_files.local_source(name)
        assert source is not None
        self.hf = folders.load_local(source, torch.float32)["hf_model"].eval()
        self.hf.set_attn_implementation("sdpa")
        self.d_head = d_head

    def logits(self, tokens: Tensor, heads: Sequence[lh.Head], steps: int) -> Tensor:
        """Logits of the last rows with the heads' outputs set to zero."""
        handles = []
        for one in heads:
            columns = slice(one.head * self.d_head, (one.head + 1) * self.d_head)

            def zero(module: Any, args: Any, columns: slice = columns) -> Any:
                args[0][..., columns] = 0

            handles.append(self.hf.model.layers[one.layer].self_attn.o_proj.register_forward_pre_hook(zero))
        out = self.hf(tokens[None], logits_to_keep=steps).logits[0].float()
        for handle in handles:
            handle.remove()
        return out

    def logprob(self, trial: Any, heads: Sequence[lh.Head]) -> float:
        """The answer's mean log-probability, teacher-forced."""
        tokens, gold = torch.cat([trial.tokens, trial.answer_tokens[:-1]]), trial.answer_tokens
        logits = self.logits(tokens, heads, len(gold))
        return float(logits.log_softmax(-1).gather(-1, gold[:, None]).mean())


class Comparison:
    """Ours and the loop on one model and some trials without choices, which the loop does not score."""

    def __init__(self, name: str, trials: list[lh.Trial], sample: int) -> None:
        self.model = lh.load_model(name)
        shape = lh.head_geometry(self.model)
        self.heads = every_head(shape.n_layers, shape.n_heads)
        self.loop = Loop(name, shape.d_head)
        self.trials = without_choices(encode_all(trials, self.model.tokenizer, shape.n_ctx, 0, shape.d_vocab))
        self.sets = [tuple(random_heads(self.heads, 5, seed)) for seed in range(SETS)]
        self.sample = sample

    def masks(self) -> dict[str, float]:
        """Log-probabilities under random masks."""
        metric = MaskedMetric(self.model, self.trials, progress=False)
        masks = np.stack([metric.mask(heads) for heads in self.sets])
        return self.compare(lambda: metric(masks), lambda row: self.by_loop(self.sets[row]))

    def grid(self) -> dict[str, float]:
        """The same as rows of a curve."""
        grid = Grid.of(
            self.model,
            {"task": self.trials},
            Ablation.of(self.model, "zero"),
            Run.of({"progress": False}),
            generate=False,
        )
        sets = [head_set(Condition.given(str(number), 5), heads) for number, heads in enumerate(self.sets)]
        places = [trial.id for trial in self.trials]
        return self.compare(
            lambda: (
                grid.run(sets)
                .pivot(index="method", columns="trial", values="logprob")
                .loc[[*map(str, range(SETS))], places]
            ),
            lambda row: self.by_loop(self.sets[row]),
        )

    def knockout(self) -> dict[str, float]:
        """Divergence of the next token of one prompt, every head ablated alone."""
        first = self.trials[0].tokens
        intact = self.loop.logits(first, (), 1)[0]
        return self.compare(
            lambda: lh.knockout_heads(self.model, self.trials[:1], kind="zero", progress=False).values.reshape(-1, 1),
            lambda row: [float(kl(intact, self.loop.logits(first, [self.heads[row]], 1)[0]))],
        )

    def by_loop(self, heads: Sequence[lh.Head]) -> list[float]:
        return [self.loop.logprob(trial, heads) for trial in self.trials]

    def compare(self, ours: Callable[[], Any], loop: Callable[[int], list[float]]) -> dict[str, float]:
        """Times and their ratio; the loop runs a sample of the rows [set, trial]."""
        found, seconds = timed(ours)
        values = np.asarray(found)
        rows = np.linspace(0, len(values) - 1, self.sample).astype(int).tolist()
        wanted, spent = timed(lambda: [loop(row) for row in rows])
        error, plain = float(np.abs(values[rows] - np.array(wanted)).max()), spent * len(values) / len(rows)
        if error > AGREEMENT:
            raise SystemExit(f"the loop and ours differ by {error}")
        return {"seconds": seconds, "loop_seconds": plain, "speedup": plain / seconds, "largest_difference": error}


@torch.no_grad()
def measure(name: str, length: str, sample: int) -> dict[str, Any]:
    both = Comparison(name, PROMPTS[length](), sample)
    found: dict[str, Any] = {"tokens": sum(map(len, both.trials)) / len(both.trials), "trials": len(both.trials)}
    return found | {what.__name__: what() for what in (both.masks, both.grid, both.knockout)}


def apart(name: str, length: str, sample: int, code: Path | None) -> dict[str, Any]:
    """`measure` in a fresh process, by this code or that of a folder."""
    options = ["--models", name, "--lengths", length, "--sample", str(sample), "--one"]
    own = {} if code is None else {"PYTHONPATH": str(code)}
    command = [sys.executable, __file__, *options]
    done = subprocess.run(command, env=os.environ | own, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    label = "this code" if code is None else "before"
    for what in WAYS:
        row = found[what]
        times = f"ours {row['seconds']:7.2f} s   loop {row['loop_seconds']:7.2f} s   {row['speedup']:6.2f} times"
        print(
            f"{name:24} {length:6} {label:10} {what:10} {times}   difference {row['largest_difference']:.0e}",
            flush=True,
        )
    return found


def revision(code: Path) -> str:
    """The commit of a checkout."""
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=code, capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    parser.add_argument("--lengths", default=",".join(PROMPTS))
    parser.add_argument("--sample", type=int, default=2)
    parser.add_argument("--before", type=Path, help="a checkout of earlier code, measured beside this one")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    cells = [(name, length) for name in args.models.split(",") for length in args.lengths.split(",")]
    if args.one:
        print(json.dumps(measure(*cells[0], args.sample)))
        return
    results: dict[str, Any] = {"before": args.before and revision(args.before), "cells": {}}
    for name, length in cells:
        codes = {"now": None} | ({"before": args.before} if args.before else {})
        results["cells"][f"{name}, {length}"] = {
            which: apart(name, length, args.sample, code) for which, code in codes.items()
        }
    append("ablating", results)


if __name__ == "__main__":
    main()
