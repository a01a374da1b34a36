"""why: the heads that write an answer to one's own prompt, against the pass, the ablation and the planted truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lens_heads as lh
from lens_heads.cli import explore as command
from lens_heads.inspection.why import Why
from lens_heads.model.hooks import has_hooks
from lens_heads.report import write_why
from tests import planted
from tests.inspection.explorer.made import MARKUP
from tests.planted import COPIER, WRITER

K, DRAWS = 2, 6


def text(trial: lh.EncodedTrial, span: tuple[int, int] | None = None) -> str:
    start, end = span or (0, len(trial))
    return planted.model().tokenizer.decode(trial.tokens[start:end], skip_special_tokens=True)


def own() -> lh.EncodedTrial:
    """A trial whose answer is no article, which the judge would drop."""
    return next(trial for trial in planted.trials(8) if trial.answer.lower() != "a")


def asked(**more: Any) -> Why:
    """The planted model's own question, as text."""
    trial = own()
    given: dict[str, Any] = {"answer": trial.answer, "needle": text(trial, trial.needle), "kind": "zero", "k": K}
    return lh.why(
        planted.model(), text(trial), controls=lh.Controls("random", DRAWS), max_new_tokens=2, **{**given, **more}
    )


@pytest.fixture(scope="module")
def found() -> Why:
    return asked()


def test_it_names_the_planted_heads_and_what_they_read(found: Why) -> None:
    assert set(found.heads) == {COPIER, WRITER}
    assert list(found.frame["head"]) == [str(head) for head in found.heads]
    start, end = found.trial.needle or (0, 0)
    assert start <= found.tokens["position"][0] < end
    assert found.tokens["phi"].is_monotonic_decreasing


def test_contributions_are_those_of_the_scores(found: Why) -> None:
    """A head's sum over the prompt is its direct logit attribution, and what the frame says of needles adds up."""
    for row in found.frame.to_dict("records"):
        assert row["contribution"] == found.scores["dla_exact"][row["head"]]
    inside = found.tokens[found.tokens["part"] == "needle"]["phi"].sum()
    assert found.frame["needle"].sum() == pytest.approx(inside, abs=1e-4)
    assert found.tokens["phi"].sum() == pytest.approx(found.frame["contribution"].sum(), abs=0.02)


def test_what_is_left_is_what_evaluate_says(found: Why) -> None:
    model = planted.model()
    plain = lh.evaluate(model, found.trial, generate=False, progress=False)
    with lh.ablate(model, found.heads, kind="zero"):
        without = lh.evaluate(model, found.trial, generate=False, progress=False)
    assert found.tried.before == pytest.approx(float(plain.metrics["logprob"][0]), abs=1e-5)
    assert found.tried.after == pytest.approx(float(without.metrics["logprob"][0]), abs=1e-5)
    assert found.tried.as_much == 0
    assert f"over {found.tried.draws} sets" not in str(found)
    assert f"range of {found.tried.draws} sets, of which 0 cost as much or more" in str(found)
    assert 1 < found.tried.draws <= DRAWS
    assert not has_hooks(model)


def test_without_a_needle_the_tokens_are_found(found: Why) -> None:
    bare = asked(needle=None)
    assert next(iter(bare.scores)) == "dla_exact"
    start, end = found.trial.needle or (0, 0)
    assert start <= bare.tokens["position"][0] < end
    assert bare.frame["needle"].isna().all()


@pytest.mark.slow
def test_an_answer_that_the_model_does_not_give_is_said_so(found: Why) -> None:
    other = next(trial.answer for trial in planted.trials(8) if trial.answer != found.trial.answer)
    wrong = asked(answer=other)
    assert found.right
    assert "gives this answer" in str(found)
    assert not wrong.right
    assert f"does not give this answer: it writes “{found.tried.text_before}”" in str(wrong)
    own = asked(answer=None)
    assert own.right
    assert own.trial.answer == found.tried.text_before.strip()


def test_wrong_input_is_named() -> None:
    model, prompt = planted.model(), text(planted.trials(1)[0])
    for more, message in (
        ({"k": 9}, "k=9"),
        ({"controls": "bottom"}, "unknown control 'bottom': here they are random"),
        ({"needle": "nowhere"}, "occurs 0 times"),
        ({"kind": "uniform"}, "kind='uniform'"),
        ({"kind": "patch"}, "kind='patch': use 'mean' or 'zero'"),
        ({"kind": "mean"}, "no means of ordinary prompts .* use kind='zero', or reference="),
    ):
        with pytest.raises(ValueError, match=message):
            lh.why(model, prompt, "a", **{"kind": "zero", **more})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prompt is empty"):
        lh.why(model, "", "a", kind="zero")
    assert not has_hooks(model)


@pytest.mark.slow
def test_all_heads_leave_no_random_ones() -> None:
    found = asked(k=8)
    assert found.tried.random is None
    assert "random" not in str(found)


def test_the_page_holds_sentences_explorer_and_no_markup(found: Why, tmp_path: Path) -> None:
    look = replace(found.look, words=(MARKUP, *found.look.words[1:]))
    page = write_why(replace(found, look=look), tmp_path / "why.html").read_text()
    assert "data-explorer" in page
    assert "<img src=x" not in page
    assert all(str(head) in page for head in found.heads)
    assert [str(head) for head in found.heads] == found.payload["traits"]["heads"]


def test_a_prompt_is_a_text_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("from a file")
    assert command._text(str(file)) == "from a file"
    for given in ("a text", "x" * 5000, "two\nlines", "nul\0"):
        assert command._text(given) == given
