"""Scores that rank nothing are refused or named wherever a ranking is used, instead of giving heads of layer 0."""

from __future__ import annotations

import warnings
from io import StringIO
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.heads.head import Head
from lens_heads.heads.ranks import check_ranks, warn_of_nothing
from tests.conftest import random_trial, tiny
from tests.pairs import trial_of
from tests.ranking.causal.test_patching import random_pair

QUIET: dict[str, Any] = {"progress": False}
FORCED: dict[str, Any] = {"kind": "zero", "generate": False, "controls": (), **QUIET}
TRIALS = [random_trial(seed, 20) for seed in range(2)]


def scores(method: str, *values: float, **about: Any) -> lh.HeadScores:
    """Three layers of four heads: these values, then zeros."""
    filled = torch.tensor([*values, *[0.0] * (12 - len(values))]).reshape(1, 3, 4)
    return lh.HeadScores.from_trials(method, filled, ["elsewhere"], **about)


NOTHING = scores("copy")
TIED = scores("tied", 0, 0, 0, 0, 0, 3, 0, 2)
"""Two heads that rank, above ten that tie."""


def test_all_equal() -> None:
    said = "ranking 'copy' ranks nothing: all 12 heads score 0: score trials in which the method sees something"
    for k in (1, 5, 11):
        with pytest.raises(ValueError, match=said):
            NOTHING.top(k)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert NOTHING.top(0) == []
        assert len(NOTHING.top(12)) == 12, "all heads are all heads"
        assert scores("ordered", order=("L2H3", "L1H0")).top(2) == [Head(2, 3), Head(1, 0)]
        assert NOTHING.ranking()[:2] == [Head(0, 0), Head(0, 1)]
        assert lh.HeadScores.from_trials("alone", torch.zeros(1, 1, 1), ["a"]).top(1) == [Head(0, 0)]
        assert "copy" in repr(NOTHING)
        assert NOTHING._repr_html_()


def test_a_tie_at_the_last_place() -> None:
    with pytest.warns(
        UserWarning, match="ranking 'tied' has ties: 3 of the top 5 score the same as the next head below"
    ) as found:
        assert TIED.top(5)[:2] == [Head(1, 1), Head(1, 3)]
    assert [str(one.filename).endswith("test_ranks.py") for one in found] == [True], "once, at the user's line"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TIED.top(2) == [Head(1, 1), Head(1, 3)]
        assert len(TIED.top(12)) == 12
        ordered = scores("ordered", order=("L2H0", "L2H1"))
        assert ordered.top(2) == [Head(2, 0), Head(2, 1)]
        assert len(TIED.bottom(3)) == len(TIED.random(3)) == 3, "controls among zeros are no claim"


def test_one_warning_names_all_rankings() -> None:
    with pytest.warns(
        UserWarning, match="ties: 1 of the top 3, 3 of the top 5 .*; ranking 'copy' ranks nothing.* leave it out"
    ) as found:
        check_ranks({"tied": TIED, "copy": NOTHING, "good": scores("good", *range(12, 0, -1))}, [1, 2, 3, 5, 12])
    assert len(found) == 1
    with pytest.raises(ValueError, match="ranking 'copy' ranks nothing"):
        check_ranks({"copy": NOTHING, "tied": TIED}, [1])
    with pytest.warns(UserWarning, match="'copy' ranks nothing: .*: their order is that of layers and heads"):
        warn_of_nothing({"tied": TIED, "copy": NOTHING})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_ranks({"tied": TIED, "copy": NOTHING}, [12])
        warn_of_nothing({"tied": TIED})


CALLS: dict[str, Any] = {
    "ablation_curve": lambda m, r: lh.ablation_curve(m, TRIALS, r, ks=(1, 3), **FORCED),
    "faithfulness": lambda m, r: lh.faithfulness(
        m, trial_of(random_pair()), r, ks=(3,), controls=(), **QUIET, positions="all"
    ),
    "generality": lambda m, r: lh.evidence.generality(m, {"a": TRIALS}, r, k=3, controls=(), **QUIET, kind="zero"),
    "transfer_matrix": lambda m, r: lh.evidence.transfer_matrix(
        m, dict.fromkeys(r, TRIALS), r, ks=(3,), controls=(), metric="logprob", generate=False, **QUIET, kind="zero"
    ),
    "streaming": lambda m, r: lh.streaming(
        m, TRIALS, r, shares=(0.5,), recent=6, controls=lh.Controls("random", 1), max_new_tokens=1, **QUIET
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_rankings(name: str) -> None:
    """The lead has to rank; another ranking that does not is named, and the others' results stay."""
    model = tiny("llama-gqa")
    with pytest.raises(ValueError, match="'copy' ranks nothing"):
        CALLS[name](model, {"copy": NOTHING, "good": scores("good", *range(12, 0, -1))})
    with pytest.warns(UserWarning, match="'copy' ranks nothing: all .* heads score 0.*leave it out") as found:
        CALLS[name](model, {"good": scores("good", *range(12, 0, -1)), "copy": NOTHING})
    assert sum("ranks nothing" in str(one.message) for one in found) == 1


def test_what_is_looked_for_and_not_found() -> None:
    """An ablation that changes nothing ranks nothing."""
    with pytest.warns(UserWarning, match="one_shot found nothing: ablating any head changes logprob by"):
        found = lh.localize_heads(tiny("llama-gqa"), TRIALS, method="one_shot", kind="scale", factor=1.0, **QUIET)
    with pytest.raises(ValueError, match="'one_shot' ranks nothing"):
        found.top(1)


def test_the_explorer_names_them() -> None:
    pytest.importorskip("anywidget")
    with pytest.warns(UserWarning, match="ranking 'copy' ranks nothing"):
        lh.explore(tiny("llama-gqa"), TRIALS, {"good": scores("good", *range(12, 0, -1)), "copy": NOTHING})


def test_tables_say_so() -> None:
    from rich.console import Console

    from lens_heads.report import tables

    console = Console(width=200, record=True, file=StringIO())
    console.print(tables.top_heads({"copy": NOTHING, "tied": TIED}, 2))
    shown = console.export_text()
    assert "none: all heads score the same" in shown
    assert "L0H0" not in shown
    assert "L1H1" in shown
