"""Sections on time and memory."""

from __future__ import annotations

from .reading import Results, described, measured_by
from .writing import few, num, section, table


def score_pass(results: Results) -> str:
    run = results.latest("score_pass")
    found = run["results"]
    targets: dict[str, float] = found["targets"]
    pairs = list(next(iter(found["models"].values()))[0]["ratios"])
    rows = [
        [model, f"{one['tokens']:,}", num(one["seconds"]["prefill"]), *(num(one["ratios"][pair]) for pair in pairs)]
        for model, lengths in found["models"].items()
        for one in lengths
    ]
    cells = [(pair, one["ratios"][pair]) for each in found["models"].values() for one in each for pair in targets]
    above = sorted({pair for pair, value in cells if round(value, 2) > targets[pair]})
    shares = [one["share"] for each in found["models"].values() for one in each]
    hooked = [100 * one["watch"] for one in shares]
    return section(
        described("score_pass"),
        measured_by(f"python benchmarks/score_pass.py {found['options']}", [run], "score_pass.jsonl"),
        f"{found['new_tokens']} generated tokens. This is a single run, so compare ratios.",
        table(["model", "prompt tokens", "prefill, s", *pairs], rows),
        "Aims: " + ", ".join(f"{pair} at most {value}" for pair, value in targets.items()) + ". Missed somewhere: "
        f"{', '.join(above) or 'none'}. The prompt is read by the wrapped sdpa attention without a hook or a logit; the "
        f"hooked rows of the answer take {few(min(hooked), max(hooked), 0)} % of a pass with the raw read-out.",
    )


def workers(results: Results) -> str:
    run = results.latest("workers")
    found = run["results"]
    one, more = found["one"], found["more"]
    rows = [[name, f"{one[name]:.1f}", f"{more[name]:.1f}", num(gain)] for name, gain in found["gains"].items()]
    return section(
        described("workers"),
        measured_by("python benchmarks/workers.py", [run], "workers.jsonl"),
        f"{found['model']}, {found['trials']} trials of about 500 tokens, {4 * found['trials']} masks.",
        table(["call", "one worker, s", f"{found['workers']} workers, s", "times faster"], rows),
        f"Starting took {one['start']:.0f} s for one worker and {more['start']:.0f} s for {found['workers']}. No GPU has run "
        "this: what is tested without one is that several workers, a killed worker, a killed driver and shards leave the "
        "files of one process.",
    )
