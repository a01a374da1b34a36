"""Can what heads carry in context do the task without it? Task vectors put into prompts without examples, by whose heads?

For each relation of word pairs: vectors are the mean of ten-shot prompts of the select half. Heads are ranked on the same half,
by average indirect effect (prompts with shuffled answers) and by soft injection (prompts without examples). On the test half,
without examples, the vectors go into the gated heads, into all heads with the same gates shuffled among them, into the ten best
by effect, and into ten random heads. Beside them: no examples at all, and ten. Intervals stop at 0 and 1, as probabilities do.

Prints tables and appends JSON, model by model, to benchmarks/results/injecting.jsonl.

Run: python benchmarks/injecting.py [--models gemma-3-270m,smollm2-135m-instruct]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch
from record import append

import lens_heads as lh
from lens_heads.heads.sets import every_head, shuffled
from lens_heads.stats import mean_interval
from lens_heads.studies.finding import plain
from lens_heads.tasks.word_pairs import RELATIONS, word_pairs
from lens_heads.trials.checked_tokens import encode_all

K, DRAWS = 10, 10
"""Function-vector heads (the authors' ten), and draws of random heads and of shuffled gates."""


def probability(
    model: Any, trials: Sequence[Any], vectors: lh.HeadVectors | None = None, heads: Any = ()
) -> torch.Tensor:
    """Of each answer's first token, with the vectors mixed into these heads at the prompt's last row."""
    found = []
    for trial in trials:
        with torch.no_grad(), lh.ablate(model, heads, kind="mix", reference=vectors, span=(len(trial) - 1, len(trial))):
            logits = model(trial.tokens[None])[0, -1].float()
        found.append(logits.softmax(-1)[trial.answer_tokens[0]])
    return torch.stack(found)


def shuffled_gates(vectors: lh.HeadVectors, seed: int) -> lh.HeadVectors:
    """The same gates, each at another head."""
    order = torch.randperm(vectors.gates.numel(), generator=torch.Generator().manual_seed(seed))
    return lh.HeadVectors(vectors.z, vectors.gates.flatten()[order].view_as(vectors.gates))


def measured(model: Any, relation: str) -> dict[str, Any]:
    """Probabilities of the test half's answers, by what was put in."""
    shape = lh.head_geometry(model)

    def made(split: str, shots: int, labels: Any = "true") -> list[Any]:
        trials = word_pairs(relation=relation, split=split, shots=shots, labels=labels)
        return encode_all(trials, model.tokenizer, shape.n_ctx)

    vectors = lh.task_vectors(model, made("select", 10))
    effects = lh.average_indirect_effect(
        model, made("select", 10, "shuffled"), vectors=vectors, progress=False, metric="first_token_prob"
    )
    injected = lh.ranking.soft_injection(model, made("select", 0), vectors, progress=False)
    test, everyone = made("test", 0), every_head(shape.n_layers, shape.n_heads)
    plainly = lh.HeadVectors(vectors.z)
    runs = {
        "no examples": probability(model, test, plainly),
        "soft injection": probability(model, test, injected.vectors, everyone),
        "soft injection, gates shuffled": torch.stack(
            [probability(model, test, shuffled_gates(injected.vectors, draw), everyone) for draw in range(DRAWS)]
        ).mean(0),
        f"the {K} best by effect": probability(model, test, plainly, effects.top(K)),
        f"{K} random heads": torch.stack(
            [probability(model, test, plainly, shuffled(everyone, draw)[:K]) for draw in range(DRAWS)]
        ).mean(0),
        "ten examples": probability(model, made("test", 10), plainly),
    }
    rows = []
    for name, values in runs.items():
        low, high = (min(max(float(bound), 0.0), 1.0) for bound in mean_interval(values)[1:])
        rows.append({"put in": name, "probability": float(values.mean()), "low": low, "high": high})
        print(relation, rows[-1], flush=True)
    rho = lh.compare.rank_correlation(effects, injected.scores)
    best = [{"head": str(head), "effect": effects[head]} for head in effects.top(5)]
    return {
        "trials": len(test),
        "rows": rows,
        "spearman": rho,
        "best": best,
        "open": float((injected.scores.values > 0.5).float().mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gemma-3-270m,smollm2-135m-instruct")
    given = parser.parse_args()
    for name in given.models.split(","):
        model = lh.load_model(name)
        append(
            "injecting",
            plain({"model": name, "k": K, "relations": {each: measured(model, each) for each in RELATIONS}}),
        )


if __name__ == "__main__":
    main()
