"""The whole study on tiny random models of the paper's families: every stage, the folder, the page."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads import studies
from lens_heads.ablation.conditions import Condition
from lens_heads.model.hooks import has_hooks
from lens_heads.scoring.scorers import SCORERS
from lens_heads.studies.locos_paper import stages
from lens_heads.studies.locos_paper.finding import LocosFinding
from lens_heads.studies.locos_paper.page import page
from lens_heads.studies.locos_paper.presets import PRESETS, Preset
from tests import curves, zoo

TINY = Preset(
    select=("packaged", {"split": "select", "n": 3, "context_length": 600}),
    test=("packaged", {"split": "test", "n": 2, "context_length": 600}),
    spared={"arithmetic": ("arithmetic", {"n": 2, "digits": 1})},
    downstream={"babilong": ("babilong", {"n": 2, "task": "qa1"})},
    ks=(1,),
    seeds=2,
    calibrate=2,
    max_new_tokens=3,
    cri_trials=2,
    recovery_trials=1,
    recovery_draws=2,
    read_heads=3,
    teacher_forced=True,
    only_flipped=False,
)
FAMILIES = ("qwen3", "gemma3", "olmo3")


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
    assert set(found.scores) == {*SCORERS, "locos (exact)"}
    assert found.cri is not None
    assert found.cri.method == "cri"
    assert len(found.cri.trial_ids) == 2
    assert found.k == 1
    check_tables(found, out / found.model)
    check_summary(found, out / "study_locos.json")
    page = (out / "report.html").read_text()
    assert "default-src 'none'" in page  # The page's own policy: nothing is loaded from anywhere.
    assert not re.search(r"""<(script|link|img)\b[^>]*\b(src|href)\s*=\s*["']?(https?:)?//""", page)
    for heading in ("cannot be told", "RQ1", "RQ2", "RQ4", "RQ5", "causal evidence", "what the heads read"):
        assert heading in page


def check_tables(found: LocosFinding, folder: Path) -> None:
    """Every number is in Parquet, and is the number that was found."""
    frames = found.all_frames()
    assert {file.stem for file in (folder / "tables").glob("*.parquet")} == set(frames)
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(pd.read_parquet(folder / "tables" / f"{name}.parquet"), frame, check_dtype=False)
    ablated = frames["ablation"]
    assert set(ablated[ablated["task"] == "arithmetic"]["method"]) >= {"none", "any", "locos"}
    assert set(ablated[ablated["set"] == "top"]["method"]) == {*SCORERS, "locos (exact)"}
    assert set(frames["texts"]["task"]) == {"retrieval", "arithmetic", "babilong"}
    shares = frames["provenance"].drop(columns=["head", "trials"]).sum(axis=1)
    assert shares.to_list() == pytest.approx([1] * len(shares))


def test_claims_about_tasks_that_were_not_run_are_left_out(done: tuple[LocosFinding, Path]) -> None:
    found, _ = done
    assert found.claims["id"].to_list() == ["retrieval", "baseline", "random", "factorial", "babilong", "arithmetic"]


def test_random_heads_count_on_average_over_their_draws(done: tuple[LocosFinding, Path]) -> None:
    right = {(Condition.none(), 0): 3, (Condition.top("locos", 1), 0): 1}
    right |= {(Condition.random(1), draw): kept for draw, kept in enumerate((3, 3, 0))}
    rows = [
        curves.row(condition, "retrieval", str(i), dict.fromkeys(("contains", "correct"), float(i < kept)), seed=draw)
        for (condition, draw), kept in right.items()
        for i in range(3)
    ]
    made_up = replace(done[0], texts=curves.curve_of(rows))
    verdict = page([made_up], TINY).summary.verdict
    assert "1 of 3 answers are right instead of 3; without 1 random head, 2.0 on average." in verdict


def check_summary(found: LocosFinding, file: Path) -> None:
    whole = json.loads(file.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    summary = whole["models"][found.model]
    assert set(summary["seconds"]) >= {"detection", "ablation", "texts", "patching", "recovery"}
    assert all(question.endswith("?") for question in found.questions.values())
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
    patched = stages.patched

    def killed(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "patched", killed)
    with pytest.raises(KeyboardInterrupt):
        studies.locos(qwen, TINY, tmp_path / "run")
    assert not has_hooks(qwen)
    monkeypatch.setattr(stages, "patched", patched)
    (again,) = studies.locos(qwen, TINY, tmp_path / "run")
    pd.testing.assert_frame_equal(again.claims, done[0].claims)


def test_a_model_that_fails_takes_nothing_away_from_the_one_before(
    qwen: Any, done: tuple[LocosFinding, Path], tmp_path: Path
) -> None:
    shutil.copytree(done[1] / "qwen3", tmp_path / "run" / "qwen3")  # Neither the page nor the summary.
    with pytest.raises(FileNotFoundError):
        studies.locos([qwen, tmp_path / "no-such-model.gguf"], TINY, tmp_path / "run")
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
    assert paper.headline_k(36 * 32) == 50
    assert (paper.headline_k(72), paper.headline_k(270), paper.headline_k(4)) == (3, 12, 1)
    assert paper.ks == scripts.ks == (1, 5, 10, 20, 50, 100)
    assert (paper.select, scripts.select) == (("nolima", {"preset": "paper"}), ("nolima", {"preset": "scripts"}))
    assert paper.test == ("nolima", {"preset": "evaluation"})
    assert paper.max_new_tokens == 100
    with pytest.raises(
        ValueError, match="preset='big': use demo-quick, demo, demo-full, packaged, quick, paper, scripts"
    ):
        studies.locos("any", "big")


def test_bad_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no models"):
        studies.locos([], TINY, tmp_path)
    with pytest.raises(ValueError, match="a tuned lens belongs to one model"):
        studies.locos(["a", "b"], TINY, tmp_path, tuned_lens=tmp_path / "lens.safetensors")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'; it has capability, fragile_tasks, locos"):
        studies.nothing  # noqa: B018
