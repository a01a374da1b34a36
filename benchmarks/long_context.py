"""How time and memory of a scoring pass grow with the prompt, up to 32,000 tokens.

One packaged trial of each length, gold answers, every method, in bfloat16 by default. Each length runs in a fresh process. Memory
is the peak of the resident set since the model was loaded (Linux); `cache` is what the keys and values of the prompt take.

Prints a table and appends JSON to benchmarks/results/long_context.jsonl.

Run: python benchmarks/long_context.py --model FILE.gguf [--lengths 4000,8000,16000,32000] [--dtype bfloat16]
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from record import append, timed
from score_pass import trials

import lens_heads as lh
from lens_heads.model.planning import shape_of


@torch.no_grad()
def one(name: str, length: int, dtype: str) -> dict[str, Any]:
    """Seconds and peak memory of one pass in this process."""
    model = lh.load_model(name, dtype=dtype)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # Loading takes more than what is left of it: its peak is forgotten.
    loaded = resident("VmRSS")
    (encoded,) = trials(model.tokenizer, length)
    scores, seconds = timed(lambda: lh.score_heads(model, [encoded], teacher_forced=True, progress=False))
    assert all(found.values.isfinite().all() for found in scores.values())
    width = torch.finfo(getattr(torch, dtype)).bits // 8
    return {
        "tokens": len(encoded),
        "seconds": seconds,
        "loaded_mib": loaded,
        "peak_mib": resident("VmHWM"),
        "cache_mib": shape_of(name).cache_bytes(len(encoded), width) / 2**20,
    }


def resident(field: str) -> float:
    """A field of this process's memory, MiB."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field)]
    return int(line.split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--lengths", default="4000,8000,16000,32000")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    lengths = [int(length) for length in args.lengths.split(",")]
    if args.one:
        print(json.dumps(one(args.model, lengths[0], args.dtype)))
        return
    rows = []
    for length in lengths:
        options = ["--model", args.model, "--lengths", str(length), "--dtype", args.dtype]
        done = subprocess.run(
            [sys.executable, __file__, *options, "--one"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{length} tokens failed:\n{done.stderr[-2000:]}")
        rows.append(json.loads(done.stdout.strip().splitlines()[-1]))
        print({name: round(value) for name, value in rows[-1].items()}, flush=True)
    append("long_context", {"model": Path(args.model).name, "dtype": args.dtype, "rows": rows})


if __name__ == "__main__":
    main()
