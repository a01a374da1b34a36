"""Score files: the two published JSON forms.

"lists" (Wu et al.): `{"layer-head": [score of each successful trial, ...]}`.
"envelope" (LOCOS): `{"meta": {...}, "scores": {"layer-head": [...]}, "trial_ids": [...], "confidence_intervals":
{"layer-head": [low, high]}}`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lens_heads.heads import Head, HeadScores
from lens_heads.store import write_atomic

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST = torch.finfo(torch.float32).max


def save(scores: HeadScores, path: str | Path, form: str = "envelope") -> Path:
    """Write one of the two forms; floats survive the round trip exactly. Returns the path."""
    path = Path(path)
    by_head = {head.key: scores.per_trial[:, head.layer, head.head].tolist() for head in scores.ranking()}
    if form == "lists":
        write_atomic(path, json.dumps(by_head))
        return path
    if form != "envelope":
        raise ValueError(f"form={form!r}: use 'envelope' (meta, scores, trial_ids, intervals) or 'lists' (Wu et al.)")
    low, high = scores.interval() if len(scores.per_trial) else (scores.values, scores.values)
    envelope = {
        "meta": {
            **scores.meta,
            "method": scores.method,
            "unit": scores.unit,
            "shape": [scores.n_layers, scores.n_heads],
        },
        "scores": by_head,
        "trial_ids": list(scores.trial_ids),
        "confidence_intervals": {
            head.key: [float(low[head.layer, head.head]), float(high[head.layer, head.head])]
            for head in scores.ranking()
        },
    }
    write_atomic(path, json.dumps(envelope))
    return path


def load(path: str | Path, method: str | None = None) -> HeadScores:
    """Read either form. `method` names the scores of a file that does not (default: "copy", the published files' method).

    Raises ValueError naming the file and the head for truncated JSON, a score that is no finite number, ragged lists and
    missing heads; FileNotFoundError when there is no file.
    """
    path = Path(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not complete JSON ({error}): it was cut off or is no score file") from None
    if not isinstance(found, dict) or not found:
        raise ValueError(f'{path} is no score file: a JSON object {{"layer-head": [scores]}} was expected')
    envelope = "scores" in found
    meta: dict[str, Any] = dict(found.get("meta") or {}) if envelope else {}
    by_head = _read_heads(path, found["scores"] if envelope else found)
    per_trial = _stack(path, by_head, meta.pop("shape", None))
    ids = [str(i) for i in found["trial_ids"]] if envelope and found.get("trial_ids") is not None else None
    if ids is not None and len(ids) != len(per_trial):
        raise ValueError(f"{path}: {len(ids)} trial_ids but {len(per_trial)} scores per head")
    name = method or meta.get("method") or "copy"
    meta.setdefault("source", path.name)
    unit = meta.pop("unit", "query_head")
    return HeadScores.from_trials(name, per_trial, ids or [str(i) for i in range(len(per_trial))], meta, unit)


def _read_heads(path: Path, scores: Any) -> dict[Head, list[float]]:
    if not isinstance(scores, dict) or not scores:
        raise ValueError(f"{path}: 'scores' must be an object of \"layer-head\" keys")
    by_head: dict[Head, list[float]] = {}
    for key, values in scores.items():
        try:
            head = Head.parse(key)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        values = values if isinstance(values, list) else [values]
        for trial, value in enumerate(values):
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
                raise ValueError(
                    f"{path}: head {head}, trial {trial}: {value!r} is not a finite number: score that trial again or "
                    "remove it from every head"
                )
        by_head[head] = values
    return by_head


def _stack(path: Path, by_head: dict[Head, list[float]], shape: list[int] | None) -> Tensor:
    """[trial, layer, head]; every head must be there with as many trials as the others."""
    layers, heads = shape or (max(h.layer for h in by_head) + 1, max(h.head for h in by_head) + 1)
    beyond = [head for head in by_head if head.layer >= layers or head.head >= heads]
    if beyond:
        raise ValueError(f"{path}: head {beyond[0]} does not exist in a file of {layers} layers x {heads} heads")
    trials = len(next(iter(by_head.values())))
    if trials == 0:
        raise ValueError(f"{path}: the score lists are empty: no trial was successful")
    stacked = torch.zeros(trials, layers, heads)
    for layer in range(layers):
        for index in range(heads):
            head = Head(layer, index)
            if head not in by_head:
                raise ValueError(f"{path}: head {head} is missing from a file of {layers} layers x {heads} heads")
            if len(by_head[head]) != trials:
                raise ValueError(f"{path}: head {head} has {len(by_head[head])} trials, others have {trials}")
            stacked[:, layer, index] = torch.tensor(by_head[head])
    return stacked
