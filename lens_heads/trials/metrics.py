"""Metrics of a generated text against the accepted answers: each takes the best answer, and an empty text scores 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from lens_heads.trials.answers import rouge
from lens_heads.trials.containment import normalize
from lens_heads.trials.judges import DEFAULT, Judge

__all__ = ["TEXT_METRICS", "contains_answer", "exact_match", "normalize", "text_scores", "token_f1"]


def contains_answer(text: str, gold: str, judge: Judge = DEFAULT) -> float:
    """1 if the text contains the answer as consecutive whole words, after normalization."""
    return float(judge.contains(text, gold))


def exact_match(text: str, gold: str, judge: Judge = DEFAULT) -> float:
    """1 if text and answer are equal after normalization."""
    return float(judge.equals(text, gold))


def token_f1(text: str, gold: str, judge: Judge = DEFAULT) -> float:
    """F1 over normalized words (SQuAD)."""
    mine, wanted = judge.normalize(text).split(), judge.normalize(gold).split()
    common = sum((Counter(mine) & Counter(wanted)).values())
    return 2 * common / (len(mine) + len(wanted)) if common else 0.0


TEXT_METRICS: dict[str, Callable[[str, str, Judge], float]] = {
    "rougeL": lambda text, gold, judge: rouge("rougeL", gold, text)[1],
    "rouge1_recall": lambda text, gold, judge: rouge("rouge1", gold, text)[0],
    "contains": contains_answer,
    "exact_match": exact_match,
    "token_f1": token_f1,
    "correct": lambda text, gold, judge: judge.correct(text, [gold]),
}
"""All compare the answer that the judge extracts from the text; "correct" is the judge's own verdict on it."""


def text_scores(text: str, answers: Sequence[str], judge: Judge = DEFAULT) -> dict[str, float]:
    """Every text metric, each the maximum over the accepted answers."""
    found = judge.extract(text)
    return {name: max(metric(found, gold, judge) for gold in answers) for name, metric in TEXT_METRICS.items()}
