"""Do two tasks use the same heads? Circuits beside each other, against chance   (Merullo et al., arXiv 2310.08744)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pandas as pd

from lens_heads.compare.overlap import head_overlaps
from lens_heads.heads.circuit import Circuit
from lens_heads.heads.one_model import check_one_model
from lens_heads.runs.typed import typed


@typed
def circuit_reuse(circuits: Mapping[str, Circuit]) -> pd.DataFrame:
    """Shared heads of every two circuits: a row per pair, with the stages in which both have a head.

    Columns: a, b, shared (names), `overlap` (their number), share_of_a, share_of_b, and what chance gives: among all heads
    (expected_overlap, p_value: hypergeometric) and with as many heads in each layer (layer_matched_overlap,
    layer_matched_p_value). Heads of a circuit lie in few layers, so the second is the test.

    ValueError for fewer than two circuits, and circuits of models of different shapes.

    `circuits`: of `trace_circuit`, by task.

    Example:
        >>> circuit = lh.ranking.trace_circuit(model, pairs)
        >>> lh.compare.circuit_reuse({"first": circuit, "second": circuit})[["a", "b", "share_of_a"]]
               a       b  share_of_a
        0  first  second         1.0
    """
    shapes = {one.shape for one in circuits.values()}
    if len(shapes) > 1:
        raise ValueError(f"circuits of models of different shapes, {sorted(shapes)}: trace both tasks in one model")
    for one, other in pairwise(circuit.stages[0].scores for circuit in circuits.values() if circuit.stages):
        check_one_model(one, other)
    found = head_overlaps({name: one.heads for name, one in circuits.items()}, shape=next(iter(shapes), None))
    names = []
    for a, b in zip(found["a"], found["b"], strict=True):
        others = set(circuits[b].heads)
        names.append(", ".join(str(head) for head in circuits[a].heads if head in others))
    found.insert(2, "shared", names)
    return found
