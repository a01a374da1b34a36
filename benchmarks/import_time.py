"""How long `import lens_heads` and `lens-heads --help` take, and that neither imports torch.

Prints a table and appends JSON to benchmarks/results/import_time.jsonl. Run: python benchmarks/import_time.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from record import append

REPEATS = 7
CASES = {
    "python, nothing else": "pass",
    "import lens_heads": "import lens_heads",
    "lens-heads --help": (
        "import sys; sys.argv = ['lens-heads', '--help']; from lens_heads.cli.main import app; app(standalone_mode=False)"
    ),
    "import torch, for comparison": "import torch",
}
_REPORT = "; import sys; sys.stderr.write('torch' if 'torch' in sys.modules else '')"


def measure(code: str) -> tuple[float, bool]:
    """Median seconds of a fresh interpreter running the code, and whether it imported torch."""
    seconds, torch = [], False
    for _ in range(REPEATS):
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code + _REPORT], capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - started)
        torch = done.stderr.endswith("torch")
    return statistics.median(seconds), torch


def main() -> None:
    rows = {name: measure(code) for name, code in CASES.items()}
    print(f"{'':32}{'seconds (median of ' + str(REPEATS) + ')':>24}{'imports torch':>16}")
    for name, (seconds, torch) in rows.items():
        print(f"{name:32}{seconds:24.2f}{'yes' if torch else 'no':>16}")
    append("import_time", {name: {"seconds": round(s, 3), "imports_torch": t} for name, (s, t) in rows.items()})


if __name__ == "__main__":
    main()
