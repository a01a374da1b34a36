"""What the packaged models can do: the tasks that need no download, each on the trials that heads are evaluated on.

For every task the log-probability of the gold answer per token, whether greedy decoding begins with it, the share of right
answers, and of trials with choices how often and how surely the right one is chosen. Beside them what chance gives: one of
the choices, and always the commonest answer of the trials. "continuation, other contexts" asks for the same endings after the
context of another trial: what is right there is told by the endings alone.

Prints a table and appends JSON to benchmarks/results/capabilities.jsonl.

Run: python benchmarks/capabilities.py [--models gemma-3-270m,smollm2-135m-instruct] [--trials 40]
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from record import append

import lens_heads as lh
from lens_heads import tasks

SHOWN = ("logprob", "greedy_match", "correct", "choice", "choice_logprob")


def elsewhere(trials: list[lh.Trial]) -> list[lh.Trial]:
    """The same choices after the context of the trial before."""
    return [replace(trial, question=other.question) for trial, other in zip(trials, trials[-1:] + trials, strict=False)]


CAPABILITIES: dict[str, Callable[[int], list[lh.Trial]]] = {
    "arithmetic, one digit": lambda n: tasks.arithmetic(n=n, digits=1, split="test"),
    "capitals": lambda n: tasks.capitals(n=n, split="test"),
    "induction": lambda n: tasks.induction(n=n, split="test"),
    "retrieval, 300 tokens": lambda n: tasks.packaged(split="test", n=n, context_length=300),
    "retrieval, 400 tokens": lambda n: tasks.packaged(split="test", n=n, context_length=400),
    "rhyme": lambda n: tasks.rhyme(n=n, split="test"),
    "continuation": lambda n: tasks.continuation(n=n, split="test"),
    "continuation, other contexts": lambda n: elsewhere(tasks.continuation(n=n, split="test")),
}


def chance(trials: list[lh.Trial]) -> dict[str, float]:
    """What needs no model: any choice, and always the commonest answer."""
    commonest = max(Counter(trial.answer for trial in trials).values()) / len(trials)
    choices = {len(trial.choices) for trial in trials}
    if choices == {0}:
        return {"correct": commonest}
    (count,) = choices
    return {"correct": commonest, "choice": 1 / count, "choice_logprob": -math.log(count)}


def measure(name: str, n: int) -> dict[str, Any]:
    model = lh.load_model(name)
    found: dict[str, Any] = {}
    for task, make in CAPABILITIES.items():
        trials, started = make(n), time.perf_counter()
        generate = not task.startswith("continuation")  # A right ending is one of many that could be written.
        result = lh.evaluate(model, trials, generate=generate, max_new_tokens=6, progress=False)
        values = {
            metric: {"mean": result.mean(metric), "interval": result.interval(metric)}
            for metric in SHOWN
            if metric in result.metrics
        }
        found[task] = {"trials": len(trials), "chance": chance(trials), **values}
        means = "   ".join(f"{metric} {value['mean']:.2f}" for metric, value in values.items())
        print(f"{name:24} {task:30} {means}   ({time.perf_counter() - started:.0f} s)", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    parser.add_argument("--trials", type=int, default=40)
    args = parser.parse_args()
    append("capabilities", {name: measure(name, args.trials) for name in args.models.split(",")})


if __name__ == "__main__":
    main()
