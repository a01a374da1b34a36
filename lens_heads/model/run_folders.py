"""Run folders of calls that run a model: under settings that identify it, beside what was measured of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.identity import changed_by, scales
from lens_heads.model.support import FIRST, architecture, support
from lens_heads.runs.files import create
from lens_heads.runs.store import RunFolder
from lens_heads.trials.tokenizing import prompt_rules

SUPPORT = "support.json"
"""The file that says which identities held of the model when the run began."""


def folder_for(model: Model, out: str | Path | None, settings: dict[str, Any]) -> RunFolder | None:
    """The run folder, None without `out`, under the settings, the model's `scales` and what decides how its prompts begin.

    What was measured of the model (`model.support`) is written beside them. ValueError if the model has hooks or replaced
    forwards, which settings cannot identify.
    """
    if out is None:
        return None
    changed = changed_by(model)
    if changed is not None:
        raise ValueError(
            f"{head_geometry(model).name} has {changed}, which a run folder cannot identify: omit out=, or remove them first"
        )
    rules = prompt_rules(model.tokenizer) if model.tokenizer is not None else {}
    folder = RunFolder(out, {**settings, "scales": scales(model), **rules})
    if not any(folder.shards.iterdir()):  # A run that has begun may be read from a disk that cannot be written.
        known = support(model).checks
        found = [check for need in FIRST for check in known[need]]  # The same for every call and way of sharing it.
        rows = [{**asdict(check), "error": repr(check.error), "passed": check.passed} for check in found]
        about = {"model": head_geometry(model).name, "architecture": architecture(model), "checks": rows}
        create(folder.path / SUPPORT, json.dumps(about, indent=1) + "\n")
    return folder
