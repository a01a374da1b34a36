"""Sections on time and memory."""

from __future__ import annotations

from .reading import Results, Row, described, measured_by
from .writing import NOTHING, num, section, table


def score_pass(results: Results) -> str:
    run = results.latest("score_pass")
    found = run["results"]
    targets: dict[str, float] = found["targets"]
    cells = [(model, one) for model, lengths in found["models"].items() for one in lengths]
    pairs = list(cells[0][1]["ratios"])
    rows = [
        [model, f"{one['tokens']:,}", one["trials"], num(one["seconds"]["prefill"])]
        + [num(one["ratios"][pair]) for pair in pairs]
        for model, one in cells
    ]
    above = [
        f"{pair} {num(one['ratios'][pair])} ({model}, {one['tokens']:,} tokens)"
        for pair in targets
        for model, one in cells
        if round(one["ratios"][pair], 2) > targets[pair]
    ]
    return section(
        described("score_pass"),
        measured_by(f"python benchmarks/score_pass.py {found['options']}", [run], "score_pass.jsonl"),
        f"{found['new_tokens']} generated tokens. This is a single run, so compare ratios.",
        table(["model", "prompt tokens", "trials a call", "prefill, s", *pairs], rows),
        "Aims: " + ", ".join(f"{pair} at most {value}" for pair, value in targets.items()) + ". Missed: "
        f"{'; '.join(above) or 'none'}. Every call also reads all weights once, for the fingerprint that run folders and "
        "score files hold.",
        "Where the seconds of one call go, at the shortest length, under cProfile: inside torch's operations, and in the Python "
        "code of each package. What the bridge adds to a generated token is Python, which larger models hardly feel:",
        _profiles(found["models"]),
    )


def _profiles(models: dict[str, list[Row]]) -> str:
    packages = {"operations": "torch operations", "torch": "torch.nn"}
    packages |= {name: name for name in ("transformers", "transformer_lens", "accelerate", "lens_heads", "other")}
    rows = [
        [model, f"{lengths[0]['tokens']:,}", way, *(num(spent.get(package, 0)) for package in packages)]
        for model, lengths in models.items()
        for way, spent in lengths[0]["profiles"].items()
    ]
    return table(["model", "prompt tokens", "call", *packages.values()], rows)


def ablating(results: Results) -> str:
    run = results.latest("ablating")
    found = run["results"]
    ways = ("masks", "grid", "knockout")
    rows = [
        [name, one["now"]["trials"], f"{one['now']['tokens']:.0f}"]
        + [" / ".join(num(one[code][way]["speedup"]) for code in ("now", "before") if code in one) for way in ways]
        for name, one in found["cells"].items()
    ]
    before = (
        f"; after the stroke, the code of commit `{found['before']}`, which ran sets one by one"
        if found["before"]
        else ""
    )
    difference = max(one["now"][way]["largest_difference"] for one in found["cells"].values() for way in ways)
    return section(
        described("ablating"),
        measured_by("python benchmarks/ablating.py --before FOLDER", [run], "ablating.jsonl"),
        f"Times faster than the loop{before}.",
        table(["model, prompts", "trials", "tokens", *ways], rows),
        f"The largest difference from the loop is {difference:.0e}.",
    )


def long_context(results: Results) -> str:
    run = results.latest("long_context")
    found = run["results"]
    rows = [
        [f"{one['tokens']:,}", f"{one['seconds']:.0f}"]
        + [f"{mib:,.0f}" for mib in (one["peak_mib"], one["peak_mib"] - one["loaded_mib"], one["cache_mib"])]
        for one in found["rows"]
    ]
    first, last = found["rows"][0], found["rows"][-1]
    slope = 1000 * (last["peak_mib"] - first["peak_mib"]) / (last["tokens"] - first["tokens"])
    return section(
        described("long_context"),
        measured_by(f"python benchmarks/long_context.py --model {found['model']}", [run], "long_context.jsonl"),
        f"{found['model']}, {found['dtype']}.",
        table(["prompt tokens", "seconds", "peak MiB", "above the loaded model", "of which keys and values"], rows),
        f"From the shortest to the longest prompt memory grows by {slope:.0f} MiB per 1,000 tokens.",
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


def gpu(results: Results) -> str:
    found = results.latest_by_model("gpu")
    real = {name: run["results"] for name, run in found.items() if run["results"]["kind"] == "real"}
    shapes = {name: run["results"] for name, run in found.items() if run["results"]["kind"] == "shape"}
    cards = sorted({run["results"]["gpu"] for run in found.values()})
    return section(
        described("gpu"),
        measured_by("python benchmarks/gpu.py", found.values(), "gpu.jsonl"),
        f"The GPU: {' and '.join(cards)}.",
        *(_on_both(name, one) for name, one in real.items()),
        *_shapes(shapes),
    )


def _on_both(name: str, found: Row) -> str:
    """A packaged model: what calls take, then whether the results are the CPU's."""
    rows = [
        [way, f"{one['tokens']:,}", *_cells(one["scoring"]), *_cells(one["prefill"])]
        for way, costs in found["rows"].items()
        for one in costs["lengths"]
    ]
    others = [[way, *_cells(costs["curve"]), *_cells(costs["patching"])] for way, costs in found["rows"].items()]
    ways = found["agreement"]
    agreed = [
        [f"`{method}`"] + [cell for one in ways.values() for cell in _agreed(one["methods"][method])]
        for method in next(iter(ways.values()))["methods"]
    ]
    heads = [
        f"{way}: {what}"
        for way in ways
        for what in ("Spearman", f"shared of the top {found['top']}", "relative difference")
    ]
    sets = len(found["ks"]) * (1 + found["draws"]) + 1
    differ = "; ".join(f"{way} {one['largest_difference']:.0e}" for way, one in ways.items())
    return section(
        f"{name}, scoring a trial:",
        table(["on", "prompt tokens", "scoring, s", "MiB", "prefill, s", "MiB"], rows),
        found.get("note", ""),
        f"An ablation curve of {sets} sets of heads on {found['costed']} trials, and patching of every head at all positions on "
        f"{found['paired']} pairs:",
        table(["on", "curve, s", "MiB", "patching, s", "MiB"], others),
        f"The rankings of {found['scored']} trials (patching: {found['paired']}) against the CPU's in float32:",
        table(["method", *heads], agreed),
        f"The largest difference of a trial's log-probability, nats per token, intact or without LOCOS's heads: {differ}.",
    )


def _cells(one: Row | None) -> list[str]:
    if one is None:
        return [NOTHING, NOTHING]
    return [num(one["seconds"]), f"{one['peak_mib']:,.0f}" if one.get("peak_mib") else NOTHING]


def _agreed(one: Row) -> list[str]:
    return [num(one["spearman"], 4), str(one["shared"]), f"{one['off']:.0e}"]


def _shapes(shapes: dict[str, Row]) -> list[str]:
    """Large models of random weights."""
    if not shapes:
        return []
    chunks = next(iter(shapes.values()))["rows"][0]["scoring"]
    rows = [
        [
            name,
            one["heads"],
            num(one["hash_seconds"]),
            f"{row['tokens']:,}",
            *_cells(row["prefill"]),
        ]
        + [cell for chunk in chunks for cell in _cells(row["scoring"].get(chunk))]
        for name, one in shapes.items()
        for row in one["rows"]
    ]
    columns = [text for chunk in chunks for text in (f"scoring, chunk={chunk}, s", "MiB")]
    about = ["shape", "heads", "hash of the weights, s", "prompt tokens", "prefill, s", "MiB"]
    return [
        "Shapes of large models in bfloat16. Every call of `score_heads` hashes the weights once, which is in its seconds. A "
        "dash: not measured.",
        table([*about, *columns], rows),
    ]


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
        measured_by("python benchmarks/planning.py --lengths 200,1000", [run], "planning.jsonl"),
        table(["model", "run", "prompt tokens", "planned", "measured", "planned / measured"], rows),
        f"Within 30 %: {near} of {len(ratios)}. No GPU has run this.",
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
