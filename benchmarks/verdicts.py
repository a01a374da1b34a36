"""Judge every claim of a study again from the stored values per trial, and compare with what the study said.

Run: python benchmarks/verdicts.py                     exits with 1 where a verdict or its numbers differ
     python benchmarks/verdicts.py --keep runs/locos   copies the values per trial of a finished study to results/trials

Values are log-probabilities and the other metrics of every trial under every set of heads, without the texts.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads.studies.locos_paper import claims as locos
from lens_heads.studies.locos_paper.presets import PRESETS as LOCOS

HERE = Path(__file__).parent / "results"
TABLES = {"locos": ("choice_trials", "headline_trials")}
"""What the verdicts of a study need."""


def kept(study: str, model: str, table: str) -> Path:
    """The file of one table."""
    return HERE / "trials" / f"{study}--{model}--{table}.parquet"


def keep(run: Path) -> None:
    """Copy the tables of a finished study."""
    (summary,) = run.glob("study_*.json")
    study = summary.stem.removeprefix("study_")
    for model in json.loads(summary.read_text())["models"]:
        name = Path(model).name
        for table in TABLES[study]:
            found = pd.read_parquet(run / name / "tables" / f"{table}.parquet").drop(columns=["text", "answer"])
            texts = found.select_dtypes(["object", "string"]).columns
            file = kept(study, name, table)
            file.parent.mkdir(exist_ok=True)
            found.astype(dict.fromkeys(texts, "category")).to_parquet(file, compression="zstd", index=False)
            print(f"{file.relative_to(HERE.parent)}: {len(found)} rows, {file.stat().st_size / 1000:.0f} kB")


def of_locos(summary: dict[str, Any], tables: dict[str, pd.DataFrame], one: dict[str, Any]) -> pd.DataFrame:
    return locos.rejudged(tables, LOCOS[summary["preset"]], one.get("heads", 0))


AGAIN: dict[str, Callable[..., pd.DataFrame]] = {"locos": of_locos}


def differences(study: str) -> list[str]:
    """What the study said and what its trials say now, where the two differ."""
    summary = json.loads((HERE / f"study_{study}.json").read_text())
    found = []
    for model, one in summary["models"].items():
        tables = {}
        for table in TABLES[study]:
            read = pd.read_parquet(kept(study, Path(model).name, table))
            texts = read.select_dtypes("category").columns
            tables[table] = read.astype(dict.fromkeys(texts, "object"))
        again = AGAIN[study](summary, tables, one).to_dict("records")
        said = {claim["id"]: claim for claim in one["claims"]}
        for claim in again:
            known = said.pop(claim["id"], {})
            for name in ("verdict", "value", "low", "high", "p"):
                if not same(known.get(name), claim[name]):
                    found.append(f"{study}, {model}, {claim['id']}: {name} was {known.get(name)}, is {claim[name]}")
        found += [f"{study}, {model}, {missing}: cannot be judged again" for missing in said]
        print(f"{study}, {model}: {len(again)} claims judged again")
    return found


def same(one: Any, other: Any) -> bool:
    """Equal, or the same number to four digits; None stands for NaN in JSON."""
    if isinstance(other, str):
        return one == other
    if one is None or other is None or math.isnan(other):
        return one is None and (other is None or math.isnan(other))
    return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="the run folder of a finished study")
    args = parser.parse_args()
    if args.keep:
        keep(args.keep)
        return
    wrong = [line for study in TABLES for line in differences(study)]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
