"""Which ranking method finds the heads that matter, and what does it cost?

All methods, and the rankings made of others in `candidates.py`, rank heads on the same selection trials. Their top heads are
ablated, and kept alone, on the same other trials.

Appends JSON, cell by cell, to benchmarks/results/methods.jsonl, writes the means over all cells to methods_overall.json, and the
values per trial to the folder methods beside them. What was run stays in --out: the same command continues it.

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
from lens_heads.runs.files import write_atomic
from lens_heads.studies.finding import plain
from lens_heads.studies.ranking_methods.bench import across
from lens_heads.studies.ranking_methods.presets import PRESETS
from lens_heads.studies.ranking_methods.recommend import GOALS

NAMES = ("model", "task", "method", "family", "best")
TASKS = ("ioi", "induction", "capitals", "arithmetic", "retrieval")
RESULTS = Path(__file__).parent / "results"


def overall(results: Path) -> list[dict[str, Any]]:
    """A row per method over the newest run of every model and task."""
    runs = [
        json.loads(line)["results"] for line in (results / "methods.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    newest = {(run["model"], run["task"]): pd.DataFrame(run["rows"]) for run in runs}
    rows = pd.concat(newest.values(), ignore_index=True)
    numbers = {name: float for name in rows if rows[name].dtype == object and name not in NAMES}
    return plain(across(rows.astype(numbers)).to_dict("records"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument(
        "--methods", default=",".join(lh.methods), help="those of the table; the candidates come on top"
    )
    parser.add_argument("--preset", default="thorough", choices=PRESETS)
    parser.add_argument(
        "--dtype", default="float32", help="float32 or bfloat16, which a processor with AVX-512 BF16 runs faster"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    given = parser.parse_args()
    methods = [*given.methods.split(","), *CANDIDATES]
    for name in given.models.split(","):
        model = lh.load_model(name, dtype=given.dtype)
        for task in given.tasks.split(","):
            bench = lh.studies.methods(model, task, methods, given.preset, given.out)
            bench.save(RESULTS / "methods")
            cell, size = bench.cell(), asdict(PRESETS[given.preset])
            over = {method: list(cell.beyond(method, "locos_exact")) for method in cell.methods}
            about = {"model": cell.model, "task": task, "preset": size, "settings": identify(model).settings}
            found = {"best": cell.best, "left_out": cell.left_out, "beyond_locos_exact": over}
            advice = {goal.title: str(lh.recommend(bench, by=by)).splitlines() for by, goal in GOALS.items()}
            append("methods", plain({**about, **found, "advice": advice, "rows": bench.frame.to_dict("records")}))
            write_atomic(RESULTS / "methods_overall.json", json.dumps(overall(RESULTS), indent=1) + "\n")
            print("\n".join(line for title, lines in advice.items() for line in (title, *lines)))


if __name__ == "__main__":
    main()
