"""The pass: what custom scorers may return and see, which trials count, and the model's mode."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads.interventions.activations import trial_activations
from lens_heads.model.directions import Directions
from lens_heads.model.geometry import head_geometry
from lens_heads.model.modes import evaluating
from lens_heads.ranking.one_pass.capture import PassResult, run_pass
from lens_heads.ranking.one_pass.definition import ROWS, Rows, Scorer
from lens_heads.ranking.one_pass.scorers import SCORERS
from lens_heads.trials.encoded import EncodedTrial
from tests import zoo
from tests.conftest import random_trial

HEADS = 4


def passed(model: Any, trials: list[EncodedTrial], scorers: list[Scorer], **options: Any) -> list[PassResult]:
    return run_pass(
        model, trials, scorers, Directions(model, head_geometry(model), options.pop("direction", "raw")), **options
    )


def mine(score: Any, rows: Rows = "answer", gated: bool = True) -> Scorer:
    return Scorer("mine", score, rows, gated, "")


def ones(view: Any) -> Tensor:
    return torch.ones(view.pattern.shape[0])


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (torch.tensor(1.0), r"shape \[\]"),
        (torch.ones(1), r"shape \[1\]"),
        (torch.ones(HEADS, 1), r"shape \[4, 1\]"),
        (torch.ones(HEADS + 1), r"shape \[5\]"),
        (1.0, "float"),
        (None, "NoneType"),
    ],
)
def test_a_scorer_gives_one_score_per_head(gqa: Any, trial: EncodedTrial, returned: Any, found: str) -> None:
    with pytest.raises(ValueError, match=rf"scorer mine returned {found}: .* one score per head, shape \[4\]"):
        passed(gqa, [trial], [mine(lambda view: returned)], teacher_forced=True)
    whole = passed(gqa, [trial], [mine(lambda view: torch.arange(HEADS))], teacher_forced=True)[0].scores["mine"]
    assert torch.equal(whole, torch.arange(HEADS).float().expand(zoo.LAYERS, -1))


@pytest.mark.parametrize("rows", ["answers", ""])
def test_rows_decide_the_probe_and_a_probe_its_rows(rows: Any) -> None:
    with pytest.raises(
        ValueError, match=f"scorer mine: rows={rows!r}: use one of answer, generated, prompt, choice, query"
    ):
        mine(ones, rows)
    probes = {"query": "documents", "every": "text", "totals": "text"}
    assert [mine(ones, kind).probe for kind in get_args(Rows)] == [
        probes.get(kind, "needle") for kind in get_args(Rows)
    ]
    assert [Scorer("mine", ones, probe=probe).rows for probe in ROWS] == [rows[0] for rows in ROWS.values()]
    with pytest.raises(ValueError, match="scorer mine: rows='query': use one of every, totals"):
        Scorer("mine", ones, "query", probe="text")
    with pytest.raises(ValueError, match="scorer mine: counted='all': use one of counted, repeats, seen_before"):
        Scorer("mine", ones, probe="text", counted="all")
    with pytest.raises(ValueError, match="scorer mine: needs='z': use one of received, q_mean"):
        Scorer("mine", ones, "totals", needs=frozenset({"z"}))
    with pytest.raises(ValueError, match="scorer mine: probe='image': use one of needle"):
        Scorer("mine", ones, probe="image")  # type: ignore[arg-type]


def test_methods_that_cannot_be_negative_say_so() -> None:
    unsigned = ["attention_mass", "attention_mass_no_sink", "copy", "contrastive", "headkv"]
    assert [name for name, scorer in SCORERS.items() if not scorer.signed] == unsigned
    assert mine(ones).signed


@pytest.mark.parametrize("read", [lambda view: view.phi, lambda view: view.directions])
@pytest.mark.parametrize("direction", ["raw", "exact"])
def test_prompt_rows_have_no_answer_directions(gqa: Any, trial: EncodedTrial, read: Any, direction: str) -> None:
    score = mine(lambda view: read(view).sum() * ones(view), "prompt", gated=False)
    for options in ({"teacher_forced": True}, {}):
        with pytest.raises(
            ValueError, match=r"prompt rows have no answer directions .*rows=\"answer\" or \"generated\""
        ):
            passed(gqa, [trial], [score], direction=direction, **options)


def test_with_prompt_methods_alone_nothing_is_decoded(gqa: Any, trial: EncodedTrial) -> None:
    for direction in ("raw", "exact"):
        (found,) = passed(gqa, [trial], [SCORERS["headkv"]], direction=direction)
        assert (found.outcome, found.text, found.answer_steps) == ("ungated", "", [])
        forced = passed(gqa, [trial], [SCORERS["headkv"]], teacher_forced=True)[0]
        assert forced.outcome == "passed"
        torch.testing.assert_close(found.scores["headkv"], forced.scores["headkv"])


def said(answer: str, name: str) -> EncodedTrial:
    gold = zoo.tokenizer()(answer, add_special_tokens=False).input_ids
    return EncodedTrial(random_trial().tokens, (7, 11), answer, gold, name)


@pytest.fixture
def says_it_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every trial of a batch is answered "it is red"."""

    def greedy(model: Any, first: Any, cache: Any, pads: Any, max_new_tokens: int, **_: Any) -> list[list[int]]:
        from lens_heads.model.forward import advance

        steps = zoo.tokenizer()("it is red", add_special_tokens=False).input_ids
        for fed in (first, *torch.tensor([steps[:-1]] * len(first)).split(1, 1)):
            advance(model, fed, cache, pads)
        return [list(steps) for _ in first]

    monkeypatch.setattr("lens_heads.ranking.one_pass.batch.greedy", greedy)


def test_an_ungated_scorer_is_skipped_where_it_has_no_rows(gqa: Any, says_it_is_red: None) -> None:
    """Of the two trials that fail the gate, one has its answer in the text, if not as words."""
    trials = [said("red", "right"), said("blue", "wrong"), said("s re", "half")]
    scorers = [
        Scorer("at_answer", ones, "answer", False, ""),
        Scorer("at_all", ones, "generated", False, ""),
        Scorer("gated", ones, "answer", True, ""),
        SCORERS["headkv"],
    ]
    for chosen in (scorers, scorers[:1]):
        found = {result.id: result for result in passed(gqa, trials, chosen)}
        assert {name: result.outcome for name, result in found.items()} == {
            "right": "passed",
            "wrong": "gate_failed",
            "half": "gate_failed",
        }
        assert {name for name, result in found.items() if "at_answer" in result.scores} == {"right", "half"}
        for result in found.values():
            assert all(torch.isfinite(score).all() for score in result.scores.values())
    found = passed(gqa, trials, scorers)
    assert [sorted(result.scores) for result in found] == [
        ["at_all", "at_answer", "gated", "headkv"],
        ["at_all", "headkv"],
        ["at_all", "at_answer", "headkv"],
    ]


# Dropout


@pytest.fixture
def dropping() -> Any:
    """GPT-2 with heavy dropout, in train mode but for one layer."""
    model = zoo.bridge("gpt2")
    for module in model.original_model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    model.train()
    model.original_model.transformer.h[1].eval()
    return model


def modes(model: Any) -> list[bool]:
    return [module.training for part in (model, model.original_model) for module in part.modules()]


def test_a_model_in_train_mode_is_looked_at_in_eval_mode(dropping: Any) -> None:
    trials, before = [random_trial(0), random_trial(1)], modes(dropping)
    assert {True, False} == set(before)
    with torch.no_grad():
        dropped = [dropping(trials[0].tokens[None]) for _ in range(2)]
    assert not torch.allclose(dropped[0], dropped[1])
    plain = zoo.bridge("gpt2")

    def measured(model: Any) -> list[Tensor]:
        scores = passed(model, trials[:1], [SCORERS["locos"], SCORERS["headkv"]], teacher_forced=True)[0].scores
        means = lh.mean_activations(model, trials, progress=False)
        single = trial_activations(model, trials[0])
        judged = lh.evaluate(model, trials, generate=False, progress=False)
        return [*scores.values(), means.z, means.q, single.z, judged.metrics["logprob"]]

    for found, expected in zip(measured(dropping), measured(plain), strict=True):
        torch.testing.assert_close(found, expected)
    assert modes(dropping) == before


def test_the_mode_comes_back_after_an_error(dropping: Any) -> None:
    before = modes(dropping)
    with pytest.raises(ValueError, match="scorer mine returned"):
        passed(dropping, [random_trial()], [mine(lambda view: 1)], teacher_forced=True)
    assert modes(dropping) == before
    with evaluating(dropping):
        assert not any(modes(dropping))
    assert modes(dropping) == before
