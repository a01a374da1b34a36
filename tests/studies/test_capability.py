"""The study of capabilities on tiny random models: every stage, models beside each other, the folder, the page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lens_heads import studies
from lens_heads.ablation.curves import AblationCurve
from lens_heads.ablation.evaluation import evaluate
from lens_heads.interventions.ablate import ablate
from lens_heads.localize import Universal
from lens_heads.model.hooks import has_hooks
from lens_heads.studies.capability_paper import damage, finding, stages
from lens_heads.studies.capability_paper.capabilities import Capability, chance
from lens_heads.studies.capability_paper.presets import Preset
from lens_heads.studies.capability_paper.stages import kin_of
from lens_heads.trials.trial import Trial
from tests import zoo

LONG = {"context_length": 480}  # Of bytes.
TINY = Preset(
    {
        "retrieval": Capability(
            ("packaged", {"split": "select", **LONG}), ("packaged", {"split": "test", **LONG}), share=0.5
        ),
        "induction": Capability(
            ("induction", {"split": "select", "words": 4}),
            ("induction", {"split": "test", "words": 4}),
            kin=("induction", {"split": "test", "words": 5, "seed": 1}),
        ),
        "continuation": Capability(
            ("continuation", {"split": "select"}),
            ("continuation", {"split": "test"}),
            metric="choice_logprob",
            right="choice",
        ),
        "arithmetic": Capability(None, ("arithmetic", {"digits": 1, "split": "test"})),
    },
    n_select=4,
    n_test=4,
    n_masks=10,
    sparsity=0.25,
    k=2,
    at_least=2,
    ks=(1, 2),
    random_draws=2,
    most_evaluations=23,
)
LOCALIZED = ["retrieval", "induction", "continuation"]
TASKS = [*LOCALIZED, "arithmetic", kin_of("induction")]


@pytest.fixture(scope="module")
def models() -> list[Any]:
    return [zoo.bridge(name, n_ctx=2048) for name in ("qwen3", "gemma3")]


@pytest.fixture(scope="module")
def done(models: list[Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    out = tmp_path_factory.mktemp("study") / "run"
    return studies.capability(models, preset=TINY, out=out, command="the command"), out


def test_two_tiny_models_go_through_all_of_it(models: list[Any], done: Any) -> None:
    findings, out = done
    assert not any(has_hooks(model) for model in models)
    for each, model in zip(findings, models, strict=True):
        assert list(each.scores) == LOCALIZED
        assert list(each.generality.metrics) == TASKS
        assert list(each.curves) == LOCALIZED
        assert each.parameters == sum(weights.numel() for weights in model.original_model.parameters())
        # 12 heads: 12 + 11 evaluations of greedy search are all it may ask for.
        assert list(each.methods) == ["css", "csb", "elastic_net", "one_shot", "greedy", "locos"]
        assert list(each.frames["methods"]["method"]) == list(each.methods)
        stored = {file.stem for file in (out / each.name / "tables").glob("*.parquet")}
        assert stored == set(each.frames)
        assert each.frames["claims"]["id"].to_list()[:3] == ["carries"] * 3
        assert set(each.frames["claims"]["id"]) == {"carries", "spared", "specific", "general", "universal", "cheaper"}


def test_the_numbers_are_those_of_evaluate(models: list[Any], done: Any) -> None:
    """Damage on own and unrelated tasks, measured again by hand with the heads ablated."""
    found, asked = done[0][0], stages.Asked.of(TINY)
    trials = {**asked.evaluation, kin_of("induction"): asked.kin["induction"]}
    heads = found.scores["induction"].top(2)
    lost = {}
    for task, metric in found.generality.metrics.items():
        before = evaluate(models[0], trials[task], generate=False, progress=False).metrics[metric]
        with ablate(models[0], heads, kind="zero"):
            after = evaluate(models[0], trials[task], generate=False, progress=False).metrics[metric]
        lost[task] = float((before - after).mean())
    rows = found.frames["spread"].set_index(["heads", "on"])["damage"]
    assert rows["induction", "own"] == pytest.approx(lost["induction"], abs=1e-4)
    assert rows["induction", "other data"] == pytest.approx(lost[kin_of("induction")], abs=1e-4)
    others = [lost[task] for task in ("retrieval", "continuation", "arithmetic")]
    assert rows["induction", "unrelated"] == pytest.approx(np.mean(others), abs=1e-4)
    curve = found.frames["curves"]
    at_two = curve[(curve["task"] == "induction") & (curve["method"] == "css") & (curve["set"] == "top")]
    at_two = at_two[(at_two["k"] == 2) & (at_two["metric"] == "logprob")]
    assert at_two["drop"].to_list() == pytest.approx([lost["induction"]], abs=1e-4)


def test_every_head_is_found_on_other_trials_than_it_is_ablated_on(done: Any) -> None:
    for each in done[0]:
        for name, scores in each.scores.items():
            assert not set(scores.trial_ids) & set(each.generality.curve.per_trial["trial"]), name


def test_the_page_and_the_summary_hold_what_was_found(done: Any) -> None:
    findings, out = done
    page = (out / "report.html").read_text()
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    assert not re.search(r"""<(script|link|img)\b[^>]*\b(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert "Two models of different families do not make a scaling law" in page
    assert page.index("heads demonstrably carry 0 of 3 capabilities.") < page.index("The paper&#x27;s claims")
    for each in findings:
        for part in (
            "how well masks find the heads",
            "universal heads",
            "what else the heads serve",
            "ablating more heads",
            "methods compared on retrieval",
        ):
            assert f"{each.model}: {part}" in page
    for claim in findings[0].frames["claims"]["claim"]:
        assert claim.replace("'", "&#x27;") in page or claim in page
    text = (out / "study_capability.json").read_text()
    summary = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert summary["command"] == "the command"
    assert list(summary["models"]) == ["qwen3", "gemma3"]
    assert len(summary["scale"]) == 2 * len(LOCALIZED)
    damages = {(row["capability"], row["model"]): row["damage"] for row in summary["scale"]}
    own = findings[1].generality.matrix().loc["retrieval", "retrieval"]
    assert damages["retrieval", "gemma3"] == pytest.approx(own, rel=1e-3)
    assert finding.depths(findings[:1], 2).empty


def test_the_same_call_continues_and_runs_nothing_again(
    models: list[Any], done: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings, out = done

    def forbidden(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the model was run again")

    monkeypatch.setattr(torch.nn.Embedding, "forward", forbidden)  # A model with a forward of its own would be refused.
    again = studies.capability(models, preset=TINY, out=out, command="the command")
    for before, after in zip(findings, again, strict=True):
        for name, frame in before.frames.items():
            pd.testing.assert_frame_equal(frame, after.frames[name])
    with pytest.raises(ValueError, match=r"preset\.random_draws: 2 in the folder, 3 now"):
        studies.capability(models[:1], preset=replace(TINY, random_draws=3), out=out)


def test_a_capability_that_nothing_moves_is_reported_and_left_out(
    models: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random models answer nothing: right answers are none whatever is ablated."""
    flat = replace(TINY.capabilities["retrieval"], metric="greedy_match")
    small = replace(TINY, capabilities={**TINY.capabilities, "retrieval": flat}, methods=("css",), ks=(2,))
    (found,) = studies.capability(models[0], ["retrieval", "induction"], small, tmp_path / "run")
    assert list(found.scores) == ["induction"]
    assert found.plan.compared == "induction"
    assert list(found.compared.metrics) == ["retrieval", "induction"]
    claims = found.frames["claims"].set_index("claim")
    assert "nothing to explain" in claims.loc["Few heads carry retrieval", "found"]
    assert claims.loc["Universal heads exist", "found"] == "too few capabilities: 1"
    page = (tmp_path / "run" / "report.html").read_text()
    assert "nothing to explain" in page
    assert "scaling law" not in page
    with pytest.raises(ValueError, match="qwen3: no capability has heads: every mask gives"):
        studies.capability(models[0], ["retrieval"], small, tmp_path / "none")


def test_what_fails_is_left_out_and_named(models: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capability, and a method on another: the study goes on without them."""
    real = stages.localize

    def failing(measured: Any, method: str, *args: Any, **options: Any) -> Any:
        if method == "csb" or measured.trials[0].id.startswith("induction"):
            raise RuntimeError(f"5 of 10 masks failed by {method}")
        return real(measured, method, *args, **options)

    monkeypatch.setattr(stages, "localize", failing)
    small = replace(TINY, methods=("css", "csb"), ks=(2,))
    with pytest.warns(UserWarning, match="csb is skipped: 5 of 10 masks failed by csb"):
        (found,) = studies.capability(models[0], ["retrieval", "induction"], small, tmp_path / "run")
    assert list(found.scores) == ["retrieval"]
    assert found.reasons == {"induction": "5 of 10 masks failed by css"}
    assert list(found.methods) == ["css"]
    assert (tmp_path / "run" / "report.html").exists()


def test_every_capability_has_masks_of_its_own() -> None:
    seeds = [TINY.mask_seed(name) for name in TINY.localized]
    assert len(set(seeds)) == len(seeds) == 3


def test_methods_that_ask_for_too_many_runs_are_left_out() -> None:
    assert stages.affordable(TINY, 12, needles=True) == list(TINY.methods)
    assert stages.affordable(TINY, 13, needles=False) == ["css", "csb", "elastic_net", "one_shot"]
    assert stages.affordable(replace(TINY, most_evaluations=5), 12, needles=True) == ["css", "locos"]


def test_by_luck_is_a_share_of_random_sets() -> None:
    """Two tasks of one head among four: they have it in common in a quarter of all draws."""
    head = stages.Head(0, 0)
    shared = Universal([head], {head: ("a", "b")}, k=1, at_least=2, n_tasks=2, n_heads=12, expected=0.25)
    assert stages.by_luck(shared, 4) == pytest.approx(0.25, abs=0.03)
    assert stages.by_luck(replace(shared, heads=[]), 4) == 1
    assert stages.by_luck(replace(shared, heads=[head, stages.Head(0, 1)]), 4) == pytest.approx(1 / 2001)


def test_a_mean_gap_weighs_tasks_alike_and_widens_for_few_trials() -> None:
    gaps = [np.array([[1.0, 3.0, 2.0, 2.0]]), np.array([[4.0, 8.0]])]
    found = damage.mean_gap(gaps)
    assert (found.value, found.trials) == (4.0, 6)
    # Of two the resampled mean is 4, 6 or 8: the ends are widened by the square root of two, and by Student's t for one degree.
    few = 2**0.5 * 12.7062 / 1.95996
    alone = damage.mean_gap(gaps[1:])
    assert (alone.low, alone.high) == pytest.approx((6 - 2 * few, 6 + 2 * few), rel=1e-4)
    many = np.random.default_rng(0).normal(1, 2, (1, 400))
    half = 1.966 * many.std(ddof=1) / 20
    assert (damage.mean_gap([many]).low, damage.mean_gap([many]).high) == pytest.approx(
        (many.mean() - half, many.mean() + half), abs=0.04
    )
    assert np.isnan(damage.mean_gap([np.array([[1.0]])]).low)
    assert np.isnan(damage.mean_gap([]).value)
    draws = damage.mean_gap([np.array([[0.0, 0.0], [1.0, 1.0]])] * 2)  # The luck of a draw is that of all tasks.
    assert (draws.low, draws.high) == pytest.approx((0.5 - 0.5 * few, 0.5 + 0.5 * few), rel=1e-4)


def test_right_answers_are_counted_from_chance_on() -> None:
    asked = zip((2, 4, 4, 4), "abcd", strict=True)
    trials = [Trial(id=answer, question="?", answer=answer, choices=(answer, "e", "f", "g")[:n]) for n, answer in asked]
    assert chance(trials, "choice") == pytest.approx(0.3125)
    assert chance(trials, "greedy_match") == 0, "no other trial has the same answer"
    assert chance([*trials, *trials[:1] * 4], "choice") == pytest.approx(4 / 7), "always the same answer"
    assert chance([*trials, *trials[:1] * 4], "correct") == 0
    rows = [
        {"method": m, "set": s, "k": k, "seed": 0, "task": "retrieval", "trial": str(i), "choice": value}
        for m, s, k, values in (
            ("none", "none", 0, [1] * 30 + [0] * 10),
            ("css", "top", 2, [1] * 20 + [0] * 20),
        )
        for i, value in enumerate(values)
    ]
    rows += [{**row, "method": "any", "set": "random"} for row in rows if row["set"] == "top"]
    curve = AblationCurve(pd.DataFrame(rows), {"ks": [2]})
    table = damage.right_answers({"continuation": curve}, TINY, {"continuation": 0.25}).set_index("k")
    assert table.loc[2, "lost"] == pytest.approx(0.5)  # .75 to .50, of which .25 is luck.
    assert table.loc[2, "lost_high"] - 0.5 >= 1 - 0.025 ** (1 / 30)  # Thirty were right.
    assert np.isnan(table.loc[0, "lost"])
    table = damage.right_answers({"continuation": curve}, TINY, {"continuation": 0.65}).set_index("k")
    assert np.isnan(table.loc[2, "lost"])  # Not surely anything to lose: .75 of 40 may well be .65.


def test_trials_that_cannot_be_run_are_refused_before_any_is(models: Any, tmp_path: Path) -> None:
    """Also those that only the last stage would have come to."""
    one = TINY.capabilities["induction"]
    same = replace(TINY, capabilities={**TINY.capabilities, "induction": replace(one, kin=one.select)})
    with pytest.raises(ValueError, match="ranking 'induction' was made on 4 of the trials"):
        studies.capability(models[:1], preset=same, out=tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_no_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no models"):
        studies.capability([], preset=TINY, out=tmp_path / "run")
