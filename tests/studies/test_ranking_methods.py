"""The table of methods: rows, numbers measured again by hand, cost, resuming, own methods, advice."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads.evidence import grid
from lens_heads.heads.scores import HeadScores
from lens_heads.inspection.explorer.stored import folders, stored
from lens_heads.model.cost import counted, plain_work
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.plots.costs import pareto
from lens_heads.ranking.baselines import random_numbers
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method
from lens_heads.ranking.one_pass.scorers.locos import locos
from lens_heads.ranking.registry import resolve
from lens_heads.studies.ranking_methods import study
from lens_heads.studies.ranking_methods.bench import RANDOM, Bench, Cell, across
from lens_heads.studies.ranking_methods.recommend import recommend
from lens_heads.studies.ranking_methods.study import SETUPS, Preset, Setup, gather, planted_quality, setup_of
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.needles import with_needle
from lens_heads.trials.pairs import TokenPair
from tests import zoo
from tests.pairs import trial_of

pytestmark = pytest.mark.slow

TINY = Preset(
    *(4, 3, 6, 5, 5), ks=(1, 2), k=2, masks=20, searched=40, draws=3, few=5, kept_draws=2, rerun=("css",), planted=0
)
SOME = ("locos", "locos_exact", "attribute_ablation", "patching_answer", "css", "greedy", "by_layer", "random_numbers")


@pytest.fixture(scope="module")
def model() -> Any:
    return zoo.bridge("qwen3", n_ctx=2048)


def run(model: Any, out: Path | None, methods: Any = SOME, **more: Any) -> Bench:
    options = {"preset": TINY, "arguments": {"words": 4}, **more}
    return lh.studies.bench(model, "induction", methods, out=out, command="the command", **options)


@pytest.fixture(scope="module")
def done(model: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, Path]:
    out = tmp_path_factory.mktemp("bench") / "run"
    return run(model, out), out


def test_a_row_for_every_method_and_one_of_random_heads(model: Any, done: Any) -> None:
    bench, out = done
    assert not has_hooks(model)
    frame = bench.frame
    assert set(frame["method"]) == {*SOME, RANDOM}
    assert (frame["area"].diff().dropna() <= 0).all(), "the most damaging first"
    assert (frame["k"] == 2).all()
    (best,), cell = set(frame["best"]), bench.cell()
    assert best == " and ".join(dict.fromkeys(cell.rivals))
    assert not set(cell.halves[0]) & set(cell.halves[1])
    row = frame.set_index("method")
    for half, other, rival in zip(cell.halves, cell.halves[::-1], cell.rivals, strict=True):
        means = {name: cell.damage(name).loc[other].to_numpy().mean() for name in SOME}
        assert means[rival] == max(means.values()), "chosen on the half that it is not judged on"
        assert (cell.best_known.loc[half] == cell.damage(rival).loc[half]).to_numpy().all()
    whole = cell.damage("locos").to_numpy().mean() / cell.best_known.to_numpy().mean()
    assert row.loc["locos", "share"] == pytest.approx(whole)
    assert math.isnan(row.loc["greedy", "stability"]), "its trials cannot be halved, and it does not run again"
    assert 0 <= row.loc["css", "stability"] <= 1
    assert row.loc[RANDOM, "auroc"] == 0.5
    page = (out / "report.html").read_text()
    assert all(name in page for name in SOME)
    best = list(frame[frame["method"] != RANDOM]["method"])[:5]
    (folder,) = folders(out)
    assert [one["name"] for one in stored(folder)["traits"]["about"]["scores"]] == best
    assert page.count("data-explorer>") == 1
    assert {row["method"] for row in json.loads((out / "bench.json").read_text())["methods"]} == {*SOME, RANDOM}


def test_damage_is_what_evaluate_says(model: Any, done: Any) -> None:
    bench, _ = done
    cell, setup = bench.cell(), setup_of("induction", {"words": 4})
    test, pairs = setup.load(model, "test", TINY.test)
    reference = gather(model, setup, TINY.select, TINY.calibrate).reference
    row = bench.frame.set_index("method").loc["locos"]
    damages = []
    for k in TINY.ks:
        heads = cell.curve.heads(cell.condition("locos", k)).split(",")
        before = lh.evaluate(model, test, generate=False, progress=False).metrics["logprob"]
        with lh.ablate(model, heads, kind="mean", reference=reference):
            after = lh.evaluate(model, test, generate=False, progress=False).metrics["logprob"]
        damages.append(float((before - after).mean()))
    assert row["damage"] == pytest.approx(damages[1], abs=1e-4)
    assert row["area"] == pytest.approx(sum(damages) / 2, abs=1e-4), "two points: their mean over log k"
    random = bench.frame.set_index("method").loc[RANDOM]
    assert row["beyond_random"] == pytest.approx(row["area"] - random["area"], abs=1e-6)
    assert row["specific"] == pytest.approx(row["damage"] - row["elsewhere"], abs=1e-6)
    kept = lh.faithfulness(
        model, pairs[: TINY.pairs], {"locos": scores_of(cell, model)}, controls=(), progress=False, positions="all"
    )
    assert row["cpr"] == pytest.approx(kept.cpr("locos").value, abs=1e-4)


def scores_of(cell: Cell, model: Any) -> HeadScores:
    setup = setup_of("induction", {"words": 4})
    return lh.methods["locos"].rank(gather(model, setup, TINY.select, TINY.calibrate))


def test_costs_are_counted_in_plain_passes(model: Any, done: Any) -> None:
    bench, _ = done
    passes = bench.frame.set_index("method")["passes"]
    assert passes["locos"] == pytest.approx(1, abs=0.1)
    assert passes["attribute_ablation"] == pytest.approx(3, abs=0.1), "a forward with gradients counts three"
    assert passes["random_numbers"] == passes[RANDOM] == 0
    assert 12 < passes["greedy"] < 30, "12 + 11 heads, above the layer of the ablation"
    trials = gather(model, setup_of("induction", {"words": 4}), 2, 2).trials
    with counted(model) as cost:
        for trial in trials:
            with torch.no_grad():
                model(torch.cat([trial.tokens, trial.answer_tokens[:-1]])[None])
    assert cost.work == plain_work(trials, head_geometry(model).n_layers)
    assert not any(block._forward_pre_hooks for block in model.blocks)


def test_a_second_call_runs_nothing_and_says_the_same(model: Any, done: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, out = done

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("it is stored")

    for module, name in (
        (import_module("lens_heads.studies.ranking_methods.ranking"), "counted"),
        (grid, "answer_batch"),
        (import_module("lens_heads.evidence.faithfulness"), "_measured"),
    ):
        monkeypatch.setattr(module, name, never)
    again = run(model, out)
    pd.testing.assert_frame_equal(again.frame, bench.frame)
    loaded = Bench.load(out)
    pd.testing.assert_frame_equal(loaded.frame, bench.frame, check_exact=False, atol=1e-9)
    assert str(recommend(loaded)) == str(recommend(bench))


def test_your_own_enter_a_finished_folder_and_failing_ones_are_left_out(model: Any, done: Any, tmp_path: Path) -> None:
    bench, out = done

    def broken(material: Material) -> HeadScores:
        raise RuntimeError("out of ideas")

    mine = lh.Scorer("mine", lambda view: -locos(view), "answer", paper="LOCOS upside down")
    with pytest.warns(UserWarning, match="method broken failed and is left out: out of ideas"):
        more = run(model, out, [*SOME, mine, broken, Method("twice", "own", lambda m: lh.methods["locos"].rank(m))])
    rows = more.frame.set_index("method")
    assert set(rows.index) == {*SOME, RANDOM, "mine", "twice"}
    assert more.cell().left_out == {"broken": "failed: out of ideas"}
    assert rows.loc["twice", "damage"] == rows.loc["locos", "damage"]
    assert rows.loc["mine", "damage"] == pytest.approx(bottom(model, bench), abs=1e-4)
    assert rows.loc["mine", "family"] == "own"


def bottom(model: Any, bench: Bench) -> float:
    """What the lowest two heads by LOCOS cost."""
    setup = setup_of("induction", {"words": 4})
    given = gather(model, setup, TINY.select, TINY.calibrate)
    test, _ = setup.load(model, "test", TINY.test)
    before = lh.evaluate(model, test, generate=False, progress=False).metrics["logprob"]
    with lh.ablate(model, lh.methods["locos"].rank(given).bottom(2), kind="mean", reference=given.reference):
        after = lh.evaluate(model, test, generate=False, progress=False).metrics["logprob"]
    return float((before - after).mean())


def test_a_function_that_nothing_can_identify_runs_without_a_folder_only(model: Any, tmp_path: Path) -> None:
    with (tmp_path / "notes").open("w") as notes:

        def noting(material: Material) -> HeadScores:
            notes.write("called")
            return random_numbers(material)

        assert "noting" in set(run(model, None, ["locos", noting]).frame["method"])
        with pytest.raises(ValueError, match="noting reads"):
            run(model, tmp_path / "run", ["locos", noting])


def test_other_trials_are_refused(model: Any, done: Any) -> None:
    with pytest.raises(ValueError, match="test"):
        run(model, done[1], preset=replace(TINY, test=7))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": ["locus"]}, "unknown method 'locus': did you mean 'locos'"),
        ({"methods": ["locos", "locos"]}, "two methods are called 'locos'"),
        ({"methods": []}, "there are no methods"),
        ({"preset": "huge"}, "preset='huge': use default, quick, thorough"),
    ],
)
def test_wrong_arguments_are_named(model: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(model, None, **given)


def test_wrong_tasks_and_presets_are_named(model: Any) -> None:
    with pytest.raises(ValueError, match="task 'parametric' has no halves"):
        lh.studies.bench(model, "parametric", ["locos"], preset=TINY)
    with pytest.raises(ValueError, match="unknown task 'retrievel'"):
        lh.studies.bench(model, "retrievel", ["locos"], preset=TINY)
    with pytest.raises(ValueError, match="task 'ioi' has no argument 'nonsense'; its arguments are n, split"):
        lh.studies.bench(model, "ioi", ["locos"], preset=TINY, arguments={"nonsense": 3})
    with pytest.raises(ValueError, match="task 'sec10k_documents' makes document trials"):
        lh.studies.bench(model, "sec10k_documents", ["locos"], preset=TINY)
    with pytest.raises(ValueError, match="there are no tasks"):
        lh.studies.bench(model, [], ["locos"], preset=TINY)
    with pytest.raises(ValueError, match="arguments= belong to one task"):
        lh.studies.bench(model, ["ioi", "induction"], ["locos"], preset=TINY, arguments={"words": 4})
    with pytest.raises(ValueError, match="k=3 is none of ks"):
        replace(TINY, k=3)
    with pytest.raises(TypeError, match="methods holds 3"):
        resolve([3])
    with pytest.raises(FileNotFoundError, match="holds no table of methods"):
        Bench.load(Path("nowhere"))


def test_a_plan_costs_one_measured_block(model: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run(model, None, plan=True).cells
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("rank: search", "ablation", "faithfulness", "minutes"))
    assert "left out" not in shown
    chosen = ["locos", "greedy", "qr", "locos_choice"]
    lh.studies.bench(model, "induction", chosen, preset=replace(TINY, searched=20), plan=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert "greedy is left out: about 23 passes, more than 20" in shown
    assert "qr is left out: it reads documents" in shown
    assert "locos_choice is left out: it compares the needle with a distractor" in shown
    assert "rank: search" not in shown


def test_a_choice_is_judged_by_its_margin_and_only_where_the_model_does_the_task(model: Any, tmp_path: Path) -> None:
    found = lh.studies.bench(model, "greater_than", ["locos", "random_numbers"], preset=TINY, out=tmp_path / "run")
    (cell,) = found.cells
    assert (cell.metric, cell.does) == ("choice_margin", False)
    top = cell.curve.values(lh.Condition.top("locos", 2), "choice_margin")
    lost = cell.curve.values(lh.Condition.none(), "choice_margin")[top.index] - top
    pd.testing.assert_series_equal(cell.damage("locos")[0], lost, check_names=False)
    again = Bench.load(tmp_path / "run").cells[0]
    assert (again.metric, again.does, again.ability) == (cell.metric, cell.does, cell.ability)
    pd.testing.assert_frame_equal(again.damage("locos"), cell.damage("locos"))
    assert recommend(found, budgets=1e9).frame["method"].tolist() == [""]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "is not shown to do this task" in page
    assert "whose choices have a margin of" in page


@pytest.mark.parametrize("task", SETUPS)
def test_every_task_has_pairs_and_a_needle(model: Any, task: str) -> None:
    more = {"context_length": 700} if task in ("retrieval", "choice") else {}
    found = gather(model, setup_of(task, more), 4, 2)
    assert len(found.trials) == len(found.pairs) == len(found.needled) == 4
    assert [trial.id for trial in found.trials] == [pair.id for pair in found.pairs]
    assert not set(found.reference.trial_ids) & {trial.id for trial in found.trials}
    for trial in found.needled:
        start, end = trial.needle  # type: ignore[misc]
        held = model.tokenizer.decode(trial.tokens[start:end])
        assert held.strip() == trial.answer or (start, end) == trial.question or task in ("retrieval", "choice")


def test_a_prompt_that_is_all_question_without_the_answer_has_no_needle(model: Any) -> None:
    shape = head_geometry(model)
    trial = lh.Trial(id="x", question="Why?", answer="because", template="{question}", chat=False)
    (encoded,) = encode_all([trial], model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
    assert with_needle(encoded, model.tokenizer) is None
    inside = lh.Trial(id="y", question="say because so", answer="because", template="{question}", chat=False)
    (encoded,) = encode_all([inside], model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
    found = with_needle(encoded, model.tokenizer)
    assert found is not None
    assert model.tokenizer.decode(found.tokens[slice(*found.needle)]).strip() == "because"  # type: ignore[misc]


@pytest.fixture(scope="module")
def known() -> tuple[Any, Cell]:
    """A cell on a model with planted heads: LOCOS, LOCOS upside down, and six methods that return random numbers."""
    truth = lh.planted_model(backups=0, seed=2)

    class Planted(Setup):
        def load(self, model: Any, split: str, n: int) -> Any:
            seed = {"select": 0, "test": 1}[split] + 2 * (self.task == "other")
            trials, corrupt = truth.trials(n, seed=seed), truth.trials(n, seed=seed, corrupt=True)
            both = [[torch.cat([one.tokens, one.answer_tokens]) for one in part] for part in (trials, corrupt)]
            named = zip(*both, [trial.id for trial in trials], strict=True)
            pairs = [trial_of(TokenPair(clean, other, (40, 41), name)) for clean, other, name in named]
            # All planted prompts share eight needles, which the check of independent trials would refuse.
            return [trial if split == "select" else replace(trial, needle=None) for trial in trials], pairs

    plan = Preset(6, 6, 12, 12, 6, ks=(1, 2, 4), k=4, masks=20, draws=20, few=8, kept_draws=12, planted=0)
    flipped = Method("flipped", "own", lambda m: flip(lh.methods["locos"].rank(m)))
    blind = [Method(f"blind {i}", "own", lambda m, i=i: random_numbers(replace(m, seed=i))) for i in range(6)]
    methods = [lh.methods["locos"], lh.methods["one_shot"], flipped, *blind]
    setup = Planted("planted", {}, "remove", "other")
    given = gather(truth.model, setup, plan.select, plan.calibrate)
    found = study.rank_all(methods, given, plan, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(study.SETUPS, "other", Planted("other", {}, "remove", "other"))
        judged = study.judge(truth.model, "planted", setup, found.scores, given.reference, plan, None)
    return truth, study.cell_of(
        "planted", "planted", plan, {method.name: method.family for method in methods}, found, judged, "logprob"
    )


def flip(scores: HeadScores) -> HeadScores:
    return replace(scores, values=-scores.values, per_trial=-scores.per_trial)


def test_random_numbers_land_on_the_random_row_and_a_flipped_scorer_below(known: Any) -> None:
    _, cell = known
    rows = cell.frame.set_index("method")
    blind = rows[rows.index.str.startswith("blind")]
    for column in ("damage", "area", "share", "elsewhere", "specific", "cpr", "cpr_log"):
        low, high = rows.loc[RANDOM, f"{column}_low"], rows.loc[RANDOM, f"{column}_high"]
        spread = 2.5 * blind[column].std() / math.sqrt(len(blind))
        assert low - spread <= blind[column].mean() <= high + spread, column
    chance = rows.loc[RANDOM, "stability"]
    assert abs(blind["stability"].mean() - chance) < 0.1
    assert rows.loc["locos", "area_low"] > rows.loc[RANDOM, "area_high"]
    assert rows.loc["flipped", "area_high"] < rows.loc[RANDOM, "area_low"]
    assert rows.loc["flipped", "cpr_log"] < rows.loc[RANDOM, "cpr_log_low"]


def test_advice_needs_differences_beyond_their_intervals(known: Any) -> None:
    _, cell = known
    bench = Bench([cell], pd.DataFrame({"method": [], "auroc": []}))
    found = recommend(bench, budgets=[1.5, math.inf])
    assert found.frame["method"].iloc[0] == "locos"
    assert "locos" in str(found)
    best = found.frame["method"].iloc[1]
    assert best == "locos" or cell.chosen_beyond(cell.methods, "locos").low > 0
    for row in found.frame.to_dict("records"):
        assert all(not cell.beyond(row["method"], name).low > 0 for name in row["as_good"])
    blind = replace(cell, about=cell.about[cell.about["method"].isin(["flipped"])])
    said = str(recommend(Bench([blind], bench.planted)))
    assert "no method does surely more damage than random heads" in said
    assert recommend(bench, budgets=1.5).frame["method"].tolist() == ["locos"]
    for wrong in ([0.0], [], ["cheap"], math.nan):
        with pytest.raises(ValueError, match="budgets="):
            recommend(bench, budgets=wrong)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError, match=r"bench='runs/bench': must be a Bench: read it with Bench\.load"):
        recommend("runs/bench")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="by='area': use 'damage' or 'faithfulness'"):
        cell.beyond("locos", "flipped", by="area")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="by='area': use 'damage' or 'faithfulness'"):
        recommend(bench, by="area")  # type: ignore[arg-type]  # on purpose


def test_what_one_half_chose_the_other_half_judges(known: Any) -> None:
    """The best of six that return random numbers looks better on the trials that chose it."""
    _, cell = known
    names = [name for name in cell.methods if name.startswith("blind")]
    gap = cell.chosen_beyond(names, names[0])
    one, other = cell.halves
    areas = {name: cell.area(name)[0] for name in names}
    expected = 0.0
    for mine, theirs in ((one, other), (other, one)):
        best = max(names, key=lambda name, theirs=theirs: areas[name][theirs].mean())
        expected += (areas[best][mine] - areas[names[0]][mine]).sum()
    assert gap.value == pytest.approx(expected / len(areas[names[0]]))
    best = max(names, key=lambda name: areas[name].mean())
    assert cell.beyond(best, names[0]).value >= gap.value


def test_cells_that_a_method_was_made_on_stand_apart() -> None:
    rows = [
        {"model": f"m{m}", "task": f"t{t}", "method": name, "family": "own", "passes": 1.0, "area": 1.0, "cpr_log": 0.5}
        | {"share": 0.5 + 0.1 * m + 0.01 * t + 0.3 * (name == "b"), "stability": 0.5, "auroc": 0.5}
        for m in range(6) for t in range(5) for name in ("a", "b")
    ]  # fmt: skip
    whole = across(pd.DataFrame(rows)).set_index("method")
    assert whole.loc["b", "share_low"] < whole.loc["b", "share"] < whole.loc["b", "share_high"]
    assert whole["made_on"].isna().all()
    apart = across(pd.DataFrame(rows), apart={("m5", "t4"), ("m5", "t3")}).set_index("method")
    assert set(apart["cells"]) == {28}
    assert apart.loc["a", "made_on"] == pytest.approx(0.5 + 0.5 + 0.035)
    few = across(pd.DataFrame([row for row in rows if row["task"] != "t4"])).set_index("method")
    assert few["share_low"].isna().all(), "four tasks"
    alone = across(pd.DataFrame(rows[:2]), apart={("m0", "t0")}).set_index("method")
    assert set(alone["cells"]) == {1}, "there are no others"


def test_advice_for_heads_that_suffice_goes_by_faithfulness(known: Any) -> None:
    _, cell = known
    empty = pd.DataFrame({"method": [], "auroc": []})
    found = recommend(Bench([cell], empty), budgets=[math.inf], by="faithfulness")
    best = found.frame["method"].iloc[0]
    areas = {name: cell.kept.cpr(name, scale="log").value for name in cell.methods if not name.startswith("blind")}
    assert best == max(areas, key=lambda name: areas[name]) != "flipped"
    gap = cell.beyond(best, "flipped", by="faithfulness")
    assert gap.value == pytest.approx(areas[best] - areas["flipped"], abs=1e-6)
    assert 0 < gap.low < gap.value < gap.high
    assert "of the effect of all heads beyond random heads" in str(found)
    without = recommend(Bench([replace(cell, kept=None)], empty), by="faithfulness")
    assert "no method keeps surely more of the behaviour than random heads" in str(without)


def test_planted_heads_are_found_by_locos_and_not_by_numbers_at_random() -> None:
    upside = Method("upside down", "own", lambda m: flip(lh.methods["locos"].rank(m)))
    found = planted_quality([lh.methods["locos"], lh.methods["random_numbers"], lh.methods["one_shot"], upside], 5, 20)
    means = found.groupby("method")["auroc"].mean()
    assert means["one_shot"] > 0.95
    assert means["locos"] > 0.8
    assert means["upside down"] == pytest.approx(1 - means["locos"], abs=0.05)
    _, low, high = (value.item() for value in lh.stats.mean_interval(torch.tensor(of(found, "random_numbers"))))
    assert low < 0.5 < high


def of(found: pd.DataFrame, method: str) -> list[float]:
    return found.loc[found["method"] == method, "auroc"].tolist()


def test_the_front_holds_what_no_cheaper_method_beats() -> None:
    rows = pd.DataFrame({"passes": [1, 1, 3, 10, 20], "area": [0.5, 0.7, 0.6, 0.9, 0.9]})
    assert pareto(rows, "area") == [1, 3]


def test_the_figure_names_the_front_and_shows_every_method(done: Any) -> None:
    bench, _ = done
    figure = bench.plot()
    named = [text for trace in figure.data[1:] for text in trace.text if text]
    front = pareto(bench.frame[bench.frame["method"] != RANDOM], "area")
    assert len(named) == len(front)
    assert sum(len(trace.x) for trace in figure.data[1:]) == len(SOME)
    two = Bench([bench.cells[0], replace(bench.cells[0], task="again")], bench.planted)
    shares = bench.frame.set_index("method")["share"]
    assert np.allclose(two.overall.set_index("method")["share"], shares[two.overall["method"]])
    assert "mean over 2 models and tasks" in two.plot().layout.yaxis.title.text
