"""The study of capabilities on tiny random models: every stage, models beside each other, the folder, the page."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lens_heads import studies
from lens_heads.answering.evaluation import evaluate
from lens_heads.evidence import grid
from lens_heads.evidence.verdicts import DOES_NOT, UNTOLD
from lens_heads.heads.head import Head
from lens_heads.interventions.ablate import ablate
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.masks import measure
from lens_heads.studies.capability_paper import claims, stages, study
from lens_heads.studies.capability_paper.presets import Capability, Preset, kin_of
from lens_heads.studies.capability_paper.study import CapabilityStudy
from lens_heads.studies.claims import published
from lens_heads.studies.runner import StageRun
from tests import zoo
from tests.scripts import script

pytestmark = pytest.mark.slow

LONG = {"context_length": 480}  # Of bytes.
TINY = Preset(
    {
        "retrieval": Capability(("packaged", {"split": "select", **LONG}), ("packaged", {"split": "test", **LONG})),
        "induction": Capability(
            ("induction", {"split": "select", "words": 4}),
            ("induction", {"split": "test", "words": 4}),
            kin=("induction", {"split": "test", "words": 5, "seed": 1}),
            kin_select=("induction", {"split": "select", "words": 5, "seed": 1}),
        ),
        "continuation": Capability(
            ("continuation", {"split": "select"}),
            ("continuation", {"split": "test"}),
            metric="choice_logprob",
            right="choice",
        ),
        "arithmetic": Capability(None, ("arithmetic", {"digits": 1, "split": "test"})),
    },
    n_select=2,
    n_test=5,
    n_masks=10,
    sparsity=0.25,
    mask_draws=2,
    kin_draws=1,
    k=2,
    at_least=2,
    candidates=2,
    ks=(1, 2),
    random_draws=3,
    random_trials=5,
    curve_draws=2,
    most_evaluations=23,
)
LOCALIZED = ["retrieval", "induction", "continuation"]
BACK = kin_of("induction")
TASKS = [*LOCALIZED, "arithmetic", BACK]


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
        assert {name: len(draws) for name, draws in each.scores.items()} == {**dict.fromkeys(LOCALIZED, 2), BACK: 1}
        assert each.own == LOCALIZED
        assert list(each.metrics) == TASKS
        assert each.parameters == sum(weights.numel() for weights in model.original_model.parameters())
        # 12 heads: 12 + 11 evaluations of greedy search are all it may ask for.
        assert list(each.methods) == ["css", "csb", "elastic_net", "one_shot", "greedy", "locos"]
        assert list(each.frames["methods"]["method"]) == list(each.methods)
        assert len(each.frames["alone"]["head"].unique()) == 2
        stored = {file.stem for file in (out / each.name / "tables").glob("*.parquet")}
        assert stored == {*each.frames, *each.trials}
        assert set(each.frames["claims"]["id"]) == {claim["id"] for claim in published(study.__name__)["claims"]}


def test_claims_can_be_judged_again_from_the_stored_trials(done: Any) -> None:
    findings, out = done
    said = json.loads((out / "study_capability.json").read_text())["models"]
    for each in findings:
        stored = {name: pd.read_parquet(out / each.name / "tables" / f"{name}.parquet") for name in each.trials}
        again = script("verdicts").capability_again(each.model, TINY, stored, said[each.model])
        pd.testing.assert_frame_equal(again.claims, each.claims)


def test_the_numbers_are_those_of_evaluate(models: list[Any], done: Any) -> None:
    """Damage on own and unrelated tasks, measured again by hand with the heads of every draw of masks ablated."""
    found, asked = done[0][0], study.Asked.of(TINY)

    def lost(task: str, heads: list[Head]) -> float:
        metric = found.metrics[task]
        before = evaluate(models[0], asked.tests[task], generate=False, progress=False).metrics[metric]
        with ablate(models[0], heads, kind="zero"):
            after = evaluate(models[0], asked.tests[task], generate=False, progress=False).metrics[metric]
        return float((before - after).mean())

    by_draw = [each.top(2) for each in found.scores["induction"]]
    mean = {task: np.mean([lost(task, heads) for heads in by_draw]) for task in TASKS}
    rows = found.frames["spread"].set_index(["heads", "on"])["damage"]
    assert rows["induction", "own"] == pytest.approx(mean["induction"], abs=1e-4)
    assert rows["induction", "other data"] == pytest.approx(mean[BACK], abs=1e-4)
    others = [mean[task] for task in ("retrieval", "continuation", "arithmetic")]
    assert rows["induction", "unrelated"] == pytest.approx(np.mean(others), abs=1e-4)
    back = found.scores[BACK][0].top(2)
    assert rows[BACK, "own"] == pytest.approx(lost("induction", back), abs=1e-4)
    at_two = found.frames["curves"].query("capability == 'induction' and set == 'top' and k == 2")["damage"]
    assert at_two.to_list() == pytest.approx([mean["induction"]], abs=1e-4)
    added = found.frames["additivity"].set_index("capability").loc["induction"]
    apart = np.mean([sum(lost("induction", [head]) for head in heads) for heads in by_draw])
    assert added["each_alone"] == pytest.approx(apart, abs=1e-4)
    assert added["excess"] == pytest.approx(mean["induction"] - apart, abs=1e-4)
    alone = found.frames["alone"].query("task == 'induction' and own").set_index("head")["damage"]
    assert alone.to_dict() == {
        head: pytest.approx(lost("induction", [Head.parse(head)]), abs=1e-4) for head in alone.index
    }


def test_every_head_is_found_on_other_trials_than_it_is_ablated_on(done: Any) -> None:
    for each in done[0]:
        for name, draws in each.scores.items():
            for scores in draws:
                assert not set(scores.trial_ids) & set(each.curve.per_trial["trial"]), name


def test_the_page_and_the_summary_hold_what_was_found(done: Any) -> None:
    findings, out = done
    page = html.unescape((out / "report.html").read_text())
    assert "default-src 'none'" in page
    assert not re.search(r"""<(script|link|img)\b[^>]*\b(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert "3 models of different families do not make a scaling law" in page
    assert page.index("heads demonstrably carry 0 of 3 capabilities.") < page.index("The paper's claims")
    assert "Written down before the run" in page
    assert page.count("data-explorer>") == 2, "an explorer for each model"
    for each in findings:
        for part in (
            "how well masks find the heads",
            "universal heads, one by one",
            "what else the heads serve",
            "ablating more heads",
            "methods compared on retrieval",
        ):
            assert f"{each.model}: {part}" in page
    for claim in findings[0].frames["claims"]["claim"]:
        assert claim in page
    text = (out / "study_capability.json").read_text()
    summary = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert summary["command"] == "the command"
    assert list(summary["models"]) == ["qwen3", "gemma3"]
    damages = {(row["capability"], row["model"]): row for row in summary["scale"]}
    assert len(damages) == 2 * len(LOCALIZED) + 2
    everywhere = findings[1].frames["everywhere"].set_index(["source", "task"])
    own = everywhere.loc[("retrieval", "retrieval"), "damage"]
    assert claims.TaskMap(everywhere.reset_index(), findings[1].metrics).matrix("damage").iloc[0, 0] == own
    assert damages["retrieval", "gemma3"]["damage"] == pytest.approx(own, rel=1e-3)
    assert damages["gsm8k", "Llama-3.1-8B (the paper)"]["lost"] == pytest.approx(1 - 0.301 / 0.785, rel=1e-3)
    assert claims.depths(findings[:1], 2).empty


def test_the_results_page_shows_a_study_of_this_shape(done: Any) -> None:
    from benchmarks.sections.capability import capability
    from benchmarks.sections.reading import Results

    found, text = done[0][0], capability(Results(done[1]))
    for title in ("other masks find", "Both ways", "costs of heads add up", "By size", "Methods, on retrieval", "Fits"):
        assert f"### {title}" in text or title in text
    added = found.frames["additivity"].set_index("capability").loc["induction"]
    together, apart, excess = (f"{added[part]:.2f}" for part in ("together", "each_alone", "excess"))
    assert f"| qwen3 | induction | {together} | {apart} | {excess} |\n" in text, "two draws of masks have no interval"
    assert "| gsm8k | Llama-3.1-8B (the paper) | 8,030 M | 5 of 1024 | 0.62 |" in text
    assert f"| qwen3 | {BACK} | " in text
    assert "nan" not in text.lower().replace("finance", "")


def test_a_run_takes_the_passes_that_were_planned(
    models: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted trial by trial; sets of heads that were drawn twice run once."""
    done: Counter[str] = Counter()
    now = [""]

    def counted(real: Any) -> Any:
        def run(model: Any, trials: Any, *args: Any, **options: Any) -> Any:
            done[now[0]] += len(trials) * len(options["begins"])
            return real(model, trials, *args, **options)

        return run

    real = StageRun.stage

    def stage(self: StageRun, name: str, *args: Any) -> Any:
        now[0] = name
        return real(self, name, *args)

    monkeypatch.setattr(measure, "answer_batch", counted(measure.answer_batch))
    monkeypatch.setattr(grid, "answer_batch", counted(grid.answer_batch))
    monkeypatch.setattr(StageRun, "stage", stage)
    studies.capability(models[:1], preset=TINY, out=tmp_path)
    planned = CapabilityStudy(TINY, "own").costs(head_geometry(models[0]))
    assert planned.pop("locos") == 2
    assert set(done) == set(planned)
    for name, passes in planned.items():
        assert 0.5 * passes <= done[name] <= passes, (name, done[name], passes)
    assert planned["heads of retrieval"] == (2 * 10 + 1) * 2
    assert planned["damage"] == 5 * (4 * (1 + 3 * 2) + 1 + 3 * (4 + 3) + (1 + 3 * 2 + 1))
    assert sum(done.values()) >= 0.8 * sum(planned.values())


@pytest.mark.parametrize("control", ["random_initialised", "permuted_answers"])
def test_nothing_holds_in_a_negative_control(models: list[Any], tmp_path: Path, control: str) -> None:
    small = replace(TINY, control=control, methods=("css",), ks=(2,), n_masks=8)
    (found,) = studies.capability(models[0], ["induction", "continuation"], small, tmp_path)
    assert set(found.claims["verdict"]) <= {UNTOLD, DOES_NOT}
    assert ("random-initialised" in found.model) == (control == "random_initialised")
    assert "Negative control" in (tmp_path / "report.html").read_text()
    true, asked = study.Asked.of(replace(TINY, control=None)), study.Asked.of(small)
    for task, trials in asked.tests.items():
        assert [one.answer == other.answer for one, other in zip(trials, true.tests[task], strict=True)] == [
            control != "permuted_answers"
        ] * len(trials)


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
    with pytest.raises(ValueError, match=r"preset\.random_draws: 3 in the folder, 4 now"):
        studies.capability(models[:1], preset=replace(TINY, random_draws=4), out=out)


def test_a_capability_that_nothing_moves_is_reported_and_left_out(models: list[Any], tmp_path: Path) -> None:
    """Random models answer nothing: right answers are none whatever is ablated."""
    flat = replace(TINY.capabilities["retrieval"], metric="greedy_match")
    small = replace(TINY, capabilities={**TINY.capabilities, "retrieval": flat}, methods=("css",), ks=(2,))
    (found,) = studies.capability(models[0], ["retrieval", "induction"], small, tmp_path / "run")
    assert list(found.scores) == ["induction", BACK]
    assert found.plan.compared == "induction"
    assert list(found.compared.per_trial["task"].unique()) == ["retrieval", "induction"]
    claims = found.frames["claims"].set_index("claim")
    assert "nothing to explain" in claims.loc["Few heads carry retrieval", "found"]
    assert claims.loc["Universal heads exist", "found"] == "too few capabilities that the model has: 0"
    assert "nothing to explain" in (tmp_path / "run" / "report.html").read_text()
    with pytest.raises(ValueError, match="qwen3: no capability has heads: every mask gives"):
        studies.capability(models[0], ["retrieval"], small, tmp_path / "none")


def test_what_fails_is_left_out_and_named(models: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capability with its other data, a draw of masks, and a method: the study goes on without them."""
    real, second = stages.localize, TINY.mask_seed("retrieval", 1)

    def failing(measured: Any, *, method: str, **options: Any) -> Any:
        lost = measured.trials[0].id.startswith("induction") and options["seed"] != TINY.mask_seed("induction", 0, True)
        if method == "csb" or lost or options["seed"] == second:
            raise RuntimeError(f"5 of 10 masks failed by {method}")
        return real(measured, method=method, **options)

    monkeypatch.setattr(stages, "localize", failing)
    small = replace(TINY, methods=("css", "csb"), ks=(2,))
    with pytest.warns(UserWarning, match="csb is skipped: 5 of 10 masks failed by csb"):
        (found,) = studies.capability(models[0], None, small, tmp_path / "run")
    assert {name: len(draws) for name, draws in found.scores.items()} == {"retrieval": 1, "continuation": 2}
    assert found.reasons == {"induction": "5 of 10 masks failed by css"}
    assert list(found.methods) == ["css"]
    assert (tmp_path / "run" / "report.html").exists()


def test_every_capability_and_draw_has_masks_of_its_own() -> None:
    seeds = [TINY.mask_seed(name, draw, kin) for name in TINY.localized for draw in range(3) for kin in (False, True)]
    assert len(set(seeds)) == len(seeds)


def test_methods_that_ask_for_too_many_runs_are_left_out() -> None:
    assert study.affordable(TINY, 12, needles=True) == list(TINY.methods)
    assert study.affordable(TINY, 13, needles=False) == ["css", "csb", "elastic_net", "one_shot"]
    assert study.affordable(replace(TINY, most_evaluations=5), 12, needles=True) == ["css", "locos"]


def test_trials_that_cannot_be_run_are_refused_before_any_is(models: Any, tmp_path: Path) -> None:
    """Also those that only the last stage would have come to."""
    one = TINY.capabilities["induction"]
    same = replace(TINY, capabilities={**TINY.capabilities, "induction": replace(one, kin=one.select)})
    with pytest.raises(ValueError, match="ranking 'induction' was made on 2 of the trials"):
        studies.capability(models[:1], preset=same, out=tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_no_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no models"):
        studies.capability([], preset=TINY, out=tmp_path / "run")
