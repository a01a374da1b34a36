"""Multiple choice: every number equals that of plain full forwards of prompt and choice, one by one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from lens_heads.answering import choices
from lens_heads.answering.choices import CHOICE_METRICS
from lens_heads.answering.evaluation import Evaluation, check_metric, evaluate
from lens_heads.interventions.ablate import ablate
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.judges import Judge, judge_of
from lens_heads.trials.trial import Trial
from tests import zoo
from tests.conftest import random_trial, tiny

TEXTS = ("x", "yes", "perhaps so", "é")


def choosing(n_choices: int = 4) -> list[EncodedTrial]:
    """Prompts of different lengths whose choices have one to five tokens; the gold one is at another place in each."""
    made = []
    for i, length in enumerate((24, 13, 31)):
        base, generator = random_trial(i, length, needle=(2, 8)), torch.Generator().manual_seed(100 + i)
        tokens = [torch.randint(3, zoo.VOCAB, (1 + j,), generator=generator) for j in range(n_choices)]
        texts = TEXTS[:n_choices]
        gold = i % n_choices
        made.append(
            replace(
                base,
                answer=texts[gold],
                answer_tokens=tokens[gold],
                choices=texts,
                choice_tokens=tuple(tokens),
            )
        )
    return made


def by_hand(model: Any, trial: EncodedTrial) -> dict[str, float]:
    """The metrics from one full forward per choice, nothing cached."""
    totals = []
    for tokens in trial.choice_tokens:
        logits = model(torch.cat([trial.tokens, tokens])[None])[0].float().log_softmax(-1)
        rows = range(len(trial.tokens) - 1, len(trial.tokens) - 1 + len(tokens))
        totals.append(sum(float(logits[row, token]) for row, token in zip(rows, tokens, strict=True)))
    per_character = [total / len(text) for total, text in zip(totals, trial.choices, strict=True)]
    gold = trial.choices.index(trial.answer)
    return {
        "choice": float(totals[gold] == max(totals)),
        "choice_norm": float(per_character[gold] == max(per_character)),
        "choice_logprob": totals[gold] - math.log(sum(math.exp(total) for total in totals)),
        "choice_margin": totals[gold] - max(total for at, total in enumerate(totals) if at != gold),
    }


def same(found: Evaluation, model: Any, trials: list[EncodedTrial]) -> None:
    expected = [by_hand(model, trial) for trial in trials]
    for name in CHOICE_METRICS:
        wanted = torch.tensor([numbers[name] for numbers in expected])
        torch.testing.assert_close(found.metrics[name], wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_choices_are_judged_as_by_full_forwards(arch: str, model: Any, batch_size: int) -> None:
    found = evaluate(model, choosing(), generate=False, batch_size=batch_size, progress=False)
    with torch.no_grad():
        same(found, model, choosing())


@pytest.mark.parametrize("memory", [choices.MOST_BYTES, 1])
def test_choices_of_a_bfloat16_model_are_those_of_its_full_forwards(
    arch: str, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits of eight bits leave two percent to the order of sums."""
    model = tiny(arch, torch.bfloat16)
    monkeypatch.setattr(choices, "MOST_BYTES", memory)
    found = evaluate(model, choosing(), generate=False, batch_size=3, progress=False)
    with torch.no_grad():
        expected = torch.tensor([by_hand(model, trial)["choice_logprob"] for trial in choosing()])
    torch.testing.assert_close(found.metrics["choice_logprob"], expected, atol=0.1, rtol=0.02)
    assert expected.min() < -10


def test_choices_see_what_is_ablated(gqa: Any) -> None:
    heads = ["L0H0", "L1H2"]
    plain = evaluate(gqa, choosing(), generate=False, progress=False)
    with ablate(gqa, heads, kind="zero"), torch.no_grad():
        found = evaluate(gqa, choosing(), generate=False, progress=False)
        same(found, gqa, choosing())
    assert not torch.allclose(found.metrics["choice_logprob"], plain.metrics["choice_logprob"], atol=1e-3)


def parts(model: Any, trials: list[EncodedTrial]) -> tuple[Evaluation, list[int]]:
    """All trials evaluated as one batch, and the rows of every forward after that of the prompts."""
    rows: list[int] = []
    handle = model.blocks[-1].mlp.register_forward_hook(lambda module, args, out: rows.append(len(args[0])))
    try:
        return evaluate(model, trials, generate=False, batch_size=len(trials), progress=False), rows
    finally:
        handle.remove()
        del rows[0]


@pytest.mark.parametrize("memory", [1, 100_000])
def test_choices_in_parts_are_the_choices_at_once(model: Any, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part may end in the middle of a trial's choices, and begin with another trial of another padding."""
    wanted, whole = parts(model, choosing())
    monkeypatch.setattr(choices, "MOST_BYTES", memory)
    found, split = parts(model, choosing())
    assert whole == [12]
    assert sum(split) == 12
    assert max(split) == 1 if memory == 1 else 1 < max(split) < 12
    for name in ("logprob", *CHOICE_METRICS):
        torch.testing.assert_close(found.metrics[name], wanted.metrics[name], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("spare", "rows"), [(0, [5, 5, 2]), (-1, [4, 4, 4])])
def test_as_many_choices_run_at_once_as_memory_allows(
    gqa: Any, spare: int, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = 2 * 3 * 2 * 8 * 30 * 4  # Keys and values, layers, kv heads, d_head, positions, bytes of a float.
    logits = 4 * zoo.VOCAB * 8  # The longest choice has four tokens.
    monkeypatch.setattr(choices, "MOST_BYTES", 5 * (cached + logits) + spare)
    assert parts(gqa, choosing())[1] == rows


def test_choices_leave_the_answers_numbers_alone(gqa: Any) -> None:
    without = [replace(trial, choices=(), choice_tokens=()) for trial in choosing()]
    found = evaluate(gqa, choosing(), max_new_tokens=4, batch_size=3, progress=False)
    expected = evaluate(gqa, without, max_new_tokens=4, batch_size=3, progress=False)
    assert found.texts == expected.texts
    torch.testing.assert_close(found.metrics["logprob"], expected.metrics["logprob"])
    assert not set(CHOICE_METRICS) & set(expected.metrics)


def test_two_equal_choices_choose_neither(gqa: Any) -> None:
    one = choosing(2)[0]
    twins = replace(one, choice_tokens=(one.choice_tokens[0], one.choice_tokens[0]))
    found = evaluate(gqa, [twins], generate=False, progress=False)
    assert found.mean("choice") == 0
    assert found.mean("choice_logprob") == pytest.approx(-math.log(2), abs=1e-5)


def test_trials_with_and_without_choices_share_the_metrics_both_have(gqa: Any) -> None:
    found = evaluate(gqa, [*choosing(), random_trial(9)], generate=False, progress=False)
    assert set(found.metrics) == {"logprob", "greedy_match"}


def test_a_trial_encodes_its_choices_as_its_answer() -> None:
    trial = Trial("a", "Is it?", "yes", template="{question} Answer:", choices=("no", "yes"))
    encoded = trial.encode(zoo.tokenizer())
    assert torch.equal(encoded.choice_tokens[1], encoded.answer_tokens)
    assert zoo.tokenizer().decode(encoded.choice_tokens[0]) == " no"


@pytest.mark.parametrize("choices", [("no", "maybe"), ("yes", "yes"), ("yes", " "), "yes and no", ("yes", 3)])
def test_choices_must_hold_the_answer_once(choices: Any) -> None:
    with pytest.raises(ValueError, match=r"trial a: choices .* must be distinct texts, one of them the answer 'yes'"):
        Trial("a", "Is it?", "yes", choices=choices)


def test_a_metric_of_choices_needs_choices() -> None:
    check_metric("choice_logprob", choosing(), generate=False)
    with pytest.raises(ValueError, match="'choice' compares choices, but trial random-9 has none"):
        check_metric("choice", [*choosing(), random_trial(9)], generate=False)
    with pytest.raises(ValueError, match=r"'correct' is not measured: there is logprob.*need generate=True"):
        check_metric("correct", choosing(), generate=False)


def test_choices_count_towards_the_context_window() -> None:
    model = zoo.bridge("llama-gqa", n_ctx=32)
    long = replace(random_trial(0, 30), choices=("x", "y"), choice_tokens=(torch.tensor([4]), torch.arange(3, 8)))
    with pytest.raises(ValueError, match="30 prompt tokens and 5 to come exceed the context window of 32"):
        evaluate(model, [long], generate=False, progress=False)


def test_several_lines_are_read_to_the_judges_end() -> None:
    judge = judge_of(cut=("\nQ:", "END"), rule="final_number", multiline=True)
    assert judge.correct("First 3.\nThen #### 1,200\nQ: #### 7", ["so #### 1200"]) == 1
    assert judge.correct("First 3.\nThen 4.\nQ: 9", ["#### 4"]) == 1
    assert judge.correct("5, so #### 4, not 6", ["#### 4"]) == 1
    assert judge.correct("4, so #### none", ["#### 4"]) == 0
    assert not judge.ended("First\nsecond")
    assert judge.ended("First\nQ: second")
    assert Judge().ended("First\nsecond")
