"""Trials of the packaged needle sets: balanced, disjoint between splits, fixed by the seed."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_heads.tasks import TASKS
from lens_heads.tasks.packaged import entries, packaged
from tests import zoo


def spread(values: Any) -> int:
    counts = Counter(values).values()
    return max(counts) - min(counts)


def pair(trial: Any) -> tuple[str, str]:
    return trial.meta["association"], trial.meta["character"]


def test_the_splits_share_no_needle_no_entry_no_name_and_no_paragraph() -> None:
    select, test = packaged(split="select", n=200), packaged(split="test", n=200)
    for what in (lambda t: t.needle, lambda t: t.meta["entry"], lambda t: t.meta["character"], lambda t: t.template):
        assert not set(map(what, select)) & set(map(what, test))
    paragraphs = [{text for trial in trials for text in trial.haystack.split("\n\n")} for trials in (select, test)]
    assert not paragraphs[0] & paragraphs[1]


@given(split=st.sampled_from(["select", "test"]), n=st.integers(1, 200), seed=st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_any_number_of_trials_uses_everything_equally_often(split: str, n: int, seed: int) -> None:
    trials = packaged(split=split, n=n, seed=seed, context_length=30)
    assert len({pair(trial) for trial in trials}) == len({trial.id for trial in trials}) == n
    every: dict[str, set[str]] = {"kind": set(), "entry": set(), "association": set(), "character": set()}
    for entry in entries(split):
        every["kind"].add(entry.kind)
        every["entry"].add(entry.id)
        every["association"] |= {f"{entry.id}-{test.id}" for test in entry.tests}
        every["character"] |= set(entry.characters)
    for what, values in every.items():
        used = Counter(dict.fromkeys(values, 0))
        used.update(trial.meta[what] for trial in trials)
        assert set(used) == values
        assert set(used.values()) <= {n // len(values), math.ceil(n / len(values))}, what


def test_fewer_trials_are_the_first_of_more_in_what_they_use() -> None:
    assert [pair(trial) for trial in packaged(n=20)] == [pair(trial) for trial in packaged(n=120)[:20]]


def test_depths_are_spread_and_answers_stand_in_the_needle() -> None:
    for questions in ("onehop", "direct", "multitoken"):
        trials = packaged(split="test", n=120, seed=3, questions=questions)
        assert len({trial.id for trial in trials}) == 120
        assert spread(int(trial.depth * 10) for trial in trials) == 0, "twelve in each tenth"
        for trial in trials:
            assert trial.needle.count(trial.answer) == 1
            assert trial.answer not in trial.question
            assert (trial.answer == trial.meta["character"]) == (questions != "multitoken")
            assert len(trial.answer.split()) > 1 or questions != "multitoken"
            assert trial.meta["association"] == f"{trial.meta['entry']}-{trial.meta['test']}"


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
    for questions in ("direct", "multitoken"):
        other = packaged(n=1, seed=7, questions=questions)[0]
        assert other.id == f"{trial.id}-{questions}"
        assert (other.needle, other.haystack) == (trial.needle, trial.haystack), "only what is asked differs"
        assert other.question != trial.question


@pytest.mark.slow
@pytest.mark.parametrize(("length", "most"), [(320, 1), (1_000, 1), (4_000, 3)])
def test_every_trial_has_its_own_stretch_long_enough(length: int, most: int) -> None:
    """No paragraph comes again before all have come: at 200 trials, not at all if they are short."""
    trials = packaged(split="test", n=200, context_length=length)
    texts = [trial.haystack.split("\n\n") for trial in trials]
    used = Counter(paragraph for paragraphs in texts for paragraph in paragraphs)
    assert max(used.values()) == most
    assert spread(used.elements()) <= 1
    assert all(len(set(paragraphs)) == len(paragraphs) for paragraphs in texts)
    assert all(len(trial.haystack) >= 8 * length for trial in trials)
    assert all(trial.haystack[0].isupper() or trial.haystack[0] == '"' for trial in trials)


def test_given_depths_are_used_evenly() -> None:
    trials = packaged(n=30, depths=[0.0, 0.5, 1.0])
    assert Counter(trial.depth for trial in trials) == {0.0: 10, 0.5: 10, 1.0: 10}
    assert Counter(trial.depth for trial in packaged(n=11, depths=11)) == Counter(i / 10 for i in range(11))


@pytest.mark.slow
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
        packaged(split="train")
    with pytest.raises(ValueError, match=r"field 'questions' has no 'twohop', only 'onehop', 'direct', 'multitoken'"):
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
        "key_value",
        "colored_objects",
        "copy_colors",
        "greater_than",
        "succession",
        "word_pairs",
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
