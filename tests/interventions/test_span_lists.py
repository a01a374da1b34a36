"""A list of spans belongs to its trials, in whatever order and batches they run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.ranking.masks.measure import MaskedMetric
from tests.conftest import random_trial, tiny

LENGTHS, SPANS = (40, 13, 26, 19), [(2, 9), (6, 12), (9, 11), (1, 4)]
"""Trials run by length: none of these stays where it was."""
HEADS = ["L0H1", "L1H2", "L2H3"]
TRIALS = [random_trial(at, n, needle=(3, 6)) for at, n in enumerate(LENGTHS)]
QUIET: dict[str, Any] = {"progress": False}
CLOSE: dict[str, Any] = {"atol": 3e-5, "rtol": 3e-4}


def ranking(model: Any) -> lh.HeadScores:
    values = torch.rand(1, 3, model.cfg.n_heads, generator=torch.Generator().manual_seed(3))
    return lh.HeadScores.from_trials("mine", values, ["other"])


def one_by_one(model: Any, trials: list[Any], heads: Any, spans: Any = SPANS, **how: Any) -> torch.Tensor:
    """Log-probabilities of the answers in one forward each, each trial alone with its own span."""
    found = []
    for trial, span in zip(trials, spans, strict=True):
        tokens = torch.cat([trial.tokens, trial.answer_tokens[:-1]])[None]
        with torch.no_grad(), lh.ablate(model, heads, kind="emphasise", span=span, **how):
            rows = model(tokens)[0, len(trial) - 1 :].log_softmax(-1)
        found.append(rows[range(len(trial.answer_tokens)), trial.answer_tokens].mean())
    return torch.stack(found)


@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_evaluate(model: Any, batch_size: int) -> None:
    with lh.ablate(model, HEADS, kind="emphasise", span=SPANS):
        found = lh.evaluate(model, TRIALS, generate=False, batch_size=batch_size, **QUIET)
    torch.testing.assert_close(found.metrics["logprob"], one_by_one(model, TRIALS, HEADS), **CLOSE)


def test_the_order_of_the_call_is_that_of_the_list(gqa: Any) -> None:
    turned, spans = TRIALS[::-1], SPANS[::-1]
    with lh.ablate(gqa, HEADS, kind="emphasise", span=spans):
        found = lh.evaluate(gqa, turned, generate=False, batch_size=4, **QUIET).metrics["logprob"]
    torch.testing.assert_close(found, one_by_one(gqa, TRIALS, HEADS).flip(0), **CLOSE)
    with lh.ablate(gqa, HEADS, kind="emphasise", span=spans):
        other = lh.evaluate(gqa, TRIALS, generate=False, batch_size=4, **QUIET).metrics["logprob"]
    assert not torch.allclose(other, found.flip(0), atol=1e-3), "another trial's span would be seen"


@pytest.mark.slow
@pytest.mark.filterwarnings("error:.*failed")
@pytest.mark.parametrize("begin", [0, 24])
def test_a_curve_and_masks(gqa: Any, begin: int, tmp_path: Path) -> None:
    """Also where prompts begin alike, so that their beginning would run once for all."""
    start, trials = random_trial(9, 24).tokens[:begin], TRIALS
    if begin:
        own = [random_trial(at + 1, 8, needle=(1, 2)) for at in range(4)]
        trials = [replace(one, id=f"{at}", tokens=torch.cat([start, one.tokens])) for at, one in enumerate(own)]
    scores = ranking(gqa)
    how: dict[str, Any] = {"kind": "emphasise", "span": SPANS, "batch_size": 3, **QUIET}
    curve = lh.ablation_curve(gqa, trials, scores, ks=(1, 3, 5), generate=False, out=tmp_path / "run", **how)
    for k in (1, 3, 5):
        rows = curve.per_trial[(curve.per_trial["set"] == "top") & (curve.per_trial["k"] == k)].set_index("trial")
        got = torch.tensor(rows.loc[[trial.id for trial in trials], "logprob"].to_numpy()).float()
        torch.testing.assert_close(got, one_by_one(gqa, trials, scores.top(k)), **CLOSE)
    measured = MaskedMetric(gqa, trials, metric="logprob", **how)
    (got,) = measured(measured.mask(scores.top(3))[None])
    torch.testing.assert_close(torch.tensor(got).float(), one_by_one(gqa, trials, scores.top(3)), **CLOSE)
    with pytest.raises(ValueError, match=r"different settings(.|\n)*options\.span"):
        lh.ablation_curve(
            gqa, trials, scores, ks=(1,), generate=False, out=tmp_path / "run", **{**how, "span": SPANS[::-1]}
        )


def test_a_curve_that_goes_on_keeps_spans_with_their_trials(gqa: Any, tmp_path: Path) -> None:
    scores, how = ranking(gqa), {"kind": "emphasise", "span": SPANS, "generate": False, "controls": (), **QUIET}
    out = tmp_path / "run"
    whole = lh.ablation_curve(gqa, TRIALS, scores, ks=(2,), out=out, **how).per_trial
    for file in sorted((out / "trials").iterdir())[::2]:
        file.unlink()
    again = lh.ablation_curve(gqa, TRIALS, scores, ks=(2,), out=out, batch_size=3, **how).per_trial
    torch.testing.assert_close(
        torch.tensor(again["logprob"].to_numpy()), torch.tensor(whole["logprob"].to_numpy()), **CLOSE
    )


def test_scores(gqa: Any) -> None:
    how: dict[str, Any] = {"methods": ["locos"], "teacher_forced": True, **QUIET}
    with lh.ablate(gqa, HEADS, kind="emphasise", span=SPANS):
        got = lh.score_heads(gqa, TRIALS, batch_size=3, **how)["locos"].per_trial
    for trial, span, scores in zip(TRIALS, SPANS, got, strict=True):
        with lh.ablate(gqa, HEADS, kind="emphasise", span=span):
            expected = lh.score_heads(gqa, trial, **how)["locos"].values
        torch.testing.assert_close(scores, expected, **CLOSE)


@pytest.mark.slow
def test_what_runs_one_by_one(gqa: Any) -> None:
    """Knock-outs, contrasts, influence and recovery."""
    how: dict[str, Any] = {"kind": "emphasise", **QUIET}
    for at, (trial, span) in enumerate(zip(TRIALS, SPANS, strict=True)):
        for prompts in (TRIALS, [one.tokens for one in TRIALS]):
            got = lh.knockout_heads(gqa, prompts, span=SPANS, **how).per_trial[at]
            torch.testing.assert_close(got, lh.knockout_heads(gqa, prompts[at], span=span, **how).values, **CLOSE)
        one = lh.contrast(gqa, trial, HEADS, alpha=0.5, span=span, max_new_tokens=2, **how)
        all_of_them = lh.contrast(gqa, TRIALS, HEADS, alpha=0.5, span=SPANS, max_new_tokens=2, **how)
        assert float(all_of_them.metrics["logprob"][at]) == pytest.approx(float(one.metrics["logprob"]), abs=3e-5)
        got = lh.influence(gqa, [one.tokens for one in TRIALS], HEADS, span=SPANS, **how).tokens
        alone = lh.influence(gqa, [trial.tokens], HEADS, span=span, **how).tokens
        mine = got[got["document"] == f"text-{at}"]["loss_without"].to_numpy()
        torch.testing.assert_close(torch.tensor(mine), torch.tensor(alone["loss_without"].to_numpy()), **CLOSE)


def test_another_number_of_spans_than_trials(gqa: Any) -> None:
    """Two for four were taken for variants of one batch."""
    few: dict[str, Any] = {"kind": "emphasise", "span": SPANS[:2], **QUIET}
    said = "there are 2 spans, but 4 {}: pass one span for each, in their order, or one for all"
    tokens = torch.stack([trial.tokens[:12] for trial in TRIALS])
    with lh.ablate(gqa, HEADS, kind="emphasise", span=SPANS[:2]):
        with pytest.raises(ValueError, match=said.format("prompts in the batch")):
            gqa(tokens)
        for call in (lh.evaluate, lh.score_heads):
            with pytest.raises(ValueError, match=said.format("trials")):
                call(gqa, TRIALS, **({"generate": False} if call is lh.evaluate else {"teacher_forced": True}), **QUIET)
    calls: dict[str, list[Any]] = {
        "trials": [
            lambda: lh.ablation_curve(gqa, TRIALS, ranking(gqa), ks=(1,), generate=False, **few),
            lambda: lh.contrast(gqa, TRIALS, HEADS, alpha=0.5, **few),
            lambda: lh.recovery(gqa, TRIALS, HEADS, HEADS, **few),
            lambda: lh.localize_heads(gqa, TRIALS, **few),
        ],
        "prompts": [
            lambda: lh.knockout_heads(gqa, TRIALS, **few),
            lambda: lh.ranking.sahara(gqa, TRIALS, **few),
        ],
        "documents": [lambda: lh.influence(gqa, [trial.tokens for trial in TRIALS], HEADS, **few)],
    }
    for what, listed in calls.items():
        for call in listed:
            with pytest.raises(ValueError, match=said.format(what)):
                call()


def test_spans_of_one_task_are_not_those_of_another(gqa: Any) -> None:
    others = [replace(trial, id=f"other {trial.id}") for trial in TRIALS]
    with pytest.raises(
        ValueError, match=r"spans or donors are given for each trial, but there are 2 tasks \(main, other\)"
    ):
        lh.ablation_curve(
            gqa,
            TRIALS,
            ranking(gqa),
            ks=(1,),
            kind="emphasise",
            specificity={"other": others},
            span=SPANS,
            generate=False,
            **QUIET,
        )


def test_a_users_trials_do_not_change() -> None:
    lh.evaluate(tiny("gpt2"), TRIALS, generate=False, **QUIET)
    assert all(trial.place is None for trial in TRIALS)
