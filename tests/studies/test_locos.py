"""The whole study on tiny random models of the paper's families: every stage, the folder, the page."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads import studies
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.verdicts import smallest_k
from lens_heads.heads.conditions import Condition
from lens_heads.inspection.explorer.stored import stored
from lens_heads.interventions.activations import MeanActivations
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.one_pass.scorers import SCORERS
from lens_heads.stats.intervals import FEWEST
from lens_heads.studies.finding import meaning
from lens_heads.studies.locos_paper import stages, study
from lens_heads.studies.locos_paper.claims import (
    ATTENTION,
    CONTROLLED,
    PARTS,
    PRESETS,
    RIVALS,
    LocosFinding,
    Preset,
)
from lens_heads.studies.locos_paper.study import LocosStudy
from lens_heads.studies.presets import trials_of
from tests import zoo
from tests.scripts import script

pytestmark = pytest.mark.slow

TINY = Preset(
    select=("packaged", {"split": "select", "n": 3, "context_length": 600, "seed": 0}),
    test=("packaged", {"split": "test", "n": 6, "context_length": 600}),
    spared={"arithmetic": ("arithmetic", {"n": 6, "digits": 1, "split": "test"})},
    downstream={"babilong": ("babilong", {"n": 2, "task": "qa1"})},
    calibration={"arithmetic": ("arithmetic", {"n": 3, "digits": 1, "split": "select"})},
    ks=(1, 2),
    choose=2,
    rivals=2,
    sets=6,
    draws=3,
    few=2,
    few_others=2,
    max_trials=6,
    seeds=2,
    calibrate=2,
    curve_trials=2,
    text_trials=2,
    max_new_tokens=3,
    cri_trials=2,
    recovery_trials=1,
    recovery_draws=2,
    read_heads=3,
    teacher_forced=True,
    only_flipped=False,
)
FAMILIES = ("qwen3", "gemma3")


@pytest.fixture(scope="module")
def qwen() -> Any:
    return zoo.bridge("qwen3", n_ctx=4096)


@pytest.fixture(scope="module")
def done(qwen: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[LocosFinding, Path]:
    """The study of one model and its run folder, to be copied by those who write into it."""
    out = tmp_path_factory.mktemp("study") / "run"
    (found,) = studies.locos(qwen, TINY, out, command="the command")
    assert not has_hooks(qwen)
    return found, out


def test_a_tiny_model_goes_through_all_of_it(done: tuple[LocosFinding, Path]) -> None:
    check_study(*done)


@pytest.mark.parametrize("family", FAMILIES[1:])
def test_tiny_models_of_the_papers_other_families_do_too(family: str, tmp_path: Path) -> None:
    model = zoo.bridge(family, n_ctx=4096)
    (found,) = studies.locos(model, TINY, tmp_path / "run", command="the command")
    assert not has_hooks(model)
    check_study(found, tmp_path / "run")


def check_study(found: LocosFinding, out: Path) -> None:
    assert set(found.scores) == {*SCORERS, *RIVALS}
    assert found.patched is not None
    assert found.patched.method == "cri"
    assert len(found.patched.trial_ids) == 2
    assert found.k in TINY.ks
    assert found.baseline in ATTENTION
    check_tables(found, out / found.model)
    check_summary(found, out / "study_locos.json")
    page = (out / "report.html").read_text()
    assert "default-src 'none'" in page  # The page's own policy: nothing is loaded from anywhere.
    assert not re.search(r"""<(script|link|img)\b[^>]*\b(src|href)\s*=\s*["']?(https?:)?//""", page)
    for heading in (
        "cannot be told",
        "Registered before the run",
        "RQ1",
        "RQ5",
        "causal evidence",
        "what the heads read",
    ):
        assert heading in page
    explorer = stored(out / found.model / "explorer")["traits"]["about"]
    assert "see the heads" in page
    assert [one["name"] for one in explorer["scores"]][:2] == ["locos", "locos_exact"]
    assert explorer["ablated"], "the costs of ablated sets stand beside the map"


def check_tables(found: LocosFinding, folder: Path) -> None:
    """Every number is in Parquet, and is the number that was found."""
    frames = found.all_frames()
    assert {file.stem for file in (folder / "tables").glob("*.parquet")} == set(frames)
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(pd.read_parquet(folder / "tables" / f"{name}.parquet"), frame, check_dtype=False)
    ablated, headline = frames["ablation"], frames["headline"]
    assert set(ablated[ablated["set"] == "top"]["method"]) == {*SCORERS, *RIVALS}
    of_task = {task: set(rows["set"]) for task, rows in headline.groupby("task")}
    assert of_task["retrieval"] == {"none", "no_needle", "top", "top_no_needle", "random", "random_like"}
    assert of_task["arithmetic"] == of_task["babilong"] == {"none", "top", "random"}
    assert set(headline[(headline["task"] == "retrieval") & (headline["set"] == "top")]["method"]) >= set(PARTS)
    draws = found.trials["headline_trials"].query("set == 'random' and task == 'retrieval'")
    assert len(draws) == TINY.draws * TINY.few
    assert set(frames["texts"]["task"]) == {"retrieval", "arithmetic", "babilong"}
    stable = frames["stability"].set_index("method")
    assert set(stable.index) == {*found.ranked} - {"literal_share"}
    again = found.scores["locos"].stability(found.k)
    assert stable.loc["locos", ["jaccard", "expected", "trials"]].to_list() == [
        again.jaccard,
        again.expected,
        again.trials,
    ]
    shares = frames["provenance"].drop(columns=["head", "trials"]).sum(axis=1)
    assert shares.to_list() == pytest.approx([1] * len(shares))


def test_claims_about_tasks_that_were_not_run_are_left_out(done: tuple[LocosFinding, Path]) -> None:
    found, _ = done
    rivals, first = ["one_shot", "one_shot_exact", "patching"], ["retrieval", "retrieval_exact", "exact", "baseline"]
    assert found.claims["id"].to_list() == [
        *first,
        *rivals,
        "factorial",
        "question",
        "random",
        "babilong",
        "arithmetic",
    ]
    assert not {*rivals, "question"} & set(LocosStudy(replace(TINY, rivals=0, sets=0), "own").registered()["id"])


def test_a_head_ablated_alone_costs_what_the_score_says(done: tuple[LocosFinding, Path], qwen: Any) -> None:
    found, out = done
    trials, alone = trials_of(TINY.select)[: TINY.rivals], found.scores["one_shot"]
    assert list(alone.trial_ids) == [trial.id for trial in trials]
    (file,) = out.glob("*/means-retrieval.safetensors")
    means, head = MeanActivations.load(file), alone.top(1)[0]
    before = lh.evaluate(qwen, trials, generate=False, progress=False).metrics["logprob"]
    with lh.ablate(qwen, head, kind="mean", reference=means):
        after = lh.evaluate(qwen, trials, generate=False, progress=False).metrics["logprob"]
    np.testing.assert_allclose(alone.per_trial[:, head.layer, head.head], before - after, atol=1e-3)
    assert found.scores["patching"].values.shape == alone.values.shape


@pytest.mark.parametrize("name", [name for name, one in PRESETS.items() if one.select[0] == "packaged"])
def test_the_trials_of_every_packaged_preset_exist(name: str) -> None:
    plan, shape = PRESETS[name], SimpleNamespace(n_layers=30, size=270)
    passes = LocosStudy(plan, "own").costs(shape)  # type: ignore[arg-type]  # reads the two fields
    assert min(passes["detection"], passes["headline"]) > 0
    assert len(plan.tested()) >= plan.max_trials
    for task, call in plan.calibration.items():
        if task in {**plan.spared, **plan.downstream}:
            assert trials_of(call)


@pytest.mark.parametrize("name", ["demo", "packaged", "thorough", "negative-model", "negative-needles"])
def test_random_heads_meet_enough_groups_of_trials_for_an_interval(name: str) -> None:
    plan = PRESETS[name]
    for call in {**plan.spared, **plan.downstream}.values():
        assert len({trial.group for trial in trials_of(call)[: plan.few_others]}) >= FEWEST


def test_the_claims_are_registered_before_the_run(done: tuple[LocosFinding, Path]) -> None:
    before, after = LocosStudy(TINY, "own").registered(), done[0].claims
    assert before["id"].to_list() == after["id"].to_list()
    assert before["holds_if"].to_list() == after["holds_if"].to_list()
    assert before["threshold"].notna().all()
    assert before["estimand"].str.len().min() > 5


def test_k_and_the_baseline_are_chosen_on_selection_trials(done: tuple[LocosFinding, Path]) -> None:
    found, _ = done
    asked = {trial.id for trial in trials_of(TINY.select)}
    chosen, tested = found.trials["choice_trials"], found.trials["headline_trials"]
    assert set(chosen["trial"]) <= asked
    assert not set(tested["trial"]) & asked
    curve = AblationCurve(chosen, {})
    assert found.k == smallest_k(curve, "locos")
    costs = {name: curve.values(Condition.top(name, found.k), "logprob").mean() for name in ATTENTION}
    assert found.baseline == min(costs, key=costs.__getitem__)


def test_each_task_is_ablated_with_means_of_its_own_prompts(qwen: Any, done: tuple[LocosFinding, Path]) -> None:
    folder = done[1] / "qwen3"
    of_task = lh.MeanActivations.load(folder / "means-arithmetic.safetensors")
    assert all(name.startswith("arithmetic") for name in of_task.trial_ids)
    tested = set(done[0].trials["headline_trials"]["trial"])
    for file in folder.glob("means-*.safetensors"):
        assert not set(lh.MeanActivations.load(file).trial_ids) & tested


def test_claims_can_be_judged_again_from_the_stored_trials(done: tuple[LocosFinding, Path]) -> None:
    found, out = done
    stored = {name: pd.read_parquet(out / found.model / "tables" / f"{name}.parquet") for name in found.trials}
    again = script("verdicts").locos_again(stored, TINY, found.scores["locos"].values.numel())
    pd.testing.assert_frame_equal(again, found.claims)


def test_what_it_costs_is_known_before(qwen: Any, done: tuple[LocosFinding, Path]) -> None:
    """Distinct sets of heads share runs, so that fewer units may have run; never more."""
    found, _ = done
    expected = LocosStudy(TINY, "own").costs(lh.head_geometry(qwen))
    for stage, table in (("choice", "choice_trials"), ("ablation", "ablation_trials"), ("texts", "texts_trials")):
        rows = found.trials[table]
        assert len(rows[rows["set"] != "given"]) <= expected[stage]
    headline = found.trials["headline_trials"]
    of_retrieval = headline["task"] == "retrieval"
    assert of_retrieval.sum() in (
        expected["headline"],
        expected["headline"] - 2 * 6,
    )  # The baseline may be one of the parts.
    assert (~of_retrieval).sum() == expected["other tasks"]


@pytest.mark.parametrize("control", CONTROLLED)
def test_nothing_holds_in_a_negative_control(qwen: Any, control: str, tmp_path: Path) -> None:
    brief = replace(TINY, control=control, recovery_trials=0, read_heads=0, exclusive=False)
    brief = replace(brief, ablated=("locos",), downstream={}, spared={}, draws=20, few=6)
    (found,) = studies.locos(qwen, brief, tmp_path / "run", command="the command")
    assert "holds" not in set(found.claims[found.claims["id"].isin(["retrieval", "retrieval_exact"])]["verdict"])
    if control == "random_initialised":
        assert found.model.endswith("random-initialised seed 0")
    else:
        assert found.headline["retrieval"].per_trial["trial"].str.contains("-needle-of-|-answer-of-").all()


def test_a_model_that_answers_nothing_ends_its_study_without_patching(
    qwen: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched = study.patched

    def of_answers(bench: study.LocosSetup, texts: Any) -> Any:
        return patched(replace(bench, plan=replace(bench.plan, teacher_forced=False)), texts)

    monkeypatch.setattr(study, "patched", of_answers)
    brief = replace(TINY, ablated=("locos",), downstream={}, spared={}, rivals=0, read_heads=0, exclusive=False)
    (found,) = studies.locos(qwen, brief, tmp_path / "run")
    reason = "the model answers none of 2 test trials"
    assert found.cri == reason
    assert found.patched is None
    page = (tmp_path / "run" / "report.html").read_text()
    assert reason in page
    assert "Nothing here shows retrieval by meaning" in page
    summary = json.loads((tmp_path / "run" / "study_locos.json").read_text())["models"][found.model]
    assert summary["patching_note"] == reason


def test_the_same_heads_are_ablated_otherwise_and_selected_again(done: tuple[LocosFinding, Path], qwen: Any) -> None:
    found, _ = done
    kinds = found.frames["kinds"].set_index(["kind", "method"])
    assert set(kinds.index.get_level_values("kind")) == {"zero", "resample", "counterfactual"}
    test, heads = lh.tasks.packaged(**TINY.test[1])[: TINY.text_trials], found.scores["locos"].top(found.k)
    with lh.ablate(qwen, heads, kind="zero", span="last"):
        ablated = lh.evaluate(qwen, test, generate=False, progress=False).mean("logprob")
    curve = found.kinds["zero"]
    assert curve.values(Condition.top("locos", found.k), "logprob").mean() == pytest.approx(ablated, abs=1e-4)
    other = lh.row_activations(qwen, lh.sanity.permuted_questions(test), progress=False)
    with lh.ablate(qwen, heads, kind="interchange", reference=other):
        asked = lh.evaluate(qwen, test, generate=False, progress=False).mean("logprob")
    curve = found.kinds["counterfactual"]
    assert curve.values(Condition.top("locos", found.k), "logprob").mean() == pytest.approx(asked, abs=1e-4)
    assert found.frames["ranks"]["sets"].item() == TINY.sets
    seeds = found.frames["seeds"]
    assert seeds["seed"].tolist() == [0, 10, 20]
    assert seeds["shared"].iloc[0] == found.k
    assert found.frames["areas"]["method"].iloc[0] == "locos"
    claim = found.claims.set_index("id").loc["question"]
    assert claim["value"] == pytest.approx(kinds.loc[("counterfactual", "locos"), "cost"])


def check_summary(found: LocosFinding, file: Path) -> None:
    whole = json.loads(file.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    summary = whole["models"][found.model]
    assert set(summary["seconds"]) >= {
        "ability",
        "detection",
        "question",
        "random sets",
        "other kinds",
        "other seeds",
        "choice",
        "headline",
        "ablation",
        "texts",
        "patching",
        "recovery",
    }
    assert all(question.endswith("?") for question in found.questions.values())
    assert summary["question_note"] == meaning(found.question, found.able)
    assert [row["prompt"] for row in summary["question"]] == ["own question", "other question", "no needle"]
    assert whole["command"] == "the command"
    assert [c["verdict"] for c in summary["claims"]] == found.claims["verdict"].to_list()
    assert summary["top"]["locos"][0]["name"] == str(found.scores["locos"].top(1)[0])


def test_the_same_call_continues_and_runs_nothing_again(
    qwen: Any, done: tuple[LocosFinding, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, out = done
    shutil.copytree(out, tmp_path / "run")

    def forbidden(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the model was run again")

    monkeypatch.setattr(torch.nn.Embedding, "forward", forbidden)  # A model with a forward of its own would be refused.
    (again,) = studies.locos(qwen, TINY, tmp_path / "run")
    for name, frame in first.all_frames().items():
        pd.testing.assert_frame_equal(frame, again.all_frames()[name])
    with pytest.raises(ValueError, match=r"preset\.seeds: 2 in the folder, 3 now"):
        studies.locos(qwen, replace(TINY, seeds=3), tmp_path / "run")


def test_a_killed_study_continues_where_it_stopped(
    qwen: Any, done: tuple[LocosFinding, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched = study.patched

    def killed(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "patched", killed)
    with pytest.raises(KeyboardInterrupt):
        studies.locos(qwen, TINY, tmp_path / "run")
    assert not has_hooks(qwen)
    monkeypatch.setattr(study, "patched", patched)
    (again,) = studies.locos(qwen, TINY, tmp_path / "run")
    pd.testing.assert_frame_equal(again.claims, done[0].claims)


def test_a_model_that_fails_takes_nothing_away_from_the_one_before(
    qwen: Any, done: tuple[LocosFinding, Path], tmp_path: Path
) -> None:
    shutil.copytree(done[1] / "qwen3", tmp_path / "run" / "qwen3")  # Neither the page nor the summary.
    (tmp_path / "damaged.gguf").write_bytes(b"GGUF")
    with pytest.raises((ValueError, OSError), match="damaged"):
        studies.locos([qwen, tmp_path / "damaged.gguf"], TINY, tmp_path / "run")
    assert (tmp_path / "run" / "report.html").exists()
    assert list(json.loads((tmp_path / "run" / "study_locos.json").read_text())["models"]) == ["qwen3"]


def test_exclusive_sets_are_the_heads_one_method_finds_alone() -> None:
    def scores(method: str, best: list[int]) -> lh.HeadScores:
        values = torch.zeros(2, 3)
        for place, head in enumerate(best):
            values.view(-1)[head] = 10 - place
        return lh.HeadScores.from_trials(method, values[None], ["a"])

    sets = stages.exclusive_sets({"locos": scores("locos", [0, 1, 2]), "copy": scores("copy", [2, 3, 0])}, 2)
    assert {name: [str(head) for head in heads] for name, heads in sets.items()} == {
        "locos only, not copy": ["L0H0", "L0H1"],
        "copy only, not locos": ["L0H2", "L1H0"],
    }


def test_presets_are_the_papers() -> None:
    paper, scripts = PRESETS["paper"], PRESETS["scripts"]
    assert paper.fixed_k(36 * 32) == 50
    assert (paper.fixed_k(72), paper.fixed_k(270), paper.fixed_k(4)) == (3, 12, 1)
    assert PRESETS["packaged"].fixed_k(72) is None
    assert paper.ks == scripts.ks == (1, 5, 10, 20, 50, 100)
    assert (paper.select, scripts.select) == (("nolima", {"preset": "paper"}), ("nolima", {"preset": "scripts"}))
    assert paper.test == ("nolima", {"preset": "evaluation"})
    assert paper.max_new_tokens == 100
    with pytest.raises(
        ValueError,
        match="preset='big': use demo-quick, demo, demo-full, packaged, thorough, negative-model, negative-needles",
    ):
        studies.locos("any", "big")


def test_bad_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no models"):
        studies.locos([], TINY, tmp_path)
    with pytest.raises(ValueError, match="a tuned lens belongs to one model"):
        studies.locos(["a", "b"], TINY, tmp_path, tuned_lens=tmp_path / "lens.safetensors")
    with pytest.raises(
        AttributeError, match="has no attribute 'nothing'; it has bench, capability, choosing, fragile_tasks"
    ):
        studies.nothing  # noqa: B018
