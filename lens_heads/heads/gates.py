"""Published gates: the tables of alpha by layer and kv head that DuoAttention's training writes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.runs import checks
from lens_heads.runs.files import write_atomic
from lens_heads.runs.reading import read_text, user_path, written_number
from lens_heads.runs.typed import typed

SLACK = 0.01
"""How far outside 0 to 1 a gate may lie: the published tables have some up to 0.0015 below 0, from the optimizer's last step."""
_STEP = 2.0**-23
"""The step of float32 above 1."""


@typed
def read_gates(path: str | Path, *, model: str = "") -> HeadScores:
    """Gates of kv heads from a table of numbers, a line per layer, separated by tabs or spaces (full_attention_heads.tsv).

    Clipped to 0 to 1, as the authors' loader does. A gate near 1 keeps the whole cache of its head, one near 0 only the sink and
    the recent tokens. HeadScores of method "duo_gate", unit "kv_head", from one "trial", the training; `units.to_query_heads`
    converts them to scores of query heads, to compare.

    Raises ValueError naming the file and line for anything but numbers from 0 to 1 (and what training leaves beyond) and lines
    of one length, FileNotFoundError if there is no file.

    `path`: the file. `model`: whose gates they are, by which their number is checked.

    Example:
        >>> _ = Path("gates.tsv").write_text("0.5 0.0" + chr(10) + "0.0 1.0")
        >>> gates = lh.read_gates("gates.tsv")
        >>> [str(head) for head in gates.top(2)]
        ['L1K1', 'L0K0']
    """
    path = user_path(path, "path")
    rows: list[list[float]] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = [written_number(entry) for entry in line.split()]
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number}: {line.strip()!r:.60} is not a line of numbers ({error}): write a gate per kv head, "
                "separated by tabs"
            ) from None
        if not all(-SLACK <= gate <= 1 + SLACK for gate in row):
            raise ValueError(
                f"{path}, line {number}: gates lie between 0 and 1: {line.strip()!r:.60}; a table of other scores is read by "
                "HeadScores.load"
            )
        if rows and len(row) != len(rows[0]):
            raise ValueError(
                f"{path}, line {number}: {len(row)} gates, but the first line has {len(rows[0])}: write as many in every line"
            )
        rows.append(row)
    if len(rows) > 1 and len(rows[0]) > 1 and rows[0] == [float(at) for at in range(len(rows[0]))]:
        raise ValueError(f"{path}: its first line counts the columns: write the table without a header")
    if not rows:
        raise ValueError(f"{path} has no gates: write a line of numbers per layer")
    meta = {"file": path.name, "source": "DuoAttention, arXiv 2410.10819"} | ({"model": model} if model else {})
    return HeadScores.from_trials(
        "duo_gate", torch.tensor([rows]).clamp(0, 1), ["training"], meta=meta, unit="kv_head", signed=False
    )


@typed
def open_gates(scores: HeadScores, *, threshold: float | None = None) -> list[Head]:
    """The heads whose gate is at or above a threshold, the most open first: those that keep the whole context.

    With `gate_threshold(scores, share)` they are that share of all heads, also where gates tie: see there.
    ValueError for a threshold that no share can be, and for scores that are no gates without one.

    `scores`: the gates. `threshold`: 0.5 by default.

    Example:
        >>> gates = lh.HeadScores("gates", torch.tensor([[0.9, 0.1], [0.2, 1.0]]), torch.ones(1, 2, 2), ("all",))
        >>> lh.heads.open_gates(gates, threshold=0.5)
        [Head(1, 1), Head(0, 0)]
    """
    low, high = scores.values.aminmax()
    if threshold is None and not 0 <= low <= high <= 1:
        raise ValueError(
            f"{scores.method} has scores from {low:.3g} to {high:.3g}, and gates lie between 0 and 1: use .top(k), or "
            "threshold=heads.gate_threshold(scores, share=...)"
        )
    limit = checks.finite("threshold", 0.5 if threshold is None else threshold, 0, 1 + _STEP)
    apart = _apart(scores)
    return [head for head in scores.ranking() if apart[head.layer, head.head] >= limit]


@typed
def gate_threshold(scores: HeadScores, *, share: float) -> float:
    """The threshold at or above which this share of all heads lies: DuoAttention's `sparsify_attention_heads`.

    The quantile 1 - share of the gates, by linear interpolation, so that `share_count` heads reach it; no head does at share 0,
    and all do at 1. Most published gates are exactly 0 or 1, and the threshold falls among equal ones. The authors add noise of
    up to 1e-6, so that another half of them is kept on every call; here those earlier in the ranking (by layer, then head) are
    kept, told apart by less than float32 resolves. ValueError for a share outside 0 to 1.

    `scores`: the gates. `share`: of all heads.

    Example:
        >>> threshold = lh.heads.gate_threshold(scores, share=0.25)
        >>> lh.heads.open_gates(scores, threshold=threshold) == scores.top(2)
        True
    """
    kept = checks.finite("share", share, 0, 1)
    if kept == 1:
        return float(scores.values.min())
    apart = _apart(scores)
    return float(np.quantile(apart, _rounded(1 - kept))) if kept else float(np.nextafter(apart.max(), np.inf))


def share_count(n: int, share: float) -> int:
    """How many of n heads keep everything at a share of them, from above 0 to 1, as `gate_threshold` counts: at least one."""
    return n - math.ceil(_rounded((n - 1) * (1 - share)))


def _rounded(number: float) -> float:
    """Without what 1 - share leaves beyond it in binary: 1 - 0.7 is a little more than 0.3, which costs a head."""
    return round(number, 9)


def _apart(scores: HeadScores) -> Float[np.ndarray, "layer head"]:
    """Gates in float64, those that tie set apart in the order of the ranking, by less than a step of float32.

    All lie half a step higher, so that a gate written as 0.9 reaches a threshold of 0.9, which float32 rounds down.
    """
    values, ranked = scores.values.numpy(), scores.ranking()
    rank = np.empty(values.shape)
    for at, head in enumerate(ranked):
        rank[head.layer, head.head] = at
    return values + np.abs(np.spacing(values)).astype(float) * (0.75 - rank / len(ranked) / 4)


@typed
def write_gates(scores: HeadScores, path: str | Path) -> Path:
    """Write gates of kv heads in that form: a line per layer, separated by tabs, each the shortest text of its float32.

    ValueError for scores of another unit or outside 0 to 1, OSError naming the file if it cannot be written.

    `path`: the file, which is replaced.

    Example:
        >>> gates = lh.HeadScores("gates", torch.tensor([[0.5, 0.0], [0.0, 1.0]]), torch.ones(1, 2, 2), ("all",), unit="kv_head")
        >>> lh.write_gates(gates, "gates.tsv").read_text().split()
        ['0.5', '0.0', '0.0', '1.0']
    """
    if scores.unit != "kv_head" or bool((scores.values < 0).any()) or bool((scores.values > 1).any()):
        raise ValueError(
            f"{scores.method}: gates are scores of kv heads from 0 to 1, but these are of {scores.unit}s, "
            f"{float(scores.values.min()):g} to {float(scores.values.max()):g}: use units.to_kv_heads, or scores.save"
        )
    if scores.best == "lowest":
        raise ValueError(
            f"{scores.method}: its lowest scores are best, which a table of gates does not say: units.highest_first"
        )
    file = user_path(path, "path")
    lines = ("\t".join(str(gate) for gate in row) for row in scores.values.numpy())
    write_atomic(file, "".join(f"{line}\n" for line in lines))
    return file
