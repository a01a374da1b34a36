"""What scoring costs, against Hugging Face's own forward of the same tokens, and where a pass spends its time.

On packaged trials of about 500 to 8,000 tokens, several a call: `score_heads` with gold answers, LOCOS alone (read-out "raw",
"exact", both) and every method, against a prefill of the same tokens by Hugging Face's model (sdpa, one row of logits);
`score_heads` with decoding, every method, against Hugging Face's greedy generation of as many tokens. "bridge" is what
TransformerLens's bridge around the same model takes for the same forwards under sdpa. All take turns in one process, and ratios
are of the least time of each. Peak memory (resident set) comes from fresh processes.

Prints a table and appends JSON to benchmarks/results/score_pass.jsonl.

Run: python benchmarks/score_pass.py [--models gemma-3-270m,smollm2-135m-instruct] [--lengths 500,2000,8000] [--dtype float32]
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import re
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from record import append, timed

import lens_heads as lh
from lens_heads import tasks
from lens_heads.model import decoding, folders
from lens_heads.model import gguf as gguf_files
from lens_heads.model.forward import Cache, fast_attention
from lens_heads.trials.encoded import EncodedTrial

NEW_TOKENS = 16
TRIALS = {500: 4, 2000: 2}
"""How many trials a call scores, by length; of longer ones a single one."""
TARGETS = {"exact/raw": 1.15, "both/raw": 1.2, "raw/prefill": 1.15, "decoding/generation": 1.2, "memory": 1.3}
BESIDE = ("all/prefill", "bridge prefill/prefill", "bridge generation/generation")
FORCED: dict[str, dict[str, Any]] = {
    "raw": {"methods": "locos"},
    "exact": {"methods": "locos", "direction": "exact"},
    "both": {"methods": ["locos", "locos_exact"]},
    "all": {},
}


def trials(tokenizer: Any, length: int, n: int = 1) -> list[EncodedTrial]:
    """Packaged trials whose prompts have about `length` tokens."""
    return [one.encode(tokenizer) for one in tasks.packaged(n=n, context_length=length + 100, seed=3)]


def ours(model: Any, encoded: list[EncodedTrial]) -> dict[str, Callable[[], Any]]:
    """What `score_heads` does, by name."""
    ways: dict[str, Callable[[], Any]] = {
        name: lambda options=options: lh.score_heads(model, encoded, teacher_forced=True, progress=False, **options)
        for name, options in FORCED.items()
    }
    decodes = {"max_new_tokens": NEW_TOKENS, "progress": False}
    return ways | {"decoding": lambda: lh.score_heads(model, encoded, **decodes)}


def bridged(model: Any, encoded: list[EncodedTrial]) -> dict[str, Callable[[], Any]]:
    """The same forwards through the bridge alone."""

    def run(one: EncodedTrial, new: int) -> None:
        with fast_attention(model):
            decoding.greedy(model, one.tokens[None], Cache(model, 1), None, new)

    return {
        "bridge prefill": lambda: [run(one, 1) for one in encoded],
        "bridge generation": lambda: [run(one, NEW_TOKENS) for one in encoded],
    }


def theirs(name: str, encoded: list[EncodedTrial], dtype: torch.dtype) -> dict[str, Callable[[], Any]]:
    """What Hugging Face's model does with the same tokens."""
    source = gguf_files.local_source(name)
    assert source is not None
    model = folders.load_local(source, dtype)["hf_model"]
    model.set_attn_implementation("sdpa")
    exactly = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False}

    def forced(one: EncodedTrial) -> Any:
        return model(torch.cat([one.tokens, one.answer_tokens[:-1]])[None], logits_to_keep=1, use_cache=True)

    def generated(one: EncodedTrial) -> Any:
        return model.generate(one.tokens[None], attention_mask=torch.ones_like(one.tokens[None]), **exactly)

    return {
        "prefill": lambda: [forced(one) for one in encoded],
        "generation": lambda: [generated(one) for one in encoded],
    }


def fixed() -> None:
    """The same number of steps for everyone: nothing stops early, and every answer counts."""
    patch.multiple(decoding, stop_tokens=lambda model: set(), _ended=lambda model, steps, judge: False).start()
    patch.multiple("lens_heads.trials.answers", passes=lambda *_: True, answer_steps=lambda *_: [0]).start()


@torch.no_grad()
def times(name: str, length: int, dtype: str, repeats: int) -> dict[str, Any]:
    """The least seconds of every way per trial, in turns."""
    fixed()
    model = lh.load_model(name, dtype=dtype)
    encoded = trials(model.tokenizer, length, TRIALS.get(length, 1))
    ways = ours(model, encoded) | bridged(model, encoded) | theirs(name, encoded, getattr(torch, dtype))
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats + 1):
        for way, work in ways.items():
            seconds[way].append(timed(work)[1] / len(encoded))
    least = {way: min(some[1:]) for way, some in seconds.items()}  # The first time warms up.
    tokens = sum(map(len, encoded)) / len(encoded)
    profiles = {way: profile(ways[way]) for way in ("decoding", "bridge generation", "generation")}
    return {"tokens": round(tokens), "trials": len(encoded), "seconds": least, "profiles": profiles}


def profile(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds inside torch's operations, and inside each package's own Python code, of one call under cProfile."""
    run = cProfile.Profile()
    run.runcall(work)
    spent: Counter[str] = Counter()
    for (file, _, name), (_, _, own, _, _) in pstats.Stats(run).stats.items():  # type: ignore[attr-defined]
        package = re.search(r"site-packages/(\w+)", file.replace("/lens_heads/", "/site-packages/lens_heads/"))
        operation = file == "~" and "torch" in name
        spent["operations" if operation else package[1] if package else "other"] += own
    return dict(spent)


@torch.no_grad()
def peak(way: str, name: str, length: int, dtype: str) -> float:
    """Peak memory of this process after one way, MiB."""
    fixed()
    if way in FORCED or way == "decoding":
        model = lh.load_model(name, dtype=dtype)
        ours(model, trials(model.tokenizer, length))[way]()
    else:
        source = gguf_files.local_source(name)
        assert source is not None
        tokenizer = folders.load_local(source, getattr(torch, dtype))["tokenizer"]
        theirs(name, trials(tokenizer, length), getattr(torch, dtype))[way]()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(args: argparse.Namespace, model: str, length: int, way: str = "") -> Any:
    """`times`, or `peak` of a way, in a fresh process."""
    options = ["--models", model, "--lengths", str(length), "--dtype", args.dtype, "--repeats", str(args.repeats)]
    command = [sys.executable, __file__, *options, "--one", way or "times"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{way or 'times'} at {length} tokens failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def compared(args: argparse.Namespace, model: str, length: int) -> dict[str, Any]:
    """Everything about one model and length."""
    found = apart(args, model, length)
    memory = {way: apart(args, model, length, way) for way in ("all", "prefill", "decoding", "generation")}
    s = found["seconds"]
    ratios = {pair: s[pair.split("/")[0]] / s[pair.split("/")[1]] for pair in (*TARGETS, *BESIDE) if "/" in pair}
    ratios["memory"] = max(memory["all"] / memory["prefill"], memory["decoding"] / memory["generation"])
    return found | {"peak_mib": memory, "ratios": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    parser.add_argument("--lengths", default="500,2000,8000")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    models, lengths = args.models.split(","), [int(length) for length in args.lengths.split(",")]
    if args.one:
        found = times(models[0], lengths[0], args.dtype, args.repeats) if args.one == "times" else None
        print(json.dumps(found or peak(args.one, models[0], lengths[0], args.dtype)))
        return
    options = f"--models {args.models} --lengths {args.lengths} --dtype {args.dtype} --repeats {args.repeats}"
    results: dict[str, Any] = {"targets": TARGETS, "options": options, "new_tokens": NEW_TOKENS, "models": {}}
    for model in models:
        results["models"][model] = rows = []
        for length in lengths:
            rows.append(one := compared(args, model, length))
            cells = "  ".join(f"{name} {value:.2f}" for name, value in one["ratios"].items())
            print(f"{model}, {one['tokens']} tokens: {cells}", flush=True)
    print("targets: " + ", ".join(f"{name} <= {value}" for name, value in TARGETS.items()))
    append("score_pass", results)


if __name__ == "__main__":
    main()
