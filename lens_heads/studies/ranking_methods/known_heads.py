"""How well methods find heads that are known by construction: AUROC on models with planted heads."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pandas as pd

from lens_heads.model.geometry import head_geometry
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method
from lens_heads.ranking.rank import ranked
from lens_heads.runs.warned import users_line
from lens_heads.sanity.planted import Planted, planted_model
from lens_heads.trials.pairs import make_pairs

TRIALS, LENGTH = 8, 40
NEEDED = ("copier", "writer", "feeder", "reader")
"""The roles without which the model answers less surely. Suppressors also matter, the other way round."""


def planted_quality(methods: Sequence[Method], seeds: int, masks: int) -> pd.DataFrame:
    """AUROC, average precision and precision of every method on models of 4 layers x 4 heads: a row per method and seed.

    The heads to find are those that the answer needs (`NEEDED`), among suppressors, decoys and noise. There are no stand-ins,
    since methods differ about them by what they mean by needed. A method that does not apply, or fails, has no rows.
    """
    rows = []
    for seed in range(seeds):
        truth = planted_model(backups=0, seed=seed)
        material = _material(truth, masks)
        for method in methods:
            if method.missing(material):
                continue
            try:
                scores = ranked(method, material)
            except Exception as error:  # Your own method's; the table has a gap then.
                warnings.warn(f"method {method.name} failed on a planted model: {error}", stacklevel=users_line())
                continue
            rows.append({"method": method.name, "seed": seed, **truth.quality(scores, truth.of(*NEEDED))})
    return pd.DataFrame(rows, columns=["method", "seed", "auroc", "average_precision", "precision"])


def _material(truth: Planted, masks: int) -> Material:
    model = truth.model
    trials, others = truth.trials(TRIALS, LENGTH), truth.trials(TRIALS, LENGTH, seed=1)
    pairs = make_pairs(trials, model.tokenizer, head_geometry(model), corruption="remove")
    return Material.of(model, trials, pairs, others, masks=masks, k=len(truth.of(*NEEDED)))
