"""The study of fragile tasks: do tasks share heads inside a model, do models share heads or fragile tasks?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lens_heads.evidence.words import MARGIN
from lens_heads.stats.intervals import FEWEST
from lens_heads.studies.claims import published

from .reading import Results, Row, by_model, only, pick, short, study_by
from .writing import NOTHING, few, judged, num, of, percent, table

ALL = "all tasks"
CLAIMS = "lens_heads.studies.fragile_paper.claims"
LATER = (
    "Random sets ran on 20 trials at first; they run on 100 since these could not tell one claim on one model. That nothing "
    "holds unless a model surely answers more than a tenth of the trials (whole interval) was added after a negative control, "
    "needles exchanged between trials, in which heads still cost something: they suggest the kind of answer. No verdict on "
    "these models changed by it. The margin of what costs no more was 0.25 nats; it is now also at most a quarter of what the "
    "tasks' own heads cost, by which one verdict changed: on Qwen, where these cost 0.25 nats themselves, that they cost no more "
    "than others cannot be told."
)
"""What was changed after results had been seen."""


def fragile(results: Results) -> str:
    found = results.study("study_fragile_tasks")
    models = by_model(found)
    preset = next(iter(models.values()))["settings"]["preset"]
    heads = "; ".join(f"{name}: {_listed(one['heads_for_k'].values())}" for name, one in models.items())
    right = "; ".join(f"{name} {_unablated(one)}" for name, one in models.items())
    parts = [
        "Query-focused heads on facts of made-up annual reports: every task's heads are ablated on every task, beside random "
        "heads, and models are compared. The study it follows (Different Heads, Same Fragile Tasks) used models of 7 to 8 "
        "billion parameters. Claims, thresholds and k were written down before the run "
        f"([claims.json](../lens_heads/studies/fragile_paper/claims.json)). {LATER}",
        f"{study_by(found, 'study_fragile_tasks.json')} Of {len(preset['tasks'])} tasks, {preset['documents']['n']} document "
        f"trials each choose the heads and {preset['trials']['n']} trials of other companies test them; k = "
        f"{_listed(preset['ks'])} of 1,024 heads, which is ({heads}). Claims are judged at {preset['headline_k']}. Right answers "
        f"are greedy matches; without ablation their share is {right}.",
        "### Inside each model",
        _by_model(models),
        _margins(models),
        "### What each source of heads costs",
        "Nats per answer token, over the trials of all tasks; p is one-sided, by rank among random sets of all heads.",
        _sources(models),
        "### Which tasks are fragile",
        "What the heads of other tasks cost each task beyond random heads, at the k of the claims.",
        _fragility(models),
        "### Between models",
        "r is taken inside answer formats, with p over permutations of the tasks inside them, one-sided.",
        _by_pair(found["pairs"]),
        *(part for pair in found["pairs"] for part in _pair(pair)),
    ]
    return "\n\n".join(parts)


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))


def _unablated(one: Row) -> str:
    # Older summaries call the columns "source" and "mean".
    bare = [cell for cell in one["cells"] if "none" in (cell.get("method"), cell.get("source"))]
    shares = [float(cell["value" if "value" in cell else "mean"]) for cell in pick(bare, metric="greedy_match")]
    return num(sum(shares) / len(shares))


def _by_model(models: dict[str, Row]) -> str:
    rows = []
    for claim in next(iter(models.values()))["claims"]:
        here = [only(one["claims"], id=claim["id"]) for one in models.values()]
        rows.append([claim["claim"], claim["paper"], *map(_told, here), claim["holds_if"]])
    return table(["claim", "the study", *models, "it holds if"], rows)


def _told(claim: Row) -> str:
    """A verdict with its number, its p and its trials; a correlation says in words what else could explain it."""
    p = f", p {claim['p']:.3f}" if claim["p"] is not None and claim["low"] is not None else ""
    more = [part for part in claim["found"].split("; ") if part.endswith("would tell")]
    said = "" if claim["low"] is not None else f": {claim['found']}"
    return "; ".join([f"{judged(claim)}{said}{p}", claim["n"], *more])


def _sources(models: dict[str, Row]) -> str:
    columns = ["model", "heads", "cost", "beyond random heads", "p by rank", "trials", "of these beside random heads"]
    costs, counts = ("drop", "beyond"), ("trials", "random_trials")
    rows = [
        [
            name,
            _ranking(row["source"]),
            *(of(row, part, part) for part in costs),
            num(row["p"], 3),
            *(row[part] for part in counts),
        ]
        for name, one in models.items()
        for row in pick(one["sources"], task=ALL)
    ]
    return table(columns, rows)


def _ranking(source: str) -> str:
    """A pooled ranking, named by the method where it is not the study's own."""
    if not source.endswith(ALL):
        return source
    method = source.removesuffix(ALL).removesuffix(", ")
    return f"pooled over tasks, by `{method}`" if method else "pooled over tasks"


def _fragility(models: dict[str, Row]) -> str:
    """One row per task: what other tasks' heads cost it beyond random heads, in every model."""
    found: dict[str, dict[str, str]] = {}
    for name, one in models.items():
        k = int(next(row["k"] for row in one["related"]))
        for row in pick(one["statistics"], statistic="beyond_random", metric="logprob", k=k):
            found.setdefault(row["task"], {})[name] = of(row)
    rows = [[task, *(cells.get(name, NOTHING) for name in models)] for task, cells in found.items()]
    return table(["task", *models], rows)


def _by_pair(pairs: list[Row]) -> str:
    rows = [
        [claim["claim"], " and ".join(_short(pair)), claim["paper"], _told(claim)]
        for pair in pairs
        for claim in pair["claims"]
    ]
    return table(["claim", "models", "the study", "found"], rows)


def _short(pair: Row) -> list[str]:
    return [short(name) for name in pair["models"]]


def _pair(pair: Row) -> list[str]:
    a, b = _short(pair)
    correlations = [
        [one["statistic"], one["how"], num(one["r"]), of(one, "r2"), num(one["p"], 3), num(one["noise_ceiling_r2"])]
        for one in pair["correlations"]
        if one["statistic"].startswith("logprob: ")
    ]
    matched = [
        f"{how} {one['mean_distance']:.2f} (by chance {one['chance']:.2f}, p {one['p']:.3f})"
        for how, one in pair["match"].items()
    ]
    sets = {"a": f"{a}: best heads", "matched": f"{b}: their partners", "random": f"{b}: random heads as deep"}
    tasks = dict.fromkeys(row["task"] for row in pair["validation"])
    costs = [[task, *(_cost(pick(pair["validation"], task=task, set=which)[0]) for which in sets)] for task in tasks]
    ranges = [f"{label} {few(*_ends(pick(pair['validation'], set=which)))}" for which, label in sets.items()]
    return [
        f"### {a} and {b}",
        "Correlation over tasks and k; p is over orders of the tasks, one-sided; the noise ceiling says what perfect agreement "
        f"could reach. {_by_chance(pair)}",
        table(["statistic", "by", "r", "R²", "p", "noise ceiling R²"], correlations),
        f"Heads are matched one to one; mean distance: {'; '.join(matched)}. Do partners do the same? Ablating them "
        f"costs each task, in nats: {'; '.join(ranges)}.",
        table(["task", *sets.values()], costs),
    ]


def _margins(models: dict[str, Row]) -> str:
    """The margin within which own and other heads count as equal, beside what the own heads cost."""
    (claim,) = pick(published(CLAIMS)["model"], id="interchangeable")
    costs = {
        name: only(one["sources"], task=ALL, source="the task's own heads")["beyond"] for name, one in models.items()
    }
    listed = ", ".join(f"{num(cost)} on {name} ({percent(claim['threshold'] / cost)})" for name, cost in costs.items())
    return (
        f"The margin of the second claim is {claim['threshold']} nats in every model. What a task's own heads cost beyond random "
        f"ones, and the margin as a share of it: {listed}. A margin as large as the cost excludes nothing: there the claim could "
        f"hardly fail. The same {MARGIN} nats count as spared in the study of LOCOS."
    )


def _by_chance(pair: Row) -> str:
    """What random heads alone give, beside the correlation of what heads cost beyond them."""
    of_pair = {row["how"]: row for row in pick(pair["correlations"], statistic="logprob: fragility beyond random")}
    alike, chance = of_pair["tasks alike"], of_pair["random heads alone"]
    return (
        f"With tasks alike r is {num(alike['r'])}; what random heads cost the same tasks, without any ranking, correlates by "
        f"{num(chance['r'])} (p {num(chance['p'], 3)})."
    )


def _cost(row: Row) -> str:
    """What a group of heads costs; a few random sets have no interval."""
    return of(row, "drop") if row["draws"] == 1 or row["draws"] >= FEWEST else num(row["drop"])


def _ends(rows: list[Row]) -> tuple[float, float]:
    return min(row["drop"] for row in rows), max(row["drop"] for row in rows)
