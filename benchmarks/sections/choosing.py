"""The study of choices: which models do the task, and which heads of these carry the choice."""

from __future__ import annotations

from .reading import Results, Row, by_model, links
from .writing import num, of, section, span, table


def choosing(results: Results) -> str:
    """Every model with its own preset; of those that do not do the task, what they can do."""
    found = results.study("study_choosing")
    models = by_model(found)
    asked = "; ".join(f"{name}: {_questions(one)}" for name, one in models.items())
    able = [one for one in models.values() if "areas" in one]
    parts = [
        "Passages hold two needles of one kind, and the question picks one. The choice is log p(right) - log p(other). Only "
        "passages of which the model answers both questions judge its heads, and nothing is said of the heads of a model that is "
        "not better than chance. Heads are ablated where the answer begins. A claim holds if it does under mean ablation and has "
        "the same sign under zero ablation, with heads' output in other passages (resample), and with their output if the other "
        "needle is asked for (counterfactual). Claims were registered, and committed, before the test half was run.",
        "Measured by `lens-heads study choosing -m NAME --preset direct` (with `--preset direct-chat` where a chat template is "
        f"named). Data: {links(['study_choosing.json', 'trials'])}. Questions: {asked}.",
        table(
            ["model", "right choices, chance 0.50", "margin, nats", "passages that pass", "does the task"],
            [_ability(name, one) for name, one in models.items()],
        ),
        "The right answer's log-probability on selection passages, before the gate: "
        + "; ".join(f"{name}: {_asked(one)}" for name, one in models.items())
        + ".",
    ]
    if able:
        judged = {name: {row["id"]: row for row in one["claims"]} for name, one in models.items() if "areas" in one}
        first = next(iter(judged.values()))
        parts.append(
            table(
                ["claim", *judged, "it holds if"],
                [
                    [row["claim"], *(_verdict(one[id]) for one in judged.values()), row["holds_if"]]
                    for id, row in first.items()
                    if id != "ability"
                ],
            )
        )
    for name, one in models.items():
        if "areas" in one:
            parts += [f"### {name}: rankings over all k, mean ablation", _areas(one), _heads(one)]
            parts += [_ranks(one)] if "ranks" in one else []
            parts += [_seeds(one)] if "seeds" in one else []
    return section(*parts)


def _questions(one: Row) -> str:
    _, arguments = one["settings"]["preset"]["test"]
    framed = ", with a chat template" if arguments["chat"] else ""
    return f"{arguments['questions']}{framed}, {arguments['n']} test passages"


def _asked(one: Row) -> str:
    if "question_note" in one:
        return one["question_note"]
    return ", ".join(f"{row['prompt']} {span(row['value'], row['low'], row['high'])}" for row in one["question"])


def _ability(name: str, one: Row) -> list[str]:
    rows = {row["measure"].partition(",")[0]: row for row in one["ability"]}
    passed = one["passages"]
    word = "yes" if one["does"] else "no"
    return [
        name,
        of(rows["right choice"]),
        of(rows["margin in nats"]),
        f"{passed['both right']} of {passed['all']}",
        word,
    ]


def _verdict(row: Row) -> str:
    """The verdict, what decided it, and what else was found."""
    return f"**{row['verdict']}**: {span(row['value'], row['low'], row['high'])}; {row['found']}"


def _areas(one: Row) -> str:
    choice, answer = (
        {row["method"]: row for row in one[name] if row["kind"] == "mean"} for name in ("areas", "answer_areas")
    )
    order = sorted(choice, key=lambda name: -choice[name]["area"])
    rows = [
        [
            f"`{name}`" if name != "random" else "random heads",
            span(choice[name]["area"], choice[name]["low"], choice[name]["high"]),
            span(answer[name]["area"], answer[name]["low"], answer[name]["high"]),
            "–" if choice[name]["heads"] is None else num(choice[name]["heads"], 1),
            one["k"].get(name, "–"),
        ]
        for name in order
    ]
    columns = ["ranking", "of the choice, nats", "of the right answer, nats", "heads to half of the choice", "own k"]
    return (
        "What the top heads take, mean over log k. Own k: the smallest k that takes half of the choice on selection questions; a "
        "dash where no k of the preset takes half.\n\n" + table(columns, rows)
    )


def _heads(one: Row) -> str:
    rows = [
        [
            row["head"],
            span(row["cost"], row["low"], row["high"]),
            num(row["answer"]),
            num(row["literal"]),
            *(str(row[f"rank by {name}"]) for name in RANKED if f"rank by {name}" in row),
        ]
        for row in one["heads"]
    ]
    named = [name for name in RANKED if f"rank by {name}" in one["heads"][0]]
    columns = [
        "head",
        "of the choice, nats",
        "of the right answer",
        "literal share",
        *(f"rank by `{name}`" for name in named),
    ]
    meaning = sum(row["low"] > 0 and row["literal"] < 0.5 for row in one["heads"])
    return (
        "Each head alone, with what it writes if the other needle is asked for. "
        f"{meaning} of {len(rows)} carry some of the choice with a literal share below a half.\n\n"
        + table(columns, rows)
    )


def _ranks(one: Row) -> str:
    (sets,) = {row["sets"] for row in one["ranks"]}
    each = ", ".join(f"`{row['method']}` {row['p']:.3f} (k = {row['k']})" for row in one["ranks"])
    return f"Among {sets} random sets, by what they take of the choice on the first questions, one-sided p: {each}."


def _seeds(one: Row) -> str:
    rows = [
        [
            f"`{row['method']}`",
            str(row["seed"]),
            str(row["k"]),
            span(row["cost"], row["low"], row["high"]),
            num(row["area"]),
            f"{row['shared']} of {row['k']}",
        ]
        for row in one["seeds"]
    ]
    columns = ["ranking", "selection seed", "k", "of the choice, nats", "over log k", "shared with the first seed"]
    return "The heads of other selection questions on the same test questions, mean ablation.\n\n" + table(
        columns, rows
    )


RANKED = ("locos", "attention_mass", "copy", "locos_choice", "patching")
"""The rankings whose places stand beside each head."""
