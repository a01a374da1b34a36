"""Published gates: the tables of alpha by layer and kv head that DuoAttention's training writes."""

from __future__ import annotations

from pathlib import Path

import torch

from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.runs import checks
from lens_heads.runs.files import write_atomic
from lens_heads.runs.reading import read_text, user_path

SLACK = 0.01
"""How far outside 0 to 1 a gate may lie: the published tables have some up to 0.0015 below 0, from the optimizer's last step."""


def read_gates(path: str | Path, model: str = "") -> HeadScores:
    """Gates of kv heads from a table of numbers, a line per layer, separated by tabs or spaces (full_attention_heads.tsv).

    Clipped to 0 to 1, as the authors' loader does. A gate near 1 keeps the whole cache of its head, one near 0 only the sink and
    the recent tokens. HeadScores of method "duo_gate", unit "kv_head", from one "trial", the training; `units.to_query_heads`
    converts them to scores of query heads, to compare.

    Raises ValueError naming the file and line for anything but numbers from 0 to 1 (and what training leaves beyond) and lines
    of one length, FileNotFoundError if there is no file.
    """
    path = user_path(path, "path")
    rows: list[list[float]] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = [float(entry) for entry in line.split()]
        except ValueError:
            raise ValueError(f"{path}, line {number}: {line.strip()!r:.60} is not a line of numbers") from None
        if not all(-SLACK <= gate <= 1 + SLACK for gate in row):
            raise ValueError(f"{path}, line {number}: gates lie between 0 and 1: {line.strip()!r:.60}")
        if rows and len(row) != len(rows[0]):
            raise ValueError(f"{path}, line {number}: {len(row)} gates, but the first line has {len(rows[0])}")
        rows.append(row)
    if not rows:
        raise ValueError(f"{path} has no gates: write a line of numbers per layer")
    meta = {"file": path.name, "source": "DuoAttention, arXiv 2410.10819"} | ({"model": model} if model else {})
    return HeadScores.from_trials(
        "duo_gate", torch.tensor([rows]).clamp(0, 1), ["training"], meta, unit="kv_head", signed=False
    )


def open_gates(scores: HeadScores, threshold: float = 0.5) -> list[Head]:
    """The heads whose gate is above a threshold, the most open first: those that keep the whole context.

    ValueError for a threshold that no share can be.
    """
    limit = checks.finite("threshold", threshold, 0, 1)
    return [head for head in scores.ranking() if scores[head] > limit]


def gate_threshold(scores: HeadScores, share: float) -> float:
    """The threshold above which this share of all heads lies, by linear interpolation: DuoAttention's quantile of its gates.

    Gates that tie at the threshold are not above it, so that fewer heads may be. ValueError for a share outside 0 to 1.
    """
    kept = checks.finite("share", share, 0, 1)
    return float(torch.quantile(scores.values.double().flatten(), 1 - kept))


def write_gates(scores: HeadScores, path: str | Path) -> Path:
    """Write gates of kv heads in that form: a line per layer, separated by tabs, each the shortest text of its float32.

    ValueError for scores of another unit or outside 0 to 1, OSError naming the file if it cannot be written.
    """
    if scores.unit != "kv_head" or bool((scores.values < 0).any()) or bool((scores.values > 1).any()):
        raise ValueError(
            f"{scores.method}: gates are scores of kv heads from 0 to 1, but these are of {scores.unit}s, "
            f"{float(scores.values.min()):g} to {float(scores.values.max()):g}: use units.to_kv_heads, or scores.save"
        )
    file = user_path(path, "path")
    lines = ("\t".join(str(gate) for gate in row) for row in scores.values.numpy())
    write_atomic(file, "".join(f"{line}\n" for line in lines))
    return file
