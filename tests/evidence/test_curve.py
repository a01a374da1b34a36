"""ablation_curve: every number equals evaluate under ablate, controls are what they say, intervals are of trials."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads.answering.choices import CHOICE_METRICS
from lens_heads.answering.evaluation import METRICS, Evaluation
from lens_heads.evidence import estimates as statistics
from lens_heads.evidence import grid as ablation
from lens_heads.evidence.curve import ablation_curve
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.conditions import Condition
from lens_heads.heads.controls import CONTROLS, Controls
from lens_heads.heads.head import Head
from lens_heads.heads.made_on import MadeOn
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.activations import TrialActivations, mean_activations, trial_activations
from lens_heads.interventions.independence import check_independent
from lens_heads.model.hooks import has_hooks
from lens_heads.runs.identity import ModelIdentity
from lens_heads.stats import crossed_interval, difference, mean_interval, ratio_interval
from lens_heads.trials.digests import made_on
from lens_heads.trials.encoded import EncodedTrial
from tests import curves, handmade, zoo
from tests.conftest import random_trial, tiny

ALL = [Head(layer, head) for layer in range(3) for head in range(4)]


def trials(n: int = 3, first: int = 10) -> list[EncodedTrial]:
    return [random_trial(first + i, 14 + 3 * i, needle=(2, 5), answer=2) for i in range(n)]


def ranking(
    best: list[str], method: str = "made-up", trial_ids: tuple[str, ...] = ("s0", "s1"), **meta: Any
) -> HeadScores:
    """Scores with these heads on top in this order, the rest behind in layer order."""
    order = [Head.parse(name) for name in best]
    order += [head for head in ALL if head not in order]
    values = torch.zeros(3, 4)
    for place, head in enumerate(order):
        values[head.layer, head.head] = len(order) - place
    return HeadScores.from_trials(method, torch.stack([values + 1, values - 1]), trial_ids, **meta)


LEAD = ranking(["L2H1", "L0H3", "L2H0", "L1H1"])
OTHER = ranking(["L0H3", "L1H2", "L2H1"], "other")


def parse(names: str) -> set[Head]:
    return {Head.parse(name) for name in names.split(",")} if names else set()


def sets(curve: AblationCurve) -> dict[tuple[str, str, int, int], set[Head]]:
    """The heads of each condition, by method, set, k and seed."""
    t = curve.per_trial
    return {(row["method"], row["set"], row["k"], row["draw"]): parse(row["heads"]) for row in t.to_dict("records")}


def curve_of(model: Any, rankings: Any = None, **options: Any) -> AblationCurve:
    settings: dict[str, Any] = {
        "ks": (1, 3),
        "kind": "zero",
        "generate": False,
        "progress": False,
    } | options
    about = {"draws": settings.pop("draws", 2), "of": settings.pop("of", None)}
    settings["controls"] = Controls(settings.get("controls", CONTROLS), **about)
    asked = settings.pop("trials", trials())
    asked = asked if isinstance(asked, dict) else {"retrieval": asked}
    return ablation_curve(model, asked, LEAD if rankings is None else rankings, **settings)


class Counted:
    """`answer_batch` with a record of what it was asked for, and trials it fails on or is interrupted at."""

    def __init__(self, fail: Any = None, stop_after: int | None = None) -> None:
        self.batches: list[list[str]] = []
        self.fail, self.stop_after, self.inner = fail or (lambda trial: False), stop_after, ablation.answer_batch

    def __call__(self, model: Any, batch: Any, max_new_tokens: int, **how: Any) -> Any:
        if len(self.batches) == self.stop_after:
            raise KeyboardInterrupt
        self.batches.append([trial.id for trial in batch])
        for trial in batch:
            if self.fail(trial):
                raise RuntimeError(f"out of memory on {trial.id}")
        return self.inner(model, batch, max_new_tokens, **how)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    spy = Counted()
    monkeypatch.setattr(ablation, "answer_batch", spy)
    return spy


# The numbers


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "batch_size"), [("mean", 1), ("resample", 2), ("streaming", 1)])
def test_every_number_is_evaluate_under_ablate(gqa: Any, kind: str, batch_size: int) -> None:
    reference: Any = mean_activations(gqa, trials(2, 90), progress=False) if kind == "mean" else None
    reference = trial_activations(gqa, trials(1, 90)[0]) if kind == "resample" else reference
    options = {"sink": 1, "recent": 2} if kind == "streaming" else {}
    tasks = {"retrieval": trials(), "recall": trials(2, 40)}
    curve = curve_of(
        gqa,
        {"made-up": LEAD, "other": OTHER},
        kind=kind,
        reference=reference,
        generate=True,
        max_new_tokens=3,
        batch_size=batch_size,
        specificity={"recall": tasks["recall"]},
        **options,
    )
    assert curve.metrics == list(METRICS[: -len(CHOICE_METRICS)])
    groups = curve.per_trial.groupby(["method", "set", "k", "draw", "task"])
    assert len(groups) == 2 * (1 + 2 * (2 + 1 + 2 + 2))  # Tasks times (none + ks times (tops, bottom, two draws each)).
    for (_, _, k, _, task), rows in groups:
        heads = parse(rows["heads"].iloc[0])
        assert len(heads) == k
        with lh.ablate(gqa, sorted(heads), kind=kind, reference=reference, **options):
            expected = lh.evaluate(gqa, tasks[task], max_new_tokens=3, progress=False)
        assert list(rows["trial"]) == list(expected.trial_ids)
        assert list(rows["text"]) == list(expected.texts)
        for metric, values in expected.metrics.items():
            found = torch.tensor(rows[metric].to_numpy(), dtype=torch.float32)
            torch.testing.assert_close(found, values, atol=3e-5, rtol=3e-4)
    assert not has_hooks(gqa)


def test_the_numbers_are_a_plain_models(arch: str, model: Any) -> None:
    hf = zoo.hf_model(arch)
    curve = curve_of(model, ks=(2,), controls=())
    for set_, heads in (("none", []), ("top", [(2, 1), (0, 3)])):
        with handmade.by_hand(hf, heads, "zero"):
            expected = [handmade.gold_logprob(hf, trial.tokens, trial.answer_tokens) for trial in trials()]
        found = curve.per_trial[curve.per_trial["set"] == set_]["logprob"]
        assert list(found) == pytest.approx(expected, abs=3e-5, rel=3e-4)


def test_without_generating_only_teacher_forced_metrics_are_measured(gqa: Any) -> None:
    curve = curve_of(gqa)
    assert curve.metrics == ["logprob", "greedy_match"]
    with pytest.raises(ValueError, match="metric 'contains' was not measured: use logprob, greedy_match"):
        curve.values(Condition("made-up", "top", 1), "contains")
    with pytest.raises(ValueError, match="nothing was measured for made-up top k=2 on 'retrieval'"):
        curve.values(Condition("made-up", "top", 2), "logprob")


# Which heads


def test_top_and_bottom_are_the_rankings_ends(gqa: Any) -> None:
    found = sets(curve_of(gqa, {"lead": LEAD, "other": OTHER}, of="all"))
    assert found["none", "none", 0, 0] == set()
    assert found["lead", "top", 3, 0] == parse("L2H1,L0H3,L2H0")
    assert found["other", "top", 1, 0] == parse("L0H3")
    assert found["lead", "bottom", 1, 0] == parse("L2H3")
    assert found["lead", "bottom", 3, 0] == parse("L2H3,L2H2,L1H3")
    assert found["other", "bottom", 3, 0] == parse("L2H3,L2H2,L2H0")


def test_random_heads_are_any_heads(gqa: Any) -> None:
    """Every head is drawn equally often, those of the rankings among them: otherwise they would be heads nobody chose."""
    found = sets(curve_of(gqa, {"lead": LEAD, "other": OTHER}, draws=400, ks=(3,), trials=trials(1), controls="random"))
    drawn = [found["any", "random", 3, seed] for seed in range(400)]
    assert all(len(heads) == 3 for heads in drawn)
    counts = Counter(head for heads in drawn for head in heads)
    assert min(counts[head] for head in ALL) > 60  # 100 expected, standard deviation 8.7.
    assert max(counts.values()) < 140
    assert not any(set_ == "random" and method != "any" for method, set_, _, _ in found)


def test_random_like_has_as_many_heads_in_each_layer(gqa: Any) -> None:
    """Of all heads of the layer, the ranking's own among them, and every one equally often."""
    found = sets(curve_of(gqa, draws=300, ks=(3,), trials=trials(1), controls="random_like"))
    drawn = [found["made-up", "random_like", 3, seed] for seed in range(300)]
    assert all(Counter(head.layer for head in heads) == {2: 2, 0: 1} for heads in drawn)
    counts = Counter(head for heads in drawn for head in heads)
    for head in ALL:
        expected = {0: 75, 1: 0, 2: 150}[head.layer]
        assert abs(counts[head] - expected) <= 40


def test_another_seed_redraws_and_more_draws_begin_with_the_same(gqa: Any) -> None:
    def drawn(draws: int, seed: int) -> list[str]:
        controls = Controls(("random", "random_like"), draws, seed)
        curve = ablation_curve(
            gqa, trials(1), LEAD, ks=3, kind="zero", controls=controls, generate=False, progress=False
        )
        return [curve.heads(Condition.random(3), draw=draw) for draw in range(draws)]

    assert drawn(4, 0)[:2] == drawn(2, 0)
    assert drawn(2, 1) == drawn(4, 0)[1:3], "draw i has the seed + i"
    assert drawn(2, 50) != drawn(2, 0)


def test_random_heads_run_on_the_first_trials_only(gqa: Any) -> None:
    settings = Controls(("random", "random_like"), draws=3, trials=2)
    asked = trials(5)
    table = ablation_curve(
        gqa, asked, LEAD, ks=(1,), kind="zero", controls=settings, generate=False, progress=False
    ).per_trial
    by_set = {name: set(rows["trial"]) for name, rows in table.groupby("set")}
    assert by_set["random"] == by_set["random_like"] == {trial.id for trial in asked[:2]}
    assert by_set["top"] == by_set["none"] == {trial.id for trial in asked}
    together = ablation_curve(
        gqa, asked, LEAD, ks=(1,), kind="zero", controls=replace(settings, trials=None), generate=False, progress=False
    )
    both = together.per_trial.merge(table, on=["method", "set", "k", "draw", "trial"], suffixes=("", "_few"))
    assert len(both) == len(table)
    np.testing.assert_allclose(both["logprob"], both["logprob_few"], atol=1e-5)


@pytest.mark.slow
def test_controls_are_the_leads_unless_told(gqa: Any) -> None:
    both = {"lead": LEAD, "other": OTHER}

    def controlled(**options: Any) -> set[tuple[str, str]]:
        return {(method, set_) for method, set_, _, _ in sets(curve_of(gqa, both, ks=(1,), **options))}

    plain = {("none", "none"), ("lead", "top"), ("other", "top")}
    of_lead = {("lead", "bottom"), ("lead", "random_like")}
    of_other = {("other", "bottom"), ("other", "random_like")}
    assert controlled() == plain | of_lead | {("any", "random")}
    assert controlled(of="other") == plain | of_other | {("any", "random")}
    assert controlled(of="all") == plain | of_lead | of_other | {("any", "random")}
    assert controlled(controls=()) == plain
    assert controlled(controls=("bottom",)) == plain | {("lead", "bottom")}


@pytest.mark.usefixtures("alone")
def test_ks_end_at_the_number_of_heads(gqa: Any, counted: Counted) -> None:
    curve = curve_of(gqa, ks=(50, 100, 2), controls=("bottom",))
    assert set(curve.per_trial["k"]) == {0, 2, 12}
    assert sets(curve)["made-up", "top", 12, 0] == set(ALL)
    assert len(counted.batches) == 3 * 4  # none, top 2, bottom 2, all.


# What is run, and how often


@pytest.mark.usefixtures("alone")
def test_equal_sets_of_heads_are_run_once(gqa: Any, counted: Counted) -> None:
    """All twelve heads are every condition of k=12; equal rankings have one top; the order is no matter."""
    swapped = ranking(["L0H3", "L2H1", "L2H0"], "swapped")
    curve = curve_of(gqa, {"lead": LEAD, "twin": LEAD, "swapped": swapped}, ks=(2, 12), of="all")
    distinct = {tuple(sorted(heads)) for heads in sets(curve).values()}
    assert len(counted.batches) == 3 * len(distinct)
    assert len(sets(curve)) == 1 + 2 * (3 + 3 + 3 * 2 + 2)
    of_all = curve.per_trial[curve.per_trial["k"] == 12]
    assert (of_all.groupby("trial")["logprob"].nunique() == 1).all()
    assert of_all.groupby("trial").size().tolist() == [14, 14, 14]


def test_sets_of_heads_run_side_by_side_and_tasks_apart(gqa: Any, counted: Counted) -> None:
    curve_of(gqa, ks=(1,), controls=("bottom",), batch_size=8, specificity={"recall": trials(2, 40)})
    assert sorted(counted.batches, key=len) == [["random-40", "random-41"], ["random-10", "random-11", "random-12"]]


@pytest.mark.slow
def test_a_stopped_run_leaves_sets_with_different_trials(gqa: Any, tmp_path: Path) -> None:
    whole = curve_of(gqa, batch_size=3, out=tmp_path)
    for number, shard in enumerate(sorted((tmp_path / "trials").iterdir())):
        if number % 3:
            shard.unlink()
    again = curve_of(gqa, batch_size=3, out=tmp_path)
    names = ["logprob", "greedy_match"]
    pd.testing.assert_frame_equal(again.per_trial.drop(columns=names), whole.per_trial.drop(columns=names))
    np.testing.assert_allclose(again.per_trial[names], whole.per_trial[names], atol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_a_run_folder_runs_only_what_is_missing(gqa: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean, out = curve_of(gqa), tmp_path / "run"
    monkeypatch.setattr(ablation, "answer_batch", Counted(stop_after=4))
    with pytest.raises(KeyboardInterrupt):
        curve_of(gqa, out=out)
    monkeypatch.undo()
    total = 3 * len({tuple(sorted(heads)) for heads in sets(clean).values()})
    for missing in (total - 4, 0):
        spy = Counted()
        with monkeypatch.context() as patch:
            patch.setattr(ablation, "answer_batch", spy)
            curve = curve_of(gqa, out=out)
        assert len(spy.batches) == missing
        pd.testing.assert_frame_equal(curve.per_trial, clean.per_trial)
    pd.testing.assert_frame_equal(AblationCurve.load(out).per_trial, clean.per_trial)
    spy = Counted()
    monkeypatch.setattr(ablation, "answer_batch", spy)
    more = curve_of(gqa, ks=(1, 3, 5), controls=(), out=out)
    assert len(spy.batches) == 3  # The top five; the rest is there.
    assert set(more.per_trial["k"]) == {0, 1, 3, 5}


def test_a_run_folder_of_other_settings_is_refused(gqa: Any, tmp_path: Path) -> None:
    curve_of(gqa, out=tmp_path / "run")
    with pytest.raises(ValueError, match=r"kind: zero in the folder, uniform now"):
        curve_of(gqa, kind="uniform", out=tmp_path / "run")
    with pytest.raises(ValueError, match=r"tasks\.retrieval"):
        curve_of(gqa, trials=trials(2), out=tmp_path / "run")


def test_a_run_folder_with_another_reference_is_refused(gqa: Any, tmp_path: Path) -> None:
    """Also when two trials begin alike: only the second half, or only the trial, differs."""
    z = torch.randn(3, 2000, 4, 8, generator=torch.Generator().manual_seed(0))
    changed = z.clone()
    changed[:, 1000:] += 1
    options: dict[str, Any] = {"kind": "resample", "ks": (1,), "controls": (), "out": tmp_path / "run"}
    curve_of(gqa, reference=TrialActivations(z, "a"), **options)
    for other in (TrialActivations(changed, "a"), TrialActivations(z, "b")):
        with pytest.raises(ValueError, match="reference: "):
            curve_of(gqa, reference=other, **options)
    curve_of(gqa, reference=TrialActivations(z.clone(), "a"), **options)


@pytest.mark.slow
def test_a_trial_that_raises_is_left_out(gqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = curve_of(gqa)
    monkeypatch.setattr(ablation, "answer_batch", Counted(fail=lambda trial: trial.id == "random-11"))
    with pytest.warns(UserWarning, match=r"ablating: .* failed; the first: RuntimeError: out of memory on random-11"):
        curve = curve_of(gqa, batch_size=2)
    assert set(curve.per_trial["trial"]) == {"random-10", "random-12"}
    kept = clean.per_trial[clean.per_trial["trial"] != "random-11"].reset_index(drop=True)
    pd.testing.assert_frame_equal(curve.per_trial, kept, atol=3e-5, rtol=3e-4)
    assert (curve.frame["trials"] == 2).all()


@pytest.mark.usefixtures("alone")
def test_a_trial_that_raises_under_one_condition_is_paired_without_it(
    gqa: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call is the first trial under the second set of heads: no ablation keeps it, the top head does not."""
    spy = Counted()
    spy.fail = lambda trial: len(spy.batches) == 2
    monkeypatch.setattr(ablation, "answer_batch", spy)
    with pytest.warns(UserWarning, match="1 of 6 failed"):
        curve = curve_of(gqa, ks=(1,), controls=())
    base, top = (
        curve.values(Condition("none", "none", 0), "logprob"),
        curve.values(Condition("made-up", "top", 1), "logprob"),
    )
    assert list(base.index) == ["random-10", "random-11", "random-12"]
    assert list(top.index) == ["random-11", "random-12"]
    row = curve.frame[curve.frame["set"] == "top"].iloc[0]
    assert row["trials"] == 2
    assert row["drop"] == pytest.approx((base[top.index] - top).mean(), rel=1e-5)


@pytest.mark.usefixtures("alone")
def test_a_condition_that_always_raises_is_left_out(gqa: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One set of heads on which every trial of a task fails does not take the finished rest away."""
    spy = Counted()
    spy.fail = lambda trial: trial.id == "random-40" and len(spy.batches) > 7
    monkeypatch.setattr(ablation, "answer_batch", spy)
    with pytest.warns(UserWarning, match="failed"):
        curve = curve_of(gqa, ks=(1,), controls=(), specificity={"recall": trials(1, 40)}, out=tmp_path / "run")
    found = list(dict.fromkeys(curve.frame[["task", "set"]].to_records(index=False).tolist()))
    assert found == [("retrieval", "none"), ("retrieval", "top"), ("recall", "none")]
    assert curve.differences("logprob", task="recall").empty
    assert curve.dissociation("recall", metric="logprob").empty
    assert len(curve.differences("logprob")) == 0
    for missing in (curve.differences, curve.dissociation):
        with pytest.raises(ValueError, match="nothing was measured for no ablation on 'nowhere'"):
            missing(**{"metric": "logprob", "task" if missing == curve.differences else "other": "nowhere"})


def test_other_tasks_can_be_run_for_some_rankings_alone(gqa: Any) -> None:
    other = {"recall": trials(2, 40)}
    curve = curve_of(
        gqa, [LEAD, OTHER], ks=(1,), specificity=other, specificity_for="other", controls=("random", "bottom")
    )
    by_task = curve.per_trial.groupby("task")[["method", "set"]].apply(
        lambda t: set(t.itertuples(index=False, name=None))
    )
    everything = {("none", "none"), ("made-up", "top"), ("other", "top"), ("made-up", "bottom"), ("any", "random")}
    assert by_task["retrieval"] == everything
    assert by_task["recall"] == {("none", "none"), ("other", "top"), ("any", "random")}
    # A ranking that is not asked for stays out, also where its heads are those of one that is.
    twin = ranking(["L0H3", "L2H2"], "twin")
    both = curve_of(gqa, [OTHER, twin], ks=(1, 2), specificity=other, specificity_for="other", controls=())
    recalled = both.per_trial[both.per_trial["task"] == "recall"]
    assert set(recalled["method"]) == {"none", "other"}
    with pytest.raises(ValueError, match="specificity_for: there is no ranking 'nobody'"):
        curve_of(gqa, specificity=other, specificity_for="nobody")


def test_sets_by_name_are_ablated_as_they_are(gqa: Any) -> None:
    chosen = {"ours": ["L0H1", "L2H2"], "one": "L1H0"}
    curve = curve_of(gqa, ks=(1,), controls=(), sets=chosen)
    assert sets(curve)[("ours", "given", 2, 0)] == {Head(0, 1), Head(2, 2)}
    with lh.ablate(gqa, ["L0H1", "L2H2"], kind="zero"):
        wanted = lh.evaluate(gqa, trials(), generate=False, progress=False).metrics["logprob"]
    assert curve.values(Condition("ours", "given", 2), "logprob").to_list() == pytest.approx(wanted.tolist(), abs=1e-4)
    with pytest.raises(ValueError, match="head L9H0 does not exist"):
        curve_of(gqa, sets={"far": "L9H0"})


def test_relative_loss_is_the_share_taken_away(gqa: Any) -> None:
    curve = curve_of(gqa, ks=(3,), controls=(), trials=trials(6))
    before, after = (curve.values(c, "logprob").to_numpy() for c in (Condition.none(), Condition.top("made-up", 3)))
    before, after = np.exp(before), np.exp(after)
    loss, low, high = curve.relative_loss(Condition("made-up", "top", 3), "logprob")
    assert loss == pytest.approx((before.mean() - after.mean()) / before.mean(), rel=1e-4)
    expected = ratio_interval(torch.from_numpy(before - after)[None], torch.from_numpy(before)[None])
    assert (loss, low, high) == pytest.approx(tuple(expected), rel=1e-4)


# What is refused


def test_two_rankings_of_one_name_are_refused_in_a_list(gqa: Any) -> None:
    with pytest.raises(ValueError, match="two rankings are called 'made-up': pass a mapping"):
        curve_of(gqa, [LEAD, ranking(["L0H0"])])


def test_a_run_folder_refuses_a_hooked_model(gqa: Any, tmp_path: Path) -> None:
    with lh.ablate(gqa, "L0H0", kind="zero"), pytest.raises(ValueError, match="has hooks attached"):
        curve_of(gqa, out=tmp_path / "run")


def test_shared_trials_are_refused(gqa: Any, counted: Counted) -> None:
    with pytest.raises(
        ValueError, match=r"ranking 'made-up' was made on 1 of the trials, needles or groups .*'random-11'"
    ):
        curve_of(gqa, ranking(["L0H0"], trial_ids=("random-11", "s1")))
    gated = ranking(["L0H0"], made_on=tuple(map(MadeOn, ("random-10", "random-12", "s0"))))
    with pytest.raises(
        ValueError, match=r"ranking 'second' was made on 2 of the trials, needles or groups .*'random-10'"
    ):
        curve_of(gqa, {"first": LEAD, "second": gated})
    assert counted.batches == []


def test_rankings_of_another_shape_are_refused(gqa: Any, counted: Counted) -> None:
    wide = HeadScores.from_trials("wide", torch.zeros(1, 3, 5), ["s"], model=ModelIdentity("other-5"))
    message = re.escape("ranking 'second' is for a model of 3 layers x 5 heads (other-5), but llama-gqa has 3 x 4")
    with pytest.raises(ValueError, match=message):
        curve_of(gqa, {"first": LEAD, "second": wide})
    assert counted.batches == []


WRONG = {
    "no rankings": ({"rankings": {}}, "there are no rankings"),
    "k below one": ({"ks": (0, 1)}, r"ks=\(0, 1\): must be positive integers"),
    "no ks": ({"ks": ()}, r"ks=\(\): must be positive integers"),
    "unknown control": (
        {"controls": ("middle",)},
        "unknown control 'middle': the controls are bottom, random, random_like",
    ),
    "unknown ranking": ({"of": "wu"}, "there is no ranking 'wu': the rankings are made-up"),
    "task named like the main one": ({"specificity": {"retrieval": trials()}}, "has the name of the main task"),
    "unknown kind": ({"kind": "erase"}, "unknown kind of ablation 'erase'"),
    "missing option": ({"kind": "scale"}, r"kind='scale' needs factor"),
    "unknown option": ({"factor": 2.0}, "kind='zero' has no option 'factor'"),
    "missing reference": ({"kind": "mean"}, "kind='mean' needs a reference"),
    "no trials": ({"trials": []}, "there are no trials"),
    "no room": ({"generate": True, "max_new_tokens": 500}, "exceed the context window of 512"),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG.keys())
def test_what_is_refused_is_refused_before_anything_is_run(
    gqa: Any, counted: Counted, call: Any, tmp_path: Path
) -> None:
    arguments, message = call
    with pytest.raises(ValueError, match=message):
        curve_of(gqa, **{"out": tmp_path / "run", **arguments})
    assert counted.batches == []
    assert not (tmp_path / "run").exists()


# The statistics, on numbers made up by hand


def observed(rows: dict[tuple[str, str, int, int, str], dict[str, float]], metric: str = "contains") -> AblationCurve:
    """A curve with these values per (method, set, k, seed, task) and trial."""
    observations = [
        curves.row(Condition(method, set_, k), task, trial, {metric: value}, draw=seed)
        for (method, set_, k, seed, task), values in rows.items()
        for trial, value in values.items()
    ]
    return curves.curve_of(observations)


def values(*numbers: float, names: str = "abcdefgh") -> dict[str, float]:
    return dict(zip(names, numbers, strict=False))


MADE = {
    ("none", "none", 0, 0, "retrieval"): values(1, 1, 0.5, 1),
    ("lead", "top", 1, 0, "retrieval"): values(0, 0.5, 0, 0.25),
    ("other", "top", 1, 0, "retrieval"): values(0.5, 1, 0.25, 1),
    ("any", "random", 1, 0, "retrieval"): values(1, 1, 0, 1),
    ("any", "random", 1, 1, "retrieval"): values(0.5, 1, 0.5, 0),
    ("none", "none", 0, 0, "recall"): values(0.5, 1, names="xy"),
    ("lead", "top", 1, 0, "recall"): values(0.5, 0.75, names="xy"),
    ("other", "top", 1, 0, "recall"): values(0, 0, names="xy"),
    ("any", "random", 1, 0, "recall"): values(0.5, 1, names="xy"),
    ("any", "random", 1, 1, "recall"): values(0.5, 1, names="xy"),
}


def row(frame: pd.DataFrame, **at: Any) -> pd.Series:
    for name, value in at.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


EIGHT = "abcdefgh"
SETS = 6
"""Random sets of a curve that has intervals over them."""


def measured(seed: int = 0, metric: str = "rougeL") -> tuple[AblationCurve, dict[tuple[Any, ...], torch.Tensor]]:
    """A curve of eight trials (retrieval) and six (recall) with random numbers, and these by condition; `SETS` random sets."""
    generator = torch.Generator().manual_seed(seed)
    more = [(*at[:3], draw, at[-1]) for at in MADE if at[1] == "random" and at[3] == 0 for draw in range(2, SETS)]
    made = {
        at: (torch.rand(6 if at[-1] == "recall" else 8, generator=generator, dtype=torch.float64) + (at[1] == "none"))
        / 2
        for at in (*MADE, *more)
    }
    rows = {at: dict(zip(EIGHT, found.tolist(), strict=False)) for at, found in made.items()}
    return observed(rows, metric), made


def test_the_frame_holds_means_and_intervals_of_the_trials() -> None:
    curve, made = measured()
    assert len(curve.frame) == 2 * 4
    base, top = made["none", "none", 0, 0, "retrieval"], made["lead", "top", 1, 0, "retrieval"]
    found = row(curve.frame, task="retrieval", method="lead", set="top")
    _, low, high = mean_interval(top)
    assert (found["value"], found["low"], found["high"]) == pytest.approx((float(top.mean()), float(low), float(high)))
    assert (found["drop"], found["drop_low"], found["drop_high"]) == pytest.approx(paired(base, top))
    assert (found["trials"], found["k"], found["metric"], found["effective_trials"]) == (8, 1, "rougeL", 8)
    none = row(curve.frame, task="recall", set="none")
    assert (none["drop"], none["drop_low"], none["drop_high"]) == (0, 0, 0)


def test_fewer_than_five_trials_have_no_interval() -> None:
    found = row(observed(MADE).frame, task="retrieval", method="lead", set="top")
    assert (found["value"], found["drop"]) == (0.1875, 0.6875)
    assert all(math.isnan(found[name]) for name in ("low", "high", "drop_low", "drop_high"))


def paired(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float, float]:
    """Mean of a - b over the same trials, with its interval."""
    _, low, high = mean_interval(a - b)
    return float((a - b).mean()), float(low), float(high)


def test_draws_of_a_random_control_are_crossed_with_trials() -> None:
    curve, made = measured()
    found = row(curve.frame, task="retrieval", set="random")
    draws = torch.stack([made["any", "random", 1, seed, "retrieval"] for seed in range(SETS)])
    assert (found["value"], found["low"], found["high"]) == pytest.approx(tuple(crossed_interval(draws)))
    assert (found["draw_min"], found["draw_max"]) == pytest.approx(
        (draws.mean(1).min().item(), draws.mean(1).max().item())
    )
    assert found["trials"] == 8


def test_the_interval_of_a_log_probability_ends_at_zero_and_two_draws_have_none() -> None:
    """Trials that are nearly sure beside a few that are not: the wider bound would lie above 0, which no mean can be."""
    surely = [-0.01, -0.02, -0.01, -0.03, -0.02, -4.0]
    numbers = torch.tensor(surely, dtype=torch.float64)
    assert mean_interval(numbers).high > 0
    rows = {at: dict(zip(EIGHT, surely, strict=False)) for at in MADE if at[-1] == "retrieval"}
    frame = observed(rows, "logprob").frame
    assert row(frame, method="lead", set="top")["high"] == 0
    assert row(frame, method="lead", set="top")["low"] == pytest.approx(float(mean_interval(numbers).low))
    assert math.isnan(row(frame, set="random")["high"])
    found = Evaluation(tuple(EIGHT[:6]), {"logprob": numbers, "rougeL": -numbers / 4}, (), ())
    assert found.interval("logprob").high == 0
    assert found.interval("rougeL").low == 0


def test_a_positive_difference_means_the_lead_hurts_more() -> None:
    curve, made = measured()
    found = curve.differences("rougeL")
    assert list(zip(found["against"], found["set"], strict=True)) == [("other", "top"), ("any", "random")]
    expected = paired(made["other", "top", 1, 0, "retrieval"], made["lead", "top", 1, 0, "retrieval"])
    other = row(found, against="other")
    assert (other["difference"], other["low"], other["high"]) == pytest.approx(expected)
    assert (other["lead"], other["metric"], other["task"]) == ("lead", "rougeL", "retrieval")
    turned = row(curve.differences("rougeL", lead="other"), against="lead")
    assert turned["difference"] == pytest.approx(-expected[0])
    assert row(observed(MADE).differences("contains", task="recall"), against="other")["difference"] == -0.625


def test_differences_pair_trials_by_name_not_by_place() -> None:
    _, made = measured()
    rows = {at: dict(zip(EIGHT, found.tolist(), strict=False)) for at, found in made.items()}
    lead, other = rows["lead", "top", 1, 0, "retrieval"], rows["other", "top", 1, 0, "retrieval"]
    rows["lead", "top", 1, 0, "retrieval"] = {name: lead[name] for name in "hdcab"}
    rows["other", "top", 1, 0, "retrieval"] = {name: other[name] for name in "cbadgh"}
    found = row(observed(rows, "rougeL").differences("rougeL"), against="other")
    mine, theirs = (torch.tensor([one[name] for name in "abcdh"]) for one in (lead, other))
    assert (found["difference"], found["low"], found["high"]) == pytest.approx(paired(theirs, mine), abs=1e-6)


def test_a_random_control_on_fewer_trials_is_compared_through_no_ablation() -> None:
    curve, made = measured()
    kept = ~((curve.per_trial["set"] == "random") & curve.per_trial["trial"].isin(["a", "b"]))
    curve = AblationCurve(curve.per_trial[kept], {})
    base, lead = made["none", "none", 0, 0, "retrieval"], made["lead", "top", 1, 0, "retrieval"]
    draws = torch.stack([made["any", "random", 1, seed, "retrieval"] for seed in range(SETS)])
    beyond = difference(
        statistics.paired(pd.DataFrame(base.numpy()), pd.DataFrame(lead.numpy()), None),
        crossed_interval((base - draws)[:, 2:]),
    )
    found = curve.difference(Condition.random(1), Condition.top("lead", 1), "rougeL")
    assert found == pytest.approx(beyond)
    assert found.value == pytest.approx(float((base - lead).mean() - (base - draws)[:, 2:].mean()))


def test_trials_of_a_group_are_one_cluster() -> None:
    curve, made = measured()
    groups = dict(zip(EIGHT, ["x", "x", "y", "y", "z", "z", "u", "v"], strict=True))
    table = curve.per_trial.assign(group=curve.per_trial["trial"].map(groups))
    found = row(AblationCurve(table, {}).frame, task="retrieval", method="lead", set="top")
    _, low, high = mean_interval(made["lead", "top", 1, 0, "retrieval"], groups=list(groups.values()))
    assert (found["low"], found["high"]) == pytest.approx((float(low), float(high)))
    few = AblationCurve(table.assign(group=table["trial"].map(dict(zip(EIGHT, "aabbccdd", strict=True)))), {})
    assert math.isnan(row(few.frame, task="retrieval", method="lead", set="top")["low"])  # Four clusters.


def test_the_dissociation_score_by_hand() -> None:
    """Retrieval falls from .875 to .1875, recall from .75 to .625."""
    found = row(observed(MADE).dissociation("recall", metric="contains"), method="lead")
    assert found["main_loss"] == pytest.approx((0.875 - 0.1875) / 0.875)
    assert found["other_loss"] == pytest.approx((0.75 - 0.625) / 0.75)
    assert found["score"] == pytest.approx(found["main_loss"] - found["other_loss"])
    other = row(observed(MADE).dissociation("recall", metric="contains"), method="other")
    assert other["score"] == pytest.approx((0.875 - 0.6875) / 0.875 - 1)
    assert len(observed(MADE).dissociation("recall", metric="contains")) == 3


def test_the_interval_of_a_dissociation_is_that_of_two_independent_ratios() -> None:
    curve, made = measured()
    found = row(curve.dissociation("recall", metric="rougeL"), method="lead")
    main, other = (
        ratio_interval((base - top)[None], base[None])
        for base, top in (
            (made["none", "none", 0, 0, task], made["lead", "top", 1, 0, task]) for task in ("retrieval", "recall")
        )
    )
    assert (found["score"], found["low"], found["high"]) == pytest.approx(tuple(difference(main, other)))


def test_a_baseline_of_zero_has_no_relative_loss() -> None:
    made = MADE | {
        (method, set_, k, seed, "recall"): values(0, 0, names="xy")
        for method, set_, k, seed, task in MADE
        if task == "recall"
    }
    found = row(observed(made).dissociation("recall", metric="contains"), method="lead")
    assert math.isnan(found["score"])
    assert math.isnan(found["other_loss"])
    assert math.isnan(found["low"])
    assert found["main_loss"] == pytest.approx((0.875 - 0.1875) / 0.875)


def test_log_probabilities_dissociate_by_their_exponential() -> None:
    made = {at: {trial: math.log(value + 0.25) for trial, value in row.items()} for at, row in MADE.items()}
    found = row(observed(made, "logprob").dissociation("recall", metric="logprob"), method="lead")
    assert found["main_loss"] == pytest.approx((1.125 - 0.4375) / 1.125, rel=1e-5)
    assert found["other_loss"] == pytest.approx((1.0 - 0.875) / 1.0, rel=1e-5)


@pytest.mark.slow
def test_saved_and_loaded_a_curve_is_the_same(tmp_path: Path) -> None:
    model = tiny("llama-gqa")
    curve = curve_of(model, generate=True, max_new_tokens=2, specificity={"recall": trials(1, 40)})
    loaded = AblationCurve.load(curve.save(tmp_path / "curve"))
    pd.testing.assert_frame_equal(loaded.per_trial, curve.per_trial)
    pd.testing.assert_frame_equal(loaded.frame, curve.frame)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "curve" / "summary.parquet"), curve.frame)
    assert loaded.meta == curve.meta
    assert loaded.meta["rankings"] == ["made-up"]
    (tmp_path / "curve" / "curve.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"curve\.json is missing: .* contains no finished ablation curve"):
        AblationCurve.load(tmp_path / "curve")


def test_the_same_needle_under_another_id_is_refused() -> None:
    """Selection and evaluation share no needle, whatever the trials are called."""
    model = tiny("llama-gqa")
    select = [random_trial(seed) for seed in range(3)]
    ranking = lh.score_heads(model, select, ["locos"], teacher_forced=True, progress=False)["locos"]
    renamed = [replace(trial, id=f"{trial.id}-again") for trial in select]
    with pytest.raises(ValueError, match="3 of the trials, needles or groups"):
        lh.ablation_curve(model, renamed, ranking, ks=(1,), kind="zero", generate=False, progress=False)
    others = [random_trial(seed) for seed in range(3, 5)]
    lh.ablation_curve(model, others, ranking, ks=(1,), kind="zero", generate=False, progress=False)


def test_a_reference_from_the_evaluation_trials_is_refused() -> None:
    model = tiny("llama-gqa")
    select, test = [random_trial(0)], [random_trial(seed) for seed in (1, 2)]
    ranking = lh.score_heads(model, select, ["locos"], teacher_forced=True, progress=False)["locos"]
    means = lh.mean_activations(model, test, progress=False)
    with pytest.raises(ValueError, match="reference was computed on 2 of the evaluation trials"):
        lh.ablation_curve(model, test, ranking, ks=(1,), reference=means, generate=False, progress=False)


def test_a_ranking_made_on_a_company_is_not_evaluated_on_it() -> None:
    """Documents and needles of one company are other trials with other needles, but say the same."""
    made = HeadScores("qr", torch.zeros(3, 4), torch.zeros(1, 3, 4), ("a",), made_on=(MadeOn("a", group="7"),))
    mine, other = (replace(random_trial(1), id=cik, group=cik) for cik in ("7", "8"))
    check_independent({"qr": made}, None, made_on([other, random_trial(2)]))
    with pytest.raises(ValueError, match="ranking 'qr' was made on 1 of the trials, needles or groups"):
        check_independent({"qr": made}, None, made_on([other, mine]))
