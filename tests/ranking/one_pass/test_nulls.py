"""Null spans: where they are, that a score there is the score of a needle there, and what the test makes of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats as scipy_stats

import lens_heads as lh
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.model.directions import Directions
from lens_heads.model.geometry import head_geometry
from lens_heads.ranking.one_pass.capture import run_pass
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView
from lens_heads.ranking.one_pass.nulls import draw_spans
from lens_heads.ranking.one_pass.scorers import SCORERS
from lens_heads.trials.encoded import EncodedTrial
from tests import planted, reference, zoo
from tests.conftest import random_trial, tiny
from tests.planted import COPIER, WRITER

DRAWS = 4
UNPLACED = {"dla", "dla_exact"}


def forced(model: Any, trials: list[EncodedTrial], methods: Any = None, **options: Any) -> dict[str, HeadScores]:
    return lh.score_heads(model, trials, methods, teacher_forced=True, progress=False, **options)


def null_of(scores: HeadScores) -> torch.Tensor:
    assert scores.null is not None
    return scores.null


# Where they are


def test_spans_are_uniform_over_the_allowed_starts() -> None:
    """A needle [7, 11) of a prompt of 24: starts 1 to 3 and 11 to 20."""
    spans = draw_spans(random_trial(), 13_000)
    assert set((spans[:, 1] - spans[:, 0]).tolist()) == {4}
    counts = Counter(spans[:, 0].tolist())
    assert set(counts) == {1, 2, 3, *range(11, 21)}
    assert scipy_stats.chisquare(list(counts.values())).pvalue > 0.01


def test_spans_depend_on_the_id_alone_and_fewer_are_the_first_of_more() -> None:
    one, other = random_trial(), replace(random_trial(), id="another")
    assert torch.equal(draw_spans(one, 50)[:7], draw_spans(one, 7))
    assert not torch.equal(draw_spans(one, 50), draw_spans(other, 50))


@pytest.mark.parametrize("needle", [(1, 20), (0, 12), (12, 24)])
def test_a_prompt_without_room_for_another_span_is_refused_first(gqa: Any, needle: tuple[int, int]) -> None:
    trial = random_trial(needle=needle)
    if needle == (0, 12):  # Exactly one span is left.
        assert draw_spans(trial, 3).tolist() == [[12, 24]] * 3
        return
    with pytest.raises(ValueError, match=r"trial random-0: no other span of \d+ tokens .* use null_spans=0, or longer"):
        forced(gqa, [random_trial(1), trial], null_spans=2)
    assert forced(gqa, [trial], "locos")["locos"].null is None


# What they give


def test_every_method_scores_a_span_as_it_scores_a_needle(model: Any) -> None:
    trial = random_trial(needle=(0, 4))
    found = forced(model, [trial], null_spans=DRAWS)
    for draw, span in enumerate(draw_spans(trial, DRAWS).tolist()):
        there = forced(model, [replace(trial, needle=tuple(span))])
        for method in set(SCORERS) - UNPLACED:
            torch.testing.assert_close(null_of(found[method])[draw], there[method].values, atol=2e-6, rtol=1e-5)
    assert {method for method in SCORERS if found[method].null is None} == UNPLACED
    assert (null_of(found["locos"])[0] - found["locos"].values).abs().max() > 0.01


def test_spans_beside_generated_steps_that_are_no_answer(gqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`contrastive` and `copy` read all generated steps; the answer is the second of them."""
    monkeypatch.setattr("lens_heads.trials.answers.passes", lambda trial, text: True)
    monkeypatch.setattr("lens_heads.trials.answers.answer_steps", lambda *_: [1])
    trial, shape = random_trial(n=30), head_geometry(gqa)

    def passed(trial: EncodedTrial, null_spans: int) -> Any:
        directions = Directions(gqa, shape, "raw")
        return run_pass(gqa, [trial], list(SCORERS.values()), directions, max_new_tokens=5, null_spans=null_spans)[0]

    found = passed(trial, 12)
    for draw, span in enumerate(draw_spans(trial, 12).tolist()):
        there = passed(replace(trial, needle=tuple(span)), 0)
        for method in set(SCORERS) - UNPLACED:
            torch.testing.assert_close(found.null[method][draw], there.scores[method], atol=2e-6, rtol=1e-5)
    assert found.null["contrastive"].max() > 0


def test_a_draw_is_the_mean_over_trials_also_in_batches(gqa: Any) -> None:
    trials = [random_trial(0), random_trial(1, 17, (2, 5)), random_trial(2, 40, (20, 33))]
    single = [forced(gqa, [trial], ["locos", "headkv"], null_spans=DRAWS) for trial in trials]
    batched = forced(gqa, trials, ["locos", "headkv"], null_spans=DRAWS, batch_size=3)
    for method in ("locos", "headkv"):
        expected = torch.stack([null_of(one[method]) for one in single]).mean(0)
        torch.testing.assert_close(null_of(batched[method]), expected, atol=1e-5, rtol=1e-4)
        alone = forced(gqa, trials, ["locos", "headkv"])[method]
        torch.testing.assert_close(batched[method].values, alone.values, atol=1e-5, rtol=1e-4)


def test_a_scorer_of_ones_own_has_a_null_unless_it_says_that_it_reads_no_needle(gqa: Any, trial: EncodedTrial) -> None:
    def score(view: Any) -> torch.Tensor:
        view.pattern[..., view.needle[0]] *= 2  # Its own copy.
        return view.needle_sum(view.pattern).mean(-1)

    def plain(view: Any) -> torch.Tensor:
        start, end = view.needle
        return view.pattern[..., start:end].sum(-1).mean(-1)

    mine = [Scorer("mine", score), Scorer("plain", plain), Scorer("blind", plain, reads_needle=False)]
    found = forced(gqa, [trial], [*mine, "attention_mass"], null_spans=DRAWS)
    torch.testing.assert_close(null_of(found["plain"]), null_of(found["attention_mass"]))
    assert (null_of(found["mine"]) > null_of(found["plain"])).all()
    assert found["blind"].null is None


# Kept and continued


def test_nulls_are_a_setting_of_a_run_that_is_kept_and_continued(gqa: Any, tmp_path: Path) -> None:
    trials, out = [random_trial(seed) for seed in range(3)], tmp_path / "run"
    found = forced(gqa, trials, ["locos", "dla"], null_spans=DRAWS, out=out)
    next((out / "trials").iterdir()).unlink()
    again = forced(gqa, trials, ["locos", "dla"], null_spans=DRAWS, out=out)
    loaded = HeadScores.load(out / "locos.json")
    for other in (again["locos"], loaded):
        assert torch.equal(null_of(other), null_of(found["locos"]))
    assert "null" not in json.loads((out / "dla.json").read_text())
    for other, shown in ((0, "absent"), (5, "5 now")):
        with pytest.raises(ValueError, match=rf"null_spans: {DRAWS} in the folder, .*{shown}"):
            forced(gqa, trials, ["locos", "dla"], null_spans=other, out=out)


def test_a_null_that_is_not_finite_is_no_result(gqa: Any, trial: EncodedTrial) -> None:
    mine = Scorer("mine", lambda view: view.pattern.mean((-1, -2)) / torch.tensor(view.needle == trial.needle))
    assert forced(gqa, [trial], mine)["mine"].values.isfinite().all()
    with pytest.raises(ValueError, match="mine is not finite: your scorer must return finite scores"):
        forced(gqa, [trial], mine, null_spans=2)


@pytest.mark.parametrize("null_spans", [-1, 1.5, "9", True, None])
def test_null_spans_is_a_whole_number(gqa: Any, trial: EncodedTrial, null_spans: Any) -> None:
    with pytest.raises(ValueError, match=f"null_spans={null_spans!r}: must be a non-negative integer"):
        forced(gqa, [trial], "locos", null_spans=null_spans)


def test_documents_have_none(gqa: Any) -> None:
    documents = lh.DocumentTrial("d", "Which?", ("one", "two"), gold=("1",))
    with pytest.raises(ValueError, match="null_spans= applies to trials with a needle"):
        lh.score_heads(gqa, [documents], null_spans=2, progress=False)


# The test


def test_planted_writers_are_significant_and_nothing_else_is() -> None:
    found = forced(planted.model(), planted.trials(), ["locos", "locos_exact", "attention_spatial"], null_spans=99)
    for method in ("locos", "locos_exact"):
        heads = {Head(*map(int, at)) for at in found[method].significant().nonzero()}
        assert heads == {COPIER, WRITER}
    everyone = {Head(*map(int, at)) for at in found["attention_spatial"].significant().nonzero()}
    assert everyone == set(planted.STRENGTH), "attention alone cannot tell who writes"


@pytest.mark.slow
def test_a_needle_that_is_any_other_span_is_not_significant() -> None:
    """Exchangeable with its null: the smallest p over heads is at most .1 in at most a tenth of the trials."""
    hits, n = 0, 60
    model = tiny("llama-gqa")
    trials = [random_trial(seed, 60, (10, 14), 1) for seed in range(n)]
    fakes = [replace(one, needle=tuple(draw_spans(replace(one, id="fake"), 1)[0].tolist())) for one in trials]
    for fake in fakes:
        hits += bool(forced(model, [fake], "locos", null_spans=19)["locos"].significant(alpha=0.1).any())
    assert 1 <= hits <= 12  # 6 expected; 13 or more would happen once in 180.


# Without the sink


@pytest.mark.parametrize("needle", [(0, 3), (7, 11), (1, 24)])
def test_without_the_sink_matches_a_loop_wherever_the_needle_is(arch: str, model: Any, needle: tuple[int, int]) -> None:
    """(1, 24) is everything but the sink, so that the first answer row has nothing to compare it with."""
    trial = random_trial(needle=needle)
    steps = trial.answer_tokens.tolist()
    tokens = torch.cat([trial.tokens, torch.tensor(steps[:-1], dtype=torch.long)])
    p = reference.Plain(zoo.hf_model(arch), tokens)
    methods = ["attention_mass_no_sink", "attention_spatial_no_sink"]
    found = forced(model, [trial], methods)
    for method in methods:
        expected = reference.score(method, p, len(trial), needle, steps, [0, 1, 2])
        torch.testing.assert_close(found[method].values, expected, atol=2e-5, rtol=2e-4)


def test_a_row_that_sees_only_the_sink_scores_nothing() -> None:
    pattern = torch.zeros(2, 1, 8)
    pattern[0, 0, 0], pattern[1, 0, 0], pattern[1, 0, 3] = 1, 0.9, 0.1
    view = LayerView(
        layer=0,
        pattern=pattern,
        values=torch.zeros(2, 8, 4),
        z=torch.zeros(1, 2, 4),
        W_O=torch.zeros(2, 4, 6),
        u=torch.zeros(1, 6),
        constant=torch.zeros(1),
        tokens=torch.arange(8),
        next_tokens=torch.tensor([1]),
        row_positions=torch.tensor([7]),
        is_answer=torch.tensor([True]),
        needle=(3, 5),
    )
    assert SCORERS["attention_mass_no_sink"].score(view).tolist() == [0, 1]
    assert SCORERS["attention_spatial_no_sink"].score(view).tolist() == [0, 1]
    with pytest.raises(ValueError, match="must have one length, and begin after the first position"):
        view.across(torch.tensor([[0, 2]]))
    with pytest.raises(ValueError, match="must have one length"):
        view.across(torch.tensor([[1, 3], [1, 4]]))
