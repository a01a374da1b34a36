"""Spans: one for all prompts or one for each, counted from behind the padding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.interventions.spans import inside, spans_of
from lens_heads.model.forward import Cache, advance, left_pad, prefill
from tests.conftest import random_trial, tiny


@pytest.mark.parametrize("kind", ["emphasise", "add", "mix"])
@torch.no_grad()
def test_each_prompt_of_a_batch_has_its_own(model: Any, kind: str) -> None:
    lengths, spans = (24, 11, 17), [(2, 6), (5, 9), (0, 3)]
    rows, heads = [random_trial(i, n, needle=(1, 4)).tokens for i, n in enumerate(lengths)], [(0, 1), (1, 2), (2, 0)]
    vectors = lh.task_vectors(model, random_trial(7)) if kind != "emphasise" else None
    expected = []
    for row, span in zip(rows, spans, strict=True):
        with lh.ablate(model, heads, kind=kind, reference=vectors, span=span):
            expected.append(model(row[None])[0, -1])
    tokens, pads = left_pad(rows, "cpu")
    with lh.ablate(model, heads, kind=kind, reference=vectors, span=spans):
        cache = Cache(model, 3)
        prefill(model, tokens[:, :-1], cache, pads, chunk=7)
        got = advance(model, tokens[:, -1:], cache, pads)[:, -1]
    torch.testing.assert_close(got, torch.stack(expected), atol=3e-5, rtol=3e-4)


def test_variants_repeat_the_spans_of_their_prompts() -> None:
    pads, places = torch.tensor([0, 2]), torch.arange(6)
    found = inside(torch.tensor([(1, 3), (0, 2)]), places, pads.repeat(2), 4)
    expected = [[1, 2], [2, 3], [1, 2], [2, 3]]
    assert [row.nonzero()[:, 0].tolist() for row in found] == expected


def test_other_numbers_of_spans_than_prompts(gqa: Any) -> None:
    with (
        lh.ablate(gqa, ["L0H0"], kind="emphasise", span=[(0, 2), (1, 3)]),
        pytest.raises(ValueError, match="there are 2 spans, but 1 prompts in the batch"),
    ):
        gqa(random_trial().tokens[None])


def by_hand(model: Any, trials: list[Any], heads: list[Any], kind: str, vectors: Any, part: str) -> torch.Tensor:
    """Log-probabilities of the answers, trial by trial, in one forward each."""
    found = []
    for trial in trials:
        span = trial.needle if part == "needle" else (len(trial) - 1, len(trial))
        tokens = torch.cat([trial.tokens, trial.answer_tokens[:-1]])[None]
        with torch.no_grad(), lh.ablate(model, heads, kind=kind, reference=vectors, span=span):
            rows = model(tokens)[0, len(trial) - 1 :].log_softmax(-1)
        found.append(rows[range(len(trial.answer_tokens)), trial.answer_tokens].mean())
    return torch.stack(found)


PARTS = [("emphasise", "needle"), ("add", "last"), ("mix", "last"), ("mix", "needle")]


@pytest.mark.parametrize(("kind", "part"), PARTS)
def test_each_trial_has_its_own_needle_and_last_row(model: Any, kind: str, part: str) -> None:
    trials = [random_trial(i, n, needle=span) for i, (n, span) in enumerate([(24, (2, 6)), (13, (5, 9)), (17, (1, 3))])]
    heads = [(0, 1), (1, 2), (2, 0)]
    vectors = None if kind == "emphasise" else lh.task_vectors(model, random_trial(7))
    expected = by_hand(model, trials, heads, kind, vectors, part)
    with lh.ablate(model, heads, kind=kind, reference=vectors, span=part):
        got = lh.evaluate(model, trials, generate=False, batch_size=3, progress=False)
    torch.testing.assert_close(got.metrics["logprob"], expected, atol=3e-5, rtol=3e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("error:.*failed")
@pytest.mark.parametrize(("kind", "part"), PARTS)
@pytest.mark.parametrize(
    "spans", [[(3, 9)] * 3, [(3, 9), (19, 22), (25, 28)], [(18, 20), (19, 22), (25, 28)], [(20, 27)] * 3]
)
def test_parts_in_a_curve_over_a_common_beginning(gqa: Any, kind: str, part: str, spans: list[tuple[int, int]]) -> None:
    """Conditions join one forward, from the lowest layer of each, after a beginning that runs once."""
    start = random_trial(0, 24).tokens
    trials = []
    for i, span in enumerate(spans):
        own = random_trial(i + 1, 8, needle=(1, 2))
        trials.append(replace(own, id=f"{i}", tokens=torch.cat([start, own.tokens]), needle=span))
    vectors = None if kind == "emphasise" else lh.task_vectors(gqa, random_trial(7))
    scores = lh.HeadScores.from_trials(
        "mine", torch.rand(1, 3, 4, generator=torch.Generator().manual_seed(3)), ["other"]
    )
    curve = lh.ablation_curve(
        gqa,
        trials,
        scores,
        ks=(1, 3, 5),
        kind=kind,
        reference=vectors,
        span=part,
        generate=False,
        batch_size=3,
        progress=False,
    )
    for k in (1, 3, 5):
        expected = by_hand(gqa, trials, scores.top(k), kind, vectors, part)
        rows = curve.per_trial[(curve.per_trial["set"] == "top") & (curve.per_trial["k"] == k)].set_index("trial")
        got = torch.tensor(rows.loc[[trial.id for trial in trials], "logprob"].to_numpy()).float()
        torch.testing.assert_close(got, expected, atol=3e-5, rtol=3e-4)


def test_parts_while_scoring_and_contrasting(gqa: Any) -> None:
    trials, heads = [random_trial(1, 20, needle=(4, 8)), random_trial(2, 15, needle=(9, 12))], ["L0H1", "L1H0"]
    how: dict[str, Any] = {"methods": ["locos"], "teacher_forced": True, "progress": False}
    with lh.ablate(gqa, heads, kind="emphasise", span="needle"):
        got = lh.score_heads(gqa, trials, batch_size=2, **how)["locos"].per_trial
    for trial, scores in zip(trials, got, strict=True):
        with lh.ablate(gqa, heads, kind="emphasise", span=trial.needle):
            expected = lh.score_heads(gqa, trial, **how)["locos"].values
        torch.testing.assert_close(scores, expected, atol=3e-5, rtol=3e-4)
        one, other = (
            lh.contrast(gqa, trial, heads, alpha=0.5, kind="emphasise", span=span, max_new_tokens=2, progress=False)
            for span in ("needle", trial.needle)
        )
        assert torch.equal(one.metrics["logprob"], other.metrics["logprob"])


def test_parts_that_are_not_known(gqa: Any) -> None:
    with (
        lh.ablate(gqa, ["L0H0"], kind="emphasise", span="needle"),
        pytest.raises(
            ValueError,
            match=r"span='needle' is not known here: it is, where trials run .*, or pass \(start, end\) in tokens",
        ),
    ):
        gqa(random_trial().tokens[None])
    trials = [random_trial(1), replace(random_trial(2), needle=None)]
    with (
        lh.ablate(gqa, ["L0H0"], kind="emphasise", span="needle"),
        pytest.warns(UserWarning, match="the first, random-2: .*a trial has no needle: leave it out"),
    ):
        found = lh.evaluate(gqa, trials, generate=False, batch_size=2, progress=False)
    assert found.trial_ids == (trials[0].id,)


@pytest.mark.parametrize("given", [5, "ab", (3, 3), (5, 2), (-1, 2), [(0, 2), (1,)], [], (0.5, 2), None])
def test_what_is_no_span(gqa: Any, given: Any) -> None:
    with pytest.raises(ValueError, match="span"), lh.ablate(gqa, ["L0H0"], kind="emphasise", span=given):
        pass


def test_spellings_of_spans() -> None:
    assert spans_of("span", (2, 5)) == spans_of("span", [[2, 5]]) == spans_of("span", [torch.tensor(2), 5]) == ((2, 5),)
    assert spans_of("span", [(0, 1), (4, 9)]) == ((0, 1), (4, 9))


def test_a_span_that_begins_behind_its_prompt_is_refused() -> None:
    model, trials = tiny("llama-gqa"), [random_trial(i) for i in range(3)]
    vectors = lh.task_vectors(model, trials)
    said = r"the span from token \d+ on begins behind the 27 tokens of prompt and answer"
    for span in ((500, 600), (27, 28), [(30, 31)] * 3):
        with pytest.raises(ValueError, match=said), lh.steer(model, ["L1H0"], vectors, span=span):
            lh.evaluate(model, trials, generate=False)
        with pytest.raises(ValueError, match=said):
            lh.ablation_curve(
                model,
                trials,
                lh.sanity.random_ranking(model),
                ks=1,
                kind="add",
                reference=vectors,
                span=span,
                generate=False,
            )
    with lh.steer(model, ["L1H0"], vectors, span=(26, 600)):
        lh.evaluate(model, trials, generate=False)
    with (
        pytest.warns(UserWarning, match=f"1 of 3 failed.*{said}"),
        lh.steer(model, ["L1H0"], vectors, span=[(0, 1), (28, 29), (0, 1)]),
    ):
        lh.evaluate(model, trials, generate=False)
