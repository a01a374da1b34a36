"""Presets of the study of capabilities: which trials they ask for, choosing among them, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lens_heads import studies
from lens_heads.studies.capability_paper import capabilities
from lens_heads.studies.capability_paper.capabilities import Capability
from lens_heads.studies.capability_paper.presets import PRESETS, of_capabilities
from lens_heads.studies.capability_paper.stages import Asked
from lens_heads.trials.trial import Trial
from tests.studies.test_capability import TINY


@pytest.mark.parametrize("name", ["packaged", "quick"])
def test_the_offline_presets_share_no_trial_between_the_sides(name: str) -> None:
    plan = PRESETS[name]
    made = Asked.of(plan)
    selection, evaluation, kin = made.selection, made.evaluation, made.kin
    assert list(selection) == list(evaluation) == list(capabilities.OFFLINE)[: len(selection)]
    assert list(kin) == ["arithmetic", "retrieval", "capitals", "induction"]
    for task, trials in selection.items():
        one = plan.capabilities[task]
        assert len(trials) == round(one.share * plan.n_select)
        ids = {trial.id for trial in trials}
        assert not ids & {trial.id for trial in [*evaluation[task], *kin.get(task, [])]}
        assert not {t.needle for t in trials if t.needle} & {t.needle for t in evaluation[task]}
        asked = 4 if "choice" in one.metric else 0
        assert all(len(trial.choices) == asked for trial in [*trials, *evaluation[task]])
    assert not {t.question for t in evaluation["arithmetic"]} & {t.question for t in kin["arithmetic"]}


def test_the_papers_preset_asks_for_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []
    stub = Trial(id="1", question="?", answer="a", choices=("a", "b"))
    monkeypatch.setattr(capabilities.tasks, "load", lambda name, **more: calls.append((name, more)) or [stub])
    plan = of_capabilities(PRESETS["paper"])
    assert list(plan.localized) == ["gsm8k", "rhyme"]
    assert list(plan.capabilities) == ["gsm8k", "rhyme", "hellaswag", "boolq", "arc_challenge", "mmlu"]
    assert (plan.n_masks, plan.sparsity, plan.k, plan.n_select) == (200, 0.02, 5, 100)
    allowed = of_capabilities(PRESETS["paper"], words="list.txt", allow_code_execution=True)
    assert list(allowed.localized) == ["gsm8k", "mbpp", "rhyme", "swearing"]
    asked = {name: bool(trials[0].choices) for name, trials in Asked.of(allowed).evaluation.items()}
    assert [name for name, chosen in asked.items() if chosen] == ["hellaswag", "boolq", "arc_challenge", "mmlu"]
    assert ("gsm8k", {"split": "train", "n": 100}) in calls
    assert ("gsm8k", {"split": "test", "n": 100}) in calls
    assert ("mbpp", {"split": "train", "allow_code_execution": True, "n": 100}) in calls
    assert ("humaneval", {"allow_code_execution": True, "n": 100}) in calls
    assert ("swearing", {"split": "select", "words": "list.txt", "n": 24}) in calls
    assert ("arithmetic", {"source": "hub", "split": "test", "n": 100}) in calls
    for task, arguments in calls:  # Every argument is one that the task takes.
        assert set(arguments) <= set(capabilities.tasks.arguments_of(task)), task


def test_a_choice_of_capabilities() -> None:
    plan = of_capabilities(PRESETS["packaged"], ["capitals", "rhyme"])
    assert list(plan.capabilities) == ["capitals", "rhyme"]
    assert plan.compared == "capitals"
    assert of_capabilities(PRESETS["packaged"], ["rhyme", "retrieval"]).compared == "retrieval"
    assert of_capabilities(TINY) == TINY


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: studies.capability("any", preset="small"), "preset='small': use packaged, quick, paper, or a Preset"),
        (
            lambda: of_capabilities(PRESETS["quick"], ["rhymes"]),
            "there is no capability 'rhymes' in this preset: use arithmetic, retrieval,",
        ),
        (
            lambda: of_capabilities(PRESETS["paper"], ["mbpp"]),
            r"'mbpp' needs allow_code_execution: pass it \(--allow-code",
        ),
        (lambda: of_capabilities(PRESETS["paper"], ["swearing"]), r"'swearing' needs words: pass it \(--words\)"),
        (
            lambda: of_capabilities(PRESETS["packaged"], words="list.txt"),
            "words is given, but none of arithmetic, .* needs it: omit it",
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
        (lambda: replace(TINY, n_test=2), "n_test=2 gives fewer than two trials of 'retrieval'"),
        (lambda: replace(TINY, random_draws=0), "random_draws=0: must be an integer of at least 2"),
        (lambda: replace(TINY, kind="mean"), "kind='mean': use 'zero'.*, which need no reference or options"),
        (lambda: Capability(None, ("mmlu", {}), metric="accuracy"), "metric='accuracy' is not a metric: use one of"),
    ],
)
def test_what_cannot_be_run_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
