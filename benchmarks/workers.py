"""What two workers gain over one, each with one core.

`score_heads` with gold answers on packaged trials, and masks of `localize_heads`, in a block of workers that have started and run
the call once; files go to a fresh folder.

Prints a table and appends JSON to benchmarks/results/workers.jsonl.

Run: python benchmarks/workers.py [--model smollm2-135m-instruct] [--trials 24] [--workers 2]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from record import append, timed

import lens_heads as lh


def calls(model: Any, trials: int) -> dict[str, Callable[[Path], Any]]:
    """What is shared; each call stores its units in a folder."""
    long = lh.tasks.packaged(n=trials, context_length=600, seed=3)
    short = lh.tasks.load("capitals", n=8, seed=3)
    options: dict[str, Any] = {"teacher_forced": True, "progress": False}
    return {
        "scores": lambda out: lh.score_heads(model, long, out=out / "scores", **options),
        "masks": lambda out: lh.localize_heads(
            model, short, n_masks=4 * trials, out=out / "masks", progress=False, kind="zero"
        ),
    }


def measure(model: Any, workers: int, trials: int) -> dict[str, float]:
    """Seconds of every call with so many workers of one thread each, and of starting them."""
    torch.set_num_threads(workers)  # Workers divide them.
    found: dict[str, float] = {}
    started = time.perf_counter()
    with lh.worker_pool(model, workers):
        found["start"] = time.perf_counter() - started
        for name, call in calls(model, trials).items():
            with tempfile.TemporaryDirectory() as warm, tempfile.TemporaryDirectory() as fresh:
                call(Path(warm))
                _, found[name] = timed(lambda call=call, fresh=fresh: call(Path(fresh)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    model = lh.load_model(args.model, device="cpu")
    one, more = (measure(model, workers, args.trials) for workers in (1, args.workers))
    gains = {name: one[name] / more[name] for name in one if name != "start"}
    for name, gain in gains.items():
        print(f"{name:8} one worker {one[name]:6.1f} s   {args.workers} workers {more[name]:6.1f} s   {gain:.2f} times")
    print(f"starting them took {one['start']:.0f} s and {more['start']:.0f} s")
    about = {"model": args.model, "trials": args.trials, "workers": args.workers}
    append("workers", about | {"one": one, "more": more, "gains": gains})


if __name__ == "__main__":
    main()
