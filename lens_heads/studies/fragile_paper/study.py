"""The study, end to end: detection, transfer, recovery in every model; then every two models beside each other; one page.

`fragile_tasks` runs it; every stage keeps its own folder, so that the same call continues where it stopped.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from lens_heads import compare
from lens_heads.model.geometry import Model, geometry
from lens_heads.model.identity import fingerprint
from lens_heads.runs.store import RunFolder, running_command, versions, write_atomic
from lens_heads.studies.fragile_paper import pairs, stages
from lens_heads.studies.fragile_paper.claims import claims
from lens_heads.studies.fragile_paper.pairs import Pair
from lens_heads.studies.fragile_paper.presets import Preset, preset
from lens_heads.studies.fragile_paper.stages import ALL, Rankings
from lens_heads.studies.running import Clock, Models, loaded, records, save_tables, several
from lens_heads.trials.trial import Trial

MODELS = ("gemma-3-270m", "smollm2-135m-instruct")


@dataclass(frozen=True, eq=False)
class Finding:
    """What the study found in one model. `sizes`: heads ablated, and the k of 1,024 each stands for. `seconds` by stage."""

    model: str
    scores: Rankings
    matrix: compare.TransferMatrix
    sizes: dict[int, int]
    frames: dict[str, pd.DataFrame]
    settings: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return Path(self.model).name


def fragile_tasks(
    models: Models = MODELS,
    preset: str | Preset = "packaged",
    out: str | Path = "runs/fragile-tasks",
    path: str | Path | None = None,
    command: str | None = None,
    **loading: Any,
) -> tuple[list[Finding], list[Pair]]:
    """Ask of any models: do tasks share heads inside a model, and do models share heads, or fragile tasks?

    Args:
        models: names as `load_model` takes them, or loaded models; two or more to compare, one for its own part alone.
        preset: "packaged" (offline, small models), "quick", "paper", or a `Preset` of your own.
        out: the run folder: a folder per model and per two models (Parquet, scores, matrices, matches), `report.html` and
            `study_fragile_tasks.json`. The same call continues it; other settings are refused.
        path: real reports (a folder or .zip of edgar-crawler's JSON files) in place of the packaged ones.
        command: what the page says it was made by; default: the running command.
        **loading: how models given by name are loaded: device, dtype, ... of `load_model`.

    Two models are loaded at a time. Raises ValueError for an unknown preset, no models, or a folder of other settings.
    """
    from lens_heads.studies.fragile_paper.page import write_page

    plan, out, console = _preset(preset, None if path is None else str(path)), Path(out), Console()
    command, name = command or running_command(), preset if isinstance(preset, str) else "own"
    listed = several(models)
    documents, tests = plan.detection(), plan.evaluation()
    findings, found = [], []
    for given in listed:
        model = loaded(given, loading)
        console.rule(geometry(model).name)
        findings.append(_one(model, documents, tests, plan, out, console))
        # After every model, so that one that fails takes nothing away from those before it.
        _write(findings, found, name, out, command, write_page)
        del model  # Before two others are loaded.
    for (one, a), (other, b) in itertools.combinations(zip(listed, findings, strict=True), 2):
        console.rule(f"{a.model} and {b.model}")
        found.append(pairs.beside(loaded(one, loading), loaded(other, loading), a, b, tests, plan, out, console))
        _write(findings, found, name, out, command, write_page)
    total = sum(sum(each.seconds.values()) for each in [*findings, *found])
    console.print(f"\nThe page with every figure: [bold]{out / 'report.html'}[/]   ({total / 60:.1f} minutes)")
    return findings, found


_preset = preset  # The argument of the same name hides it.


def _one(
    model: Model,
    documents: Mapping[str, Any],
    tests: Mapping[str, Sequence[Trial]],
    plan: Preset,
    out: Path,
    console: Console,
) -> Finding:
    """The study of one model."""
    shape = geometry(model)
    heads = shape.n_layers * shape.n_heads
    folder = out / Path(shape.name).name
    settings = {"model": shape.name, "weights": fingerprint(model), "preset": asdict(plan)}
    RunFolder(folder, settings)
    clock = Clock(console, folder)
    scores = clock("detection", lambda: stages.detect(model, documents, plan, folder))
    matrix = clock("transfer", lambda: stages.transfer(model, scores, tests, plan, folder))
    mended = clock("recovery", lambda: stages.mended(model, scores[plan.lead], matrix, tests, plan, folder))
    metrics = stages.by_metric(matrix, plan)
    frames = {
        "statistics": pd.concat([stages.statistics(one) for one in metrics.values()], ignore_index=True),
        "cells": pd.concat(
            [one.accuracy().rename(columns={"accuracy": "mean"}).assign(metric=name) for name, one in metrics.items()]
        ),
        "recovery": mended,
        "shared_heads": stages.shared_heads(scores, plan, heads),
        "best_heads": pd.concat(
            [
                found.to_frame().head(16).assign(method=method, task=task)
                for method, by_task in scores.items()
                for task, found in by_task.items()
            ],
            ignore_index=True,
        ),
    }
    save_tables(frames, folder / "tables")
    best = ", ".join(f"{head}" for head in scores[plan.lead][ALL].top(min(5, heads)))
    base = ", ".join(f"{name} {one.cells.base.mean():.2f}" for name, one in metrics.items())
    console.print(f"{plan.lead}, all tasks: {best}; without ablation {base}")
    return Finding(shape.name, scores, matrix, plan.sizes(heads), frames, settings, clock.spent)


def _write(findings: list[Finding], found: list[Pair], name: str, out: Path, command: str, write_page: Any) -> None:
    """The page and the summary of what there is so far."""
    write_page(findings, found, name, out / "report.html", command)
    text = json.dumps(summary(findings, found, command), indent=1, default=str)
    write_atomic(out / "study_fragile_tasks.json", text + "\n")


def summary(findings: Sequence[Finding], found: Sequence[Pair], command: str) -> dict[str, Any]:
    """The numbers of all models in one JSON; values of single trials stay in the run folder."""
    return {
        "command": command,
        "versions": versions(),
        "claims": records(claims(findings, found)),
        "models": {
            each.model: {
                "settings": each.settings,
                "heads_for_k_of_1024": {k: size for size, k in each.sizes.items()},
                "seconds": {stage: round(spent, 1) for stage, spent in each.seconds.items()},
                **{name: records(frame) for name, frame in each.frames.items()},
            }
            for each in findings
        },
        "pairs": [each.summary() for each in found],
    }
