"""Later years: every choice follows from the years in the prompt, the answer goes on with the number, and models can do it."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lens_heads as lh
from lens_heads.tasks.greater_than import greater_than
from lens_heads.trials.pairs import make_pairs
from tests.conftest import tiny


@given(st.integers(1, 4), st.sampled_from(["select", "test"]), st.integers(0, 50))
def test_one_choice_is_later_and_one_as_much_earlier(n: int, split: str, seed: int) -> None:
    trials = greater_than(n=n, split=split, seed=seed)
    assert trials == greater_than(n=n, split=split, seed=seed)
    for trial in trials:
        first, start, last = re.findall(r"(\d\d)(\d\d) to the year (\d\d)$", trial.question)[0]
        assert first == last
        (earlier,) = set(trial.choices) - {trial.answer}
        assert int(trial.answer) - int(start) == int(start) - int(earlier) >= 10
        assert trial.answer[0] != earlier[0]
        assert trial.corrupt == (trial.question.replace(f"{first}{start}", f"{first}01"),)
        for year in (0, int(earlier), int(start), int(start) + 1, 99):
            assert trial.judge.correct(f"{year:02}. It was", [trial.answer]) == (year > int(start))


def test_the_halves_share_no_event() -> None:
    select, test = ({one.meta["event"] for one in greater_than(n=300, split=split)} for split in ("select", "test"))
    assert len(select) == len(test) == 16
    assert not select & test


@pytest.mark.parametrize("name", ["llama-gqa", "gpt2"])
def test_the_answer_goes_on_with_the_number(name: str) -> None:
    model, trials = tiny(name), greater_than(n=8)
    for trial in trials:
        encoded = trial.encode(model.tokenizer)
        whole = [*encoded.tokens.tolist(), *encoded.answer_tokens.tolist()]
        assert model.tokenizer.decode(whole).endswith(f"\n{trial.question}{trial.answer}")
    pairs = make_pairs(trials, model.tokenizer, lh.head_geometry(model), corruption="counterfactual")
    assert [pair.id for pair in pairs] == [trial.id for trial in trials]


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2-135m-instruct", "gemma-3-270m"])
def test_the_packaged_models_do_it_and_not_without_the_first_year(name: str) -> None:
    model, trials = lh.load_model(name), greater_than(n=24, split="test")
    found = lh.ability(model, trials, progress=False)
    assert found.does
    corrupt = [one.encode(model.tokenizer) for one in trials]
    first = [type(one)(**{**vars(one), "tokens": one.corrupt, "corrupt": None, "question": None}) for one in corrupt]
    early = lh.evaluate(model, first, generate=False, progress=False).metrics["choice_margin"]
    assert (found.asked.metrics["choice_margin"] - early).mean() > 1
    assert torch.isfinite(early).all()
