"""Score files: the two published JSON forms.

"lists" (Wu et al.): `{"layer-head": [score of each successful trial, ...]}`.
"envelope" (LOCOS): `{"meta": {...}, "scores": {"layer-head": [...]}, "trial_ids": [...], "confidence_intervals":
{"layer-head": [low, high]}}`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch

from lens_heads.heads.head import Head, parse_heads
from lens_heads.heads.scores import HeadScores, Unit
from lens_heads.runs.store import write_atomic

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST = torch.finfo(torch.float32).max


def save(scores: HeadScores, path: str | Path, form: str = "envelope") -> Path:
    """Write one of the two forms; floats survive the round trip exactly. Returns the path."""
    path = Path(path)
    by_head = {head.key: scores.per_trial[:, head.layer, head.head].tolist() for head in scores.ranking()}
    lost = [name for name in ("best", "order") if scores.meta.get(name, "highest") != "highest"]
    if form == "lists" and lost:
        raise ValueError(
            f"{scores.method}: form 'lists' has no place for meta[{lost[0]!r}], and a reader would take other heads for the "
            "best: use form='envelope'"
        )
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
            head.key: [_json(low[head.layer, head.head]), _json(high[head.layer, head.head])]
            for head in scores.ranking()
        },
    }
    write_atomic(path, json.dumps(envelope))
    return path


def _json(bound: Tensor) -> float | None:
    """JSON has no NaN: the interval of a single trial is null."""
    return None if bound.isnan() else float(bound)


def load(path: str | Path, method: str | None = None) -> HeadScores:
    """Read either form. `method` names the scores of a file that does not (default: "copy", the published files' method).

    Raises ValueError naming the file and the head or field for truncated JSON, a score that is no finite number, ragged
    lists, missing heads and a wrong meta, shape, unit or trial_ids; FileNotFoundError when there is no file.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give a score file in it, e.g. {path / 'locos.json'}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not complete JSON ({error}): it was cut off or is no score file") from None
    if not isinstance(found, dict) or not found:
        raise ValueError(f'{path} is no score file: a JSON object {{"layer-head": [scores]}} was expected')
    envelope = "scores" in found
    meta = _read_meta(path, found.get("meta")) if envelope else {}
    by_head = _read_heads(path, found["scores"] if envelope else found)
    per_trial = _stack(path, by_head, meta.pop("shape", None))
    ids = found.get("trial_ids") if envelope else None
    if ids is None:
        ids = range(len(per_trial))
    elif not isinstance(ids, list):
        raise _wrong(path, "trial_ids", ids, "a list with one id per trial")
    if len(ids) != len(per_trial):
        raise ValueError(f"{path}: {len(ids)} trial_ids but {len(per_trial)} scores per head")
    name = method or meta.get("method") or "copy"
    meta.setdefault("source", path.name)
    unit = meta.pop("unit", "query_head")
    return HeadScores.from_trials(name, per_trial, [str(i) for i in ids], meta, unit)


def load_heads(path: str | Path) -> list[Head]:
    """A list of heads from a file, in its order: "17-24, 20-25" or a head a line, or a JSON list of such heads or of pairs.

    Published lists of chosen heads (QRHead's, for one) are written so; `parse_heads` reads the same from a string. Raises
    ValueError naming the file and what is no head, FileNotFoundError when there is no file.
    """
    path = Path(path)
    text = path.read_text(encoding="utf-8").strip()
    try:
        found = [Head.parse(head) for head in json.loads(text)] if text.startswith("[") else parse_heads(text)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not found:
        raise ValueError(f"{path} lists no heads: write them as layer-head, e.g. 17-24, 20-25")
    return found


def _wrong(path: Path, field: str, value: Any, wanted: str) -> ValueError:
    return ValueError(f"{path}: {field} is {value!r}: {wanted} was expected; correct it or leave it out")


def _read_meta(path: Path, meta: Any) -> dict[str, Any]:
    """The meta with every field that is read from it checked; missing fields stay missing."""
    if meta is None:
        return {}
    if not isinstance(meta, dict):
        raise _wrong(path, "meta", meta, "an object")
    shape, units = meta.get("shape"), get_args(Unit)
    numbers = isinstance(shape, list) and len(shape) == 2 and all(type(n) is int and n > 0 for n in shape)
    if shape is not None and not numbers:
        raise _wrong(path, "meta.shape", shape, "[layers, heads]")
    if "unit" in meta and meta["unit"] not in units:
        raise _wrong(path, "meta.unit", meta["unit"], " or ".join(units))
    if meta.get("best", "highest") not in ("highest", "lowest"):
        raise _wrong(path, "meta.best", meta["best"], "highest or lowest")
    if not isinstance(meta.get("method", ""), str):
        raise _wrong(path, "meta.method", meta["method"], "a name")
    return dict(meta)


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
    every = (Head(layer, index) for layer in range(layers) for index in range(heads))
    missing = next((head for head in every if head not in by_head), None)  # Before a huge shape is allocated.
    if missing is not None:
        raise ValueError(f"{path}: head {missing} is missing from a file of {layers} layers x {heads} heads")
    stacked = torch.zeros(trials, layers, heads)
    for head, values in by_head.items():
        if len(values) != trials:
            raise ValueError(f"{path}: head {head} has {len(values)} trials, others have {trials}")
        stacked[:, head.layer, head.head] = torch.tensor(values)
    return stacked
