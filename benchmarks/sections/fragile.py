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
        f"{name}: {', '.join(map(str, one['heads_for_k_of_1024'].values()))}" for name, one in models.items()
    )
    right = "; ".join(f"{name} {_unablated(one['cells']):.2f}" for name, one in models.items())
    claims = [
        [
            claim["claim"],
            claim["models"],
            METRICS[claim["metric"]],
            claim["paper"],
            _number(claim),
            num(claim["p"], 3),
            f"**{claim['verdict']}**",
        ]
        for claim in found["claims"]
    ]
    parts = [
        "Query-focused heads on facts of made-up annual reports: every task's heads are ablated on every task, "
        "beside random heads, and two models are compared. The study it follows (Different Heads, Same Fragile "
        "Tasks) used models of 7 to 8 billion parameters.",
        f"{study_by(found, 'study_fragile_tasks.json')} Of {len(preset['tasks'])} tasks, {preset['documents']['n']} "
        f"document trials each choose the heads and {preset['trials']['n']} trials of other companies test them; k = "
        f"{ks} of 1,024 heads, which is ({heads}). Right answers are greedy matches; without ablation their share is "
        f"{right}.",
        table(["claim", "models", "by", "the study", "found", "p", "verdict"], claims),
        "Right answers move in few trials, and where a model gives few of them they say little; the log-probability "
        "moves in every trial.",
    ]
    for pair in found["pairs"]:
        parts += _pair(pair)
    return "\n\n".join(parts)


def _number(claim: Row) -> str:
    number = span(
        claim.get("value", claim["found"]), claim["low"], claim["high"]
    )  # `found` is a sentence since there is `value`.
    return f"R² {number}" if claim["paper"].startswith("R²") else f"{number} nats"


def _unablated(cells: list[Row]) -> float:
    return mean(cell["mean"] for cell in pick(cells, source="none", metric="greedy_match"))


def _pair(pair: Row) -> list[str]:
    a, b = pair["models"]
    rows = [
        [one["statistic"], num(one["r2"]), of(one, "r2"), num(one["p"], 3), num(one["noise_ceiling_r2"])]
        for one in pair["correlations"]
    ]
    correlations = [[name, interval, p, ceiling] for name, _, interval, p, ceiling in rows]
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
        table(["statistic", "R²", "p", "noise ceiling R²"], correlations),
        f"Heads are matched one to one; mean distance: {'; '.join(matched)}. Do partners do the same? Ablating them "
        f"costs each task, in nats: {'; '.join(ranges)}.",
        table(["task", *sets.values()], costs),
    ]


def _ends(rows: list[Row]) -> tuple[float, float]:
    return min(row["drop"] for row in rows), max(row["drop"] for row in rows)
