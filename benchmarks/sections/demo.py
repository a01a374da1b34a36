"""The demo: what ablating each ranking's best heads costs two models, beside controls."""

from __future__ import annotations

from dataclasses import dataclass

from .reading import Results, Row, only, pick, study_by
from .writing import NOTHING, of, span, table, told

TASK, SPARED, METRIC = "retrieval", "parametric", "logprob"
NAMES = {
    "top": "{}'s top k",
    "bottom": "{}'s bottom k",
    "random": "random k",
    "random_like": "random k, layers as {}'s top k",
}


@dataclass(frozen=True)
class Shown:
    """What the page shows of one model. `right`: right answers without ablation and under each set of heads, in words."""

    model: str
    curve: list[Row]
    differences: list[Row]
    right: list[str]


def demo(results: Results) -> str:
    parts = [
        "What ablating the k best heads of each method costs the gold answer's log-probability, on trials with other "
        "needles and names than those that chose the heads. `--full` runs more trials with every method and control.",
    ]
    found = results.study("demo")
    shown = [_shown(name, one) for name, one in found["models"].items()]
    preset = next(iter(found["models"].values()))["settings"]["preset"]
    parts.append(f"{study_by(found, 'demo.json')} {preset['select'][1]['n']} trials choose the heads.")
    parts.append("\n".join(f"- {sentence}" for one in shown for sentence in _sentences(one)))
    for one in shown:
        parts += _tables(one)
    return "\n\n".join(parts)


def _shown(name: str, one: Row) -> Shown:
    trials = only(one["ablation"], task=TASK, metric=METRIC, k=0)["trials"]
    right = [f"{share * trials:.0f} of {trials} ({under})" for under, share in one["right_answers"].items()]
    return Shown(name, one["ablation"], [row for row in one["differences"] if row["set"] in NAMES], right)


def _sentences(one: Shown) -> list[str]:
    """What the tables show, each number from them."""
    equal = [
        f"{_name(row['against'], row['set'])} at k = {row['k']} ({span(row['difference'], row['low'], row['high'])})"
        for row in one.differences
        if row["low"] <= 0
    ]
    beyond = (
        f"costs more than every other set of heads, except {', '.join(equal)}" if equal else "costs most at every k"
    )
    said = [f"{one.model}: LOCOS's top k {beyond} (nats)."]
    for row in pick(one.curve, task=TASK, metric=METRIC, method="attention_spatial", set="top", k=1):
        if row["drop_high"] < 0:
            gain = span(-row["drop"], -row["drop_high"], -row["drop_low"])
            said.append(
                f"{one.model}: ablating `attention_spatial`'s best head makes the answer likelier, by {gain} nats: "
                "the head looks at the needle and writes against the answer."
            )
    harmed = [
        row for row in pick(one.curve, task=SPARED, metric=METRIC, method="locos", set="top") if row["drop_low"] > 0
    ]
    if harmed:
        first = min(harmed, key=lambda row: row["k"])
        most = max(harmed, key=lambda row: row["drop"])
        said.append(
            f"{one.model}: LOCOS's heads also cost parametric recall, from k = {first['k']} on "
            f"({of(first, 'drop', 'drop')} nats) and most at k = {most['k']} ({of(most, 'drop', 'drop')})."
        )
    return said


def _tables(one: Shown) -> list[str]:
    base = only(one.curve, task=TASK, metric=METRIC, k=0)
    ks = sorted({row["k"] for row in one.curve if row["k"]})
    columns = [f"k = {k}" for k in ks]
    sets = dict.fromkeys((row["method"], row["set"]) for row in one.curve if row["set"] in NAMES)

    def cells(task: str, method: str, which: str) -> list[str]:
        rows = {row["k"]: row for row in pick(one.curve, task=task, metric=METRIC, method=method, set=which)}
        return [of(rows[k]) if k in rows else NOTHING for k in ks]

    told_rows = []
    for against, which in dict.fromkeys((row["against"], row["set"]) for row in one.differences):
        rows = {row["k"]: row for row in pick(one.differences, against=against, set=which)}
        found = [
            f"{span(row['difference'], row['low'], row['high'])} "
            f"{told(row['low'], row['high'], 'more', 'less', 'indistinguishable')}"
            for row in (rows[k] for k in ks if k in rows)
        ]
        told_rows.append([_name(against, which), *found, *[NOTHING] * (len(ks) - len(found))])
    parts = [
        f"### {one.model}",
        f"{base['trials']} test trials; unablated log-probability {of(base)}. Right answers: {', '.join(one.right)}.",
        table([f"{TASK}: heads ablated", *columns], [[_name(*what), *cells(TASK, *what)] for what in sets]),
        "What LOCOS's top k costs beyond others, paired by trial (nats):",
        table(["against", *columns], told_rows),
    ]
    base_spared = pick(one.curve, task=SPARED, metric=METRIC, k=0)
    if base_spared:
        about = f"Parametric recall, which needs no context (unablated {of(base_spared[0])}):"
        spared = [[_name(*what), *cells(SPARED, *what)] for what in sets]
        parts += [about, table(["heads ablated", *columns], [row for row in spared if set(row[1:]) != {NOTHING}])]
    return parts


def _name(method: str, which: str) -> str:
    return NAMES[which].format(f"`{method}`")
