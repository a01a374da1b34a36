"""The study of fragile tasks on tiny random models: every stage, two models beside each other, the folder, the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lens_heads import studies
from lens_heads.model.hooks import has_hooks
from lens_heads.studies.claims import HOLDS, UNTOLD
from lens_heads.studies.fragile_paper import stages
from lens_heads.studies.fragile_paper.finding import ALL
from lens_heads.studies.fragile_paper.presets import PRESETS, TASKS, Preset, on_reports
from lens_heads.studies.fragile_paper.study import FragileStudy
from lens_heads.tasks.sec10k import packaged
from tests import zoo

FOUR = ("headquarters_city", "headquarters_state", "ceo_lastname", "holder_record_amount")
TINY = Preset(
    documents={"n": 1, "chunk_words": 40, "n_documents": 0},
    trials={"n": 2, "words": 12},
    ks=(128, 512),
    random_draws=2,
    metric="logprob",
    right="greedy_match",
    generate=False,
    recovery_k=128,
    recovery_trials=1,
    recovery_draws=2,
    matched_k=128,
    match_texts=2,
    tasks=FOUR,
)


@pytest.fixture(scope="module", autouse=True)
def reports_are_read_once() -> Iterator[None]:
    """Every call of the study reads the same packaged reports, which takes longer than all else together: 40 will do."""
    sec10k = import_module("lens_heads.tasks.sec10k")  # The package has a function of this name too.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packaged, "packaged_filings", partial(packaged.packaged_filings, 40))
        patch.setattr(sec10k, "_instances", cache(sec10k._instances))
        yield


@pytest.fixture(scope="module")
def models() -> list[Any]:
    return [zoo.bridge(name, n_ctx=8192) for name in ("qwen3", "gemma3")]


@pytest.fixture(scope="module")
def done(models: list[Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    out = tmp_path_factory.mktemp("study") / "run"
    with pytest.MonkeyPatch.context() as patch:
        # Random models answer nothing: every trial counts as broken, so that recovery is run.
        patch.setattr(stages, "flipped", lambda matrix, metric, task, k: set(matrix.items(task)))
        return studies.fragile_tasks(models, TINY, out, command="the command"), out


def test_two_tiny_models_go_through_all_of_it(models: list[Any], done: Any) -> None:
    (findings, (pair,)), out = done
    assert not any(has_hooks(model) for model in models)
    for each, model in zip(findings, models, strict=True):
        heads = model.cfg.n_layers * model.cfg.n_heads
        assert list(each.sizes) == [TINY.size(k, heads) for k in TINY.ks]
        assert each.matrix.ks == TINY.ks  # Named by what they stand for.
        assert set(each.scores["qr"]) == {*FOUR, ALL}
        everyone = [each.scores["qr"][task].per_trial for task in FOUR]
        assert each.scores["qr"][ALL].values.numpy() == pytest.approx(np.concatenate(everyone).mean(0))
        assert set(each.frames["recovery"]["task"]) == set(FOUR)
        assert {file.stem for file in (out / each.name / "tables").glob("*.parquet")} == set(each.frames)
    assert pair.names == ("qwen3", "gemma3")
    assert set(pair.frames["correlations"]["statistic"]) >= {"logprob: fragility", "logprob: disruptivity"}
    assert len(pair.match.pairs) == min(model.cfg.n_layers * model.cfg.n_heads for model in models)


def test_means_over_tasks_are_those_of_the_matrix(done: Any) -> None:
    (findings, _), _ = done
    for each in findings:
        table = each.frames["statistics"]
        mean = table[(table["task"] == "mean") & (table["metric"] == "logprob") & (table["statistic"] == "fragility")]
        assert mean["value"].to_list() == pytest.approx(each.matrix.fragility().mean(axis=1).to_list())
        assert (mean["low"] <= mean["value"]).all()
        assert (mean["value"] <= mean["high"]).all()


def test_the_page_and_the_summary_hold_what_was_found(done: Any) -> None:
    (findings, found), out = done
    page = (out / "report.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"""<(script|link|img)\b[^>]*\b(src|href)\s*=\s*["']?(https?:)?//""", page)
    for heading in ("do the same tasks break?", "which heads correspond?", "transfer between tasks", "recovery"):
        assert heading in page
    text = (out / "study_fragile_tasks.json").read_text()
    summary = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert summary["command"] == "the command"
    assert set(summary["models"]) == {"qwen3", "gemma3"}
    assert summary["models"]["qwen3"]["heads_for_k_of_1024"] == {str(k): size for size, k in findings[0].sizes.items()}
    assert summary["pairs"][0]["correlations"][0]["r2"] == pytest.approx(
        found[0].frames["correlations"]["r2"].iloc[0], abs=1e-4
    )


def test_the_same_call_continues_and_runs_nothing_again(
    models: list[Any], done: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (findings, (pair,)), out = done

    def forbidden(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the model was run again")

    monkeypatch.setattr(stages, "flipped", lambda matrix, metric, task, k: set(matrix.items(task)))
    monkeypatch.setattr(torch.nn.Embedding, "forward", forbidden)  # A model with a forward of its own would be refused.
    again, (same,) = studies.fragile_tasks(models, TINY, out, command="the command")
    for before, after in zip(findings, again, strict=True):
        for name, frame in before.frames.items():
            pd.testing.assert_frame_equal(frame, after.frames[name])
    for name, frame in pair.frames.items():
        pd.testing.assert_frame_equal(frame, same.frames[name])
    with pytest.raises(ValueError, match=r"preset\.random_draws: 2 in the folder, 3 now"):
        studies.fragile_tasks(models[:1], Preset(**{**vars(TINY), "random_draws": 3}), out)


def test_claims_are_read_off_the_numbers(done: Any) -> None:
    (findings, found), _ = done
    table = pd.concat([each.claims for each in [*findings, *found]])
    for _, row in table[table["p"].notna()].iterrows():
        assert row["verdict"] == (HOLDS if row["p"] < 0.05 else UNTOLD)
    broad = table[table["claim"] == "Heads of one task break other tasks"]
    assert len(broad) == 2
    for each, (_, row) in zip(findings, broad.iterrows(), strict=True):
        assert row["value"] == pytest.approx(each.matrix.disruptivity().loc[512].mean())


def test_trials_that_flip_are_right_before_and_wrong_after(done: Any) -> None:
    (findings, _), _ = done
    matrix = findings[0].matrix
    rows = matrix.per_item.copy()
    first, second = matrix.items(FOUR[0])
    mine = rows["target"] == FOUR[0]
    rows.loc[mine, "greedy_match"] = 0.0
    rows.loc[mine & (rows["source"] == "none"), "greedy_match"] = 1.0
    rows.loc[mine & (rows["source"] == FOUR[0]) & (rows["item"] == second), "greedy_match"] = 1.0
    changed = type(matrix)(per_item=rows, metric="logprob")
    assert stages.flipped(changed, "greedy_match", FOUR[0], 128) == {first}
    assert stages.flipped(changed, "greedy_match", FOUR[1], 128) == set()


def test_presets_have_other_companies_on_either_side() -> None:
    assert set(PRESETS) == {"packaged", "quick", "paper"}
    assert PRESETS["paper"].tasks == TASKS
    assert PRESETS["paper"].size(64, 1024) == 64
    assert PRESETS["paper"].size(8, 24) == 1
    study = FragileStudy(TINY, "own")
    detection, evaluation = study.documents, study.tests
    companies = [{t.meta["cik"] for trials in side.values() for t in trials} for side in (detection, evaluation)]
    assert not companies[0] & companies[1]
    assert [len(trials) for trials in evaluation.values()] == [2] * 4
    with pytest.raises(ValueError, match="preset='small': use packaged, quick, paper"):
        studies.fragile_tasks("any", "small")
    real = on_reports(PRESETS["paper"], "paper", "10-K.zip")
    assert real.documents == {"chunk_words": 400, "n_documents": 20, "path": "10-K.zip"}
    with pytest.raises(ValueError, match="preset='paper' needs real filings: pass path="):
        studies.fragile_tasks("any", "paper")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recovery_k": 64}, "recovery_k=64: use one of 128, 512"),
        ({"lead": "locos"}, "lead='locos': use one of qr, core, summed_attention"),
        ({"right": "correct"}, "right='correct' is not measured with generate=False: use one of logprob, greedy_match"),
    ],
)
def test_a_preset_that_cannot_be_run_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Preset(**{**vars(TINY), **change})


def test_intervals_are_widened_for_few_items(done: Any) -> None:
    (findings, _), _ = done
    matrix = findings[0].matrix  # Two items a task: sqrt(2) times as wide.
    table = findings[0].frames["statistics"]
    rows = table[(table["statistic"] == "disruptivity") & (table["metric"] == "logprob") & (table["task"] == FOUR[0])]
    low, high = matrix.interval("disruptivity")
    expected = np.sqrt(2) * (high[FOUR[0]] - low[FOUR[0]])
    assert (rows["high"] - rows["low"]).to_list() == pytest.approx(expected.to_list())


def test_no_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no models"):
        studies.fragile_tasks([], TINY, tmp_path / "run")
    with pytest.raises(ValueError, match="two models are called 'final'"):
        studies.fragile_tasks(["base/final", "tuned/final"], TINY, tmp_path / "run")
