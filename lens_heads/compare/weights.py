"""Heads compared by their weights: how alike two OV circuits are, and how much training changed a head."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model, head_geometry, output_weights, require_merged, require_raw_weights
from lens_heads.model.identity import identify
from lens_heads.model.support import require
from lens_heads.ranking.one_pass.weighing import value_weights
from lens_heads.runs import checks
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.typed import typed, typed_methods
from lens_heads.runs.warned import users_line

if TYPE_CHECKING:
    import plotly.graph_objects as go


@typed_methods
@dataclass(frozen=True, eq=False)
class Similarity(Drawn):
    """`values` [head, head]: the cosine of every two heads of `heads`; -1 to 1, 1 on the diagonal.

    Example:
        >>> found = lh.compare.ov_similarity(untrained, layer=0)
        >>> found.heads[0], round(found.values[0, 0].item(), 3)
        (Head(0, 0), 1.0)
    """

    heads: tuple[Head, ...]
    values: Float[Tensor, "head head"]

    @property
    def frame(self) -> pd.DataFrame:
        """One row per pair of different heads, most alike first: head, other, similarity, same_layer."""
        rows = [
            {"head": str(a), "other": str(b), "similarity": float(self.values[i, j]), "same_layer": a.layer == b.layer}
            for i, a in enumerate(self.heads)
            for j, b in enumerate(self.heads)
            if i < j
        ]
        columns = ["head", "other", "similarity", "same_layer"]
        return pd.DataFrame(rows, columns=columns).sort_values("similarity", ascending=False, ignore_index=True)

    def plot(self, *, title: str | None = None) -> go.Figure:
        """A map of all pairs."""
        from lens_heads import plots

        names = [str(head) for head in self.heads]
        return plots.similarity_map(names, self.values.numpy(), title=title or "Cosine of OV circuits")


@typed
def ov_similarity(model: Model, *, layer: int | None = None) -> Similarity:
    """Cosine of the OV matrices W_V W_O of every two heads (of one layer, or of all), under the trace inner product.

    <M, M'> = tr((W_V^T W_V') (W_O' W_O^T)), so no d_model x d_model matrix is formed. It does not depend on the basis of a
    head's values. Query heads of a group share W_V, which makes them more alike. RoPE keeps W_Q W_K^T from having such a form.
    Our reading of DHA's similarity, whose formula we could not verify. ValueError for processed weights, or a head whose
    OV circuit is zero.

    `model`: with raw weights.

    Cost: no pass; the weights of every two heads are multiplied.

    Example:
        >>> found = lh.compare.ov_similarity(untrained, layer=0)
        >>> round(found.values[1, 1].item(), 3), found.values[0, 1].item() < 1
        (1.0, True)
    """
    require_raw_weights(model)
    require_merged(model, "ov_similarity")
    shape = require(model, "ov_similarity", "writes")
    if layer is not None and checks.whole(layer) not in range(shape.n_layers):
        raise ValueError(f"layer={layer!r:.60}: {shape.name} has layers 0-{shape.n_layers - 1}")
    layers = range(shape.n_layers) if layer is None else [layer]
    heads = tuple(head for head in shape.every_head() if head.layer in layers)
    W_V = torch.cat([value_weights(model, at).cpu() for at in layers])
    W_O = torch.cat([output_weights(model, at).cpu() for at in layers])
    products = torch.empty(len(heads), len(heads))
    for i in range(len(heads)):  # One head against all, to bound memory.
        read = einsum(W_V[i], W_V, "d e, other d f -> other e f")
        written = einsum(W_O[i], W_O, "e d, other f d -> other e f")
        products[i] = einsum(read, written, "other e f, other e f -> other")
    norms = products.diagonal().clamp(min=0).sqrt()
    if not bool((norms > 0).all()):
        raise ValueError(
            f"{heads[int(norms.argmin())]} has an OV circuit of zero, which is like nothing: choose another layer"
        )
    return Similarity(heads, products / norms[:, None] / norms)


@typed
def weight_change(before: Model, after: Model) -> dict[str, HeadScores]:
    """How much training changed each head's weights: |W_after - W_before| / |W_before|, by matrix; 0 is no change.

    "W_Q" and "W_O" are of query heads, "W_K" and "W_V" of kv heads. This is not ALPS, which the compressed-sensing paper names:
    that depends on the arbitrary order of weights, and its code slices k and v by the query head's index. ValueError for models
    of different shapes, processed weights, and a matrix of zeros.

    `before`, `after`: two checkpoints.

    Example:
        >>> changed = lh.compare.weight_change(untrained, lh.sanity.shuffled_outputs(untrained))
        >>> changed["W_Q"].values.max().item(), changed["W_O"].values.min().item() > 0.1
        (0.0, True)
    """
    for model in (before, after):
        require_raw_weights(model)
        require_merged(model, "weight_change")
    shape, other = head_geometry(before), head_geometry(after)
    sizes = [(one.n_layers, one.n_heads, one.n_kv_heads, one.d_head, one.d_model) for one in (shape, other)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"{shape.name} and {other.name} have different shapes (layers, heads, kv heads, d_head, d_model): "
            f"{sizes[0]} and {sizes[1]}: compare checkpoints of one architecture"
        )
    one, two = identify(before), identify(after)
    if one.dtype != two.dtype:
        raise ValueError(
            f"weights of {one.dtype} and {two.dtype}, whose rounding would count as change: load both in one dtype"
        )
    if one.weights == two.weights:
        warnings.warn(f"{one} and {two} have the same weights, so that no head changed", stacklevel=users_line())
    found: dict[str, HeadScores] = {}
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        kv = name in ("W_K", "W_V")
        layers = [
            _change(name, layer, *(_weights(model, layer, name) for model in (before, after)))
            for layer in range(shape.n_layers)
        ]
        meta = {"before": shape.name, "after": other.name, "matrix": name}
        about: dict[str, Any] = {"unit": "kv_head" if kv else "query_head", "model": two, "signed": False}
        found[name] = HeadScores.from_trials(
            f"weight_change_{name}", torch.stack(layers)[None], ["weights"], meta=meta, **about
        )
    return found


def _weights(model: Model, layer: int, name: str) -> Float[Tensor, "head row column"]:
    weights, shape = getattr(model.blocks[layer].attn, name).detach().float().cpu(), head_geometry(model)
    if name in ("W_K", "W_V") and len(weights) == shape.n_heads:  # A HookedTransformer repeats those of a group.
        return weights[:: shape.group]
    return weights.reshape(shape.n_heads, shape.d_head, -1) if name == "W_O" else weights


def _change(name: str, layer: int, before: Tensor, after: Tensor) -> Float[Tensor, " head"]:
    norms = before.flatten(1).norm(dim=-1)
    if not bool((norms > 0).all()):
        raise ValueError(
            f"{name} of head {int(norms.argmin())} in layer {layer} is zero before, so its change has no scale"
        )
    return (after - before).flatten(1).norm(dim=-1) / norms
