"""The study of choices: which models do the task, and which heads of these carry the choice."""

from __future__ import annotations

from .reading import Results, Row, by_model, links
from .writing import num, of, section, span, table


def choosing(results: Results) -> str:
    """Every model with its own preset; of those that do not do the task, what they can do."""
    found = results.study("study_choosing")
    models = by_model(found)
    asked = "; ".join(f"{_own(name)}: {_questions(one)}" for name, one in models.items())
    able = [one for one in models.values() if "areas" in one]
    parts = [
        "Passages hold two needles of one kind, and the question picks one. The choice is log p(right) - log p(other). Only "
        "passages of which the model answers both questions judge its heads, and nothing is said of the heads of a model that is "
        "not better than chance. Heads are ablated where the answer begins. A claim holds if it does under mean ablation and has "
        "the same sign under zero ablation, with heads' output in other passages (resample), and with their output if the other "
        "needle is asked for (counterfactual). Claims were registered, and committed, before the test half was run.",
        "Measured by `lens-heads study choosing -m NAME --preset direct` (with `--preset direct-chat` where a chat template is "
        f"named; `onehop` and `twohop` likewise). Data: {links(['study_choosing.json', 'trials'])}. Questions: {asked}. A model "
        "that answers by chance passes a quarter of the passages.",
        table(
            ["model", "questions", "right choices, chance 0.50", "margin, nats", "passages that pass", "does the task"],
            [_ability(name, one) for name, one in models.items()],
        ),
        "The right answer's log-probability on selection passages, before the gate: "
        + "; ".join(f"{_own(name)}, {_kind(one)}: {_asked(one)}" for name, one in models.items())
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
            parts += [shown(one) for name, shown in FURTHER.items() if name in one]
    return section(*parts)


def _own(name: str) -> str:
    """A model's name without the kind of questions."""
    return name.partition(", ")[0].removesuffix(".gguf")


def _kind(one: Row) -> str:
    arguments = one["settings"]["preset"]["test"][1]
    return arguments["questions"] + (", chat" if arguments["chat"] else "")


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
    told = passed.get("told apart", passed["both right"])
    word = "yes" if one["does"] else "not shown"
    return [
        _own(name),
        _kind(one),
        of(rows["right choice"]),
        of(rows["margin in nats"]),
        f"{passed['both right']} of {passed['all']}" + (f", {told} told apart" if told != passed["both right"] else ""),
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
    looks = [name for name in ("to needle", "to other") if name in one["heads"][0]]
    rows = [
        [
            row["head"],
            span(row["cost"], row["low"], row["high"]),
            num(row["answer"]),
            num(row["literal"]),
            *(num(row[name]) for name in looks),
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
        *looks,
        *(f"rank by `{name}`" for name in named),
    ]
    meaning = sum(row["low"] > 0 and row["literal"] < 0.5 for row in one["heads"])
    return (
        "Each head alone, with what it writes if the other needle is asked for; to needle and to other: attention on either. "
        f"{meaning} of {len(rows)} carry some of the choice with a literal share below a half.\n\n"
        + table(columns, rows)
    )


def _roles(one: Row) -> str:
    """Of the heads with a part: how many have which, and the first of those that select."""
    heads = one["roles"]
    having = {
        part: [row for row in heads if part in row["parts"].split(", ")] for part in ("selects", "names", "tells")
    }
    both = [row["head"] for row in having["selects"] if row in having["names"]]
    columns = ["head", "parts", "selects, logits", "names, nats", "tells, logits"]
    rows = [
        [row["head"], row["parts"], *(_effect(row, part) for part in having)]
        for row in sorted(heads, key=lambda row: -row["selects"])[:MOST_ROLES]
    ]
    return (
        "What heads carry, each patched alone where the answer begins (5 % false discoveries). Patched from the prompt that asks "
        f"for the other needle, {len(having['selects'])} move right minus other (select); from the prompt with another name in "
        f"the needle, {len(having['names'])} move the right answer (name); {len(both)} do both. On the way to the queries of the "
        f"heads that select best, {len(having['tells'])} move the choice (tell). The first by what they select:\n\n"
        + table(columns, rows)
    )


def _effect(row: Row, part: str) -> str:
    value = row.get(part)
    return "–" if value is None else span(value, row[f"{part}_low"], row[f"{part}_high"])


MOST_ROLES = 12
"""Rows of a table of parts."""


def _ungated(one: Row) -> str:
    rows = [
        [f"`{row['method']}`", row["kind"], str(row["k"]), span(row["cost"], row["low"], row["high"])]
        for row in one["ungated"]
    ]
    first = one["ungated"][0]
    return (
        f"On {first['trials']} questions of passages that no answer chose (intact margin {num(first['intact'])} nats; over "
        "both questions what the model prefers unasked cancels), nats of the choice beyond random heads:\n\n"
        + table(["ranking", "kind", "k", "of the choice, nats"], rows)
    )


def _styles(one: Row) -> str:
    rows = [
        [row["style"], str(row["passages"]), num(row["choice"]), num(row["choice_margin"]), str(row["judged"])]
        + ["–" if row[part] is None else num(row[part]) for part in ("intact", "without")]
        for row in one["styles"]
    ]
    columns = [
        "style",
        "passages",
        "right choices",
        "margin",
        "questions that judge",
        "their margin",
        "without LOCOS's heads",
    ]
    return "By style of the passage (means; three styles give no interval).\n\n" + table(columns, rows)


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

FURTHER = {"roles": _roles, "ungated": _ungated, "styles": _styles, "ranks": _ranks, "seeds": _seeds}
"""Further tables, by their names in the study's JSON."""
