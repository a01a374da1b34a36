"""Does the question decide, what models can do of the choice, and which associations they know."""

from __future__ import annotations

from .reading import Results, Row, described, measured_by, short
from .writing import num, of, section, table

KINDS = {"direct": "direct", "onehop": "one hop", "twohop": "two hops"}


def questions(results: Results) -> str:
    """The latest run of every model; what was not measured of it is left out."""
    runs = {short(name): run for name, run in results.latest_by_model("questions").items()}
    about = next(iter(runs.values()))["results"]
    counted = "; ".join(f"{run['results']['n']} ({name})" for name, run in runs.items())
    chats = ", ".join(name for name, run in runs.items() if run["results"]["chat"]) or "none"
    return section(
        described("questions"),
        measured_by("python benchmarks/questions.py --model NAME", runs.values(), "questions.jsonl"),
        f"Prompts of {about['length']} tokens, {counted} selection trials of each kind; with a chat template: {chats}.",
        "**Does the question decide?** Log-probability of the answer with its own question, with another question, and without "
        "the needle; and which share of what the needle is worth goes with another question. Above one half the question "
        "decides, below it does not.",
        table(
            ["model", "needles", "question", "own", "another", "no needle", "share", "the question"],
            [row for name, run in runs.items() for row in _needs(name, run["results"])],
        ),
        "With two needles the share can be small for a model that cannot choose: the other question leaves it as unsure. So:",
        "**What models can do.** The share of right choices between the two answers under both questions of a passage (chance "
        "0.50), and log p(right) - log p(other).",
        table(
            ["model", "question", "right choices", "margin, nats", "by answer (trials)", "does the task"],
            [row for name, run in runs.items() for row in _abilities(name, run["results"])],
        ),
        described("associations"),
        measured_by(
            "python benchmarks/associations.py --model NAME",
            results.latest_by_model("associations").values(),
            "associations.jsonl",
        ),
        _known(results),
    )


def _needs(name: str, found: Row) -> list[list[str]]:
    rows = []
    kinds = [("one", kind, need) for kind, need in found["one_needle"].items()]
    kinds += [("two", kind, one["need"]) for kind, one in found["two_needles"].items() if "need" in one]
    for needles, kind, need in kinds:
        prompts = [of(prompt) for prompt in need["prompts"]]
        share = need["share"]
        rows.append([name, needles, KINDS[kind], *prompts, of(share), share["word"]])
    return rows


def _abilities(name: str, found: Row) -> list[list[str]]:
    rows = []
    for kind, one in found["two_needles"].items():
        by = "; ".join(
            f"{answers} {num(part['choice']['value'])} ({part['trials']})" for answers, part in one["by_answer"].items()
        )
        rows.append(
            [name, KINDS[kind], of(one["choice"]), of(one["margin"]), by, "yes" if one["does"] else "not shown"]
        )
    return rows


def _known(results: Results) -> str:
    """How many associations are known, by half and kind of question."""
    rows = []
    for name, run in results.latest_by_model("associations").items():
        for split in ("select", "test"):
            cells = []
            for questions in ("onehop", "twohop"):
                some = [
                    row
                    for row in run["results"]["relations"]
                    if row["split"] == split and row["questions"] == questions
                ]
                cells.append(f"{sum(row['known'] for row in some)} of {sum(row['things'] for row in some)}")
            rows.append([short(name), split, *cells])
    return table(["model", "half", "known, one hop", "known, two hops"], rows)
