"""What all scores in one pass cost, against plain greedy generation of the same trials.

Compared within one run, on trials of 500 to 8,000 tokens: `score_heads` with every method; greedy generation by the
same TransformerLens model (`model.generate`, with its KV cache); and by Hugging Face's own model with sdpa. All three
generate exactly the same number of tokens. Every measurement is a fresh process, so that peak memory (resident set) is
its own. Prints a table and appends JSON to benchmarks/results/score_pass.jsonl.

Run: python benchmarks/score_pass.py [--model gemma-3-270m] [--lengths 500,2000,4000,8000]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any
from unittest.mock import patch

NEW_TOKENS = 16
WAYS = ("score", "lens", "hf")
TARGETS = {"time_vs_lens": 1.2, "time_vs_hf": 1.6, "memory_vs_hf": 1.5}


def trial(tokenizer: Any, length: int) -> Any:
    """A packaged trial whose prompt has about `length` tokens."""
    from lens_heads import tasks

    (made,) = tasks.packaged(n=1, context_length=length + 100, seed=3)
    return made.encode(tokenizer)


def one(way: str, model_name: str, length: int, repeats: int) -> None:
    """Measure one way in this process and print JSON: seconds of each repeat, peak memory in MiB."""
    import torch

    from lens_heads import load_model, score_heads
    from lens_heads.model import decoding
    from lens_heads.model import gguf as gguf_files

    torch.set_num_threads(2)
    # The same number of steps for everyone: nothing stops early.
    patch.multiple(decoding, stop_tokens=lambda model: set(), _ended=lambda model, steps, judge: False).start()
    if way == "hf":
        source = gguf_files.local_source(model_name)
        assert source is not None
        loaded = gguf_files.load_local(source, torch.float32)
        model, tokenizer = loaded["hf_model"], loaded["tokenizer"]
        model.set_attn_implementation("sdpa")
    else:
        model = load_model(model_name)
        tokenizer = model.tokenizer
    encoded = trial(tokenizer, length)
    tokens = encoded.tokens[None]
    settings = {"max_new_tokens": NEW_TOKENS, "do_sample": False}

    def run() -> None:
        if way == "score":
            with (
                patch("lens_heads.trials.answers.passes", return_value=True),
                patch("lens_heads.trials.answers.answer_steps", return_value=[0]),
            ):
                score_heads(model, [encoded], max_new_tokens=NEW_TOKENS, progress=False)
        elif way == "lens":
            model.generate(tokens, stop_at_eos=False, verbose=False, **settings)
        else:
            model.generate(tokens, min_new_tokens=NEW_TOKENS, attention_mask=torch.ones_like(tokens), **settings)

    seconds = []
    with torch.no_grad():
        for _ in range(repeats):
            started = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak_mib": peak, "tokens": len(encoded)}))


def measure(way: str, model: str, length: int, repeats: int) -> dict[str, Any]:
    """`one` in a fresh process."""
    command = [
        sys.executable,
        __file__,
        "--one",
        way,
        "--model",
        model,
        "--lengths",
        str(length),
        "--repeats",
        str(repeats),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{way} at {length} tokens failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gemma-3-270m")
    parser.add_argument("--lengths", default="500,2000,4000,8000")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    lengths = [int(length) for length in args.lengths.split(",")]
    if args.one:
        one(args.one, args.model, lengths[0], args.repeats)
        return
    from record import append

    print(
        f"{args.model}: all scores in one pass against plain generation of {NEW_TOKENS} tokens; medians of {args.repeats}"
    )
    columns = {"tokens": 8, "pass s": 9, "lens s": 9, "hf s": 9, "pass/lens": 11, "pass/hf": 9}
    columns |= {"pass MiB": 10, "lens MiB": 10, "hf MiB": 9, "mem/hf": 8}
    print("".join(f"{name:>{width}}" for name, width in columns.items()))
    results: dict[str, Any] = {"targets": TARGETS, "model": args.model, "new_tokens": NEW_TOKENS}
    for length in lengths:
        found = {way: measure(way, args.model, length, args.repeats) for way in WAYS}
        s = {way: statistics.median(f["seconds"]) for way, f in found.items()}
        m = {way: f["peak_mib"] for way, f in found.items()}
        ratios = {
            "time_vs_lens": s["score"] / s["lens"],
            "time_vs_hf": s["score"] / s["hf"],
            "memory_vs_hf": m["score"] / m["hf"],
        }
        cells = [f"{found['score']['tokens']:>8}", f"{s['score']:>9.2f}", f"{s['lens']:>9.2f}", f"{s['hf']:>9.2f}"]
        cells += [f"{ratios['time_vs_lens']:>11.2f}", f"{ratios['time_vs_hf']:>9.2f}"]
        cells += [f"{m['score']:>10.0f}", f"{m['lens']:>10.0f}", f"{m['hf']:>9.0f}", f"{ratios['memory_vs_hf']:>8.2f}"]
        print("".join(cells), flush=True)
        results[str(length)] = {"tokens": found["score"]["tokens"], "seconds": s, "peak_mib": m, **ratios}
    print("targets: " + ", ".join(f"{name} <= {value}" for name, value in TARGETS.items()))
    append("score_pass", results)


if __name__ == "__main__":
    main()
