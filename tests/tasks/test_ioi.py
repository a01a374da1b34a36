"""IOI: the sentences are those TransformerLens draws, no two alike, and what goes wrong is named."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from transformer_lens.evals import IOIDataset

import lens_heads as lh
from lens_heads.tasks.ioi import ioi
from lens_heads.tasks.packaged import entries

NAMES = ["Ann", "Bob", "Eve"]


def whole(trial: lh.Trial) -> str:
    return f"{trial.question} {trial.answer}"


def test_all_prompts_are_all_that_transformer_lens_draws() -> None:
    trials = ioi(n=72, names=NAMES)
    random.seed(0)
    drawn = IOIDataset(None, names=NAMES, num_samples=4000).samples
    expected = {(sample["text"], sample["IO"].strip(), sample["S"].strip()) for sample in drawn}
    assert {(whole(trial), trial.answer, trial.meta["subject"]) for trial in trials} == expected
    assert len(expected) == 72  # 2 templates x 6 fillings x 6 ordered pairs


def test_a_trial_is_its_sentence() -> None:
    made = {"templates": ["[A] and [B] saw a [THING]. [B] gave it to [A]"], "nouns": {"THING": ["cup"], "X": ["y"]}}
    trials = {trial.answer: trial for trial in ioi(n=2, names=["Ann", "Bob"], **made)}
    trial = trials["Ann"]
    assert trial.question == "Ann and Bob saw a cup. Bob gave it to"
    assert trial.choices == ("Ann", "Bob")
    assert trial.meta == {
        "kind": "ioi",
        "indirect_object": "Ann",
        "subject": "Bob",
    }
    assert trials["Bob"].question == "Bob and Ann saw a cup. Ann gave it to"
    assert {trial.id for trial in trials.values()} < {
        f"ioi-own-{pair}-{i}" for pair in ("Ann-Bob", "Bob-Ann") for i in (0, 1)
    }
    assert trial.judge.correct(" Ann.", ["Ann"]) == 1
    assert trial.judge.correct(" Bob, then Ann", ["Ann"]) == 0


def test_names_are_those_of_a_half() -> None:
    halves = []
    for split in ("select", "test"):
        known = {name for entry in entries(split) for name in entry.characters}
        used = {name for trial in ioi(n=200, split=split) for name in trial.choices}
        assert used == known
        halves.append(used)
    assert not halves[0] & halves[1]


def test_the_draw_is_the_seeds_alone() -> None:
    random.seed(5)
    before = random.getstate()
    trials = ioi(n=50, seed=3)
    assert random.getstate() == before
    random.seed(6)
    assert ioi(n=50, seed=3) == trials
    assert {whole(trial) for trial in ioi(n=50, seed=4)} != {whole(trial) for trial in trials}
    assert len({whole(trial) for trial in trials}) == len({trial.id for trial in trials}) == 50


def test_symmetric_sentences_follow_each_other() -> None:
    trials = ioi(n=36, symmetric=True, names=NAMES)
    assert len({whole(trial) for trial in trials}) == 36
    for one, other in zip(trials[::2], trials[1::2], strict=True):
        a, b = one.choices
        swapped = one.question.replace(a, "\0").replace(b, a).replace("\0", b)
        assert (other.question, other.choices) == (swapped, (b, a))


def test_clean_and_corrupt_make_a_pair_to_patch(gqa: Any) -> None:
    trial = ioi(n=1, names=NAMES)[0]
    clean, corrupt = (
        replace(trial, question=text, corrupt=()).encode(gqa.tokenizer) for text in (trial.question, *trial.corrupt)
    )
    found = lh.patch_heads(gqa, [trial], progress=False)
    by_hand = lh.patch_heads(gqa, [replace(clean, corrupt=corrupt.tokens)], progress=False)
    assert found.values.equal(by_hand.values)
    assert (found.values != 0).any()


def test_a_model_chooses(gqa: Any) -> None:
    found = lh.evaluate(gqa, ioi(n=4), generate=False, progress=False)
    assert {"choice", "choice_norm", "choice_logprob"} < set(found.metrics)
    assert (found.metrics["choice_logprob"] < 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "train"}, "unknown split 'train': use 'select' or 'test'"),
        (
            {"n": 25, "names": ["John", "Mary"]},
            "n=25 is out of range: there are 24 distinct prompts with these names, templates and nouns",
        ),
        ({"n": 0}, "n=0"),
        ({"n": 3, "symmetric": True}, "n=3 must be even with symmetric=True"),
        ({"names": ["Ann", "Ann"]}, r"names=\['Ann', 'Ann'\] must be a list of 2 or more distinct texts"),
        ({"names": "Ann"}, "names='Ann' must be a list of 2 or more"),
        ({"templates": []}, r"templates=\[\] must be a list of 1 or more"),
        (
            {"templates": ["[B] met [A]. [B] saw [A]."]},
            r"the template '\[B\] met .* lacks a placeholder: use '\[B\]' \(subject\) twice",
        ),
        ({"templates": ["[A] saw [B] who met [A]"]}, "lacks a placeholder"),
        ({"templates": ["[B] saw [B] who met [A]"]}, "lacks a placeholder"),
        ({"nouns": {"OBJECT": []}}, r"nouns OBJECT=\[\] must be a list of 1 or more"),
    ],
)
def test_faults_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ioi(**arguments)
