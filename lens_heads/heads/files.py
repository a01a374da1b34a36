"""Score files: the two published JSON forms.

"lists" (Wu et al.): `{"layer-head": [score of each successful trial, ...]}`, layer by layer: HeadKV's loader takes the n-th
list for that of the n-th head, whatever its key says.
"envelope" (LOCOS): `{"meta": {...}, "scores": {"layer-head": [...]}, "trial_ids": [...], "confidence_intervals":
{"layer-head": [low, high]}}`. A null is a further field of it: `{"draws": S, "float32": "..."}`, the base64 text of the
little-endian floats [draw, layer, head].
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.head import Head, split_heads
from lens_heads.heads.sets import every_head
from lens_heads.runs import checks
from lens_heads.runs.fields import wrong
from lens_heads.runs.files import write_atomic
from lens_heads.runs.reading import parse_json, read_json, read_text, user_path
from lens_heads.runs.typed import typed

_LARGEST = torch.finfo(torch.float32).max
_HEAD_SET = re.compile(r"^attn_head_set\s*:", re.MULTILINE)
_CHOICES = {"unit": ("query_head", "kv_head"), "best": ("highest", "lowest")}
"""Fields of `meta` with a fixed set of values."""
_TEXTS = ("method", "model", "weights", "dtype", "changed", "score_unit")
_FLAGS = ("selected", "signed")
_LISTS = {"order": (str, "a list of heads"), "made_on": (dict, "a list of objects")}
"""Fields of `meta` that must be lists: the type of the items, and how errors describe the list."""


@dataclass(frozen=True, eq=False)
class ScoreFile:
    """The content of a score file."""

    per_trial: Float[Tensor, "trial layer head"]
    trial_ids: tuple[str, ...]
    meta: dict[str, Any]
    null: Float[Tensor, "draw layer head"] | None = None


def write_lists(path: str | Path, per_trial: Float[Tensor, "trial layer head"]) -> Path:
    """Write the "lists" form, layer by layer. Returns the path."""
    write_atomic(Path(path), json.dumps(_by_head(every_head(*per_trial.shape[1:]), per_trial)))
    return Path(path)


def write_envelope(
    path: str | Path,
    ranking: Sequence[Head],
    per_trial: Float[Tensor, "trial layer head"],
    trial_ids: Sequence[str],
    meta: dict[str, Any],
    interval: tuple[Float[Tensor, "layer head"], Float[Tensor, "layer head"]],
    null: Float[Tensor, "draw layer head"] | None = None,
) -> Path:
    """Write the "envelope" form, best head first; a missing bound (NaN, which JSON lacks) is null. Returns the path."""
    bounds = _by_head(ranking, torch.stack(interval))
    envelope = {
        "meta": meta,
        "scores": _by_head(ranking, per_trial),
        "trial_ids": list(trial_ids),
        "confidence_intervals": {key: [None if math.isnan(x) else x for x in pair] for key, pair in bounds.items()},
    }
    if null is not None:
        floats = np.ascontiguousarray(null.numpy(), dtype="<f4").tobytes()
        envelope["null"] = {"draws": len(null), "float32": base64.b64encode(floats).decode()}
    write_atomic(Path(path), json.dumps(envelope))
    return Path(path)


def _by_head(heads: Sequence[Head], values: Float[Tensor, "row layer head"]) -> dict[str, list[float]]:
    return {head.key: values[:, head.layer, head.head].tolist() for head in heads}


_OTHER_READERS = {
    ".tsv": "gates are read by lh.read_gates",
    ".pt": "vectors are read by HeadVectors.load",
    ".safetensors": "vectors are read by HeadVectors.load",
    ".csv": "put the values of a table into lh.HeadScores(method, values, per_trial, trial_ids)",
    ".parquet": "put the values of a table into lh.HeadScores(method, values, per_trial, trial_ids)",
}


def read_scores(path: str | Path) -> ScoreFile:
    """Read either form; the errors are those of `HeadScores.load`."""
    path = user_path(path, "path")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: pass a score file in it, e.g. {path / 'locos.json'}")
    if path.suffix in _OTHER_READERS:
        raise ValueError(f"{path} is no score file, which is .json: {_OTHER_READERS[path.suffix]}")
    found = read_json(path, loose=True)  # Python writes NaN, which the scores are checked for.
    if isinstance(found, list):
        raise ValueError(f"{path} holds a list, not scores: a list of heads is read by lh.load_heads")
    if not isinstance(found, dict) or not found:
        raise ValueError(f'{path} is not a score file: expected a JSON object {{"layer-head": [scores]}}')
    envelope = "scores" in found
    meta = _read_meta(path, found.get("meta")) if envelope else {}
    shape, values = meta.pop("shape", None), meta.get("values")
    there = _listed_heads(path, meta.pop("heads", None))
    per_trial = _stack(path, _read_heads(path, found["scores"] if envelope else found), shape, there)
    ids = found.get("trial_ids") if envelope else None
    if ids is None:
        ids = range(len(per_trial))
    elif not isinstance(ids, list):
        raise wrong(path, "trial_ids", ids, "a list with one id per trial")
    if not all(isinstance(i, str) or checks.whole(i) is not None for i in ids):
        raise wrong(path, "trial_ids", list(ids), "strings or integers")
    if len(ids) != len(per_trial):
        raise ValueError(
            f"{path}: {len(ids)} trial_ids but {len(per_trial)} scores per head: give one id per score, or omit trial_ids"
        )
    if isinstance(values, list) and all(isinstance(row, list) for row in values):
        values = meta["values"] = [[math.nan if value is None else value for value in row] for row in values]
    if values is not None and _shape(values) != tuple(per_trial.shape[1:]):
        raise wrong(path, "meta.values", values, "one number per layer and head")
    meta.setdefault("source", path.name)
    null = _read_null(path, found["null"], per_trial[0]) if envelope and "null" in found else None
    return ScoreFile(per_trial, tuple(str(i) for i in ids), meta, null)


def _read_null(path: Path, stored: Any, like: Float[Tensor, "layer head"]) -> Float[Tensor, "draw layer head"]:
    try:
        floats = np.frombuffer(base64.b64decode(stored["float32"], validate=True), dtype="<f4")
        null = torch.from_numpy(floats.astype(np.float32)).reshape(
            checks.whole_number("draws", stored["draws"]), *like.shape
        )
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path}: the null cannot be read ({error}): delete the field, or score again") from None
    if not null[:, ~like.isnan()].isfinite().all():
        raise ValueError(f"{path}: the null contains values that are not finite: delete the field, or score again")
    return null


def _shape(values: Any) -> tuple[int, ...] | None:
    """The shape of nested lists of numbers; None if they are ragged or contain anything else."""
    try:
        return tuple(torch.tensor(values, dtype=torch.float32).shape)
    except (ValueError, TypeError):
        return None


@typed
def load_heads(path: str | Path) -> list[Head]:
    """The heads listed in a file, in its order: "17-24, 20-25", one head per line, or a JSON list of heads or pairs.

    Published lists of selected heads have these forms; QRHead's configurations (YAML) have the list as their
    `attn_head_set`. `parse_heads` reads a string. Raises ValueError naming the file and the entry that is not a head or is
    listed twice, and for "full_heads", which is every head of a model; FileNotFoundError if there is no file.

    `path`: the file.

    Example:
        >>> _ = Path("heads.txt").write_text("17-24, 20-25")
        >>> lh.load_heads("heads.txt")
        [Head(17, 24), Head(20, 25)]
    """
    path = user_path(path, "path")
    text = read_text(path).strip()
    if text.startswith("{"):
        raise ValueError(
            f"{path} is an object, such as saved scores, and no list of heads: use HeadScores.load(path).top(k)"
        )
    listed = parse_json(text, str(path)) if text.startswith("[") else None
    if _HEAD_SET.search(text):
        listed = _head_set(path, text)
    try:
        found = [Head.parse(head) for head in (split_heads(text) if listed is None else listed)]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not found:
        raise ValueError(f"{path} contains no heads: write them as layer-head, e.g. 17-24, 20-25")
    if twice := [head for head, times in Counter(found).items() if times > 1]:
        raise ValueError(f"{path}: head {twice[0]} is listed twice: keep one")
    return found


def _head_set(path: Path, text: str) -> list[Any]:
    """The heads of QRHead's YAML form: a string of them, or a list."""
    import yaml

    try:
        known = yaml.load(text, yaml.BaseLoader)  # This loader makes texts of everything, and nothing else.
        found = known["attn_head_set"]
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: the YAML cannot be read ({' '.join(str(error).split())})") from None
    if found == "full_heads":
        raise ValueError(f'{path}: attn_head_set is "full_heads", every head of a model, and no list: choose some')
    if isinstance(found, str):
        return split_heads(found)
    return ["-".join(head) if isinstance(head, list) and all(type(n) is str for n in head) else head for head in found]


def _read_meta(path: Path, meta: Any) -> dict[str, Any]:
    """A copy of the meta, with every field that is read later checked; missing fields stay missing."""
    if meta is None:
        return {}
    if not isinstance(meta, dict):
        raise wrong(path, "meta", meta, "an object")
    shape = meta.get("shape")
    numbers = isinstance(shape, list) and len(shape) == 2 and all(type(n) is int and n > 0 for n in shape)
    if shape is not None and not numbers:
        raise wrong(path, "meta.shape", shape, "[layers, heads]")
    for name, known in _CHOICES.items():
        if name in meta and meta[name] not in known:
            raise wrong(path, f"meta.{name}", meta[name], " or ".join(known))
    for name in _TEXTS:
        if not isinstance(meta.get(name, ""), str):
            raise wrong(path, f"meta.{name}", meta[name], "a string")
    for name in _FLAGS:
        if not isinstance(meta.get(name), bool | None):
            raise wrong(path, f"meta.{name}", meta[name], "true or false")
    count = meta.get("evaluations", 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise wrong(path, "meta.evaluations", count, "a count")
    base = meta.get("base", 0.0)
    if not isinstance(base, int | float) or isinstance(base, bool) or not abs(base) <= _LARGEST:
        raise wrong(path, "meta.base", base, "a finite number")
    for name in ("fit", "outcomes", "settings"):
        if not isinstance(meta.get(name, {}), dict):
            raise wrong(path, f"meta.{name}", meta[name], "an object")
    for name, (kind, wanted) in _LISTS.items():
        listed = meta.get(name, [])
        if not isinstance(listed, list) or not all(isinstance(item, kind) for item in listed):
            raise wrong(path, f"meta.{name}", listed, wanted)
    for i, one in enumerate(meta.get("made_on", [])):
        field = next((name for name in one if not _is_texts(one[name], name == "group")), None)
        if field is not None:
            wanted = "a string, or a list of them" if field == "group" else "a string"
            raise wrong(path, f"meta.made_on[{i}].{field}", one[field], wanted)
    return dict(meta)


def _is_texts(value: Any, several: bool) -> bool:
    """Whether a value is a string, or, with `several`, a list of strings."""
    listed = value if several and isinstance(value, list) else [value]
    return all(isinstance(one, str) for one in listed)


def _read_heads(path: Path, scores: Any) -> dict[Head, list[float]]:
    if not isinstance(scores, dict) or not scores:
        raise ValueError(f"{path}: 'scores' must be an object with \"layer-head\" keys")
    by_head: dict[Head, list[float]] = {}
    for key, values in scores.items():
        try:
            head = Head.parse(key)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if head in by_head:
            raise ValueError(f"{path}: head {head} is listed twice, the second time as {key!r}: keep one")
        values = values if isinstance(values, list) else [values]
        for trial, value in enumerate(values):
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
                raise ValueError(
                    f"{path}: head {head}, trial {trial}: {value!r} is not a finite number; rescore that trial or "
                    "remove it from every head"
                )
        by_head[head] = values
    return by_head


def _listed_heads(path: Path, listed: Any) -> set[Head] | None:
    """The heads that a model has which has not as many in each layer; None if the file does not list them."""
    if listed is None:
        return None
    if not isinstance(listed, list) or not listed:
        raise wrong(path, "meta.heads", listed, "a list of heads")
    try:
        return {replace(Head.parse(head), unit="query_head") for head in listed}
    except ValueError as error:
        raise ValueError(f"{path}: meta.heads: {error}") from None


def _stack(
    path: Path, by_head: dict[Head, list[float]], shape: list[int] | None, there: set[Head] | None = None
) -> Tensor:
    """[trial, layer, head]; every head must be present, all with the same number of trials. `there`: the heads that exist, if not
    all of the table do."""
    layers, heads = shape or (max(h.layer for h in by_head) + 1, max(h.head for h in by_head) + 1)
    beyond = [head for head in by_head if head.layer >= layers or head.head >= heads]
    if beyond:
        raise ValueError(
            f"{path}: head {beyond[0]} does not exist in a file of {layers} layers x {heads} heads: remove it, or correct "
            "meta.shape"
        )
    trials = len(next(iter(by_head.values())))
    if trials == 0:
        raise ValueError(f"{path}: the score lists are empty; no trial was successful: score easier trials")
    every = there or (Head(layer, index) for layer in range(layers) for index in range(heads))
    missing = next((head for head in every if head not in by_head), None)  # Before a huge shape is allocated.
    if missing is not None:
        raise ValueError(
            f"{path}: head {missing} is missing from a file of {layers} layers x {heads} heads: a score file has every head; "
            "score again"
        )
    ragged = next((head for head, values in by_head.items() if len(values) != trials), None)
    if ragged is not None:
        raise ValueError(
            f"{path}: head {ragged} has {len(by_head[ragged])} trials, but others have {trials}: every head has a score of every "
            "trial; score again"
        )
    stacked = torch.full((trials, layers, heads), torch.nan)
    stacked[:, [head.layer for head in by_head], [head.head for head in by_head]] = torch.tensor(
        list(by_head.values()), dtype=torch.float32
    ).T
    return stacked
