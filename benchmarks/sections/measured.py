"""The benchmarks: each described in the words of its own script, then its newest run as tables."""

from __future__ import annotations

import re
from typing import Any

from .reading import Results, Row, described, measured_by
from .writing import NOTHING, few, num, of, percent, section, span, table

LOOPS = {"transformer_lens": "`run_with_hooks`", "hugging_face": "Hugging Face sdpa"}
"""The plain loops that are timed beside ours."""


def patching(results: Results) -> str:
    run = results.latest("patching")
    models = {name: found for name, found in run["results"].items() if "speed" in found}
    pairs = next(iter(models.values()))["attribution"]["pairs"]
    sampled = next(iter(models.values()))["speed"]["pairs"][0]["answer"]["sampled_heads"]
    speed, rank, differences = [], [], []
    for name, found in models.items():
        for pair in found["speed"]["pairs"]:
            for where, label in (("answer", "answer rows"), ("all", "all")):
                one = pair[where]
                differences += [one[loop]["largest_difference"] for loop in LOOPS]
                times = [f"{one[loop]['speedup']:.1f}" for loop in LOOPS]
                about = [name, found["speed"]["heads"], pair["tokens"], pair["first_difference"], label]
                speed.append([*about, f"{one['seconds']:.1f}", *times])
        exact = found["attribution"]
        for label, one in exact.items():
            if isinstance(one, dict):
                seconds = f"{one['seconds']:.1f} against {exact['exact_seconds']:.1f}"
                row = [name, f"`{label}`", seconds, num(one["all_heads"]), num(one["above_noise"])]
                rank.append([*row, exact["heads_above_noise"]])
    loops = [f"times faster than {loop}" for loop in LOOPS.values()]
    return section(
        described("patching"),
        measured_by(f"python benchmarks/patching.py --pairs {pairs}", [run], "patching.jsonl"),
        table(
            ["model", "heads", "tokens", "first difference", "patched positions", "seconds, every head", *loops], speed
        ),
        f"The loops ran for {sampled} heads, scaled to all. The largest difference from any loop is {max(differences):.0e}.",
        table(
            ["model", "estimate", "seconds, against exact", "Spearman, all heads", "above noise", "heads above noise"],
            rank,
        ),
        f"The estimates are for {pairs} pairs. Integrated gradients average the slope between the two runs, while "
        "patching starts from one of them: the two ask different questions, so a lower correlation is no error of "
        "either.",
    )


def recovery(results: Results) -> str:
    run = results.latest("recovery")
    found = run["results"]
    parts = [
        described("recovery"),
        measured_by(f"python benchmarks/recovery.py --seeds {found['seeds']}", [run], "recovery.jsonl"),
    ]
    parts.append(f"Cells: mean share of the planted heads found, and how often all were, over {found['seeds']} seeds.")
    for response in ("saturating", "linear"):
        parts.append(f"Costs of heads that are ablated together: {response}.\n\n{_recovered(found[response])}")
    cases = list(next(iter(found["methods"].values())))
    rows = [[f"`{name}`", *(_share(row[case]) for case in cases)] for name, row in found["methods"].items()]
    columns = [re.sub(r"masks of ([\d.]+)", lambda size: f"masks of {percent(float(size[1]))}", case) for case in cases]
    parts.append("The regressions beside each other, saturating costs:\n\n" + table(["regression", *columns], rows))
    return section(*parts)


def coverage(results: Results) -> str:
    run = results.latest("coverage")
    found = run["results"]
    rows = [
        [
            one["of"],
            one["n"],
            f"{one['studies']:,}",
            *(num(one[part], 3) for part in ("covered", "too_high", "too_low")),
        ]
        for one in found["intervals"]
    ]
    return section(
        described("coverage"),
        measured_by("python benchmarks/coverage.py", [run], "coverage.jsonl"),
        f"The nominal level is {percent(found['level'])}.",
        table(["interval of", "trials", "simulated studies", "covered", "all above the truth", "all below it"], rows),
    )


def half_precision(results: Results) -> str:
    runs = results.latest_by_model("half_precision")
    found = {name: run["results"] for name, run in runs.items()}
    rankings = [
        [name, f"`{method}`", num(row["spearman"], 3), f"{row['shared']} of {one['k']}"]
        for name, one in found.items()
        for method, row in one["rankings"].items()
    ]
    costs = [
        [name, which, num(row["float32"]), num(row["bfloat16"]), of(row, "difference"), num(row["correlation"], 3)]
        for name, one in found.items()
        for which, row in one["costs"].items()
    ]
    said = [
        [name, row["question"], row["float32"], row["bfloat16"]]
        for name, one in found.items()
        for row in one["verdicts"]
    ]
    return section(
        described("half_precision"),
        measured_by("python benchmarks/half_precision.py --model NAME", runs.values(), "half_precision.jsonl"),
        table(["model", "ranking", "Spearman of all heads", "best heads shared"], rankings),
        "What ablation costs, nats:",
        table(["model", "heads", "float32", "bfloat16", "difference", "correlation over trials"], costs),
        table(["model", "question", "float32", "bfloat16"], said),
    )


def _recovered(found: dict[str, Row]) -> str:
    """Rows are numbers of evaluations, columns what was ablated."""
    alone = "heads one by one"
    cells = {(int(name.split(" ", 1)[0]), name.split(" ", 1)[1]): row for name, row in found.items()}
    sizes = sorted({float(what.removeprefix("masks of ")) for _, what in cells if what != alone})
    columns = [alone, *(f"masks of {size}" for size in sizes)]
    rows = [
        [f"{n:,}", *(_share(cells[n, what]) if (n, what) in cells else NOTHING for what in columns)]
        for n in sorted({n for n, _ in cells})
    ]
    return table(["evaluations", alone, *(f"masks of {percent(size)}" for size in sizes)], rows)


def _share(row: Row) -> str:
    return f"{row['share']:.2f}, {row['all']:.2f}"


def localize(results: Results) -> str:
    runs = results.latest_by_model("localize")
    rows: list[list[Any]] = []
    shared: list[list[Any]] = []
    for name, run in runs.items():
        found = run["results"]
        for row in found["reached"]:
            damage = "; ".join(span(*one) for one in row["damage"])
            ends = [
                "not reached" if end is None else f"{end} ({seconds:.0f} s)"
                for end, seconds in zip(row["evaluations_to_90"], row["seconds_to_90"], strict=True)
            ]
            rows.append(
                [name, f"`{row['method']}`", row["evaluations"], f"{row['seconds']:.0f}", damage, "; ".join(ends)]
            )
        for one in found["agreement"]:
            shared.append([name, f"`{one['with']}`", one["k"], one["shared"], num(one["chance"]), num(one["p"])])
    one = next(iter(runs.values()))["results"]
    seeds = max(len(row["damage"]) for row in one["reached"])
    references = ", ".join(f"{run['results']['reference']:.2f} nats on {name}" for name, run in runs.items())
    return section(
        described("localize"),
        measured_by(
            f"python benchmarks/localize.py --trials {one['trials']} --seeds {seeds}", runs.values(), "localize.jsonl"
        ),
        f"Retrieval of {one['context_length']} tokens; {one['trials']} trials find {one['k']} heads, as many others "
        f"judge them; masks of {percent(one['sparsity'])}. Damage in nats, one number per seed. The reference does "
        f"{references}.",
        table(["model", "method", "evaluations", "seconds", "damage, by seed", "90 % of the reference after"], rows),
        "\n".join(_against_reference(name, run["results"]) for name, run in runs.items()),
        "Do the heads of `css` (first seed) agree with other rankings made on the same trials?",
        table(["model", "ranking", "top k", "heads shared", "by chance", "p"], shared),
    )


def _against_reference(name: str, found: Row) -> str:
    """Compressed sensing beside the reference: how much of its damage, for how many of its evaluations."""
    sensed = next(row for row in found["reached"] if row["method"] == "css")
    reference = next(row for row in reversed(found["reached"]) if row["method"] in ("greedy", "one_shot"))
    shares = sorted(damage[0] / found["reference"] for damage in sensed["damage"])
    return (
        f"- {name}: `css` does {few(shares[0], shares[-1], 2)} of the damage of `{reference['method']}`, depending on "
        f"the seed, with {sensed['evaluations']} evaluations ({sensed['seconds']:.0f} s) against "
        f"{reference['evaluations']} ({reference['seconds']:.0f} s)."
    )


def masks(results: Results) -> str:
    runs = results.latest_by_model("localize")
    costs = [(name, task, cost) for name, run in runs.items() for task, cost in run["results"]["cost"].items()]
    rows = [
        [
            name,
            task,
            percent(round(cost["share_run"], 2)),
            num(cost["seconds_per_mask"]),
            *(num(cost[loop]["share"]) for loop in LOOPS),
        ]
        for name, task, cost in costs
    ]
    difference = max(cost[loop]["largest_difference"] for *_, cost in costs for loop in LOOPS)
    columns = [
        "layers of the prompts that are run",
        "seconds per mask",
        *(f"share of the time of {loop}" for loop in LOOPS.values()),
    ]
    return section(
        "What one mask costs in the benchmark above, beside plain loops that run every trial in full, one by one. A "
        "run starts at the lowest ablated layer, and a beginning that prompts share (few-shot examples, as in "
        "arithmetic) is run once. Long prompts that share nothing save only the layers below the lowest ablated head.",
        measured_by("python benchmarks/localize.py", runs.values(), "localize.jsonl"),
        table(["model", "task", *columns], rows),
        f"The largest difference from any loop is {difference:.0e}.",
    )


def import_time(results: Results) -> str:
    run = results.latest("import_time")
    rows = [
        [
            f"`{name}`" if name.startswith(("import", "lens-heads")) else name,
            num(one["seconds"]),
            "yes" if one["imports_torch"] else "no",
        ]
        for name, one in run["results"].items()
    ]
    return section(
        described("import_time"),
        measured_by("python benchmarks/import_time.py", [run], "import_time.jsonl"),
        table(["what", "seconds", "imports torch"], rows),
    )


def capabilities(results: Results) -> str:
    run = results.latest("capabilities")
    models = run["results"]
    tasks = next(iter(models.values()))
    rows = []
    for task, first in tasks.items():
        chance = [num(first["chance"].get(metric)) if metric in first else NOTHING for metric in ("correct", "choice")]
        cells = [_mean(found[task], metric) for found in models.values() for metric in ("correct", "choice", "logprob")]
        rows.append([task, *chance, *cells])
    columns = [f"{name}: {what}" for name in models for what in ("right", "choice", "log-probability")]
    trials = sorted({one["trials"] for found in models.values() for one in found.values()})
    counted = str(trials[0]) if len(trials) == 1 else few(trials[0], trials[-1], 0)
    return section(
        described("capabilities"),
        measured_by(f"python benchmarks/capabilities.py --trials {trials[-1]}", [run], "capabilities.jsonl"),
        f'{counted} test trials a task. "Right" judges generated text, "choice" the likeliest of the choices. Where a model\'s '
        "interval holds chance, it has not shown the capability. Compare continuation with the row of other "
        "contexts, not with chance: endings alone give part of the answer away.",
        table(["task", "chance: right", "chance: choice", *columns], rows),
    )


def _mean(found: Row, metric: str) -> str:
    return span(found[metric]["mean"], *found[metric]["interval"]) if metric in found else NOTHING
