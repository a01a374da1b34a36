"""Do heads that were found by training something on them matter? Their ablation beside random heads, at what they cost.

Trainings of ten epochs, and for comparison some methods that train nothing, rank heads on the same selection trials; their top
heads are ablated (mean of other trials) and kept alone on the same test trials, as in the table of all methods.

Appends JSON, model by model, to benchmarks/results/trained.jsonl; what was run stays in --out, for the same command.

Run: python benchmarks/trained.py [--models gemma-3-270m,smollm2-135m-instruct] [--tasks retrieval]
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from record import append

import lens_heads as lh
from lens_heads.model.identity import identify
from lens_heads.studies.finding import plain
from lens_heads.studies.ranking_methods.study import Preset

TRAINED = tuple(name for name, method in lh.methods.items() if method.family == "trained")
BESIDE = ("aie", "locos_exact", "attribute_ablation", "random_numbers")
PRESET = Preset(8, 8, 24, 8, 8, (1, 2, 5, 12), draws=20, few=12, searched=1400, planted=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    parser.add_argument("--tasks", default="retrieval")
    parser.add_argument("--out", type=Path, default=Path("runs/trained"))
    given = parser.parse_args()
    for name in given.models.split(","):
        model = lh.load_model(name)
        found: dict[str, Any] = {
            "model": name,
            "preset": asdict(PRESET),
            "settings": identify(model).settings,
            "tasks": {},
        }
        for task in given.tasks.split(","):
            bench = lh.studies.bench(model, task, [*TRAINED, *BESIDE], preset=PRESET, out=given.out)
            cell = bench.cell()
            found["tasks"][task] = {"left_out": cell.left_out, "rows": bench.frame.to_dict("records")}
        append("trained", plain(found))


if __name__ == "__main__":
    main()
