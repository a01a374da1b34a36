"""Published ablation folders in the 10-K study's layout: counts per source, target and k, and ranked heads per task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads.evidence.transfer_cells import NONE, RANDOM
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.heads.head import Head
from lens_heads.runs.reading import read_json, user_path
from lens_heads.runs.typed import typed


@typed
def read_counts(folder: str | Path) -> TransferMatrix:
    """The transfer matrix of a published run, from counts alone.

    Reads `baseline_results.json` {task: {attempts, matches}}, `cross_task_within_heads_ablation.json` {k: {per_source_task:
    {source: {target: ...}}}} and, if present, `random_ablation_control.json` {k: {per_task: ...}}, a single draw. Ignores
    heads pooled over tasks (`across_task_`, `global_ablation.json`) and the repeated diagonal (`within_task_ablation.json`).

    Raises FileNotFoundError if one of the first two is missing, ValueError for another layout or what TransferMatrix refuses.

    `folder`: where they lie.

    Example:
        >>> import json
        >>> _ = Path("baseline_results.json").write_text(json.dumps({"a": {"attempts": 10, "matches": 9}}))
        >>> cells = {"8": {"per_source_task": {"a": {"a": {"attempts": 10, "matches": 2}}}}}
        >>> _ = Path("cross_task_within_heads_ablation.json").write_text(json.dumps(cells))
        >>> lh.evidence.read_counts(".").counts[["method", "task", "k", "matches"]]
          method task  k  matches
        0   none    a  0        9
        1      a    a  8        2
    """
    names = ("baseline_results", "cross_task_within_heads_ablation", "random_ablation_control", "meta")
    baseline, cross, control, about = (user_path(folder, "folder") / f"{name}.json" for name in names)
    rows = [_row(baseline, NONE, target, 0, cell) for target, cell in _read(baseline).items()]
    for k, found in _read(cross).items():
        sources = _inside(cross, found, "per_source_task")
        for source in sources:
            rows += [_row(cross, source, target, k, cell) for target, cell in _inside(cross, sources, source).items()]
    for k, found in (_read(control) if control.exists() else {}).items():
        rows += [_row(control, RANDOM, target, k, cell) for target, cell in _inside(control, found, "per_task").items()]
    meta = {"model": _read(about).get("source_model")} if about.exists() else {}
    return TransferMatrix(counts=pd.DataFrame(rows), meta=meta)


@typed
def read_rankings(path: str | Path) -> dict[str, list[Head]]:
    """Heads per task, best first, from {"tasks": {task: [{"layer", "head", "score"}, ...]}}.

    Raises ValueError naming the file for another layout, or for a head that a task lists twice.

    `path`: the file.

    Example:
        >>> _ = Path("heads.json").write_text('{"tasks": {"names": [{"layer": 1, "head": 2, "score": 0.5}]}}')
        >>> lh.evidence.read_rankings("heads.json")
        {'names': [Head(1, 2)]}
    """
    path = user_path(path, "path")
    rankings = {}
    for task, entries in _inside(path, _read(path), "tasks").items():
        try:
            heads = [Head(entry["layer"], entry["head"]) for entry in entries]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: task {task!r} must list objects with layer and head: {error!r}") from None
        twice = next((head for head, times in Counter(heads).items() if times > 1), None)
        if twice is not None:
            raise ValueError(f"{path}: task {task!r} lists {twice} more than once. Keep one.")
        rankings[task] = heads
    return rankings


def _read(path: Path) -> dict[str, Any]:
    if path.parent.is_dir() and not path.exists():
        raise FileNotFoundError(f"{path} is missing. Pass the folder of a published run in the 10-K study's layout.")
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError(f"{path} must contain a JSON object, not a {type(found).__name__}")
    return found


def _inside(path: Path, found: Any, name: str) -> Mapping[str, Any]:
    inner = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(inner, Mapping):
        raise ValueError(f"{path} must contain an object {name!r}, but has {str(found)[:80]}")
    return inner


def _row(path: Path, source: str, target: str, k: str | int, cell: Any) -> dict[str, Any]:
    try:
        counts = {"attempts": int(cell["attempts"]), "matches": int(cell["matches"])}
        return {"method": source, "k": int(k), "draw": 0, "task": target, **counts}
    except (KeyError, TypeError, ValueError) as error:
        where = f"source {source!r}, target {target!r}, k={k!r}"
        raise ValueError(f"{path}: {where} must have an integer k, attempts and matches: {error!r}") from None
