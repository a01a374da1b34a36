"""The study of fragile tasks on tiny random models: every stage, two models beside each other, the folder, the page."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch

from lens_heads import studies
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.sanity.rankings import random_ranking
from lens_heads.studies.claims import DOES_NOT, UNTOLD
from lens_heads.studies.fragile_paper import study
from lens_heads.studies.fragile_paper.claims import (
    ALL,
    OTHERS,
    OWN,
    PRESETS,
    TASKS,
    Preset,
    claims_of_pair,
    on_reports,
)
from lens_heads.studies.fragile_paper.study import FragileStudy
from lens_heads.tasks.sec10k.filings import packaged_filings
from tests import zoo
from tests.scripts import script

pytestmark = pytest.mark.slow

RECOVERY: Any = import_module("lens_heads.evidence.recovery")  # The floor shows the function of that name.

FOUR = ("headquarters_city", "headquarters_state", "ceo_lastname", "holder_record_amount")
TINY = Preset(
    documents={"n": 1, "chunk_words": 40, "n_documents": 0},
    trials={"n": 2, "words": 12},
    ks=(128, 512),
    headline_k=128,
    random_draws=2,
    random_sets=3,
    random_trials=5,
    layer_matched=True,
    right="greedy_match",
    generate=False,
    recovery_trials=1,
    recovery_draws=2,
    match_texts=2,
    tasks=FOUR,
)


@pytest.fixture(scope="module", autouse=True)
def reports_are_read_once() -> Iterator[None]:
    """Every call of the study reads the same packaged reports, which takes longer than all else together: 40 will do."""
    sec10k = import_module("lens_heads.tasks.sec10k")  # The package has a function of this name too.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sec10k, "packaged_filings", partial(packaged_filings, 40))
        patch.setattr(sec10k, "_instances", cache(sec10k._instances))
        yield


@pytest.fixture(scope="module")
def models() -> list[Any]:
    return [zoo.bridge(name, n_ctx=8192) for name in ("qwen3", "gemma3")]


@pytest.fixture(scope="module")
def done(models: list[Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    out = tmp_path_factory.mktemp("study") / "run"
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
        restored = each.frames["recovery"][["task", "k"]].drop_duplicates()
        assert sorted(map(tuple, restored.to_numpy())) == sorted((task, k) for task in (*FOUR, ALL) for k in TINY.ks)
        assert {file.stem for file in (out / each.name / "tables").glob("*.parquet")} == {*each.frames, *each.trials}
    assert pair.names == ("qwen3", "gemma3")
    assert len(pair.match.pairs) == min(model.cfg.n_layers * model.cfg.n_heads for model in models)


def test_a_preset_s_costs_are_the_passes_that_run(models: list[Any], done: Any) -> None:
    (findings, (pair,)), _ = done
    costs, each = FragileStudy(TINY, "own").costs(head_geometry(models[0])), findings[0]
    assert costs["detection"] == sum(each.scores["qr"][task].per_trial.shape[0] for task in FOUR)
    assert costs["transfer"] == len(each.matrix.per_trial)
    assert costs["headline"] == len(each.curve.per_trial)
    patched = each.frames["recovery"].query("set == 'patched' and task != @ALL")
    assert (
        costs["recovery"] == 2 * patched["examples"].sum()
    )  # Clean and ablated: restoring needs the answer rows alone.
    unablated = len(pair.validation.per_trial[["task", "trial"]].drop_duplicates())
    assert costs["validation"] == len(pair.validation.per_trial.query("set != 'a'")) + unablated


def test_fair_controls_cost_passes_of_their_own(
    models: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(TINY, fair=True, ks=(512,), headline_k=512, recovery_trials=2)
    asked, filled = FragileStudy(plan, "own"), Mock(wraps=RECOVERY._cache)
    monkeypatch.setattr(RECOVERY, "_cache", filled)
    bench = study.FragileSetup(models[0], plan, asked.documents, asked.tests, tmp_path)
    study.mended(bench, dict.fromkeys(FOUR, random_ranking(models[0])))
    assert (
        asked.costs(head_geometry(models[0]))["recovery"] == filled.call_count == 2 * 4 * (2 + 2 * plan.recovery_draws)
    )


def test_sources_are_compared_trial_by_trial_with_the_same_random_sets(done: Any) -> None:
    (findings, _), _ = done
    for each in findings:
        rows, drawn = each.matrix.per_trial, each.curve.per_trial
        k, pooled = each.sizes[each.headline], each.curve.rankings[0]
        clean = rows[rows["method"] == "none"].set_index("trial")["logprob"]
        of_tasks = rows[(rows["k"] == k) & rows["method"].isin(FOUR)]
        logprobs = {
            OTHERS: of_tasks[of_tasks["method"] != of_tasks["task"]].groupby("trial")["logprob"].mean(),
            OWN: of_tasks[of_tasks["method"] == of_tasks["task"]].set_index("trial")["logprob"],
            pooled: drawn[(drawn["set"] == "top") & (drawn["method"] == pooled)].set_index("trial")["logprob"],
        }
        table = each.frames["sources"].set_index(["source", "task"])
        for source, found in logprobs.items():
            row = table.loc[(source, ALL)]
            assert row["drop"] == pytest.approx((clean - found).mean(), abs=1e-5)
            for column, which in (("beyond", "random"), ("beyond_layers", "random_like")):
                if source == pooled or which == "random":
                    random = drawn[drawn["set"] == which]
                    gaps = random["logprob"] - random["trial"].map(found)
                    assert len(random) == TINY.random_sets * TINY.random_trials
                    assert row[column] == pytest.approx(gaps.mean(), abs=1e-5)
                else:
                    assert np.isnan(row[column])
        assert len(table) == (2 + 2) * (len(FOUR) + 1)


def test_means_over_tasks_are_those_of_the_matrix(done: Any) -> None:
    (findings, _), _ = done
    for each in findings:
        table = (
            each.frames["statistics"].query("metric == 'logprob' and statistic == 'fragility'").set_index(["k", "task"])
        )
        expected = each.matrix.fragility()
        assert table["value"].xs(ALL, level="task").to_list() == pytest.approx(expected.mean(axis=1).to_list())
        assert table.loc[(512, FOUR[1]), "value"] == pytest.approx(expected.loc[512, FOUR[1]])


def test_the_page_and_the_summary_hold_what_was_found(done: Any) -> None:
    (findings, found), out = done
    page = (out / "report.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"""<(script|link|img)\b[^>]*\b(src|href)\s*=\s*["']?(https?:)?//""", page)
    for heading in ("do the same tasks break?", "which heads correspond?", "transfer between tasks", "recovery"):
        assert heading in page
    assert page.count("data-explorer>") == 2, "an explorer for each model"
    text = (out / "study_fragile_tasks.json").read_text()
    summary = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert summary["command"] == "the command"
    assert set(summary["models"]) == {"qwen3", "gemma3"}
    note = summary["models"]["qwen3"]["question_note"]
    assert "with their question" in note or "cannot be told" in note
    assert "Nothing here shows retrieval by meaning" in note  # Of a model that learnt nothing.
    assert summary["models"]["qwen3"]["heads_for_k"] == {str(k): size for size, k in findings[0].sizes.items()}
    assert summary["pairs"][0]["correlations"][0]["r2"] == pytest.approx(
        found[0].frames["correlations"]["r2"].iloc[0], abs=1e-4
    )


def test_the_results_page_tells_the_same_claims(done: Any) -> None:
    from benchmarks.sections.fragile import fragile
    from benchmarks.sections.reading import Results

    (findings, (pair,)), out = done
    text = fragile(Results(out))
    for row in [row for each in [*findings, pair] for row in each.claims.to_dict("records")]:
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {row['claim']} |")]
        number = "" if math.isnan(row["low"]) else f": {row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        assert f"**{row['verdict']}**{number}" in line
    (others,) = findings[1].frames["sources"].query("source == @OTHERS and task == @ALL").to_dict("records")
    assert f"| {OTHERS} | {others['drop']:.2f} [{others['drop_low']:.2f}, {others['drop_high']:.2f}] |" in text
    first = pair.frames["correlations"].iloc[0]
    assert f"| {first['statistic']} | {first['how']} | {first['r']:.2f} |" in text


def test_claims_can_be_judged_again_from_the_stored_trials(models: list[Any], done: Any) -> None:
    (findings, (pair,)), out = done
    again = []
    for each, model in zip(findings, models, strict=True):
        stored = {name: pd.read_parquet(out / each.model / "tables" / f"{name}.parquet") for name in each.trials}
        heads = model.cfg.n_layers * model.cfg.n_heads
        again.append(script("verdicts").fragile_again(each.model, stored, each.frames["tasks"], TINY, heads))
        pd.testing.assert_frame_equal(again[-1].claims, each.claims)
    pd.testing.assert_frame_equal(
        claims_of_pair(
            pair.names, TINY, study.correlated(*again, TINY)[0], [each.frames["answered"] for each in again]
        ),
        pair.claims,
    )


def test_the_same_call_continues_and_runs_nothing_again(
    models: list[Any], done: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (findings, (pair,)), out = done

    def forbidden(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the model was run again")

    monkeypatch.setattr(torch.nn.Embedding, "forward", forbidden)  # A model with a forward of its own would be refused.
    again, (same,) = studies.fragile_tasks(models, TINY, out, command="the command")
    for before, after in zip(findings, again, strict=True):
        for name, frame in before.frames.items():
            pd.testing.assert_frame_equal(frame, after.frames[name])
    for name, frame in pair.frames.items():
        pd.testing.assert_frame_equal(frame, same.frames[name])
    with pytest.raises(ValueError, match=r"preset\.random_draws: 2 in the folder, 3 now"):
        studies.fragile_tasks(models[:1], Preset(**{**vars(TINY), "random_draws": 3}), out)


def test_presets_have_other_companies_on_either_side() -> None:
    assert PRESETS["paper"].tasks == TASKS
    assert PRESETS["paper"].size(64, 1024) == 64
    assert PRESETS["paper"].size(8, 24) == 1
    assert replace(PRESETS["paper"], relative_k=False).sizes(24) == {8: 8, 16: 16, 24: 32}
    asked = FragileStudy(TINY, "own")
    detection, evaluation = asked.documents, asked.tests
    companies = [{t.meta["cik"] for trials in side.values() for t in trials} for side in (detection, evaluation)]
    assert not companies[0] & companies[1]
    assert [len(trials) for trials in evaluation.values()] == [2] * 4
    with pytest.raises(ValueError, match="preset='small': use packaged, quick, thorough, paper, negative-model"):
        studies.fragile_tasks("any", "small")
    real = on_reports(PRESETS["paper"], "paper", "10-K.zip")
    assert real.documents == {"chunk_words": 400, "n_documents": 20, "path": "10-K.zip"}
    with pytest.raises(ValueError, match="preset='paper' needs real filings: pass path="):
        studies.fragile_tasks("any", "paper")


def test_the_headline_has_at_least_the_trials_of_the_random_sets() -> None:
    first = {name: PRESETS[name].stops(trials=128).next_block(0) for name in ("packaged", "thorough")}
    assert first == {"packaged": 20, "thorough": 100}
    assert PRESETS["thorough"].stops(trials=30).next_block(0) == 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"headline_k": 64}, "headline_k=64: use one of 128, 512"),
        ({"control": "shuffled"}, "control='shuffled': use one of None, random_initialised, exchanged_needles"),
        ({"precision": 0}, "half_width=0: must be above 0"),
        ({"lead": "locos"}, "lead='locos': use one of qr, core, summed_attention"),
        ({"right": "correct"}, "right='correct' is not measured with generate=False: use one of logprob, greedy_match"),
    ],
)
def test_a_preset_that_cannot_be_run_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Preset(**{**vars(TINY), **change})


@pytest.mark.parametrize(("control", "changed"), [("exchanged_needles", "needle"), ("permuted_answers", "answer")])
def test_negative_controls_change_trials_of_the_same_tasks(control: str, changed: str) -> None:
    plain, other = (FragileStudy(replace(TINY, control=name), "own").tests for name in (None, control))
    for task, trials in other.items():
        assert {trial.meta["filing"] for trial in trials} == {trial.meta["filing"] for trial in plain[task]}
        before = {trial.meta["filing"]: trial for trial in plain[task]}
        for trial in trials:
            kept = before[trial.meta["filing"]]
            differ = [name for name in ("question", "needle", "answer") if getattr(trial, name) != getattr(kept, name)]
            assert differ == [changed]


@pytest.mark.parametrize("name", ["negative-model", "negative-needles"])
def test_in_a_negative_control_nothing_holds(name: str, models: list[Any], tmp_path: Path) -> None:
    plan = replace(
        TINY,
        control=PRESETS[name].control,
        trials={"n": 5, "words": 12},
        tasks=("headquarters_city", "holder_record_amount"),
        ks=(512,),
        headline_k=512,
        random_sets=8,
        layer_matched=False,
    )
    (found,), _ = studies.fragile_tasks(models[:1], plan, tmp_path)
    assert set(found.claims["verdict"]) <= {DOES_NOT, UNTOLD}
    assert found.claims["low"].notna().sum() >= 2  # There are enough trials for intervals.
    assert ("random-initialised" in found.model) == (name == "negative-model")


def test_a_plan_runs_no_stage(models: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert studies.fragile_tasks(models[:1], TINY, tmp_path / "run", plan=True) == ([], [])
    assert not (tmp_path / "run").exists()
    assert "transfer" in capsys.readouterr().out


def test_no_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no models"):
        studies.fragile_tasks([], TINY, tmp_path / "run")
    with pytest.raises(ValueError, match="two models are called 'final'"):
        studies.fragile_tasks(["base/final", "tuned/final"], TINY, tmp_path / "run")
