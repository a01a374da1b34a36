"""What a GPU makes of it: seconds and memory of scoring, an ablation curve and patching, and whether it finds the same heads.

A packaged model runs on the GPU in float32 and bfloat16, and on the CPU in float32, on packaged trials: every method over one
trial of each length, gold answers; what heads cost by LOCOS and by chance; patching of every head in a pair. "Prefill" is Hugging
Face's own forward of the same tokens (sdpa, one row of logits). Rankings and costs on the GPU are compared with the CPU's.

A shape has the layers of a large model and random weights: what a pass takes does not depend on them, and nothing is loaded.

Seconds are the median of calls after a first one; memory is the peak that torch has allocated, beside the loaded model.

Prints what it finds and appends JSON to benchmarks/results/gpu.jsonl, a line per model.

Run: python benchmarks/gpu.py [--models smollm2-135m-instruct] [--shapes Llama-3.1-8B,Qwen2.5-7B] [--lengths 1000,4000,8000]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from record import append, timed
from score_pass import trials

import lens_heads as lh
from lens_heads.model import folders
from lens_heads.model import gguf as gguf_files
from lens_heads.model.identity import fingerprint
from lens_heads.model.load import boot_bridge
from lens_heads.sanity.planted_weights import byte_tokenizer

REPEATS, TOP = 3, 10
SCORED, COSTED, PAIRED, SHORT = 16, 4, 2, 350
"""Trials that are scored, ablated and patched on both, and their length; what is reserved of it leaves about 200 tokens."""
KS, DRAWS = (5, 20), 10
_LLAMA: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
}
_LLAMA |= {"num_attention_heads": 32, "num_key_value_heads": 8, "rope_theta": 500000.0}
_QWEN: dict[str, Any] = {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "vocab_size": 152064}
_QWEN |= {"num_attention_heads": 28, "num_key_value_heads": 4, "rope_theta": 1000000.0}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama-3.1-8B": ("llama", _LLAMA),
    "Qwen2.5-7B": ("qwen2", _QWEN),
}
LONG = (8000, 32000)
CHUNKS = (512, 4096)
"""Tokens of a prompt in one forward: the default, and more, for where starting kernels takes longer than running them."""


def measured(work: Callable[[], Any], repeats: int = REPEATS) -> dict[str, float]:
    """The median seconds of calls after a first one, and the most memory that they took, MiB."""

    def whole() -> None:
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    whole()
    if not torch.cuda.is_available():
        return {"seconds": statistics.median(timed(whole)[1] for _ in range(repeats))}
    gc.collect()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    seconds = statistics.median(timed(whole)[1] for _ in range(repeats))
    return {"seconds": seconds, "peak_mib": (torch.cuda.max_memory_allocated() - before) / 2**20}


def scoring(model: Any, encoded: list[lh.EncodedTrial], chunk: int = CHUNKS[0]) -> Callable[[], Any]:
    return lambda: lh.score_heads(model, encoded, teacher_forced=True, chunk=chunk, progress=False)


def prefill(hf: Any, one: lh.EncodedTrial) -> Callable[[], Any]:
    """Hugging Face's forward of what `scoring` runs."""
    tokens = torch.cat([one.tokens, one.answer_tokens[:-1]])[None].to(hf.device)

    @torch.no_grad()
    def run() -> None:
        hf(tokens, logits_to_keep=1, use_cache=True)

    return run


def by_length(model: Any, hf: Any, long: list[lh.EncodedTrial], repeats: int = REPEATS) -> list[dict[str, Any]]:
    return [
        {
            "tokens": len(one),
            "scoring": measured(scoring(model, [one]), repeats),
            "prefill": measured(prefill(hf, one), repeats),
        }
        for one in long
    ]


def found_by(model: Any, repeats: int) -> tuple[dict[str, Any], Any, dict[str, lh.HeadScores]]:
    """What an ablation curve and patching cost, the curve, and the rankings."""
    of: Callable[..., list[lh.Trial]] = lh.tasks.packaged
    select, test = of(n=SCORED, context_length=SHORT), of(split="test", n=COSTED, context_length=SHORT, seed=1)
    scores = lh.score_heads(model, select, teacher_forced=True, batch_size=8, progress=False)
    means = lh.mean_activations(model, select, progress=False)
    controls, kept = lh.Controls("random", draws=DRAWS), {}
    ranked = {"locos": scores["locos"]}

    def curve() -> None:
        how: dict[str, Any] = {"reference": means, "generate": False, "batch_size": 8, "progress": False}
        kept["curve"] = lh.ablation_curve(model, {"retrieval": test}, ranked, ks=KS, controls=controls, **how)

    def patching() -> None:
        kept["patching"] = lh.patch_heads(model, select[:PAIRED], positions="all", progress=False)

    costs = {"curve": measured(curve, repeats), "patching": measured(patching, repeats)}
    return costs, kept["curve"], {**scores, "patching": kept["patching"]}


def compared(found: Any, here: Any) -> dict[str, Any]:
    """How the GPU's rankings and costs differ from the CPU's."""
    (curve, scores), (ours, wanted) = found, here
    methods = {
        name: {
            "spearman": lh.compare.rank_correlation(scores[name], wanted[name]),
            "shared": len(set(scores[name].top(TOP)) & set(wanted[name].top(TOP))),
            "off": float((scores[name].values - wanted[name].values).norm() / wanted[name].values.norm()),
        }
        for name in scores
    }
    conditions = [lh.Condition.none(), *(lh.Condition.top("locos", k) for k in KS)]
    values = [[each.values(one, "logprob").to_numpy() for one in conditions] for each in (curve, ours)]
    off = max(float(abs(a - b).max()) for a, b in zip(*values, strict=True))
    return {"methods": methods, "largest_difference": off}


def real(name: str, lengths: list[int]) -> dict[str, Any]:
    """A packaged model on the GPU, and on the CPU."""
    source = gguf_files.local_source(name)
    assert source is not None
    rows: dict[str, Any] = {}
    results: dict[str, Any] = {}
    for way, device, dtype in (
        ("CPU, float32", "cpu", torch.float32),
        ("GPU, float32", "cuda", torch.float32),
        ("GPU, bfloat16", "cuda", torch.bfloat16),
    ):
        model = lh.load_model(name, device=device, dtype=dtype)
        hf = folders.load_local(source, dtype)["hf_model"].eval().to(device)
        hf.set_attn_implementation("sdpa")
        repeats = REPEATS if device == "cuda" else 1
        kept = lengths if device == "cuda" else lengths[:1]
        costs, *results[way] = found_by(model, repeats)
        long = by_length(model, hf, [trials(model.tokenizer, length)[0] for length in kept], repeats)
        rows[way] = {"lengths": long, **costs}
        print(way, rows[way], flush=True)
        del model, hf
    agreement = {way: compared(results[way], results["CPU, float32"]) for way in results if way.startswith("GPU")}
    sizes = {"scored": SCORED, "costed": COSTED, "paired": PAIRED, "ks": KS, "draws": DRAWS, "top": TOP}
    return {"model": name, "kind": "real", "rows": rows, "agreement": agreement, **sizes}


def random_trial(n: int) -> lh.EncodedTrial:
    tokens = torch.randint(3, 256, (n,), generator=torch.Generator().manual_seed(n))
    needle = (n // 2, n // 2 + 8)
    return lh.EncodedTrial(tokens, needle, "x", tokens[n // 2 : n // 2 + 3], f"random-{n}")


def shaped(name: str, lengths: tuple[int, ...]) -> dict[str, Any]:
    """A pass of a large model of random weights in bfloat16, all methods."""
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, settings = SHAPES[name]
    config = AutoConfig.for_model(kind, **settings, max_position_embeddings=131072)
    torch.manual_seed(0)
    with torch.device("cuda"):
        hf = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    hf.config.architectures = [type(hf).__name__]
    long = [random_trial(length) for length in lengths]
    plain = [measured(prefill(hf, one), 1) for one in long]
    with tempfile.TemporaryDirectory() as folder:
        options = {"hf_model": hf, "tokenizer": byte_tokenizer(folder), "device": "cuda", "dtype": torch.bfloat16}
        model = boot_bridge(name, None, options)
    gc.collect()
    hashing = measured(lambda: fingerprint(model), 1)["seconds"]
    print(name, plain, hashing, flush=True)
    rows = []
    for one, forward in zip(long, plain, strict=True):
        by_chunk = {str(chunk): measured(scoring(model, [one], chunk), 1) for chunk in CHUNKS}
        rows.append({"tokens": len(one), "scoring": by_chunk, "prefill": forward})
        print(rows[-1], flush=True)
    heads = config.num_hidden_layers * config.num_attention_heads
    found = {
        "model": name,
        "kind": "shape",
        "rows": rows,
        "hash_seconds": hashing,
        "heads": heads,
    }
    print(found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="smollm2-135m-instruct")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--lengths", default="1000,4000,8000")
    args = parser.parse_args()
    about = {"gpu": torch.cuda.get_device_name(), "lengths": args.lengths}
    for name in filter(None, args.shapes.split(",")):
        append("gpu", {**shaped(name, LONG), **about})
        gc.collect()
        torch.cuda.empty_cache()
    for name in filter(None, args.models.split(",")):
        append("gpu", {**real(name, [int(length) for length in args.lengths.split(",")]), **about})


if __name__ == "__main__":
    main()
