"""Relative depth is layer / (layers - 1): 0 for the first layer of any model, 1 for its last."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from lens_heads.runs import checks


def relative_depths(n_layers: int) -> Float[np.ndarray, " layer"]:
    """layer / (layers - 1) of every layer; 0 for a one-layer model."""
    return np.arange(n_layers) / max(n_layers - 1, 1)


def depth_bins(n_layers: int, bins: int) -> Int[np.ndarray, " layer"]:
    """The index of each layer's bin, out of `bins` equal spans of relative depth. ValueError unless every bin holds a layer."""
    checks.whole_number("bins", bins, 1, n_layers, ", the number of layers")
    return np.minimum(np.arange(n_layers) * bins // max(n_layers - 1, 1), bins - 1)
