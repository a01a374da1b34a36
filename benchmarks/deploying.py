"""What is left when a model goes on without its other heads: a smaller cache, a pruned checkpoint, stronger heads.

Rankings are made on selection trials of the packaged retrieval set (those of repeated tokens and texts on none), gates on
passkeys. On test trials of each length: a cache in which the best kv heads of each ranking keep the whole context and the
others a sink and recent tokens, beside random kv heads. At the shortest length also: contrast with the best heads ablated
and with random ones, reinforcement, and checkpoints without the lowest heads.

Prints tables and appends JSON, model by model, to benchmarks/results/deploying.jsonl; what was run stays in --out, for the same
command.

Run: python benchmarks/deploying.py [--models gemma-3-270m,smollm2-135m-instruct] [--lengths 400,1000] [--trials 12]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from record import append, timed

import lens_heads as lh
from lens_heads.deploy.prune import lowest_groups
from lens_heads.deploy.speed import prefill_ratio
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import every_head, shuffled
from lens_heads.stats import mean_interval
from lens_heads.studies.finding import plain

SELECT, SHARES, SINK, RECENT, DRAWS, TOKENS = 16, (0.25, 0.5), 4, 64, 6, 6
CONTRASTED = 0.05
"""The share of all heads that a contrast ablates."""


def rankings(model: Any, name: str, length: int, out: Path) -> dict[str, HeadScores]:
    """The rankings whose best kv heads keep the context."""
    trials = lh.tasks.packaged(split="select", n=SELECT, context_length=length)
    found = lh.score_heads(model, trials, ["locos_exact", "copy"], teacher_forced=True, progress=False)
    means = lh.mean_activations(
        model, lh.tasks.packaged(split="select", n=8, context_length=length, seed=1), progress=False
    )
    found["attribute_ablation"] = lh.attribute_ablation(model, trials, kind="mean", reference=means, progress=False)
    texts = lh.plain_texts(lh.ranking.common_texts(n=4))
    found |= lh.score_heads(model, texts, ["far_mass"], progress=False)
    found["induction"] = lh.score_heads(
        model, lh.repeated_blocks(model, block=50, copies=3), ["induction"], progress=False
    )["induction"]
    passkeys = lh.ranking.passkeys(model, n=40, lengths=(400, 600), keys=2, words=6)
    found["duo_gate"] = lh.ranking.duo(
        model, passkeys, sink=SINK, recent=RECENT, steps=120, out=out / name / "duo"
    ).scores
    return found


def agreement(model: Any, ranked: dict[str, HeadScores]) -> dict[str, float]:
    """Spearman of every ranking's kv heads with DuoAttention's gates."""
    group = lh.head_geometry(model).group
    by_kv = {name: one if one.unit == "kv_head" else lh.units.to_kv_heads(one, group) for name, one in ranked.items()}
    gates = by_kv["duo_gate"]
    return {name: lh.compare.rank_correlation(one, gates) for name, one in by_kv.items() if name != "duo_gate"}


def cached(model: Any, ranked: dict[str, HeadScores], length: int, n: int, out: Path) -> list[dict[str, Any]]:
    """The table of streaming caches at one length."""
    trials = lh.tasks.packaged(split="test", n=n, context_length=length, seed=2)
    how: dict[str, Any] = {"max_new_tokens": TOKENS, "out": out / f"streaming-{length}"}
    table = lh.streaming(
        model, trials, ranked, shares=SHARES, sink=SINK, recent=RECENT, controls=lh.Controls("random", DRAWS), **how
    )
    log, right = table.frame.rename(columns={"method": "ranking"}), table.of("correct")
    frame = log.assign(correct=right["correct"], tokens=int(table.per_trial["tokens"].mean()))
    whole = table.per_trial[table.per_trial["method"] == "whole"]["bytes"].mean()
    print(frame.round(2).to_string())
    return plain(frame.assign(whole_bytes=whole).to_dict("records"))


def decoded(model: Any, ranked: dict[str, HeadScores], length: int, n: int) -> list[dict[str, Any]]:
    """Plain decoding, contrast and reinforcement on the same trials, each beside plain decoding, trial by trial."""
    trials = lh.tasks.packaged(split="test", n=n, context_length=length, seed=3)
    shape = lh.head_geometry(model)
    everyone = every_head(shape.n_layers, shape.n_heads)
    k = max(1, round(CONTRASTED * len(everyone)))
    how: dict[str, Any] = {"max_new_tokens": TOKENS, "progress": False}
    plainly = lh.evaluate(model, trials, **how)
    runs = {"plain": plainly, "reinforce": lh.reinforce(model, trials, **how)}
    for name in ("locos_exact", "copy", "attribute_ablation"):
        runs[f"contrast, {name}"] = lh.contrast(model, trials, ranked[name].top(k), cap=1.0, **how, kind="zero")
    for draw in range(3):
        runs[f"contrast, random {draw}"] = lh.contrast(
            model, trials, shuffled(everyone, draw)[:k], cap=1.0, **how, kind="zero"
        )
    rows = []
    for name, found in runs.items():
        gain = found.metrics["logprob"] - plainly.metrics["logprob"]
        _, low, high = mean_interval(gain, groups=plainly.groups)
        row = {"decoding": name, "k": k, "logprob": found.mean("logprob"), "correct": found.mean("correct")}
        rows.append(row | {"gain": float(gain.mean()), "gain_low": float(low), "gain_high": float(high)})
        print(rows[-1])
    return rows


def checkpoints(model: Any, ranked: dict[str, HeadScores], length: int, n: int) -> list[dict[str, Any]]:
    """Checkpoints without one kv head in each layer, the lowest of a ranking or a random one, where there are several."""
    shape = lh.head_geometry(model)
    if shape.n_kv_heads < 2:
        return []
    trials = lh.tasks.packaged(split="test", n=n, context_length=length, seed=3)
    sets = {name: lowest_groups(ranked[name], shape, k=1) for name in ("locos_exact", "attribute_ablation", "duo_gate")}
    for draw in range(3):
        kv = [(layer, (draw + 7 * layer) % shape.n_kv_heads) for layer in range(shape.n_layers)]
        sets[f"arbitrary {draw}"] = lh.units.query_heads(kv, shape.group)
    rows = []
    for name, heads in sets.items():
        with tempfile.TemporaryDirectory() as folder:
            pruned, spent = timed(
                lambda heads=heads, folder=folder: lh.prune(model, heads, Path(folder) / "model", how="remove")
            )
            again = lh.load_model(pruned.path)
            found = lh.evaluate(again, trials, generate=False, progress=False)
            row = {"pruned": name, "heads": len(heads), "logprob": found.mean("logprob"), "seconds": spent}
            row |= {"parameters": pruned.parameters, "bytes": pruned.bytes, "speed": prefill_ratio(model, again)}
        rows.append(row)
        print(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    parser.add_argument("--lengths", default="400,1000")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("runs/deploying"))
    given = parser.parse_args()
    lengths = [int(length) for length in given.lengths.split(",")]
    for name in given.models.split(","):
        model = lh.load_model(name)
        ranked = rankings(model, name, lengths[0], given.out)
        found: dict[str, Any] = {"model": name, "sink": SINK, "recent": RECENT, "trials": given.trials, "lengths": {}}
        found["agreement"] = agreement(model, ranked)
        print(name, found["agreement"])
        for length in lengths:
            found["lengths"][length] = cached(model, ranked, length, given.trials, given.out / name)
        found["decoding"] = decoded(model, ranked, lengths[0], given.trials)
        found["checkpoints"] = checkpoints(model, ranked, lengths[0], given.trials)
        append("deploying", plain(found))


if __name__ == "__main__":
    main()
