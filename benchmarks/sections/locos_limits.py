"""What the trials of the LOCOS study can show, how rankings compare over k, and how literal the heads are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pandas as pd
from scipy.stats import skew

from lens_heads.evidence.faithfulness_results import trapezoid_weights
from lens_heads.heads.conditions import with_key
from lens_heads.tasks.packaged import entries, packaged

from .reading import Results, Row, only, pick
from .writing import NOTHING, few, num, of, table

LATER = (
    'The first claim was worded "destroys retrieval by meaning" until it was found that the packaged trials do not need their '
    "question; its rule and its numbers are the same. No interval is given for fewer than five random sets since then, and what "
    "would have told a claim names random sets beside trials. The margin of what is spared, or costs almost nothing, was 0.25 "
    "nats; it is now also at most a quarter of what LOCOS's heads cost retrieval beyond random heads."
)
"""What was changed after results had been seen."""
WITHOUT_TWIN = (
    "**The share of the benefit** divides what ablation costs by what leaving the needle out costs the intact model. It ignores "
    "what the same ablation does to a prompt without the needle, and exceeds 100 % where the answer is less likely with the "
    "heads ablated than without the needle. The difference in differences, 1 - [ablated with - ablated without] / [intact with - "
    "intact without], takes both into account, and can exceed 100 % too; it needs ablated prompts without the needle, which "
    "these files do not hold. **p** is one-sided: the rank of the heads among random sets by what they cost; the least of 40 "
    "sets is 0.024."
)


WITH_TWIN = (
    "**The share of the benefit** is a difference in differences, 1 - [ablated with - ablated without] / [intact with - intact "
    "without the needle]: what the same ablation does to a prompt without the needle is subtracted. **p** is one-sided: the rank "
    "of the heads among random sets by what they cost; the least of 40 sets is 0.024."
)


def benefit(models: dict[str, Row]) -> str:
    """How the share is computed, by what the files hold."""
    every = all(pick(one["headline"], set="top_no_needle") for one in models.values())
    return WITH_TWIN if every else WITHOUT_TWIN


def further(models: dict[str, Row]) -> list[str]:
    """The headline under other ablations, among more random sets, and from other selection trials, where a file has it."""
    measured = {name: one for name, one in models.items() if "kinds" in one}
    if not measured:
        return []
    ways = {
        "zero": "to zero",
        "resample": "what the heads write in another passage",
        "counterfactual": "what they write here if another trial's question is asked",
    }
    kinds = [
        [name, f"`{row['method']}`", ways[row["kind"]], of(row, "cost")]
        for name, one in measured.items()
        for row in one["kinds"]
    ]
    seeds = [
        [name, str(row["seed"]), of(row, "cost"), f"{row['shared']} of {row['k']}"]
        for name, one in measured.items()
        for row in one.get("seeds", [])
    ]
    ranks = "; ".join(
        f"{name} {row['p']:.3f} of {row['sets']} sets" for name, one in measured.items() for row in one["ranks"]
    )
    return [
        "### The same heads under other ablations, and from other selection trials",
        "Ablated where the answer begins alone, nats beyond random heads. The last way matters to heads that read the question: "
        "a head that writes the one name of the passage writes it under any.",
        table(["model", "ranking", "in place of what they write", "cost"], kinds),
        f"One-sided p of LOCOS's heads by rank among more random sets: {ranks}. LOCOS's heads from other selection trials, on "
        "the same test trials:",
        table(["model", "selection seed", "cost, nats", "shared with the first"], seeds),
    ]


def shown_by(preset: Row) -> str:
    """What these trials show, counted on the trials themselves."""
    calls = [options for task, options in (preset["select"], preset["test"]) if task == "packaged"]
    trials = [trial for options in calls for trial in packaged(**options)]
    names = {name for split in ("select", "test") for entry in entries(split) for name in entry.characters}
    kinds = set.intersection(*({entry.kind for entry in entries(split)} for split in ("select", "test")))
    alone = sum(_names(f"{trial.haystack} {trial.needle}", names) == {trial.answer} for trial in trials)
    return (
        f"**These trials do not need their question.** In {alone} of {len(trials)} the answer is the only first name of the "
        "passage and stands verbatim in the needle, and the prompt says that a person is named. So what is shown are heads that "
        "write the one name of a passage into the answer. Whether they retrieve by meaning, these trials cannot tell: that takes "
        "two names, and a question that chooses. Each half has a single template, both have one style of haystack and the same "
        f"{len(kinds)} kinds of needles, and one seed drew the selection trials. The intervals do not cover how others would "
        "differ."
    )


def _names(text: str, names: Iterable[str]) -> set[str]:
    return set(re.findall(rf"\b(?:{'|'.join(sorted(names, key=len, reverse=True))})\b", text))


def over_k(results: Results, models: dict[str, Row], named: Callable[[str, str], str]) -> str:
    """Every ranking by its area over log k, the heads for half of the benefit, and where its order with LOCOS turns."""
    parts = [
        "The claims are judged at one k, which LOCOS's own heads chose. Over all k: `area` is the mean cost over log k, in nats. "
        "`half` is the fewest heads that take half of what the needle adds, on these test trials and on the selection trials, "
        "which chose k. Then the k at which LOCOS's heads surely cost more, and surely less, than the row's (intervals of paired "
        "differences). Areas have no interval, so no ranking is surely ahead by them: values per trial of these curves are not "
        "stored."
    ]
    for name, one in models.items():
        rows = []
        for method in dict.fromkeys(row["method"] for row in pick(one["ablation"], metric="logprob", set="top")):
            costs = _costs(one["ablation"], method)
            ks = sorted(costs)
            area = float(sum(weight * costs[k] for weight, k in zip(trapezoid_weights(ks, "log"), ks, strict=True)))
            gaps = pick(one["differences"], against=method, set="top", lead="locos", metric="logprob")
            halves = [
                _half(costs, _benefit(results, one)),
                _half(_costs(one["choice"], method), _benefit_of_choice(one)),
            ]
            turns = [_ks(row["k"] for row in gaps if sign * row[end] > 0) for sign, end in ((1, "low"), (-1, "high"))]
            rows.append((area, [named(method, "top"), num(area), *halves, *turns]))
        rows.sort(key=lambda row: -row[0])
        columns = ["ranking", "area", "half, test trials", "half, selection trials"]
        columns += ["LOCOS costs more at k =", "LOCOS costs less at k ="]
        parts.append(f"{name}:\n\n" + table(columns, [cells for _, cells in rows]))
    return "\n\n".join(parts)


def _costs(rows: list[Row], method: str) -> dict[int, float]:
    return {row["k"]: row["drop"] for row in pick(rows, metric="logprob", set="top", method=method)}


def _half(costs: dict[int, float], benefit: float) -> str:
    """The fewest heads that take half of the benefit."""
    if not costs:
        return NOTHING
    return next((str(k) for k in sorted(costs) if costs[k] >= benefit / 2), f"more than {max(costs)}")


def _benefit_of_choice(one: Row) -> float:
    return only(one["choice"], metric="logprob", set="no_needle")["drop"]


def _benefit(results: Results, one: Row) -> float:
    """What leaving the needle out costs on the trials of the curve, which are the first of the headline."""
    trials = max(row["trials"] for row in pick(one["ablation"], set="top"))
    rows = _headline(results, one)
    intact, bare = (rows[rows["set"] == which].set_index("trial")["logprob"] for which in ("none", "no_needle"))
    first = intact.iloc[:trials]
    return float((first - bare.loc[first.index]).mean())


def _headline(results: Results, one: Row) -> pd.DataFrame:
    """The values of every trial at the k of the claims."""
    rows = pd.read_parquet(results.folder / "trials" / f"locos--{one['settings']['model']}--headline_trials.parquet")
    return rows[rows["task"] == "retrieval"]


def _ks(ks: Iterable[int]) -> str:
    return ", ".join(map(str, ks)) or "none"


def random_sets(results: Results, models: dict[str, Row]) -> str:
    """How random sets differ, and how many of LOCOS's heads they hold."""
    labels = {"random": "random heads", "random_like": "random heads, layers as `locos`"}
    found = []
    for name, one in models.items():
        rows = with_key(_headline(results, one))
        heads = rows[(rows["set"] == "top") & (rows["method"] == "locos")]["heads"].iloc[0].split(",")
        intact = rows[rows["set"] == "none"].set_index("trial")["logprob"]
        for which, label in labels.items():
            drawn = rows[rows["set"] == which]
            by_draw = (drawn["trial"].map(intact) - drawn["logprob"]).groupby(drawn["draw"]).mean()
            sets = drawn.drop_duplicates("draw")["heads"].str.split(",")
            shared = sum(head in drawn_heads for drawn_heads in sets for head in heads) / len(sets)
            numbers = [num(by_draw.mean()), few(by_draw.min(), by_draw.max(), 2), num(float(skew(by_draw)), 1)]
            found.append([name, label, len(by_draw), *numbers, f"{shared:.1f} of {len(heads)}"])
    columns = ["model", "heads", "sets", "mean cost, nats", "from the least to the most costly set", "skew over sets"]
    return (
        "A set that happens to hold a head which the task cannot do without costs far more than the others. Where such sets are "
        "rare, the sets are skewed and an interval over them misses them. A set with the layers of LOCOS's heads also holds "
        "many of these heads.\n\n" + table([*columns, "LOCOS's heads in a set"], found)
    )


def literal(models: dict[str, Row]) -> str:
    """How many of LOCOS's best heads are among the most literal ones, and where `copy` ranks the first of them."""
    rows = []
    for name, one in models.items():
        shares = {row["name"]: row["score"] for row in one["top"]["literal_share"]}
        best, copied = ([row["name"] for row in one["top"][ranking]] for ranking in ("locos", "copy"))
        among = [shares[head] for head in best if head in shares]
        place = str(copied.index(best[0]) + 1) if best[0] in copied else f"after {len(copied)}"
        counts = [f"{len(among)} of {len(best)}", few(min(among), max(among), 2) if among else NOTHING]
        rows.append([name, *counts, num(min(shares.values())), f"{best[0]}: {place}"])
    columns = ["model", "LOCOS's best that are among the most literal", "their literal share", "least share of these"]
    return (
        "The literal share of a head is the part of its positive contribution from the needle that comes from the very token "
        "that it writes: at 1 it copies. The summary keeps the ten heads with the largest shares, and the ten best of every "
        "ranking; the other heads of LOCOS have smaller shares than these.\n\n"
        + table([*columns, "LOCOS's first head, place by `copy`"], rows)
    )
