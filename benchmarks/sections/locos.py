"""The LOCOS study: the paper's claims, and what the same run shows beyond them."""

from __future__ import annotations

from typing import Any

from .reading import Results, Row, only, pick, study_by
from .writing import NOTHING, judged, num, of, table

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
    heads = ", ".join(f"k = {one['k']} on {name}" for name, one in models.items())
    parts = [
        "The argument of the LOCOS paper ([arXiv 2607.01002](https://arxiv.org/abs/2607.01002)) on other models: "
        "each claim beside the paper's number. A claim holds, does not hold, or cannot be told; intervals are "
        "widened by what so few trials may have missed.",
        f"{study_by(found, 'study_locos.json')} {preset['select'][1]['n']} trials choose the heads, "
        f"{preset['test'][1]['n']} others test them. As large a share of the heads is ablated as in the paper: "
        f"{heads}.",
        _claims(models),
        "### Cost of ablation at that k",
        "Drop of the gold answer's log-probability on the test trials. `locos (exact)` scores by the true linear "
        "read-out, which differs from the raw unembedding where a model has norms after attention.",
        _costs(models),
        "A negative cost is a gain: those heads suppress the answer.",
        "### Agreement with patching",
        "`cri` patches every head alone from the clean into the corrupt run. Overlap is of the k best heads; "
        "Spearman's rank correlation is over all heads, most of which do next to nothing.",
        _agreement(models),
        "\n".join(_directions(name, one) for name, one in models.items()),
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
        cells = [f"{one['found']}; {judged(one)}" if one else NOTHING for one in here]
        rows.append([claim["claim"], claim["paper"], *cells, claim["holds_if"]])
    return table(["claim", "paper", *models, "it holds if"], rows)


def _costs(models: dict[str, Row]) -> str:
    """One row per set of heads that is ablated at the headline k in any model."""
    costs: dict[tuple[str, str], dict[str, str]] = {}
    for name, one in models.items():
        for row in pick(one["ablation"], task="retrieval", metric="logprob", k=one["k"]):
            if row["set"] != "given":
                costs.setdefault((row["method"], row["set"]), {})[name] = of(row, "drop", "drop")
    names = {"top": "`{}`", "bottom": "`{}`, bottom", "random": "random", "random_like": "random, layers as `{}`"}
    rows = [
        [names[which].format(method), *(cells.get(name, NOTHING) for name in models)]
        for (method, which), cells in costs.items()
    ]
    return table(["heads ablated", *models], rows)


def _shared(row: Row) -> int:
    """How many heads two rankings share."""
    return len([head for head in row["both"].split(", ") if head])


def _directions(name: str, one: Row) -> str:
    """Which direction LOCOS should read, on this model: what its heads cost, and whether patching chooses them too."""
    said = []
    for method in ("locos", "locos (exact)"):
        (cost,) = pick(one["ablation"], task="retrieval", metric="logprob", method=method, set="top", k=one["k"])
        (shared,) = pick(one["against_cri"], method=method)
        said.append(
            f"by the {'exact' if 'exact' in method else 'raw'} direction LOCOS's {one['k']} best heads cost "
            f"{of(cost, 'drop', 'drop')} nats; patching's {one['k']} best heads share {_shared(shared)} with them"
        )
    return f"- {name}: {'; '.join(said)}."


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
