"""Trials of the packaged needle sets: balanced, disjoint between splits, fixed by the seed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lens_heads.tasks import TASKS
from lens_heads.tasks.packaged import packaged
from tests import zoo


def spread(values: Any) -> int:
    counts = Counter(values).values()
    return max(counts) - min(counts)


def test_the_splits_share_no_needle_no_entry_and_no_name() -> None:
    select, test = packaged("select", n=400), packaged("test", n=400)
    for what in (lambda t: t.needle, lambda t: t.meta["entry"], lambda t: t.meta["character"]):
        assert not set(map(what, select)) & set(map(what, test))


@pytest.mark.parametrize("split", ["select", "test"])
def test_trials_are_balanced(split: str) -> None:
    trials = packaged(split, n=120, seed=3)
    assert len({trial.id for trial in trials}) == 120
    assert spread(trial.meta["kind"] for trial in trials) <= 1
    assert spread(trial.meta["character"] for trial in trials) <= 3
    assert spread(int(trial.depth * 10) for trial in trials) == 0, "twelve in each tenth"
    assert all(trial.answer == trial.meta["character"] and trial.answer in trial.needle for trial in trials)
    for kind in {trial.meta["kind"] for trial in trials}:
        assert spread(trial.meta["entry"] for trial in trials if trial.meta["kind"] == kind) <= 1


def test_the_seed_decides_everything() -> None:
    first, again, other = packaged(n=60, seed=1), packaged(n=60, seed=1), packaged(n=60, seed=2)
    assert first == again
    assert not {trial.id for trial in first} & {trial.id for trial in other}
    assert [trial.needle for trial in first] != [trial.needle for trial in other]
    assert [trial.depth for trial in first] != [trial.depth for trial in other]
    assert {trial.haystack for trial in first} != {trial.haystack for trial in other}


def test_ids_are_readable() -> None:
    trial = packaged(n=1, seed=7)[0]
    meta = trial.meta
    assert trial.id == f"select-{meta['entry']}-{meta['test']}-{meta['character']}-7"
    direct = packaged(n=1, seed=7, questions="direct")[0]
    assert direct.id == f"{trial.id}-direct"
    assert (direct.needle, direct.haystack) == (trial.needle, trial.haystack), "only the question differs"
    assert direct.question != trial.question


def test_every_trial_has_its_own_stretch_long_enough() -> None:
    trials = packaged(n=200, context_length=1_000)
    assert len({trial.haystack for trial in trials}) == 200
    assert all(len(trial.haystack) >= 8_000 for trial in trials)
    assert all(trial.haystack[0].isupper() or trial.haystack[0] == '"' for trial in trials)


def test_given_depths_are_used_evenly() -> None:
    trials = packaged(n=30, depths=[0.0, 0.5, 1.0])
    assert Counter(trial.depth for trial in trials) == {0.0: 10, 0.5: 10, 1.0: 10}
    assert Counter(trial.depth for trial in packaged(n=11, depths=11)) == Counter(i / 10 for i in range(11))


def test_all_different_needles_can_be_asked_for_and_no_more() -> None:
    with pytest.raises(
        ValueError, match=r"n=100000 is out of range: there are \d+ distinct needles .* in the select split"
    ) as caught:
        packaged(n=100_000)
    most = int(str(caught.value).split("there are ")[1].split()[0])
    assert len({trial.needle for trial in packaged(n=most)}) == most
    with pytest.raises(ValueError, match="n=0"):
        packaged(n=0)
    with pytest.raises(ValueError, match="unknown split 'train': use 'select' or 'test'"):
        packaged("train")
    with pytest.raises(ValueError, match=r"field 'questions' has no 'twohop', only 'onehop', 'direct'"):
        packaged(questions="twohop")


def test_prompts_have_the_length_asked_for_and_the_needle_where_it_is_said() -> None:
    tokenizer = zoo.tokenizer()
    for trial in packaged(n=6, context_length=900):
        encoded = trial.encode(tokenizer)
        assert encoded.needle is not None
        start, end = encoded.needle
        assert tokenizer.decode(encoded.tokens[start:end]).strip() == trial.needle
        around = len(trial.template.format(haystack="", question=trial.question))
        assert 0 <= 900 - 200 + around - len(encoded) <= 2, "a needle at the very start does without its space"


def test_the_table_lists_the_tasks() -> None:
    names = [
        "packaged",
        "nolima",
        "niah",
        "musique",
        "babilong",
        "parametric",
        "arithmetic",
        "capitals",
        "induction",
        "rhyme",
        "continuation",
        "sec10k",
        "sec10k_documents",
        "hellaswag",
        "boolq",
        "arc_challenge",
        "mmlu",
        "wmdp",
        "ioi",
        "qrhead",
        "gsm8k",
        "mbpp",
        "humaneval",
        "swearing",
    ]
    assert list(TASKS) == names
    assert all(task.trials.__name__ == name and "\n" not in task.about for name, task in TASKS.items())
