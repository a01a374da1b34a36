"""Metrics of a generated text against the accepted answers; each is the best over them, and an empty text scores 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lens_heads.answers import contains, normalize, rouge


def exact_match(text: str, gold: str) -> float:
    """1 when text and answer are equal after normalisation."""
    return float(normalize(text) == normalize(gold) != "")


def token_f1(text: str, gold: str) -> float:
    """F1 over normalised words (SQuAD)."""
    mine, wanted = normalize(text).split(), normalize(gold).split()
    common = sum((Counter(mine) & Counter(wanted)).values())
    return 2 * common / (len(mine) + len(wanted)) if common else 0.0


TEXT_METRICS = {
    "rougeL": lambda text, gold: rouge("rougeL", gold, text)[1],
    "rouge1_recall": lambda text, gold: rouge("rouge1", gold, text)[0],
    "contains": contains,
    "exact_match": exact_match,
    "token_f1": token_f1,
}


def text_scores(text: str, answers: Sequence[str]) -> dict[str, float]:
    """Every text metric, each by the answer it likes best."""
    return {name: max(metric(text, gold) for gold in answers) for name, metric in TEXT_METRICS.items()}
