"""Presets of the study of capabilities: which trials they ask for, choosing among them, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lens_heads import studies
from lens_heads.studies.capability_paper import presets
from lens_heads.studies.capability_paper.presets import (
    PRESETS,
    Capability,
    chance,
    kin_of,
    of_capabilities,
    owner,
    with_choices,
)
from lens_heads.studies.capability_paper.study import Asked
from lens_heads.trials.trial import Trial
from tests.studies.test_capability import TINY


@pytest.mark.slow
@pytest.mark.parametrize("name", ["packaged", "quick", "thorough", "negative-answers"])
def test_the_offline_presets_share_no_trial_between_the_sides(name: str) -> None:
    plan = PRESETS[name]
    made = Asked.of(plan)
    names = list(plan.localized)
    assert list(made.evaluation) == names == [task for task in made.selection if task in names]
    assert list(made.kin) == [kin_of(task) for task in names if plan.capabilities[task].kin]
    back = [kin_of(task) for task in names if plan.capabilities[task].kin_select and plan.kin_draws]
    assert [task for task in made.selection if task not in names] == back
    tested = [trial for trials in made.tests.values() for trial in trials]
    ids, needles = {trial.id for trial in tested}, {trial.needle for trial in tested if trial.needle}
    for task, trials in made.selection.items():
        assert len(trials) == plan.capabilities[owner(task)].count(plan.n_select)
        assert not ids & {trial.id for trial in trials}
        assert not needles & {trial.needle for trial in trials}
    for task, trials in made.tests.items():
        assert len(trials) == plan.capabilities[owner(task)].count(plan.most_trials) >= 5
    for task in made.kin:
        assert not {trial.question for trial in made.kin[task]} & {
            trial.question for trial in made.evaluation[owner(task)]
        }


@pytest.mark.slow
def test_headlines_have_the_trials_and_draws_that_they_take() -> None:
    """As many as the data has where it has not 100; forty random sets of either kind; three draws of masks."""
    plan, made = PRESETS["thorough"], Asked.of(PRESETS["thorough"])
    assert {task: len(trials) for task, trials in made.evaluation.items()} == {
        **{"arithmetic": 30, "retrieval": 100, "capitals": 75, "induction": 200, "rhyme": 100, "continuation": 40}
    }
    for each in (plan, PRESETS["packaged"], PRESETS["paper"]):
        assert each.random_draws == 40
        assert min(each.mask_draws, each.kin_draws) >= 3


def test_trials_without_choices_get_answers_of_others() -> None:
    trials = [Trial(id=str(i), question="?", answer=answer) for i, answer in enumerate("aabcdef")]
    trials.append(Trial(id="own", question="?", answer="g", choices=("g", "h")))
    made = with_choices(trials)
    assert made[-1] is trials[-1]
    for trial in made[:-1]:
        assert len(set(trial.choices)) == 4
        assert trial.choices[0] == trial.answer
    assert with_choices(trials[:2]) == trials[:2], "the same answer is no choice"
    assert with_choices(trials, seed=1) != made == with_choices(trials)


def test_the_papers_preset_asks_for_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []
    stub = Trial(id="1", question="?", answer="a", choices=("a", "b"))
    monkeypatch.setattr(presets.tasks, "load", lambda name, **more: calls.append((name, more)) or [stub])
    plan = of_capabilities(PRESETS["paper"])
    assert list(plan.localized) == ["gsm8k", "rhyme"]
    assert list(plan.capabilities) == ["gsm8k", "rhyme", "hellaswag", "boolq", "arc_challenge", "mmlu"]
    assert (plan.n_masks, plan.sparsity, plan.k, plan.n_select) == (200, 0.02, 5, 100)
    allowed = of_capabilities(PRESETS["paper"], words="list.txt", allow_code_execution=True)
    assert list(allowed.localized) == ["gsm8k", "mbpp", "rhyme", "swearing"]
    made = Asked.of(allowed)
    assert list(made.tests) == [*allowed.capabilities, kin_of("gsm8k"), kin_of("mbpp")]
    assert ("gsm8k", {"split": "train", "n": 100}) in calls
    assert ("gsm8k", {"split": "test", "n": 100}) in calls
    assert ("mbpp", {"split": "train", "allow_code_execution": True, "n": 100}) in calls
    assert ("humaneval", {"allow_code_execution": True, "n": 100}) in calls
    assert ("swearing", {"split": "select", "words": "list.txt", "n": 24}) in calls
    assert ("arithmetic", {"source": "hub", "split": "test", "n": 100}) in calls
    for task, arguments in calls:  # Every argument is one that the task takes.
        assert set(arguments) <= set(presets.tasks.arguments_of(task)), task


def test_a_choice_of_capabilities() -> None:
    plan = of_capabilities(PRESETS["thorough"], ["capitals", "rhyme"])
    assert list(plan.capabilities) == ["capitals", "rhyme"]
    assert plan.compared == "capitals"
    assert of_capabilities(PRESETS["thorough"], ["rhyme", "retrieval"]).compared == "retrieval"
    assert of_capabilities(TINY) == TINY


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: studies.capability("any", preset="small"),
            "preset='small': use packaged, quick, thorough, paper, negative-model, ",
        ),
        (
            lambda: of_capabilities(PRESETS["quick"], ["rhymes"]),
            "there is no capability 'rhymes' in this preset: use capitals, induction",
        ),
        (
            lambda: of_capabilities(PRESETS["paper"], ["mbpp"]),
            r"'mbpp' needs allow_code_execution: pass it \(--allow-code",
        ),
        (lambda: of_capabilities(PRESETS["paper"], ["swearing"]), r"'swearing' needs words: pass it \(--words\)"),
        (
            lambda: of_capabilities(PRESETS["packaged"], words="list.txt"),
            "words='.*' is given, but none of arithmetic, .* needs it: omit it",
        ),
        (
            lambda: of_capabilities(PRESETS["paper"], ["mmlu"]),
            "compared='gsm8k': use a capability with selection trials: none",
        ),
        (
            lambda: replace(TINY, compared="arithmetic"),
            "compared='arithmetic': use a capability .* trials: retrieval, induction",
        ),
        (lambda: replace(TINY, methods=("css", "best")), "unknown method 'best': use 'css' and any of css, csb"),
        (lambda: replace(TINY, methods=("greedy",)), "methods=greedy lacks 'css'"),
        (lambda: replace(TINY, k=5), "k=5: use one of ks=1, 2"),
        (lambda: replace(TINY, n_test=4), "n_test=4 gives 4 trials of 'retrieval': intervals need at least 5"),
        (lambda: replace(TINY, max_trials=3), "gives 3 trials of 'retrieval'"),
        (
            lambda: replace(TINY, random_trials=4),
            "random_trials=4: must be an integer of at least 5, as intervals need",
        ),
        (lambda: replace(TINY, mask_draws=0), "mask_draws=0: must be a positive integer"),
        (lambda: replace(TINY, precision=-1.0), "precision=-1.0: must be a finite number of at least 0"),
        (
            lambda: replace(TINY, control="shuffled"),
            "control='shuffled': use one of None, 'random_initialised', 'permuted",
        ),
        (lambda: replace(TINY, random_draws=0), "random_draws=0: must be an integer of at least 2"),
        (lambda: replace(TINY, kind="mean"), "kind='mean': use 'zero'.*, which need no reference or options"),
        (lambda: Capability(None, ("mmlu", {}), metric="accuracy"), "metric='accuracy' is not a metric: use one of"),
    ],
)
def test_what_cannot_be_run_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_chance_is_a_choice_or_the_commonest_answer_of_the_others() -> None:
    asked = zip((2, 4, 4, 4), "abcd", strict=True)
    trials = [Trial(id=answer, question="?", answer=answer, choices=(answer, "e", "f", "g")[:n]) for n, answer in asked]
    assert chance(trials, "choice") == pytest.approx(0.3125)
    assert chance(trials, "greedy_match") == 0, "no other trial has the same answer"
    assert chance([*trials, *trials[:1] * 4], "choice") == pytest.approx(4 / 7), "always the same answer"
    assert chance([*trials, *trials[:1] * 4], "correct") == 0
