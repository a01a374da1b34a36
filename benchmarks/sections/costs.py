"""Sections on time and memory."""

from __future__ import annotations

from .reading import Results, Row, described, measured_by
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
        measured_by("python benchmarks/score_pass.py", [run], "score_pass.jsonl"),
        f"{found['dtype']}; {found['new_tokens']} generated tokens. This is a single run, so compare ratios.",
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


def planning(results: Results) -> str:
    run = results.latest("planning")
    rows: list[list[str]] = []
    ratios: list[float] = []
    for model, found in run["results"].items():
        for one in _of_runs(found):
            ratios.append(one["ratio"])
            rows.append([model, one["run"], f"{one['tokens']:,}", one["planned"], one["measured"], num(one["ratio"])])
    near = sum(abs(ratio - 1) <= 0.3 for ratio in ratios)
    return section(
        described("planning"),
        measured_by("python benchmarks/planning.py", [run], "planning.jsonl"),
        table(["model", "run", "prompt tokens", "planned", "measured", "planned / measured"], rows),
        f"Within 30 %: {near} of {len(ratios)}. No GPU has run this: for other machines `lens-heads plan` takes the makers' "
        "numbers times the share that such programs reach.",
    )


def _of_runs(found: Row) -> list[Row]:
    """Times, then memory, as text, with their ratio."""
    times = [
        {"run": one["run"], "tokens": one["tokens"], "ratio": one["planned"] / one["seconds"]}
        | {"planned": f"{one['planned']:.2f} s", "measured": f"{one['seconds']:.2f} s"}
        for one in found["rows"]
    ]
    memory = [
        {"run": "memory of scoring", "tokens": one["tokens"], "ratio": one["planned"] / one["mib"]}
        | {"planned": f"{one['planned']:,.0f} MiB", "measured": f"{one['mib']:,.0f} MiB"}
        for one in found["memory"]
    ]
    return times + memory
