"""The explorer's Python side: what it sends, what it runs when asked, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import traitlets

import lens_heads as lh
from lens_heads.heads.matching import HeadMatch
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import every_head, random_heads
from lens_heads.inspection.cards import HeadCards
from lens_heads.inspection.explorer.contents import best_heads, contents
from lens_heads.inspection.explorer.trying import attempt
from lens_heads.inspection.explorer.widget import Explorer
from lens_heads.model.hooks import has_hooks
from tests import planted
from tests.inspection.explorer.made import scores
from tests.planted import COPIER, SUPPRESSOR, WRITER


@pytest.fixture
def explorer() -> Explorer:
    return lh.explore(planted.model(), planted.trials(3), scores(), controls=lh.Controls("random", 2), max_new_tokens=3)


def received(one: Explorer) -> np.ndarray:
    """The rows as the page reads them: [head, step, attention or phi, position]."""
    shape = (len(one.rows_of["heads"]), len(one.look["produced"]), 2, len(one.look["words"]))
    return np.frombuffer(one.rows, dtype="<f2").reshape(shape)


@pytest.mark.slow
def test_it_sends_the_rows_of_the_chosen_heads_as_look_sees_them(explorer: Explorer) -> None:
    for heads, trial in (([str(COPIER)], 0), ([str(WRITER), str(COPIER)], 0), ([str(WRITER)], 2)):
        explorer.heads, explorer.trial = heads, trial
        seen = lh.look(planted.model(), planted.trials(3)[trial], heads=heads)
        assert explorer.rows_of["heads"] == heads
        assert explorer.rows_of["trial"] == trial
        assert explorer.look["words"] == list(seen.words)
        assert explorer.look["needle"] == seen.needle
        found = received(explorer)
        np.testing.assert_array_equal(found[:, :, 0], seen.attention.numpy())
        np.testing.assert_allclose(found[:, :, 1], seen.phi.float().numpy(), rtol=1e-3, atol=1e-3)
        for place, head in enumerate(heads):
            tops = explorer.rows_of["tops"][place][0]
            assert [word for word, _ in tops["raises"]] == seen.top_words(head)
            assert [word for word, _ in tops["lowers"]] == seen.top_words(head, side=1)


def test_it_opens_on_the_best_head_with_every_score_and_rank(explorer: Explorer) -> None:
    best = scores()["locos"]
    assert explorer.heads == [str(best.top(1)[0])]
    assert explorer.method == "locos"
    first = explorer.about["scores"][0]
    np.testing.assert_allclose(first["values"], best.values.numpy(), rtol=1e-4)
    np.testing.assert_allclose(first["low"], best.interval().low.numpy(), rtol=1e-4)
    assert best_heads(explorer.about, 2)[:2] == [str(head) for head in best.top(2)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mean", "zero"])
def test_ablating_is_evaluate_under_ablate(explorer: Explorer, kind: str) -> None:
    model, trials = planted.model(), planted.trials(3)
    heads = [COPIER, WRITER]
    explorer.heads = [str(head) for head in heads]
    explorer._handle_custom_msg({"run": kind}, [])
    (row,) = explorer.history
    means = lh.mean_activations(model, trials[1:], n=None, progress=False) if kind == "mean" else None
    before = lh.evaluate(model, trials[0], max_new_tokens=3, progress=False)
    with lh.ablate(model, heads, kind=kind, reference=means):
        after = lh.evaluate(model, trials[0], max_new_tokens=3, progress=False)
    assert row["before"] == pytest.approx(float(before.metrics["logprob"][0]), abs=1e-5)
    assert row["after"] == pytest.approx(float(after.metrics["logprob"][0]), abs=1e-5)
    assert (row["text_before"], row["text_after"]) == (before.texts[0], after.texts[0])
    assert row["after"] < row["before"] - 1
    others = []
    for seed in range(2):
        with lh.ablate(model, random_heads(every_head(2, 4), 2, seed), kind=kind, reference=means):
            others.append(float(lh.evaluate(model, trials[0], generate=False, progress=False).metrics["logprob"][0]))
    assert row["random"] == pytest.approx(np.mean(others), abs=1e-5)
    assert (row["random_low"], row["random_high"]) == pytest.approx((min(others), max(others)), abs=1e-5)
    assert explorer.frame["kind"].tolist() == [kind]
    assert explorer.busy == explorer.failed == ""
    assert not has_hooks(model)


@pytest.mark.slow
def test_patching_puts_back_what_the_heads_wrote(explorer: Explorer) -> None:
    """All heads together restore the clean run from where the corrupt prompt begins to differ."""
    explorer.heads = [str(COPIER), str(WRITER)]
    row = explorer.run("patch")
    clean = lh.evaluate(planted.model(), planted.trials(3)[0], generate=False, progress=False).metrics["logprob"][0]
    assert row["before"] < float(clean) - 1
    assert row["after"] > row["before"] + 1
    explorer.heads = [str(SUPPRESSOR)]
    assert explorer.run("patch")["after"] < row["before"] + 1
    assert len(explorer.history) == 2


@pytest.mark.slow
def test_what_fails_is_said_on_the_page_and_leaves_no_hook() -> None:
    model = planted.model()
    alone = lh.explore(model, planted.trials(1), scores())
    assert alone.about["experiments"][0][1].startswith("needs several trials")
    alone._handle_custom_msg({"run": "mean"}, [])
    assert "mean ablation needs other trials" in alone.failed
    assert alone.history == []
    assert alone.busy == ""
    for nonsense in ({"run": "delete"}, {}, "run"):
        alone._handle_custom_msg(nonsense, [])
    assert alone.history == []
    alone._handle_custom_msg({"run": "zero"}, [])
    assert alone.failed == ""
    assert len(alone.history) == 1
    assert not has_hooks(model)


def test_a_button_s_message_says_what_it_is_about(explorer: Explorer) -> None:
    """The page's choice may still be on its way when a click arrives."""
    explorer._handle_custom_msg({"run": "zero", "heads": [str(WRITER)], "trial": 1}, [])
    (row,) = explorer.history
    assert (row["heads"], row["trial"]) == ([str(WRITER)], planted.trials(3)[1].id)
    assert (explorer.heads, explorer.trial) == ([str(WRITER)], 1)
    explorer._handle_custom_msg({"run": "zero", "heads": ["L9H9"]}, [])
    assert "L9H9" in explorer.failed
    assert len(explorer.history) == 1


def test_a_look_that_fails_is_said_and_the_page_of_the_rest_can_be_written(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr("lens_heads.inspection.explorer.widget.look", broken)
    with pytest.raises(RuntimeError):
        explorer.trial = 2
    assert explorer.failed == "RuntimeError"
    monkeypatch.undo()
    assert explorer.payload["bank"]


def test_ranks_are_those_of_the_scores() -> None:
    """Also where a search gives an order of its own, and where values differ in the sixth digit."""
    one = scores()["locos"]
    order = (WRITER, COPIER)
    searched = HeadScores.from_trials("found", one.per_trial, one.trial_ids, order=order)
    close = torch.ones(1, 2, 4)
    close[0, 1, 3] += 1e-6
    near = HeadScores.from_trials("near", close, ["a"])
    found = contents(lh.head_geometry(planted.model()), [searched, near, one], ["a"])
    for score, given in zip(found["scores"], (searched, near, one), strict=True):
        for rank, head in enumerate(given.ranking(), 1):
            assert score["ranks"][head.layer][head.head] == rank
    assert best_heads(found, 1)[:2] == [str(WRITER), "L1H3"]


def test_wrong_choices_are_named(explorer: Explorer) -> None:
    model, before = planted.model(), explorer.heads
    for heads, message in ((["L9H0"], "L9H0"), ([], "at least one"), (["x"], "x")):
        with pytest.raises((traitlets.TraitError, ValueError), match=message):
            explorer.heads = heads
    with pytest.raises(traitlets.TraitError, match="trial=3: there are 3"):
        explorer.trial = 3
    assert explorer.heads == before
    other = HeadScores.from_trials("mine", torch.zeros(1, 3, 4), ["a"])
    with pytest.raises(ValueError, match="mine"):
        lh.explore(model, planted.trials(2), other)
    for nothing in ({}, []):
        with pytest.raises(ValueError, match="there are no rankings"):
            lh.explore(model, planted.trials(2), nothing)
    odd: Any
    for odd in ("locos", 3, [3]):
        with pytest.raises(TypeError, match="must be a dictionary of HeadScores by name, a list of HeadScores"):
            lh.explore(model, planted.trials(2), odd)
    with pytest.raises(ValueError, match="step"):
        explorer.step = -1
    with pytest.raises(ValueError, match="single token"):
        lh.explore(model, lh.EncodedTrial([5], None, "a", [6], "t"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown control 'bottom': here they are random"):
        lh.explore(model, planted.trials(2), scores(), controls="bottom")
    with pytest.raises(ValueError, match="heads is empty"):
        attempt(model, planted.trials(1)[0], [], "zero", None, lh.Controls("random"), 2)
    bad: Any = "uniform"
    with pytest.raises(ValueError, match="kind='uniform'"):
        attempt(model, planted.trials(1)[0], [COPIER], bad, None, lh.Controls("random"), 2)


def test_heads_may_be_given_as_heads(explorer: Explorer) -> None:
    explorer.heads = [COPIER, "L1H2"]
    assert explorer.heads == [str(COPIER), "L1H2"]


@pytest.mark.slow
def test_scores_are_made_where_none_are_given() -> None:
    made = lh.explore(planted.model(), planted.trials(2))
    assert made.about["scores"][0]["name"] == "locos_exact"
    bare = [lh.EncodedTrial(t.tokens, None, t.answer, t.answer_tokens, t.id) for t in planted.trials(2)]
    assert [score["name"] for score in lh.explore(planted.model(), bare).about["scores"]] == ["dla_exact", "dla"]


def test_cards_and_partners_are_listed() -> None:
    shape, heads = lh.head_geometry(planted.model()), [f"L{layer}H{head}" for layer in range(2) for head in range(4)]
    table = pd.DataFrame({"head": heads, "kind": ["induction", *[""] * 7], "promotes": "' a' ' b'", "writes": "' c'"})
    pairs = pd.DataFrame({"head_a": heads[:2], "head_b": ["L3H1", "L0H0"], "distance": [0.25, 0.5]})
    match = HeadMatch(pairs, np.ones((8, 8)), 0.1, 1.0, (2, 4), (4, 2), {"model_b": "other"})
    found = contents(shape, scores(), ["a"], cards=HeadCards("planted", table), match=match)
    assert found["card_labels"] == ["kind", "promotes", "writes", "partner in other"]
    assert found["cards"]["L0H0"]["kind"] == "induction"
    assert found["cards"]["L0H1"]["partner in other"] == "L0H0 (distance 0.50)"
    with pytest.raises(ValueError, match="cards are of elsewhere, which has a head L7H0"):
        contents(shape, scores(), ["a"], cards=HeadCards("elsewhere", table.assign(head="L7H0")))
    with pytest.raises(ValueError, match=r"match is of a model of \(3, 4\)"):
        contents(shape, scores(), ["a"], match=replace(match, shape_a=(3, 4)))


@pytest.mark.slow
def test_a_curve_is_listed() -> None:
    model = planted.model()
    others = [trial for i, trial in enumerate(planted.trials(24, seed=1)) if i % 8 > 5]
    curve = lh.ablation_curve(model, {"a": others}, scores(), ks=(1, 2), kind="zero", generate=False, progress=False)
    found = contents(lh.head_geometry(model), scores(), ["a"], curve=curve)
    top = next(row for row in found["ablated"] if row["label"] == "best by LOCOS" and row["k"] == 2)
    drop = curve.frame.query("method == 'locos' and set == 'top' and k == 2 and metric == 'logprob'")["drop"].item()
    assert top["value"] == pytest.approx(-drop)
    assert top["low"] <= top["value"] <= top["high"]
    assert any(row["label"].startswith("random") for row in found["ablated"])


@pytest.mark.slow
def test_without_the_package_the_remedy_is_named() -> None:
    script = "import sys; sys.modules['anywidget'] = None\nimport lens_heads as lh\nlh.explore"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install 'lens-heads[explorer]'" in found.stderr.splitlines()[-1]
