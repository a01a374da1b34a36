"""Trained methods in the table: they rank query heads of the same material as all others, at a cost that is counted."""

from __future__ import annotations

from typing import Any

import pytest

import lens_heads as lh
from lens_heads.model.cost import counted
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.studies.ranking_methods.study import gather, setup_of
from tests import zoo

NAMES = ("duo_gate", "hardkuma", "lofit", "head_gating", "soft_injection", "aie")


@pytest.fixture(scope="module")
def material() -> Any:
    return gather(zoo.bridge("llama-gqa", n_ctx=2048), setup_of("induction", {"words": 12}), 5, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_they_rank_query_heads(name: str, material: Any) -> None:
    shape = head_geometry(material.model)
    with counted(material.model) as cost:
        scores = lh.methods[name].rank(material)
    assert scores.values.shape == (shape.n_layers, shape.n_heads)
    assert scores.unit == "query_head"
    given = material.others if name in ("soft_injection", "aie") else ()
    assert {one.id for one in scores.made_on} == {trial.id for trial in (*material.trials, *given)}
    assert not has_hooks(material.model)
    assert cost.work > 0
    assert lh.methods[name].missing(material) == ""


@pytest.mark.slow
def test_gates_of_kv_heads_tie_within_their_group(material: Any) -> None:
    scores = lh.methods["duo_gate"].rank(material)
    assert (scores.values[:, ::2] == scores.values[:, 1::2]).all()
