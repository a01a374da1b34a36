"""Judge every claim of the studies again from the stored values per trial, and compare with what the studies said.

Run: python benchmarks/verdicts.py                     exits with 1 where a verdict or its numbers differ
     python benchmarks/verdicts.py --again             stores what the values per trial say now, after a change of the statistics
     python benchmarks/verdicts.py --keep runs/locos   copies a finished study's summary and values per trial to results

Values are log-probabilities and the other metrics of every trial under every set of heads, without the texts.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from lens_heads.answering.ability import Ability
from lens_heads.answering.evaluation import Evaluation
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.evidence.verdicts import smallest_k
from lens_heads.heads.conditions import with_key
from lens_heads.heads.grouping import groups_in
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.runs.files import write_atomic
from lens_heads.studies.capability_paper import claims as capability
from lens_heads.studies.capability_paper.presets import PRESETS as CAPABILITY
from lens_heads.studies.capability_paper.presets import Preset, Repeated, owner
from lens_heads.studies.claims import beyond_random, by_seed
from lens_heads.studies.finding import records
from lens_heads.studies.fragile_paper import claims as fragile
from lens_heads.studies.fragile_paper.study import correlated
from lens_heads.studies.locos_paper import claims as locos
from lens_heads.studies.two_needles import claims as choosing

HERE = Path(__file__).parent / "results"
Tables = dict[str, pd.DataFrame]
ONE_BY_ONE = ("choosing",)
"""Studies whose models run with presets of their own: with a chat template or without."""
TABLES = {
    "locos": ("choice_trials", "headline_trials", "kinds_trials", "sets_trials", "seeds_trials"),
    "fragile_tasks": ("matrix_trials", "headline_trials", "recovery_examples"),
    "capability": ("damage_trials", "alone_trials", "methods_trials", "scores"),
    "choosing": ("ability_trials", "judged_trials", "set_trials", "seed_trials", "ungated_trials"),
}
"""What the verdicts of a study need. A model that does not choose has no "judged_trials"."""


def kept(study: str, model: str, table: str) -> Path:
    """The file of one table."""
    return HERE / "trials" / f"{study}--{Path(model).name.replace(', ', '--')}--{table}.parquet"


def named(study: str, model: str, about: Mapping[str, Any]) -> str:
    """What a model's part goes by in the results: with the kind of questions, where it runs with several."""
    if study not in ONE_BY_ONE:
        return model
    questions = about["settings"]["preset"]["test"][1]["questions"]
    return model if questions == "direct" else f"{model}, {questions}"


def keep(run: Path) -> None:
    """Copy the summary and the tables of a finished study."""
    summaries = list(run.glob("study_*.json"))
    if len(summaries) != 1:
        sys.exit(f"{run} holds {len(summaries)} summaries of a study: pass the --out folder of one finished study")
    (summary,) = summaries
    study = summary.stem.removeprefix("study_")
    found, file = json.loads(summary.read_text()), HERE / summary.name
    names = {model: named(study, model, about) for model, about in found["models"].items()}
    found["models"] = {names[model]: about for model, about in found["models"].items()}
    if study in ONE_BY_ONE and file.exists():  # Models of other runs stay.
        found["models"] = json.loads(file.read_text())["models"] | found["models"]
    write_atomic(file, json.dumps(found, indent=1, allow_nan=False) + "\n")
    for model, name in names.items():
        for table in TABLES[study]:
            source = run / Path(model).name / "tables" / f"{table}.parquet"
            if not source.exists():
                continue
            found = pd.read_parquet(source)
            found = found.drop(columns=["text", "answer"], errors="ignore")
            texts = found.select_dtypes(["object", "string"]).columns
            file = kept(study, name, table)
            file.parent.mkdir(exist_ok=True)
            found.astype(dict.fromkeys(texts, "category")).to_parquet(file, compression="zstd", index=False)
            print(f"{file.relative_to(HERE.parent)}: {len(found)} rows, {file.stat().st_size / 1000:.0f} kB")


def read(study: str, model: str) -> Tables:
    """The stored tables of a model."""
    found = {}
    for table in TABLES[study]:
        if not kept(study, model, table).exists():
            continue
        stored = pd.read_parquet(kept(study, model, table))
        texts = stored.select_dtypes("category").columns
        found[table] = stored.astype(dict.fromkeys(texts, "object"))
    return found


def by_kind(table: pd.DataFrame | None) -> dict[str, AblationCurve]:
    """The curves by kind of ablation from a stored table; none without it."""
    rows = pd.DataFrame({"kind": []}) if table is None else table
    return {str(kind): AblationCurve(own.drop(columns="kind"), {}) for kind, own in rows.groupby("kind", sort=False)}


def locos_again(tables: Mapping[str, pd.DataFrame], plan: locos.Preset, heads: int) -> pd.DataFrame:
    """The claims again from values per trial, in a model with so many heads.

    `tables` holds "choice_trials" and "headline_trials". k and the baseline are chosen again, and every verdict is judged
    again; nothing else of the run is needed.
    """
    choice, headline = AblationCurve(tables["choice_trials"], {}), tables["headline_trials"]
    curves = {str(task): AblationCurve(rows, {}) for task, rows in headline.groupby("task", sort=False)}
    k = plan.fixed_k(heads) or smallest_k(choice, locos.LEAD)
    nothing: dict[str, Any] = {"model": "", "frames": {}, "scores": {}, "questions": {}, "texts": {}}
    kinds = by_kind(tables.get("kinds_trials"))
    chosen: dict[str, Any] = {"k": k, "baseline": locos.best_baseline(choice, k), "kinds": kinds}
    found = locos.LocosFinding(headline=curves, curve=choice, **chosen, **nothing)
    return locos.claims(found, plan.described())


def fragile_again(
    model: str, tables: Mapping[str, pd.DataFrame], tasks: pd.DataFrame, plan: fragile.Preset, heads: int
) -> fragile.FragileFinding:
    """What stored values per trial say of a model with so many heads; nothing else of its run is needed.

    `tables` holds "matrix_trials", "headline_trials" and "recovery_examples"; `tasks` describes the tasks.
    """
    sizes, headline = plan.sizes(heads), plan.size(plan.headline_k, heads)
    matrix = TransferMatrix(tables["matrix_trials"], metric=fragile.METRIC)
    curve = AblationCurve(tables["headline_trials"], {})
    frames = fragile.judged(model, matrix, curve, with_key(tables["recovery_examples"]), plan, sizes[headline])
    about = {"matrix": matrix, "curve": curve, "sizes": sizes, "headline": headline}
    return fragile.FragileFinding(model=model, frames={**frames, "tasks": tasks}, scores={}, **about)


def capability_again(
    model: str, plan: Preset, tables: Mapping[str, pd.DataFrame], said: Mapping[str, Any]
) -> capability.CapabilityFinding:
    """What stored values per trial say; nothing else of the run is needed.

    `tables` as `judged` keeps them; `said` is the model's part of the study's JSON: reasons, chances, parameters, and how many
    evaluations each method took.
    """
    scores: Repeated = {}
    for (name, _), rows in tables["scores"].groupby(["capability", "draw"], sort=False):
        at = [torch.tensor(rows[part].to_numpy()) for part in ("layer", "head")]
        values = torch.zeros(rows["layer"].max() + 1, rows["head"].max() + 1)
        values[at[0], at[1]] = torch.tensor(rows["score"].to_numpy(), dtype=torch.float32)
        order = tuple(Head(int(layer), int(head)) for layer, head in zip(*at, strict=True))  # The best first.
        ranking = HeadScores.from_trials(str(name), values[None], ["all"], best="lowest", order=order)
        scores.setdefault(str(name), []).append(ranking)
    own = [name for name in scores if name == owner(name)]
    return capability.judged(
        model,
        replace(plan, compared=plan.compared if plan.compared in own else own[0]),
        scores=scores,
        curves={name: AblationCurve(tables[f"{of}_trials"], {}) for name, of in capability.CURVES.items()},
        evaluations={row["method"]: row["evaluations"] for row in said["methods"]},
        chances=said["chances"],
        reasons=said["reasons"],
        parameters=said["parameters"],
        methods={},
    )


def ability_of(table: pd.DataFrame, chance: float) -> Ability:
    """The ability from its stored table."""
    ids, nothing = tuple(table["trial"]), ("",) * len(table)
    groups = groups_in(table, table["trial"], "trial")

    def part(which: str, names: tuple[str, ...]) -> Evaluation:
        metrics = {name: torch.tensor(table[f"{name}_{which}"].to_numpy(float)).float() for name in choosing.MEASURED}
        return Evaluation(names, metrics, nothing, nothing, groups)

    return Ability(part("asked", ids), part("exchanged", tuple(f"{id}-exchanged" for id in ids)), chance)


def choosing_again(tables: Mapping[str, pd.DataFrame], summary: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """The claims and areas again from stored values per trial: "ability_trials", and "judged_trials" if it does the task.

    `summary`: the model's part of the study's JSON, for what was chosen on selection questions.
    """
    curves = by_kind(tables.get("judged_trials"))
    able = ability_of(tables["ability_trials"], summary["chance"])
    chosen: dict[str, Any] = {"k": summary["k"], "scores": dict.fromkeys(summary["methods"])}
    about: dict[str, Any] = {"model": "", "frames": {}, "question": "", "passages": {}}
    found = {
        "claims": choosing.claims(choosing.ChoosingFinding(able=able, curves=curves, **chosen, **about)),
        "ability": able.frame,
    }
    if curves:
        found |= {
            "areas": choosing.by_kind(curves, choosing.METRIC, choosing.LEAD),
            "answer_areas": choosing.by_kind(curves, "logprob", choosing.LEAD),
            "ranks": choosing.by_rank(AblationCurve(tables["set_trials"], {}), summary["k"]),
            "seeds": by_seed(AblationCurve(tables["seed_trials"], {}), summary["k"], choosing.METRIC),
        }
        if "style" in tables["ability_trials"]:
            found["styles"] = choosing.by_style(tables["ability_trials"], curves["mean"], summary["k"][choosing.LEAD])
    if "ungated_trials" in tables:
        found["ungated"] = beyond_random(by_kind(tables["ungated_trials"]), summary["k"], choosing.METRIC)
    return found


def of_locos(summary: dict[str, Any], tables: dict[str, Tables]) -> dict[str, Tables]:
    plan = locos.PRESETS[summary["preset"]]
    return {
        model: {
            "claims": locos_again(found, plan, summary["models"][model]["heads"]),
            "choice": AblationCurve(found["choice_trials"], {}).frame,
            "headline": pd.concat(
                [AblationCurve(rows, {}).frame for _, rows in found["headline_trials"].groupby("task", sort=False)],
                ignore_index=True,
            ),
        }
        for model, found in tables.items()
    }


def of_fragile(summary: dict[str, Any], tables: dict[str, Tables]) -> dict[str, Tables]:
    """The tables of every model, then the claims of every pair."""
    plan, findings = fragile.PRESETS[summary["preset"]], []
    for model, found in tables.items():
        one = summary["models"][model]
        findings.append(fragile_again(model, found, pd.DataFrame(one["tasks"]), plan, one["heads"]))
    pairs = {
        f"{a.model} and {b.model}": {
            "claims": fragile.claims_of_pair(
                (a.model, b.model), plan, correlated(a, b, plan)[0], [each.frames["answered"] for each in (a, b)]
            )
        }
        for a, b in combinations(findings, 2)
    }
    return {one.model: one.frames for one in findings} | pairs


def of_capability(summary: dict[str, Any], tables: dict[str, Tables]) -> dict[str, Tables]:
    plan, models = CAPABILITY[summary["preset"]], summary["models"]
    return {model: capability_again(model, plan, found, models[model]).frames for model, found in tables.items()}


def of_choosing(summary: dict[str, Any], tables: dict[str, Tables]) -> dict[str, Tables]:
    return {model: choosing_again(found, summary["models"][model]) for model, found in tables.items()}


AGAIN: dict[str, Callable[[dict[str, Any], dict[str, Tables]], dict[str, Tables]]] = {
    "locos": of_locos,
    "fragile_tasks": of_fragile,
    "capability": of_capability,
    "choosing": of_choosing,
}


def judged_again(study: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Tables]]:
    """A study's summary, its parts by model or pair, and the tables that its trials give now, by the same names."""
    summary = json.loads((HERE / f"study_{study}.json").read_text())
    again = AGAIN[study](summary, {model: read(study, model) for model in summary["models"]})
    return summary, summary["models"] | {" and ".join(pair["models"]): pair for pair in summary.get("pairs", [])}, again


def store_again(study: str) -> None:
    """Replace every table of a summary that follows from the stored trials."""
    summary, parts, again = judged_again(study)
    for name, part in parts.items():
        part |= {table: records(frame) for table, frame in again[name].items() if table in part}
    write_atomic(HERE / f"study_{study}.json", json.dumps(summary, indent=1, allow_nan=False) + "\n")


def differences(study: str) -> list[str]:
    """What the study said and what its trials say now, where the two differ."""
    _, parts, again = judged_again(study)
    found = []
    for name, part in parts.items():
        said = {(claim["id"], claim.get("capability")): claim for claim in part["claims"]}
        for claim in again[name]["claims"].to_dict("records"):
            known = said.pop((claim["id"], claim.get("capability")), {})
            for number in ("verdict", "value", "low", "high", "p"):
                if not same(known.get(number), claim[number]):
                    found.append(
                        f"{study}, {name}, {claim['id']}: {number} was {known.get(number)}, is {claim[number]}"
                    )
        found += [f"{study}, {name}, {missing}: cannot be judged again" for missing, _ in said]
        print(f"{study}, {name}: {len(again[name]['claims'])} claims judged again")
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
    parser.add_argument("--again", action="store_true", help="store what the values per trial say now")
    args = parser.parse_args()
    if args.keep:
        keep(args.keep)
        return
    stored = [study for study in TABLES if list((HERE / "trials").glob(f"{study}--*.parquet"))]
    if args.again:
        for study in stored:
            store_again(study)
        return
    wrong = [line for study in stored for line in differences(study)]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
