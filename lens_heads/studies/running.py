"""What studies share: which models they run on, a clock over their stages, and tables for JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from rich.console import Console

from lens_heads.models import Model, geometry
from lens_heads.store import write_atomic

Value = TypeVar("Value")
HOLDS, DOES_NOT, UNTOLD = "holds", "does not hold", "cannot be told"
"""Verdicts on a paper's claims."""
Models = Iterable[str | Path | Model] | str | Path | Model


def several(models: Models) -> list[Any]:
    """The models, also when it is a single one. ValueError for none."""
    single = isinstance(models, str | Path) or hasattr(models, "cfg")
    listed: list[Any] = [models] if single else list(models)  # type: ignore[arg-type]  # not single
    if not listed:
        raise ValueError("there are no models: name at least one")
    names = [Path(str(one) if isinstance(one, str | Path) else geometry(one).name).name for one in listed]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"two models are called {twice!r}, and results are stored by name: rename a folder, or run them apart"
        )
    return listed


class Clock:
    """Runs stages, says which, and remembers in a folder how long each took, over all runs that it needed."""

    def __init__(self, console: Console, folder: Path) -> None:
        self.console, self.file = console, folder / "seconds.json"
        self.spent: dict[str, float] = json.loads(self.file.read_text()) if self.file.exists() else {}

    def __call__(self, stage: str, work: Callable[[], Value]) -> Value:
        started = time.monotonic()
        result = work()
        now = time.monotonic() - started
        self.spent[stage] = self.spent.get(stage, 0.0) + now
        write_atomic(self.file, json.dumps(self.spent))
        self.console.print(f"{stage}: {now:.0f} s")
        return result


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for JSON, which knows no NaN, in four significant digits."""
    rounded = frame.map(lambda value: float(f"{value:.4g}") if isinstance(value, float) else value)
    return rounded.astype(object).where(rounded.notna(), None).to_dict("records")  # type: ignore[return-value]  # columns are named


def save_tables(frames: dict[str, pd.DataFrame], folder: Path) -> None:
    """Every table as Parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_parquet(folder / f"{name}.parquet", index=False)
