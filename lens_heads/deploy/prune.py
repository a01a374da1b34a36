"""prune: write a checkpoint without some heads, which any loader of the model's own kind reads."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.head import AnyHeads, Head
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import by_layer
from lens_heads.heads.units import query_heads, to_kv_heads
from lens_heads.model.copies import Packed, copied, packed, set_output_weights
from lens_heads.model.geometry import HeadGeometry, Model, geometry, is_bridge, output_weights
from lens_heads.model.hooks import has_hooks
from lens_heads.runs import checks
from lens_heads.runs.files import naming, path_of

How = Literal["zero", "remove"]
QUERIES, KEYS, OUT = ("q_proj",), ("k_proj", "v_proj"), "o_proj"


@dataclass(frozen=True)
class Pruned:
    """What was written: the folder, the heads that are gone, and the size of all weights before and after, in bytes."""

    path: Path
    heads: tuple[Head, ...]
    how: How
    parameters: tuple[int, int]
    bytes: tuple[int, int]


def prune(model: Model, heads: AnyHeads, path: str | Path, how: How = "zero") -> Pruned:
    """Save the model without some heads, as a folder that `load_model` and transformers read.

    Args:
        heads: query heads, as in `ablate`. Of kv heads, `units.query_heads(kv_heads, group)`.
        path: a folder that does not exist yet, or is empty.
        how: "zero" sets the heads' rows of W_O to zero: any heads, nothing gets smaller. "remove" takes whole groups, a kv head
            with all query heads that read it, out of the weights and the configuration: the checkpoint is smaller and faster.
            Since a configuration has one number of heads, every layer has to lose equally many groups.

    Logits equal those of `ablate(model, heads, "zero")` up to rounding. The model itself does not change.

    Raises ValueError for a head that does not exist, a folder that is not empty, a group of which some query heads are to
    stay, other numbers of groups per layer, and models whose projections are not apart (q_proj, k_proj, v_proj, o_proj);
    OSError if the folder cannot be written.
    """
    shape, folder = geometry(model), path_of(path, "path")
    if how not in get_args(How):
        raise ValueError(f"how={how!r}: use 'zero' (any heads) or 'remove' (whole groups of a kv head)")
    if not is_bridge(model):
        raise ValueError(
            "prune needs the Hugging Face model inside a TransformerBridge: load it with lens_heads.load_model(name)"
        )
    if has_hooks(model):
        raise ValueError(f"{shape.name} has hooks attached (an ablation?), which no checkpoint has: remove them first")
    chosen = tuple(dict.fromkeys(shape.check_heads(heads)))
    kept = _kept(shape, chosen) if how == "remove" else {}
    with naming(folder, "written"):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder} exists already: choose another folder for the pruned model")
    parts = packed(_without_output(model, chosen) if how == "zero" else model)
    fresh = _plain(parts, shape, kept)
    with naming(folder, "written"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".pruning-") as held:
            whole = Path(held) / "model"
            fresh.save_pretrained(whole)
            parts.tokenizer.save_pretrained(whole)
            os.replace(whole, folder)  # Complete or absent, also if it is interrupted.
    with torch.device("meta"):
        unpruned = parts.kind(parts.config)
    before, after = (sum(each.numel() for each in one.parameters()) for one in (unpruned, fresh))
    size = fresh.dtype.itemsize
    return Pruned(folder, chosen, how, (before, after), (size * before, size * after))


def _plain(parts: Packed, shape: HeadGeometry, kept: dict[int, list[int]]) -> Any:
    """The Hugging Face model, with these kv heads of each layer, or all."""
    weights = {name: tensor for names, tensor in parts.weights for name in names}
    config = copy.deepcopy(parts.config)
    config.architectures = config.architectures or [parts.kind.__name__]
    if kept:
        _check_projections(weights, shape)
        config.head_dim = shape.d_head
        config.num_key_value_heads = len(kept[0])
        config.num_attention_heads = len(kept[0]) * shape.group
        weights = {name: _sliced(name, tensor, shape, kept) for name, tensor in weights.items()}
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        fresh = parts.kind(config).to(parts.dtype).eval()
    fresh.load_state_dict({name: weights[name] for name in fresh.state_dict()})
    return fresh


def lowest_groups(scores: HeadScores, shape: HeadGeometry, k: int) -> list[Head]:
    """All query heads of the k lowest kv heads of every layer, for how="remove".

    Scores of query heads count for the kv head that they read, by the best of its group. Of kv heads that tie, the last of the
    ranking go first. ValueError for scores of another model, and a k that leaves no kv head.
    """
    checks.whole_number(
        "k", k, 1, shape.n_kv_heads - 1, f": each of the {shape.n_kv_heads} kv heads of a layer but one"
    )
    by_kv = to_kv_heads(scores, shape.group) if scores.unit == "query_head" else scores
    if tuple(by_kv.values.shape) != (shape.n_layers, shape.n_kv_heads):
        raise ValueError(f"{scores.method} scores another model than {shape.name}: score this one")
    lowest: dict[int, list[Head]] = {layer: [] for layer in range(shape.n_layers)}
    for head in reversed(
        by_kv.ranking()
    ):  # Not by score: where kv heads tie, those that a threshold keeps first go last.
        lowest[head.layer].append(head)
    return query_heads([head for heads in lowest.values() for head in heads[:k]], shape.group)


def _kept(shape: HeadGeometry, chosen: Sequence[Head]) -> dict[int, list[int]]:
    """The kv heads that stay in each layer. ValueError for groups in part, and other numbers per layer."""
    gone = by_layer(chosen)
    kept: dict[int, list[int]] = {}
    for layer in range(shape.n_layers):
        here = set(gone.get(layer, ()))
        for kv in range(shape.n_kv_heads):
            group = range(kv * shape.group, (kv + 1) * shape.group)
            rest = [Head(layer, head) for head in group if head not in here]
            if rest and len(rest) < shape.group:
                needing = ", ".join(map(str, rest))
                raise ValueError(
                    f"kv head {kv} of layer {layer} cannot be removed: {needing} still need it. Prune these too, or use "
                    "how='zero'"
                )
            if rest:
                kept.setdefault(layer, []).append(kv)
    numbers = {layer: len(kept.get(layer, ())) for layer in range(shape.n_layers)}
    if len(set(numbers.values())) > 1 or not min(numbers.values()):
        few, many = min(numbers, key=numbers.__getitem__), max(numbers, key=numbers.__getitem__)
        raise ValueError(
            f"layer {few} would keep {numbers[few]} of {shape.n_kv_heads} kv heads and layer {many} {numbers[many]}: a "
            "configuration has one number for all layers, at least 1. Remove equally many in each layer, or use how='zero'"
        )
    return kept


def _parts_of(name: str) -> tuple[int, str, str] | None:
    """Layer, projection and "weight" or "bias" of a tensor of attention, by its name; None for any other."""
    words = name.split(".")
    if len(words) < 3 or words[-2] not in (*QUERIES, *KEYS, OUT):
        return None
    layer = next((int(word) for word in words if word.isdigit()), None)
    return None if layer is None else (layer, words[-2], words[-1])


def _check_projections(weights: dict[str, Tensor], shape: HeadGeometry) -> None:
    """ValueError for weights that cannot be taken apart by kv head."""
    found = {part[:2] for name in weights if (part := _parts_of(name))}
    missing = [name for name in (*QUERIES, *KEYS, OUT) if (0, name) not in found]
    if missing:
        raise ValueError(f"{shape.name} has no {missing[0]} of its own, so no kv head can be taken out: use how='zero'")
    whole = next((name for name, each in weights.items() if "q_norm" in name and each.numel() > shape.d_head), None)
    if whole is not None:
        raise ValueError(
            f"{shape.name} normalizes all heads of a layer together ({whole}), so none can be taken out: use how='zero'"
        )


def _sliced(name: str, tensor: Tensor, shape: HeadGeometry, kept: dict[int, list[int]]) -> Tensor:
    """A tensor without the rows, or, of the output, the columns of the kv groups that go."""
    part = _parts_of(name)
    if part is None:
        return tensor
    layer, projection, kind = part
    if projection == OUT:
        return tensor if kind == "bias" else _blocks(tensor.T, shape.n_kv_heads, kept[layer]).T.contiguous()
    return _blocks(tensor, shape.n_kv_heads, kept[layer])


def _blocks(tensor: Float[Tensor, "rows ..."], number: int, kept: list[int]) -> Tensor:
    """Some of so many equal blocks of rows."""
    return tensor.reshape(number, -1, *tensor.shape[1:])[kept].flatten(0, 1)


def _without_output(model: Model, chosen: Sequence[Head]) -> Model:
    """A copy whose W_O has zeros for these heads."""
    fresh = copied(model, geometry(model).name)
    for layer, indices in by_layer(chosen).items():
        W_O = output_weights(fresh, layer).clone()
        W_O[indices] = 0
        set_output_weights(fresh, layer, W_O)
    return fresh
