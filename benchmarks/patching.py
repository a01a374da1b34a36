"""What exact activation patching of every head costs, against the plain loop that runs the model once per head.

Two packaged trials of about 200 tokens, one with a late needle and one with an early one, removed in the corrupt run: what both
runs share before it is run once, which a plain loop does again for every head. Two plain loops measured in the same process:
TransformerLens's `run_with_hooks` on the same model, and Hugging Face's own model (sdpa, logits of the answer rows only)
with a forward pre-hook. Both run for a random sample of the heads, and their time is scaled to all of them, forward for forward;
numbers have to agree to 1e-4. Then, on more pairs: how well attribution
patching and its integrated-gradients form rank heads (Spearman with the exact scores, positions "all"), over all heads and
over those whose exact score is above noise (|mean| > 2 standard errors over pairs).

Prints tables and appends JSON to benchmarks/results/patching.jsonl.

Run: python benchmarks/patching.py [--models gemma-3-270m,smollm2-135m-instruct] [--pairs 8] [--sample 36]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from record import append, timed
from scipy.stats import spearmanr
from torch import Tensor

import lens_heads as lh
from lens_heads.answering.patch_metrics import answer_logprob
from lens_heads.heads.sets import shuffled
from lens_heads.model import folders
from lens_heads.model import gguf as gguf_files
from lens_heads.trials.pairs import TokenPair, make_pairs

TARGETS = {
    "answer_speedup": {"gemma-3-270m": 25, "smollm2-135m-instruct": 80},
    "all_speedup": 6,
    "agreement": 1e-4,
    "spearman": 0.9,
}
LENGTH = 350
"""Of the packaged trials; what is reserved of it leaves about 200 tokens."""
DRAWN = 8
"""Trials of which the one with the earliest needle is timed, beside one drawn alone."""


def with_transformer_lens(model: Any, pair: TokenPair, positions: str, heads: Sequence[lh.Head]) -> list[float]:
    """One `run_with_hooks` per head."""
    start, end = pair.answer
    rows = slice(start - 1, end - 1) if positions == "answer" else slice(None)
    _, cache = model.run_with_cache(pair.clean[None], names_filter=lambda name: name.endswith("attn.hook_z"))
    scores = []

    def metric(logits: Tensor) -> float:
        return float(answer_logprob(logits[:, start - 1 : end - 1].float(), pair.gold)[0])

    base = metric(model(pair.corrupt[None]))
    for one in heads:
        name = f"blocks.{one.layer}.attn.hook_z"

        def put(z: Tensor, hook: Any, name: str = name, head: int = one.head) -> Tensor:
            z[:, rows, head] = cache[name][:, rows, head]
            return z

        scores.append(metric(model.run_with_hooks(pair.corrupt[None], fwd_hooks=[(name, put)])) - base)
    return scores


def with_hugging_face(hf: Any, d_head: int, pair: TokenPair, positions: str, heads: Sequence[lh.Head]) -> list[float]:
    """One forward per head with a pre-hook on its output projection."""
    start, end = pair.answer
    rows = slice(start - 1, end - 1) if positions == "answer" else slice(0, end - 1)
    layers = hf.model.layers
    clean: dict[int, Tensor] = {}
    handles = [
        layer.self_attn.o_proj.register_forward_pre_hook(lambda m, a, i=i: clean.update({i: a[0].clone()}))
        for i, layer in enumerate(layers)
    ]
    hf(pair.clean[None, : end - 1])
    for handle in handles:
        handle.remove()

    def metric() -> float:
        logits = hf(pair.corrupt[None, : end - 1], logits_to_keep=end - start).logits
        return float(answer_logprob(logits.float(), pair.gold)[0])

    base, scores = metric(), []
    for one in heads:
        columns = slice(one.head * d_head, (one.head + 1) * d_head)

        def put(module: Any, args: Any, i: int = one.layer, columns: slice = columns) -> Any:
            args[0][:, rows, columns] = clean[i][:, rows, columns]

        handle = layers[one.layer].self_attn.o_proj.register_forward_pre_hook(put)
        scores.append(metric() - base)
        handle.remove()
    return scores


@torch.no_grad()
def speed(name: str, repeats: int, sample: int) -> dict[str, Any]:
    model = lh.load_model(name)
    source = gguf_files.local_source(name)
    assert source is not None
    hf = folders.load_local(source, torch.float32)["hf_model"].eval()
    hf.set_attn_implementation("sdpa")
    shape = lh.head_geometry(model)
    alone, drawn = (
        make_pairs(lh.tasks.packaged(n=n, context_length=LENGTH, seed=3), model.tokenizer, shape) for n in (1, DRAWN)
    )
    rows = []
    for trial in (*alone, min(drawn, key=lambda one: TokenPair.of(one).divergence)):
        pair = TokenPair.of(trial)
        row: dict[str, Any] = {"tokens": len(pair), "first_difference": pair.divergence}
        for positions in ("answer", "all"):
            row[positions] = against_loops(name, model, hf, trial, positions, repeats, sample)
        rows.append(row)
    return {"heads": shape.n_layers * shape.n_heads, "pairs": rows}


def against_loops(
    name: str, model: Any, hf: Any, trial: lh.EncodedTrial, positions: Any, repeats: int, sample: int
) -> dict[str, Any]:
    """Median seconds of `patch_heads`, and of each plain loop on a sample of heads, which has to give the same numbers.

    A loop runs the clean prompt, the corrupt one, and the corrupt one again for every head.
    """
    pair = TokenPair.of(trial)
    shape = lh.head_geometry(model)
    every = [lh.Head(layer, head) for layer in range(shape.n_layers) for head in range(shape.n_heads)]
    heads = shuffled(every, 0)[:sample]
    loops: dict[str, Callable[[], list[float]]] = {
        "transformer_lens": lambda: with_transformer_lens(model, pair, positions, heads),
        "hugging_face": lambda: with_hugging_face(hf, model.cfg.d_head, pair, positions, heads),
    }
    runs = [timed(lambda: lh.patch_heads(model, [trial], positions=positions, progress=False)) for _ in range(repeats)]
    ours, scores = statistics.median(seconds for _, seconds in runs), runs[0][0].per_trial[0]
    picked = torch.tensor([float(scores[head.layer, head.head]) for head in heads])
    row: dict[str, Any] = {"seconds": ours, "sampled_heads": len(heads)}
    for loop, run in loops.items():
        wanted, spent = timed(run)
        seconds = spent * (len(every) + 2) / (len(heads) + 2)
        error = float((picked - torch.tensor(wanted)).abs().max())
        row[loop] = {"seconds": seconds, "speedup": seconds / ours, "largest_difference": error}
        print(
            f"{name:24} from {pair.divergence:3} {positions:7} ours {ours:6.2f} s   {loop:18} {seconds:7.2f} s   "
            f"{seconds / ours:6.1f} times   largest difference {error:.1e}",
            flush=True,
        )
        if error > TARGETS["agreement"]:
            raise SystemExit(f"{loop} and patch_heads differ by {error}")
    return row


def attribution(name: str, pairs: int) -> dict[str, Any]:
    """Spearman of the estimates with the exact scores."""
    model = lh.load_model(name)
    trials = lh.tasks.packaged(n=pairs, context_length=LENGTH, seed=5)
    exact, seconds = timed(lambda: lh.patch_heads(model, trials, positions="all", progress=False))
    noise = 2 * exact.per_trial.std(0) / len(exact.per_trial) ** 0.5
    clear = exact.values.abs() > noise
    found: dict[str, Any] = {"pairs": pairs, "heads_above_noise": int(clear.sum()), "exact_seconds": seconds}
    for label, steps in (("attribution", 1), ("eap_ig, 5 steps", 5)):
        guess, seconds = timed(
            partial(lh.attribution_patch, model, trials, positions="all", ig_steps=steps, progress=False)
        )
        rho = {
            "all_heads": float(spearmanr(guess.values.flatten(), exact.values.flatten()).statistic),
            "above_noise": float(spearmanr(guess.values[clear], exact.values[clear]).statistic),
        }
        found[label] = {"seconds": seconds, **rho}
        print(
            f"{name:24} {label:16} Spearman with cri: {rho['all_heads']:.3f} over all heads, {rho['above_noise']:.3f} over "
            f"the {int(clear.sum())} above noise   ({seconds:.1f} s against {found['exact_seconds']:.1f} s exact, {pairs} pairs)",
            flush=True,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sample", type=int, default=36)
    args = parser.parse_args()
    results: dict[str, Any] = {"targets": TARGETS}
    for name in args.models.split(","):
        results[name] = {"speed": speed(name, args.repeats, args.sample), "attribution": attribution(name, args.pairs)}
    append("patching", results)


if __name__ == "__main__":
    main()
