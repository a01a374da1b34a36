"""The LOCOS study: the paper's claims, and what the same run shows beyond them."""

from __future__ import annotations

from typing import Any

from .reading import Results, Row, only, pick, study_by
from .writing import NOTHING, num, of, table

RECOVERED = {
    "random": "random heads",
    "matched_layers": "random heads of the same layers",
    "same_layer": "neighbours in the layers",
}
RECOVERED |= {"bottom": "LOCOS's bottom heads"}


def locos(results: Results) -> str:
    found = results.study("study_locos")
    models: dict[str, Row] = found["models"]
    preset = next(iter(models.values()))["settings"]["preset"]
    heads = ", ".join(
        f"k = {one['k']} and `{one['best_attention_baseline']}` on {name}" for name, one in models.items()
    )
    parts = [
        "The argument of the LOCOS paper ([arXiv 2607.01002](https://arxiv.org/abs/2607.01002)) on other models: "
        "each claim beside the paper's number. Claims, estimands, thresholds and the rule for k were written down before "
        "the run (`claims.json`). Costs are nats per answer token beyond random heads, which are drawn from all heads.",
        f"{study_by(found, 'study_locos.json')} {preset['select'][1]['n']} trials choose the heads, {preset['choose']} of "
        f"them k and the best baseline: {heads}. Others test them, at most {preset['max_trials']}; random sets, "
        f"{preset['draws']} uniform and as many layer-matched, run on {preset['few']} of those.",
        _claims(models),
        _told(models),
        "### Cost of ablation at that k",
        "Drop of the gold answer's log-probability on the test trials, and the share of the needle's benefit that is lost "
        "(1: as bad as a prompt without its needle). `_exact` scores by the true linear read-out, which differs from the raw "
        "unembedding where a model has norms after attention.",
        _costs(models),
        "### Over k",
        f"The same on {preset['curve_trials']} test trials: more and more of each ranking's heads.",
        *(f"{name}:\n\n{_curve(one)}" for name, one in models.items()),
        "### Agreement with patching",
        "`cri` patches every head alone from the clean into the corrupt run. Overlap is of the k best heads; "
        "Spearman's rank correlation is over all heads, most of which do next to nothing.",
        _agreement(models),
        "### Recovery",
        "LOCOS's heads are ablated at every position, then heads are given back at the answer rows. Recovery is the "
        "share of the cost that this undoes. Ablated too: the control heads were themselves ablated, so cost is "
        "theirs; where they cost little, their recovery means little.",
        *(_recovery(name, one) for name, one in models.items()),
    ]
    return "\n\n".join(parts)


def _claims(models: dict[str, Row]) -> str:
    by_id = {name: {claim["id"]: claim for claim in one["claims"]} for name, one in models.items()}
    rows = []
    for claim in next(iter(models.values()))["claims"]:
        here = [by_id[name].get(claim["id"]) for name in models]
        cells = [_verdict(one) if one else NOTHING for one in here]
        rows.append([claim["claim"], claim["paper"], *cells, claim["holds_if"]])
    return table(["claim", "paper", *models, "it holds if"], rows)


def _verdict(claim: Row) -> str:
    """The word, the numbers behind it, and what would have told."""
    more = f"; about {claim['would_tell']:.0f} trials would tell" if claim["would_tell"] else ""
    return f"**{claim['verdict']}**: {claim['found']}; {claim['trials']} trials{more}"


def _told(models: dict[str, Row]) -> str:
    """How many claims were told."""
    verdicts = [claim["verdict"] for one in models.values() for claim in one["claims"]]
    told = sum(verdict != "cannot be told" for verdict in verdicts)
    holds = verdicts.count("holds")
    return f"{told} of {len(verdicts)} claims are told: {holds} hold, {told - holds} do not."


def _costs(models: dict[str, Row]) -> str:
    """One row per set of heads that is ablated at the headline k in any model, with the cost on every task."""
    costs: dict[tuple[str, str, str], dict[str, str]] = {}
    for name, one in models.items():
        for row in pick(one["headline"], metric="logprob"):
            if row["set"] != "none":
                costs.setdefault((row["task"], row["method"], row["set"]), {})[name] = of(row, "drop", "drop")
    names = {"top": "`{}`", "random": "random heads", "random_like": "random, layers as `{}`"}
    names |= {"no_needle": "none, prompts without needles"}
    rows = [
        [task, names[which].format(method), *(cells.get(name, NOTHING) for name in models)]
        for (task, method, which), cells in costs.items()
    ]
    return table(["task", "heads ablated", *models], rows)


def _curve(one: Row) -> str:
    """What each ranking's k best heads cost, one row per ranking."""
    rows = [row for row in pick(one["ablation"], task="retrieval", metric="logprob") if row["set"] in ("top", "random")]
    ks = sorted({row["k"] for row in rows})
    found: dict[str, dict[int, str]] = {}
    for row in rows:
        label = "random heads" if row["set"] == "random" else f"`{row['method']}`"
        found.setdefault(label, {})[row["k"]] = of(row, "drop", "drop")
    cells = [[label, *(by_k.get(k, NOTHING) for k in ks)] for label, by_k in found.items()]
    return table(["heads ablated", *(f"k = {k}" for k in ks)], cells)


def _shared(row: Row) -> int:
    """How many heads two rankings share."""
    return len([head for head in row["both"].split(", ") if head])


def _agreement(models: dict[str, Row]) -> str:
    rows: list[list[Any]] = []
    for name, one in models.items():
        for row in one["against_cri"]:
            rows.append(
                [
                    name,
                    f"`{row['method']}`",
                    f"{_shared(row)} of {row['k']}",
                    num(row["jaccard"]),
                    num(row["chance"]),
                    num(row["p"], 3),
                    of(row, "spearman"),
                ]
            )
    return table(["model", "ranking", "heads shared", "Jaccard", "by chance", "p", "Spearman"], rows)


def _recovery(name: str, one: Row) -> str:
    if not one.get("recovery"):
        return f"{name}: {one.get('recovery_note')}"
    patched = only(one["recovery"], set="patched")
    about = one["recovery_note"]
    rows = [["LOCOS's heads", "", of(patched, "recovery"), num(patched["cost"]), patched["examples"]]]
    for row in one["recovery"]:
        if row["set"] != "patched":
            fair = "yes" if row["fair"] else "no"
            rows.append([RECOVERED[row["set"]], fair, of(row, "recovery"), num(row["cost"]), row["examples"]])
    columns = ["given back", "ablated too", "recovery", "cost, nats", "examples"]
    flipped = (
        f"{name}: of {about['all']} trials {about['right_clean']} are right without ablation and "
        f"{about['right_ablated']} with it; the {about['used']} that ablation turned wrong count."
    )
    again = only(one["recovery"], set="random", fair=True)
    sentence = (
        f"Giving LOCOS's heads back at the answer rows mends {of(patched, 'recovery')} of the cost, random heads that "
        f"were not ablated {of(only(one['recovery'], set='random', fair=False), 'recovery')}. Random heads that were "
        f"ablated cost {num(again['cost'])} nats instead of {num(patched['cost'])}, of which giving them back mends "
        f"{of(again, 'recovery')}."
    )
    return f"{flipped}\n\n{table(columns, rows)}\n\n{sentence}"
