"""What studies share: which models they run on, a clock over their stages, and tables for JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from rich.console import Console

from lens_heads.models import Model

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
    return listed


class Clock:
    """Runs stages, says which, and remembers how long each took."""

    def __init__(self, console: Console) -> None:
        self.console, self.spent = console, {}

    def __call__(self, stage: str, work: Callable[[], Value]) -> Value:
        started = time.monotonic()
        result = work()
        self.spent[stage] = time.monotonic() - started
        self.console.print(f"{stage}: {self.spent[stage]:.0f} s")
        return result


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for JSON, which knows no NaN."""
    rounded = frame.round(4)
    return rounded.astype(object).where(rounded.notna(), None).to_dict("records")  # type: ignore[return-value]  # columns are named


def save_tables(frames: dict[str, pd.DataFrame], folder: Path) -> None:
    """Every table as Parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_parquet(folder / f"{name}.parquet", index=False)
