"""Which ranking method finds the heads that matter, and what does it cost?

All methods, and the rankings made of others in `candidates.py`, rank heads on the same selection trials. Their top heads are
ablated, and kept alone, on the same other trials.

Appends JSON, cell by cell, to benchmarks/results/methods.jsonl, writes the means over all cells to methods_overall.json, and the
values per trial to the folder methods beside them. What was run stays in --out: the same command continues it. --again judges
all of them anew from the stored values, after a change of the statistics.

Run: python benchmarks/methods.py [--models gemma-3-270m,smollm2-135m-instruct] [--tasks ioi,induction] [--methods locos,copy]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from candidates import CANDIDATES
from record import append

import lens_heads as lh
from lens_heads.model.identity import identify
from lens_heads.ranking.masks.in_turn import MADE_ON
from lens_heads.ranking.registry import resolve
from lens_heads.runs.files import write_atomic
from lens_heads.studies.finding import plain
from lens_heads.studies.ranking_methods.bench import across
from lens_heads.studies.ranking_methods.recommend import GOALS
from lens_heads.studies.ranking_methods.study import PRESETS

NAMES = ("model", "task", "method", "family", "best")
TASKS = ("ioi", "induction", "capitals", "arithmetic", "retrieval", "copy_colors", "greater_than", "choice")
RESULTS = Path(__file__).parent / "results"


def overall(results: Path) -> list[dict[str, Any]]:
    """A row per method over the newest run of every model and task."""
    runs = [
        json.loads(line)["results"] for line in (results / "methods.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    newest = {(run["model"], run["task"]): pd.DataFrame(run["rows"]) for run in runs if run.get("does") is not False}
    rows = pd.concat(newest.values(), ignore_index=True)
    numbers = {name: float for name in rows if rows[name].dtype == object and name not in NAMES}
    return plain(across(rows.astype(numbers), apart=MADE_ON).to_dict("records"))


def judged(bench: lh.Bench) -> dict[str, Any]:
    """What the values per trial of one cell say."""
    cell = bench.cell()
    over = {method: list(cell.beyond(method, "locos_exact")) for method in cell.methods}
    found = {"best": cell.best, "left_out": cell.left_out, "beyond_locos_exact": over}
    found |= {"ability": cell.ability, "does": cell.does}
    advice = {goal.title: str(lh.recommend(bench, by=by)).splitlines() for by, goal in GOALS.items()}
    return {"model": cell.model, "task": cell.task, **found, "advice": advice, "rows": bench.frame.to_dict("records")}


def again() -> None:
    """Replace what the newest run of every model and task was found to say."""
    whole, file = lh.Bench.load(RESULTS / "methods"), RESULTS / "methods.jsonl"
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    newest = {(line["results"]["model"], line["results"]["task"]): line for line in lines}
    for cell in whole.cells:
        line = newest[cell.model, cell.task]
        line["results"] |= plain(judged(lh.Bench([cell], whole.planted)))
        print(cell.model, cell.task, cell.best, flush=True)
    write_atomic(file, "".join(json.dumps(line) + "\n" for line in lines))
    write_atomic(RESULTS / "methods_overall.json", json.dumps(overall(RESULTS), indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument(
        "--methods",
        default=",".join(one.name for one in resolve(None)),
        help="those of the table; the candidates come on top",
    )
    parser.add_argument("--preset", default="thorough", choices=PRESETS)
    parser.add_argument(
        "--dtype", default="float32", help="float32 or bfloat16, which a processor with AVX-512 BF16 runs faster"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--again", action="store_true", help="run nothing")
    given = parser.parse_args()
    if given.again:
        return again()
    methods = [*given.methods.split(","), *CANDIDATES]
    for name in given.models.split(","):
        model = lh.load_model(name, dtype=given.dtype)
        for task in given.tasks.split(","):
            bench = lh.studies.bench(model, task, methods, preset=given.preset, out=given.out)
            bench.save(RESULTS / "methods")
            about = {"preset": asdict(PRESETS[given.preset]), "settings": identify(model).settings}
            found = judged(bench)
            append("methods", plain({**about, **found}))
            write_atomic(RESULTS / "methods_overall.json", json.dumps(overall(RESULTS), indent=1) + "\n")
            print("\n".join(line for title, lines in found["advice"].items() for line in (title, *lines)))


if __name__ == "__main__":
    main()
