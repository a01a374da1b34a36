"""What studies share: models and task calls by name, a clock over their stages, wide intervals, and tables for JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from rich.console import Console

from lens_heads.model.geometry import Model, geometry
from lens_heads.model.load import load_model
from lens_heads.runs.store import write_atomic

Value = TypeVar("Value")
HOLDS, DOES_NOT, UNTOLD = "holds", "does not hold", "cannot be told"
"""Verdicts on a paper's claims."""
Models = Iterable[str | Path | Model] | str | Path | Model
TaskCall = tuple[str, dict[str, Any]]
"""A task by name, and its arguments."""


def described(call: TaskCall) -> str:
    """A call as one would write it: musique(n=14, split=test)."""
    name, arguments = call
    return f"{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"


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


def loaded(given: Any, loading: dict[str, Any]) -> Model:
    """The model, loaded where it is given by name."""
    return load_model(given, **loading) if isinstance(given, str | Path) else given


class Clock:
    """Runs stages, says which, and remembers in a folder how long each took, over all runs that it needed."""

    def __init__(self, console: Console, folder: Path) -> None:
        self.console, self.file = console, folder / "seconds.json"
        self.spent: dict[str, float] = json.loads(self.file.read_text()) if self.file.exists() else {}

    def __call__(self, stage: str, work: Callable[[], Value]) -> Value:
        started = time.monotonic()
        try:
            return work()
        finally:  # An interrupted stage is continued: what it took so far counts too.
            now = time.monotonic() - started
            self.spent[stage] = self.spent.get(stage, 0.0) + now
            write_atomic(self.file, json.dumps(self.spent))
            self.console.print(f"{stage}: {now:.0f} s")


def widened(value: float, low: float, high: float, trials: int) -> tuple[float, float]:
    """An interval no narrower than what so many trials may well not have shown: a share of 1 - 0.025 ** (1 / trials).

    (The exact upper bound of a share that was never seen.) A bootstrap has no width where every trial has the same value.
    """
    unseen = 1 - 0.025 ** (1 / max(trials, 1))
    return min(low, value - unseen), max(high, value + unseen)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for JSON, which knows no NaN, in four significant digits."""
    rounded = frame.map(lambda value: float(f"{value:.4g}") if isinstance(value, float) else value)
    return rounded.astype(object).where(rounded.notna(), None).to_dict("records")  # type: ignore[return-value]  # columns are named


def save_tables(frames: dict[str, pd.DataFrame], folder: Path) -> None:
    """Every table as Parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_parquet(folder / f"{name}.parquet", index=False)
