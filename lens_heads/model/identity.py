"""What identifies a model in a run folder: its name, its weights, and that nothing is hooked onto it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from lens_heads.model.geometry import Model, geometry, is_bridge
from lens_heads.model.hooks import has_hooks
from lens_heads.runs.store import RunFolder


def folder_for(model: Model, out: str | Path | None, settings: dict[str, Any]) -> RunFolder | None:
    """The run folder, None without `out`. ValueError when something is hooked onto the model: it cannot know what."""
    if out is not None and has_hooks(model):
        raise ValueError(
            f"something is hooked onto {geometry(model).name} (an ablation?), and a run folder cannot know what: leave out= "
            "away, or end the context first"
        )
    return RunFolder(out, settings) if out is not None else None


def fingerprint(model: Model) -> str:
    """A cheap identity of the weights: sum and norm of up to 65,536 evenly spaced elements of every parameter."""
    seen = hashlib.sha256()
    for name, parameter in (model.original_model if is_bridge(model) else model).named_parameters():
        flat = parameter.detach().reshape(-1)
        sample = flat[:: max(1, flat.numel() // 65_536)].double()
        seen.update(f"{name} {tuple(parameter.shape)} {float(sample.sum()):.8g} {float(sample.norm()):.8g}".encode())
    return seen.hexdigest()[:16]
