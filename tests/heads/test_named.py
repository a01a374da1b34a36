"""Rankings by name: every form that functions take them in, and a name that is not there."""

from __future__ import annotations

import pytest
import torch

from lens_heads.heads.head import Head
from lens_heads.heads.named import Rankings, by_name, ranked_by_name
from lens_heads.heads.scores import HeadScores

ONE, OTHER = (HeadScores.from_trials(name, torch.rand(2, 2, 3), ["a", "b"]) for name in ("locos", "dla"))


@pytest.mark.parametrize("given", [ONE, [ONE], {"locos": ONE}, Rankings(locos=ONE), (one for one in [ONE])])
def test_every_form_is_the_same_mapping(given: object) -> None:
    assert by_name(given) == {"locos": ONE}  # type: ignore[arg-type]


def test_heads_may_stand_for_scores() -> None:
    assert ranked_by_name(iter([ONE, OTHER])) == ranked_by_name([ONE, OTHER]) == {"locos": ONE, "dla": OTHER}
    assert ranked_by_name({"a": ONE, "b": "L0H1"}) == {"a": ONE, "b": "L0H1"}
    for heads in ("L0H1", ["L0H1"], Head(0, 1), [(0, 1)]):
        assert ranked_by_name(heads) == {"heads": heads}
    with pytest.raises(ValueError, match="there are no rankings"):
        ranked_by_name({})


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        (3, TypeError, "rankings=3: must be a HeadScores, several"),
        ("locos", TypeError, "rankings='locos': must be a HeadScores, several"),
        ([ONE, 3], TypeError, "ranking '\\?' must be a HeadScores, as score_heads returns, not a int"),
        ([ONE, ONE], ValueError, "two rankings are called 'locos': pass a mapping"),
        ({}, ValueError, "there are no rankings"),
    ],
)
def test_what_is_no_ranking_is_refused(given: object, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        by_name(given)  # type: ignore[arg-type]


def test_a_name_that_is_not_there_is_told_with_those_that_are() -> None:
    found = Rankings(locos=ONE, dla=OTHER)
    with pytest.raises(KeyError, match=r"there is no ranking 'loccos': did you mean 'locos'\? There are locos, dla"):
        found["loccos"]
    assert found.get("loccos") is None
    assert "loccos" not in found
