"""Benchmark results: one JSON line per run, with what they depend on, and how long a call takes."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lens_heads.runs.store import versions


def append(name: str, results: dict[str, Any]) -> Path:
    """Append a run to benchmarks/results/<name>.jsonl."""
    path = Path(__file__).parent / "results" / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    about = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions(),
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**about, "results": results}) + "\n")
    return path


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and its seconds."""
    started = time.perf_counter()
    result = function()
    return result, time.perf_counter() - started
