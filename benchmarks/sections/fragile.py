"""The study of fragile tasks: do tasks share heads inside a model, do models share heads or fragile tasks?"""

from __future__ import annotations

from statistics import mean

from .reading import Results, Row, pick, study_by
from .writing import few, num, of, span, table

METRICS = {"logprob": "log-probability", "greedy_match": "right answers"}


def fragile(results: Results) -> str:
    found = results.study("study_fragile_tasks")
    models: dict[str, Row] = found["models"]
    preset = next(iter(models.values()))["settings"]["preset"]
    ks = ", ".join(map(str, preset["ks"]))
    heads = "; ".join(
        f"{name}: {', '.join(map(str, (one.get('heads_for_k') or one['heads_for_k_of_1024']).values()))}"
        for name, one in models.items()
    )
    unit = " of 1,024 heads" if preset.get("relative_k", True) else " heads"
    right = "; ".join(f"{name} {_unablated(one['cells']):.2f}" for name, one in models.items())
    parts = [
        "Query-focused heads on facts of made-up annual reports: every task's heads are ablated on every task, "
        "beside random heads, and two models are compared. The study it follows (Different Heads, Same Fragile "
        "Tasks) used models of 7 to 8 billion parameters.",
        f"{study_by(found, 'study_fragile_tasks.json')} Of {len(preset['tasks'])} tasks, {preset['documents']['n']} "
        f"document trials each choose the heads and {preset['trials']['n']} trials of other companies test them; k = "
        f"{ks}{unit}, which is ({heads}). Right answers are greedy matches; without ablation their share is "
        f"{right}.",
        *_claims(found),
    ]
    for name, one in models.items():
        parts += _sources(name, one)
    for pair in found["pairs"]:
        parts += _pair(pair)
    return "\n\n".join(parts)


def _claims(found: Row) -> list[str]:
    """Every claim with its number and verdict. Files without estimands have one list of claims, judged by two metrics."""
    if "claims" in found:
        columns = ["claim", "models", "by", "the study", "found", "p", "verdict"]
        rows = []
        for one in found["claims"]:
            told = [_number(one), num(one["p"], 3), f"**{one['verdict']}**"]
            rows.append([one["claim"], one["models"], METRICS[one["metric"]], one["paper"], *told])
        return [
            table(columns, rows),
            "Right answers move in few trials, and where a model gives few of them they say little; the log-probability "
            "moves in every trial.",
        ]
    claims = [claim for part in [*found["models"].values(), *found["pairs"]] for claim in part["claims"]]
    rows = [
        [one["claim"], one["models"], one["k"].split(": ")[-1], one["n"], one["paper"], _said(one), _verdict(one)]
        for one in claims
    ]
    return [
        table(["claim", "models", "k", "n", "the study", "found", "verdict"], rows),
        "Claims, thresholds, k and n were written down before the run (`claims.json`). All are judged by nats per answer "
        "token; correlations by r inside answer formats, with p over permutations of the tasks.",
    ]


def _said(claim: Row) -> str:
    """The number behind a verdict: with its interval, or the sentence about a correlation."""
    number = claim["found"] if claim["low"] is None else of(claim)
    return number if claim["p"] is None or claim["low"] is None else f"{number}, p {claim['p']:.3f}"


def _verdict(claim: Row) -> str:
    more = f"; about {claim['would_tell']:.0f} trials would tell" if claim["would_tell"] else ""
    return f"**{claim['verdict']}**{more}"


def _sources(name: str, one: Row) -> list[str]:
    """What each source of heads costs the trials of all tasks; nothing for a file without sources."""
    rows = [
        [
            row["source"],
            of(row, "drop", "drop"),
            of(row, "beyond", "beyond"),
            num(row["p"], 3),
            row["trials"],
            row["random_trials"],
        ]
        for row in pick(one.get("sources", []), task="all tasks")
    ]
    columns = ["heads", "cost, nats", "beyond random heads", "p by rank", "trials", "of these beside random heads"]
    return [f"What each source of heads costs the trials of all tasks in {name}:", table(columns, rows)] if rows else []


def _number(claim: Row) -> str:
    number = span(
        claim.get("value", claim["found"]), claim["low"], claim["high"]
    )  # `found` is a sentence since there is `value`.
    return f"R² {number}" if claim["paper"].startswith("R²") else f"{number} nats"


def _unablated(cells: list[Row]) -> float:
    return mean(cell["mean"] for cell in pick(cells, source="none", metric="greedy_match"))


def _pair(pair: Row) -> list[str]:
    a, b = pair["models"]
    ways = "how" in pair["correlations"][0]  # Files with a single way to correlate do not name it.
    columns = ["statistic", *(["by", "r"] if ways else []), "R²", "p", "noise ceiling R²"]
    correlations = [
        [one["statistic"], *([one["how"], num(one["r"])] if ways else []), of(one, "r2"), num(one["p"], 3)]
        for one in pair["correlations"]
    ]
    ceilings = [num(one["noise_ceiling_r2"]) for one in pair["correlations"]]
    matched = [
        f"{how} {one['mean_distance']:.2f} (by chance {one['chance']:.2f}, p {one['p']:.3f})"
        for how, one in pair["match"].items()
    ]
    sets = {"a": f"{a}: best heads", "matched": f"{b}: their partners", "random": f"{b}: random heads as deep"}
    tasks = dict.fromkeys(row["task"] for row in pair["validation"])
    costs = [
        [task, *(of(pick(pair["validation"], task=task, set=which)[0], "drop") for which in sets)] for task in tasks
    ]
    ranges = [f"{label} {few(*_ends(pick(pair['validation'], set=which)))}" for which, label in sets.items()]
    return [
        f"### {a} and {b}",
        "Correlation over tasks and k; p is over orders of the tasks, the noise ceiling says what a perfect "
        "agreement could reach.",
        table(columns, [[*row, ceiling] for row, ceiling in zip(correlations, ceilings, strict=True)]),
        f"Heads are matched one to one; mean distance: {'; '.join(matched)}. Do partners do the same? Ablating them "
        f"costs each task, in nats: {'; '.join(ranges)}.",
        table(["task", *sets.values()], costs),
    ]


def _ends(rows: list[Row]) -> tuple[float, float]:
    return min(row["drop"] for row in rows), max(row["drop"] for row in rows)
