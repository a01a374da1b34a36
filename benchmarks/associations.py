"""Which associations of the trials with distractors do models know? Asked without any passage.

The sentence `check` of a relation is completed with what a one-hop (or two-hop) question calls a thing. An association is known
if the thing is likelier after its own description than after that of any other thing of the relation. The thing stays the same,
so neither its length nor its frequency counts.

Run: python benchmarks/associations.py --model gemma-3-270m    appends to results/associations.jsonl (a minute or two)
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import record
import torch

import lens_heads as lh
from lens_heads.tasks import choosing

PARTS = {"onehop": 1, "twohop": 2}
"""Which part of an item describes the thing."""


def completions(model: Any, relation: choosing.Relation, questions: str) -> dict[str, dict[str, float]]:
    """log p of each thing after the description of each, by description and then thing."""
    items = relation.of(questions)
    trials = [
        lh.prompt_trial(model, completed(relation.check, item[PARTS[questions]]), other[0], id=f"{item[0]} {other[0]}")
        for item in items
        for other in items
    ]
    means = lh.evaluate(model, trials, generate=False, batch_size=16, progress=False).metrics["logprob"]
    totals = means.double() * torch.tensor([len(trial.answer_tokens) for trial in trials])
    table = totals.reshape(len(items), len(items)).tolist()
    things = [item[0] for item in items]
    return {thing: dict(zip(things, row, strict=True)) for thing, row in zip(things, table, strict=True)}


def completed(check: str, description: str) -> str:
    return check.replace("{2}", description)


def known(table: dict[str, dict[str, float]]) -> dict[str, bool]:
    """Whether each thing is likelier after its own description than after every other."""
    return {
        thing: all(table[thing][thing] > table[other][thing] for other in table if other != thing) for thing in table
    }


def measured(model: Any) -> list[dict[str, Any]]:
    """A row for every relation and kind of question: how many of its associations are known, and which are not."""
    rows = []
    for split in ("select", "test"):
        for questions in PARTS:
            for relation in choosing.relations(split, questions):
                found = known(completions(model, relation, questions))
                row = {"split": split, "relation": relation.kind, "questions": questions, "things": len(found)}
                unknown = [thing for thing, holds in found.items() if not holds]
                rows.append({**row, "known": sum(found.values()), "unknown": unknown})
                print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gemma-3-270m", help="a name that lens_heads.load_model takes")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    given = parser.parse_args()
    model = lh.load_model(given.model, dtype=getattr(torch, given.dtype))
    record.append(
        "associations", {"model": Path(model.cfg.model_name).name, "dtype": given.dtype, "relations": measured(model)}
    )


if __name__ == "__main__":
    main()
