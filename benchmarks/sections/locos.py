"""The LOCOS study: the claims, what every ranking's heads cost, and what the same run shows beyond them."""

from __future__ import annotations

from typing import Any

from lens_heads.evidence.words import ranged
from lens_heads.studies.claims import published

from .locos_limits import LATER, benefit, further, literal, over_k, random_sets, shown_by
from .reading import Results, Row, by_model, only, pick, study_by
from .writing import NOTHING, judged, num, of, percent, span, table

RECOVERED = {
    "random": "random heads",
    "matched_layers": "random heads of the same layers",
    "same_layer": "neighbours in the layers",
    "bottom": "LOCOS's bottom heads",
}
HEADS = {
    "top": "`{}`",
    "random": "random heads",
    "random_like": "random heads, layers as `{}`",
    "bottom": "`{}`, bottom",
    "no_needle": "no ablation, prompt without the needle",
}
RANKINGS = {"one_shot": "every head ablated alone", "patching": "every head patched"}


def locos(results: Results) -> str:
    found = results.study("study_locos")
    models = by_model(found)
    preset = next(iter(models.values()))["settings"]["preset"]
    parts = [
        "The argument of the LOCOS paper ([arXiv 2607.01002](https://arxiv.org/abs/2607.01002)) on other models, each claim "
        "beside the paper's number. Claims, estimands, thresholds and the rule for k were written down before the run "
        "([claims.json](../lens_heads/studies/locos_paper/claims.json)); verdicts rest on what "
        "[the statistics](../lens_heads/stats/README.md) say. `python benchmarks/verdicts.py` judges every claim again from the "
        f"values of every trial in [results/trials](results/trials). {LATER}",
        shown_by(preset),
        f"{study_by(found, 'study_locos.json')} {_selection(preset)} {sizes(models)}",
        claims_table(models),
        benefit(models),
        "### What k heads cost",
        "Nats of log-probability that the answer loses on the test trials with k heads ablated, at the k of the claims.",
        costs_at_k(models),
        "How far random sets differ:",
        random_sets(results, models),
        "The same over k, on the first test trials.",
        "![Log-probability of the answer against the number of ablated heads](results/locos_curves.png)",
        *(f"{name}:\n\n{_curve(one)}" for name, one in models.items()),
        "### Which ranking is ahead depends on k",
        over_k(results, models, _named),
        *further(models),
        "### How literal are these heads?",
        literal(models),
        "### Raw against exact",
        "What the heads of the exact read-out cost beyond those of the raw direction, in nats, paired by trial. The two differ "
        "where norms scale what a head writes: after every attention block in Gemma 3, before the unembedding in all.",
        _read_outs(models),
        "### Answers in words",
        answers(models),
        "### Would other trials choose the same heads?",
        "Jaccard of the top k between random halves of the selection trials, and the number of trials with which another set as "
        "large would share four fifths (a mean Jaccard of .8).",
        _stability(models),
        "### Agreement with patching",
        "`cri` patches every head alone from the clean into the corrupt run, on test trials. Overlap is of the k best heads; "
        "Spearman's rank correlation is over all heads, most of which do next to nothing.",
        _agreement(models),
        "### Recovery",
        "LOCOS's heads are ablated at every position, then heads are given back at the answer rows. Recovery is the "
        "share of the cost that this undoes. Ablated too: the control heads were themselves ablated, so cost is "
        "theirs; where they cost little, their recovery means little.",
        *(_recovery(name, one) for name, one in models.items()),
    ]
    return "\n\n".join(parts)


def _selection(preset: Row) -> str:
    rivals = f"; the two searches used {preset['rivals']} of them" if preset["rivals"] else ""
    return (
        f"{preset['select'][1]['n']} trials choose the heads{rivals}, k and the baseline are chosen on the first "
        f"{preset['choose']}, and up to {preset['max_trials']} others test them. {preset['draws']} sets of random heads of "
        f"all heads and as many of the same layers run on {preset['few']} of these."
    )


def sizes(models: dict[str, Row]) -> str:
    chosen = ", ".join(f"k = {one['k']} of {one['heads']} heads on {name}" for name, one in models.items())
    baselines = ", ".join(f"`{one['best_attention_baseline']}` on {name}" for name, one in models.items())
    return f"Chosen: {chosen}; the attention baseline {baselines}."


def claims_table(models: dict[str, Row]) -> str:
    by_id = {name: {claim["id"]: claim for claim in one["claims"]} for name, one in models.items()}
    rows = []
    for claim in published("lens_heads.studies.locos_paper.claims")["claims"]:
        here = [by_id[name].get(claim["id"]) for name in models]
        if any(here):
            rows.append([claim["claim"], claim["paper"], *map(_told, here), claim["holds"]])
    return table(["claim", "paper", *models, "it holds if"], rows)


def _told(claim: Row | None) -> str:
    """A verdict with the cost in nats, the share of the benefit where that is the claim, and the number of trials."""
    if claim is None:
        return NOTHING
    if claim["low"] == claim["high"] == 0:
        return f"**{claim['verdict']}**: {claim['found']}"
    lost = f"; {percent(claim['share'])} of the benefit" if claim["share"] is not None else ""
    # A file of an older run knows no random sets: what would have told is then not known either.
    sets = claim.get("sets_would_tell")
    with_sets = f" and {ranged(int(sets))} random sets" if sets else ""
    more = (
        f"; {ranged(int(claim['would_tell']))}{with_sets} would tell"
        if claim["would_tell"] and "sets_would_tell" in claim
        else ""
    )
    unit = " nats" if claim["low"] is not None else ""
    return f"{judged(claim)}{unit}{lost}; {claim['trials']} trials{more}"


def _named(method: str, which: str) -> str:
    return RANKINGS[method] if which == "top" and method in RANKINGS else HEADS[which].format(method)


def costs_at_k(models: dict[str, Row]) -> str:
    """One row per set of heads that is ablated at the headline k in any model."""
    costs: dict[str, dict[str, str]] = {}
    for name, one in models.items():
        for row in pick(one["headline"], task="retrieval", metric="logprob"):
            if row["set"] in HEADS:
                costs.setdefault(_named(row["method"], row["set"]), {})[name] = of(row, "drop", "drop")
    rows = [[which, *(cells.get(name, NOTHING) for name in models)] for which, cells in costs.items()]
    return table(["heads ablated", *models], rows)


def _curve(one: Row) -> str:
    """The mean cost of every ranking's top k by k."""
    rows = [row for row in pick(one["ablation"], metric="logprob") if row["set"] in ("top", "random", "random_like")]
    ks = sorted({row["k"] for row in rows})
    costs: dict[str, dict[int, str]] = {}
    for row in rows:
        costs.setdefault(_named(row["method"], row["set"]), {})[row["k"]] = num(row["drop"])
    trials = max(row["trials"] for row in rows)
    body = [[which, *(cells.get(k, NOTHING) for k in ks)] for which, cells in costs.items()]
    return table([f"heads ablated ({trials} trials)", *(f"k = {k}" for k in ks)], body)


def _read_outs(models: dict[str, Row]) -> str:
    """The paired differences by k."""
    ks = sorted({row["k"] for one in models.values() for row in pick(one["differences"], against="locos_exact")})
    rows = []
    for name, one in models.items():
        found = {row["k"]: row for row in pick(one["differences"], against="locos_exact", set="top")}
        rows.append([name, *(_more(found[k]) if k in found else NOTHING for k in ks)])
    return table(["model", *(f"k = {k}" for k in ks)], rows)


def _more(row: Row) -> str:
    """A difference the other way round; a dash where the heads are the same."""
    value, low, high = (-row[name] for name in ("difference", "high", "low"))
    return NOTHING if value == low == high == 0 else span(value, low, high)


def answers(models: dict[str, Row]) -> str:
    rows = []
    for name, one in models.items():
        for row in pick(one["texts"], metric="contains", set="none"):
            (after,) = pick(one["texts"], metric="contains", set="top", task=row["task"])
            rows.append([name, row["task"], of(row), of(after), row["trials"]])
    return table(["model", "task", "right without ablation", "right with LOCOS's heads ablated", "trials"], rows)


def _stability(models: dict[str, Row]) -> str:
    columns = ["model", "ranking", "k", "trials", "Jaccard of halves", "by chance", "trials for .8"]
    shares = ("jaccard", "expected")
    rows = [
        [
            name,
            f"`{row['method']}`",
            row["k"],
            row["trials"],
            *(num(row[part]) for part in shares),
            num(row["needed"], 0),
        ]
        for name, one in models.items()
        for row in one["stability"]
    ]
    return table(columns, rows)


def _agreement(models: dict[str, Row]) -> str:
    rows: list[list[Any]] = []
    for name, one in models.items():
        for row in one["against_cri"]:
            shared = len([head for head in row["both"].split(", ") if head])
            numbers = [num(row["jaccard"]), num(row["chance"]), num(row["p"], 3), of(row, "spearman")]
            rows.append([name, f"`{row['method']}`", f"{shared} of {row['k']}", *numbers])
    return table(["model", "ranking", "heads shared", "Jaccard", "by chance", "p", "Spearman"], rows)


def _recovery(name: str, one: Row) -> str:
    if not one.get("recovery"):
        return f"{name}: {one.get('recovery_note')}"
    patched, about = only(one["recovery"], set="patched"), one["recovery_note"]
    rows = [["LOCOS's heads", "", of(patched, "recovery"), num(patched["cost"]), patched["examples"]]]
    for row in one["recovery"]:
        if row["set"] != "patched":
            fair = "yes" if row["fair"] else "no"
            rows.append([RECOVERED[row["set"]], fair, of(row, "recovery"), num(row["cost"]), row["examples"]])
    columns = ["given back", "ablated too", "recovery", "cost, nats", "examples"]
    counted = (
        f"of {about['all']} trials {about['right_clean']} are right without ablation and {about['right_ablated']} with it; "
        f"the {about['used']} that ablation turned wrong count."
        if "right_clean" in about
        else f"{about['used']} of {about['all']} trials count."
    )
    return f"{name}: {counted}\n\n{table(columns, rows)}"
