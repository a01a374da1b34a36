"""Kinds of heads and circuits: whether heads do what their score claims, and whether two tasks share them."""

from __future__ import annotations

from .reading import Results, Row, described, measured_by
from .writing import NOTHING, num, of, percent, span, table

TOWARDS = {"others": "steering heads, to the wrong colours", "answer": "writing heads, to the right colour"}


def kinds(results: Results) -> str:
    runs = results.latest_by_model("kinds")
    parts = [
        described("kinds"),
        measured_by("python benchmarks/kinds.py", runs.values(), "kinds.jsonl"),
        _counted(runs),
    ]
    for name, run in runs.items():
        found = run["results"]["behaviours"]
        methods = list(dict.fromkeys(row["method"] for one in found.values() for row in one["methods"]))
        rows = [[f"`{method}`", *(_cell(one, method) for one in found.values())] for method in methods]
        columns = [f"{task} ({span(one['base'], one['base_low'], one['base_high'])})" for task, one in found.items()]
        k = next(iter(found.values()))["k"]
        parts.append(
            f"{name}, top {k} heads: nats beyond the harder random control, and in brackets after each behaviour the "
            "log-probability without ablation. Claims are bold, with their verdict and the p by rank."
        )
        parts.append(table(["ranking", *columns], rows))
    return "\n\n".join(parts)


def _counted(runs: dict[str, Row]) -> str:
    """How many claims are told, and which hold."""
    claims = [
        (f"{name}: `{row['method']}` on {task}", row["verdict"])
        for name, run in runs.items()
        for task, one in run["results"]["behaviours"].items()
        for row in one["methods"]
        if row["claimed"]
    ]
    held = [claim for claim, verdict in claims if verdict == "holds"]
    not_so = [claim for claim, verdict in claims if verdict == "does not hold"]
    return (
        f"{len(held)} of {len(claims)} claims hold{_listed(held)}; {len(not_so)} do not{_listed(not_so)}; the others cannot "
        "be told."
    )


def _listed(claims: list[str]) -> str:
    return f" ({'; '.join(claims)})" if claims else ""


def _cell(one: Row, method: str) -> str:
    row = next((row for row in one["methods"] if row["method"] == method), None)
    if row is None:
        return NOTHING
    cost = of(row, "cost", "cost")
    return f"**{row['verdict']}**: {cost}, p {num(row['p'], 3)}" if row["claimed"] else cost


def circuits(results: Results) -> str:
    runs = results.latest_by_model("circuits")
    shared, repaired = [], []
    for name, run in runs.items():
        found = run["results"]
        reuse = found["reuse"]
        shared.append(
            [
                name,
                *(_circuit(found["circuits"][task]) for task in (reuse["a"], reuse["b"])),
                f"{reuse['overlap']} ({reuse['shared'] or 'none'})",
                f"{num(reuse['expected_overlap'])}, p {_p(reuse['p_value'])}",
                f"{num(reuse['layer_matched_overlap'])}, p {_p(reuse['layer_matched_p_value'])}",
            ]
        )
        for towards, one in found["repairs"].items():
            right, nats = one["greedy_match"], one["logprob"]
            shares = [percent(round(right[when], 3)) for when in ("before", "after", "random")]
            repaired.append(
                [name, TOWARDS[towards], *shares, span(*nats["change"]), span(*nats["beyond"]), num(nats["p"], 3)]
            )
    trials = sorted({run["results"]["trials"] for run in runs.values()})
    return "\n\n".join(
        [
            described("circuits"),
            measured_by("python benchmarks/circuits.py", runs.values(), "circuits.jsonl"),
            table(
                [
                    "model",
                    "heads of IOI",
                    "heads of coloured objects",
                    "shared",
                    "chance, all heads",
                    "chance, by layer",
                ],
                shared,
            ),
            f"Moved attention on {trials[0]} test trials: right answers (greedy), and the change of the answer's "
            "log-probability in nats, p by rank among the random sets.",
            table(
                ["model", "moved", "right before", "after", "random heads", "change", "beyond random", "p"],
                repaired,
            ),
        ]
    )


def _p(value: float) -> str:
    return num(value, 3) if value >= 0.001 else f"{value:.0e}"


def _circuit(found: Row) -> str:
    """The heads of every stage, by what they write to, and how many nats the clean runs are better than the corrupt ones."""
    stages: dict[str, list[str]] = {}
    for row in found["stages"]:
        stages.setdefault(row["stage"], []).append(row["head"])
    listed = "; ".join(f"{stage}: {', '.join(heads)}" for stage, heads in stages.items())
    return f"{listed} (gap {num(found['gap'])})"
