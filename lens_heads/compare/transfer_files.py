"""Published ablation folders of the 10-K study's layout: counts per source, target and k, and ranked heads per task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads.compare.cells import NONE, RANDOM
from lens_heads.compare.transfer_matrix import TransferMatrix
from lens_heads.heads.head import Head

BASELINE, CROSS = "baseline_results.json", "cross_task_within_heads_ablation.json"
CONTROL = "random_ablation_control.json"


def read_counts(folder: str | Path) -> TransferMatrix:
    """The transfer matrix of a published run, from counts alone.

    Reads `baseline_results.json` {task: {attempts, matches}}, `cross_task_within_heads_ablation.json` {k: {per_source_task:
    {source: {target: ...}}}} and, where it is, `random_ablation_control.json` {k: {per_task: ...}}: a single draw. Heads
    pooled over tasks (`across_task_`, `global_ablation.json`) belong to no source; `within_task_ablation.json` is the
    diagonal once more.

    Raises FileNotFoundError for a folder without the first two, ValueError naming a file that is not laid out so, and
    whatever TransferMatrix refuses.
    """
    baseline, cross, control, about = (Path(folder) / name for name in (BASELINE, CROSS, CONTROL, "meta.json"))
    rows = [_row(baseline, NONE, target, 0, cell) for target, cell in _read(baseline).items()]
    for k, found in _read(cross).items():
        sources = _inside(cross, found, "per_source_task")
        for source in sources:
            rows += [_row(cross, source, target, k, cell) for target, cell in _inside(cross, sources, source).items()]
    for k, found in (_read(control) if control.exists() else {}).items():
        rows += [_row(control, RANDOM, target, k, cell) for target, cell in _inside(control, found, "per_task").items()]
    meta = {"model": _read(about).get("source_model")} if about.exists() else {}
    return TransferMatrix(counts=pd.DataFrame(rows), meta=meta)


def read_rankings(path: str | Path) -> dict[str, list[Head]]:
    """Heads per task, best first, from {"tasks": {task: [{"layer", "head", "score"}, ...]}}.

    Raises ValueError naming the file for another layout, and for a head that a task lists twice.
    """
    path = Path(path)
    rankings = {}
    for task, entries in _inside(path, _read(path), "tasks").items():
        try:
            heads = [Head(entry["layer"], entry["head"]) for entry in entries]
        except (KeyError, TypeError) as error:
            raise ValueError(f'{path}: task {task!r} is no list of {{"layer", "head", "score"}}: {error!r}') from None
        if len(set(heads)) < len(heads):
            twice = next(head for head in heads if heads.count(head) > 1)
            raise ValueError(f"{path}: task {task!r} lists {twice} more than once: a ranking holds each head once")
        rankings[task] = heads
    return rankings


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: {path.parent} is no published run of this layout")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}: an object is needed")
    return found


def _inside(path: Path, found: Any, name: str) -> Mapping[str, Any]:
    inner = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(inner, Mapping):
        raise ValueError(f"{path}: no object {name!r} where one is needed: it holds {str(found)[:80]}")
    return inner


def _row(path: Path, source: str, target: str, k: str | int, cell: Any) -> dict[str, Any]:
    try:
        counts = {"attempts": int(cell["attempts"]), "matches": int(cell["matches"])}
        return {"source": source, "target": target, "k": int(k), "draw": 0, **counts}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: source {source!r}, target {target!r}, k={k!r} has no attempts and matches: {error!r}"
        ) from None
