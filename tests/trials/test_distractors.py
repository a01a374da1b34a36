"""Second needles: each task with needles gets them, the question then picks one, and what cannot be is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lens_heads as lh
from lens_heads.tasks import add_distractors, exchange_questions
from lens_heads.trials.exchanges import accepted, mentions, share_a_group
from tests import zoo
from tests.conftest import random_trial, tiny


def niah(folder: Path) -> list[lh.Trial]:
    """Three needles of different topics, as Wu et al. have them."""
    topics = {"key": "red", "lamp": "of brass", "boat": "at the pier"}
    lines = [
        f'{{"needle": "The {thing} is {real}.", "question": "How or where is the {thing}?", "real_needle": "{real}"}}'
        for thing, real in topics.items()
    ]
    (folder / "needles.jsonl").write_text("\n".join(lines))
    for number in (1, 2, 3):
        (folder / f"part{number}").mkdir()
        (folder / f"part{number}" / "text.txt").write_text("It rained all day. Nobody went out. " * 60)
    return lh.tasks.niah(folder, lengths=[600], depths=[0.2, 0.7])


TASKS = {
    "packaged": lambda folder: lh.tasks.packaged(n=8, context_length=900),
    "niah": niah,
    "musique": lambda folder: lh.tasks.musique(n=12, hops=1, needle="answer paragraph", split="select"),
    "sec10k": lambda folder: lh.tasks.sec10k(n=12, words=60),
    "key_value": lambda folder: lh.tasks.key_value(n=6, pairs=3, characters=4, shots=1),
}


@pytest.mark.parametrize("task", TASKS)
def test_the_question_picks_one_of_two_needles(task: str, tmp_path: Path) -> None:
    listed = TASKS[task](tmp_path)
    made = add_distractors(listed, seed=3)
    needles = {trial.needle for trial in listed}
    for trial, own in zip(made, listed, strict=True):
        (other,) = trial.distractors
        assert (trial.question, trial.answer, trial.needle) == (own.question, own.answer, own.needle)
        assert other.text in needles - {trial.needle}
        assert set(trial.choices) == {trial.answer, other.answer}
        assert not mentions(other.text, accepted(trial))
    assert sorted(trial.distractors[0].text for trial in made) == sorted(trial.needle for trial in listed)
    for trial, exchanged in zip(made, exchange_questions(made), strict=True):
        mine, theirs = (one.encode(zoo.tokenizer()) for one in (trial, exchanged))
        assert exchanged.question in trial.corrupt
        assert theirs.answer == trial.distractors[0].answer
        assert mine.corrupt is not None
        texts = [zoo.tokenizer().decode(one.tokens) for one in (mine, theirs)]
        assert all(trial.needle in text and trial.distractors[0].text in text for text in texts)
        assert texts[0].replace(trial.question, "") == texts[1].replace(exchanged.question, "")
    assert add_distractors(listed, seed=3) == made
    if task != "niah":  # Three needles have few exchanges.
        assert add_distractors(listed, seed=4) != made


@pytest.mark.slow
def test_ability_and_need_take_them() -> None:
    made = add_distractors(lh.tasks.packaged(n=6, context_length=480))
    model = tiny("llama-gqa")
    found = lh.ability(model, made, progress=False)
    assert found.exchanged is not None
    assert found.chance == 0.5
    assert lh.question_need(model, made, progress=False).asked.trial_ids == tuple(trial.id for trial in made)


def test_what_cannot_be(tmp_path: Path) -> None:
    facts = TASKS["packaged"](tmp_path)
    with pytest.raises(ValueError, match="has a distractor already: pass trials with one needle"):
        add_distractors(add_distractors(facts))
    with pytest.raises(ValueError, match="has no needle"):
        add_distractors(lh.tasks.babilong(n=4, task="qa1"))
    with pytest.raises(ValueError, match="is in tokens, whose needle cannot be composed again"):
        add_distractors([random_trial(1), random_trial(2)])
    alike: list[Any] = [replace(facts[0], id=str(at)) for at in range(3)]
    with pytest.raises(ValueError, match="would get no needle of another trial"):
        add_distractors(alike)
    made = add_distractors(facts)
    assert not any(
        share_a_group(one, next(two for two in facts if two.needle == one.distractors[0].text)) for one in made
    )
