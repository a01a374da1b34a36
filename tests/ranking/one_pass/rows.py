"""Scores of texts as plain loops over whole attention matrices, written from their formulas."""

from __future__ import annotations

import math
from typing import Any

from scipy import stats
from torch import Tensor


def previous(A: Tensor, rows: list[int], text: Any) -> float:
    return sum(float(A[t, t - 1]) for t in rows) / len(rows)


def duplicate(A: Tensor, rows: list[int], text: Any) -> float:
    found = []
    for t in rows:
        same = [s for s in range(t) if text.tokens[s] == text.tokens[t]]
        if same:
            found.append(sum(float(A[t, s]) for s in same))
    return sum(found) / len(found)


def to_copies(A: Tensor, text: Any, shift: int) -> float:
    begin, block = text.start, text.block
    length = len(text.tokens) - begin
    found = []
    for i in range(block, length):
        earlier = [i - m * block for m in range(1, length) if i - m * block >= 0]
        found.append(sum(float(A[begin + i, begin + s + shift]) for s in earlier))
    return sum(found) / len(found)


def induction(A: Tensor, rows: list[int], text: Any) -> float:
    return to_copies(A, text, 1)


def echo(A: Tensor, rows: list[int], text: Any) -> float:
    return to_copies(A, text, 0)


def span(A: Tensor, rows: list[int], text: Any) -> float:
    found = []
    for t in rows:
        mass = sum(float(A[t, s]) for s in range(1, t + 1))
        far = sum(float(A[t, s]) * (t - s) / t for s in range(1, t + 1))
        found.append(far / mass if mass > 0 else 0.0)
    return sum(found) / len(found)


def span_tokens(A: Tensor, rows: list[int], text: Any) -> float:
    return sum(float(A[t, s]) * (t - s) for t in rows for s in range(t + 1)) / len(rows)


def sink(A: Tensor, rows: list[int], text: Any) -> float:
    return sum(float(A[t, 0]) for t in rows) / len(rows)


def learned_sink(A: Tensor, rows: list[int], text: Any) -> float:
    return sum(1 - sum(float(a) for a in A[t]) for t in rows) / len(rows)


def entropy(A: Tensor, rows: list[int], text: Any) -> float:
    total = 0.0
    for t in rows:
        kept = [float(a) for a in A[t, : t + 1] if a > 0]
        total += -sum(a * math.log(a) for a in kept) / math.log(t + 1)
    return total / len(rows)


def receiver(A: Tensor, rows: list[int], text: Any) -> float:
    received: dict[int, list[float]] = {}
    for t in rows:
        far = [s for s in range(t + 1) if t - s >= text.min_distance and A[t, s] > 0]  # 0 outside a window.
        ranks = stats.rankdata([float(A[t, s]) for s in far]) if far else []
        for s, rank in zip(far, ranks, strict=True):
            received.setdefault(s, []).append(float(rank) / len(far))
    return float(stats.kurtosis([sum(values) / len(values) for values in received.values()]))


LOOPS = {
    one.__name__: one
    for one in (previous, duplicate, induction, echo, span, span_tokens, sink, learned_sink, entropy, receiver)
}
