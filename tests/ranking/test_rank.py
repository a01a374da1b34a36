"""rank: one way in to every method, equal to the function behind it; the registry, and how your own methods enter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import lens_heads as lh
from lens_heads.heads.scores import HeadScores
from lens_heads.model.cost import counted
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.plots.costs import FAMILIES
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method, Needs
from lens_heads.ranking.one_pass.scorers import NAMED_SCORERS, TABLES
from lens_heads.ranking.rank import ranked
from lens_heads.ranking.registry import identity, resolve
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.pairs import make_pairs
from tests.conftest import random_trial, tiny

USUAL = (
    "locos", "locos_exact", "attention_spatial", "attention_spatial_no_sink", "attention_mass", "attention_mass_no_sink", "dla",
    "dla_exact", "copy", "contrastive", "headkv", "induction", "echo", "context_divergence", "attribute_ablation",
    "gradient_importance", "attribution", "eap_ig", "patching_answer", "patching_all", "knockout", "one_shot", "css", "csl",
    "elastic_net", "greedy", "best_in_turn", "duo_gate", "hardkuma", "lofit", "head_gating", "soft_injection", "aie", "by_layer",
    "random_numbers",
)  # fmt: skip
"""All methods of a task, which a bench runs."""
Q: dict[str, Any] = {"progress": False}
TRIALS = [random_trial(seed) for seed in range(4)]


def model() -> Any:
    return tiny("llama-gqa")


def test_scorers_are_those_of_score_heads_and_share_one_pass() -> None:
    names = ["dla", "locos", "attention_mass"]
    with counted(model()) as all_of_them:
        found = lh.rank(model(), TRIALS, names, **Q)
    with counted(model()) as one:
        lh.rank(model(), TRIALS, "locos", **Q)
    assert all_of_them.work == one.work
    plain = lh.score_heads(model(), TRIALS, names, teacher_forced=True, **Q)
    assert list(found) == names
    for name in names:
        torch.testing.assert_close(found[name].per_trial, plain[name].per_trial, rtol=0, atol=0)
    assert not has_hooks(model())


def test_without_names_all_that_one_pass_gives() -> None:
    assert list(lh.rank(model(), TRIALS, **Q)) == list(lh.SCORERS)


@pytest.mark.parametrize("positions", ["answer", "all"])
def test_patching_is_that_of_patch_heads(positions: Any) -> None:
    name = f"patching_{positions}"
    (found,) = lh.rank(model(), TRIALS, [name], **Q).values()
    plain = lh.patch_heads(model(), TRIALS, positions=positions, **Q)
    torch.testing.assert_close(found.per_trial, plain.per_trial, rtol=0, atol=0)
    assert found.method == name


@pytest.mark.slow
def test_means_of_other_trials_stand_in_and_those_that_rank_are_refused() -> None:
    others = [random_trial(seed) for seed in range(10, 14)]
    (found,) = lh.rank(model(), TRIALS, "attribute_ablation", calibration=others, **Q).values()
    means = lh.mean_activations(model(), others, n=None, **Q)
    plain = lh.attribute_ablation(model(), TRIALS, kind="mean", reference=means, **Q)
    torch.testing.assert_close(found.per_trial, plain.per_trial, rtol=0, atol=0)
    with pytest.raises(ValueError, match="computed on 4 of the"):
        lh.rank(model(), TRIALS, "attribute_ablation", calibration=TRIALS, **Q)


def test_what_a_method_lacks_is_named_before_anything_runs() -> None:
    bare = [random_trial(seed, needle=(0, 1)) for seed in range(3)]
    bare = [type(one)(one.tokens, None, "x", one.answer_tokens, one.id) for one in bare]
    with (
        counted(model()) as cost,
        pytest.raises(ValueError, match="method 'patching_all': the task has no counterfactual"),
    ):
        lh.rank(model(), bare, ["random_numbers", "patching_all"], **Q)
    assert cost.work == 0
    with pytest.raises(ValueError, match="method 'aie': there are no other trials of the task: give calibration="):
        lh.rank(model(), TRIALS, "aie", **Q)
    with pytest.raises(ValueError, match="unknown method 'locoss': did you mean 'locos'"):
        lh.rank(model(), TRIALS, "locoss", **Q)
    with pytest.raises(ValueError, match="k=0"):
        lh.rank(model(), TRIALS, "locos", k=0, **Q)


def test_methods_that_run_only_if_named_are_named_here_too() -> None:
    found = lh.rank(model(), TRIALS, ["copy_tokens", "locos"], **Q)
    plain = lh.score_heads(model(), TRIALS, ["copy_tokens"], teacher_forced=True, **Q)["copy_tokens"]
    torch.testing.assert_close(found["copy_tokens"].per_trial, plain.per_trial, rtol=0, atol=0)
    (method,) = resolve("locos_choice")
    assert lh.methods["locos_choice"] is method
    assert method not in resolve(None)
    assert identity(method) == "locos_choice"
    with pytest.raises(ValueError, match="did you mean 'locos_choice'"):
        lh.rank(model(), TRIALS, "locos_choise", **Q)
    with pytest.raises(ValueError, match="method 'locos_choice': it compares the needle with a distractor"):
        lh.rank(model(), TRIALS, "locos_choice", **Q)


def test_your_own_enter_in_the_same_way() -> None:
    def mine(material: Material) -> HeadScores:
        return lh.rank(material.model, material.trials, "locos", **Q)["locos"]

    def half(view: Any) -> Any:
        return view.pattern.mean((1, 2)) / 2

    listed = [mine, Method("again", "own", mine), lh.Scorer("half", half)]
    found = lh.rank(model(), TRIALS, listed, **Q)
    assert list(found) == ["mine", "again", "half"]
    assert found["mine"].method == "mine"
    torch.testing.assert_close(found["mine"].values, found["again"].values, rtol=0, atol=0)


def test_what_your_own_needs_is_known_before_it_runs() -> None:
    def own(material: Material) -> HeadScores:
        raise AssertionError("not to be run")

    with pytest.raises(ValueError, match=r"method mine: needs='needles': .*needle"):
        Method("mine", "own", own, needs="needles")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="method mine: needs='documents' takes a Scorer"):
        Method("mine", "own", own, needs="documents")


def test_what_only_trials_take_is_refused_with_a_probe() -> None:
    block = lh.repeated_blocks(model(), block=5, copies=2)
    for given in ({"k": 2}, {"masks": 7}, {"seed": 1}, {"teacher_forced": False}, {"calibration": TRIALS}):
        (name,) = given
        with pytest.raises(ValueError, match=f"{name}= applies to trials of a task"):
            lh.rank(model(), block, "induction", **given, **Q)


def test_one_that_fails_costs_no_other_its_result() -> None:
    def broken(material: Material) -> HeadScores:
        raise RuntimeError("boom")

    def wrong(material: Material) -> Any:
        return 3

    with pytest.warns(UserWarning, match="method broken failed and is left out: boom"):
        assert list(lh.rank(model(), TRIALS, ["locos", broken], **Q)) == ["locos"]
    with pytest.raises(RuntimeError, match="boom"):
        lh.rank(model(), TRIALS, broken, **Q)
    with pytest.raises(TypeError, match="method wrong returned int: it must return HeadScores"):
        lh.rank(model(), TRIALS, wrong, **Q)
    assert not has_hooks(model())
    mine = lh.Scorer("mine", lambda view: view.pattern.sum(-1).mean(-1) / view.nothing)
    with pytest.raises(AttributeError) as caught:
        lh.rank(model(), TRIALS, ["locos", mine], **Q)
    assert caught.value.__notes__ == ["in the scorer 'mine'"]


def test_a_folder_keeps_what_was_run(tmp_path: Path) -> None:
    names = ["locos", "patching_answer"]
    found = lh.rank(model(), TRIALS, names, out=tmp_path / "run", **Q)
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*.safetensors")}
    assert len(kept) == 2 * len(TRIALS)
    again = lh.rank(model(), TRIALS, names, out=tmp_path / "run", **Q)
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    for name in names:
        torch.testing.assert_close(again[name].per_trial, found[name].per_trial, rtol=0, atol=0)
        stored = lh.HeadScores.load(tmp_path / "run" / f"{name}.json")
        torch.testing.assert_close(stored.values, found[name].values, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "nul\0"])
def test_a_name_that_leads_out_of_the_folder_is_refused_before_anything_runs(name: str, tmp_path: Path) -> None:
    def never(material: Material) -> HeadScores:
        raise AssertionError("it ran")

    with pytest.raises(ValueError, match="method"):
        lh.rank(model(), TRIALS, [Method(name, "own", never)], out=tmp_path / "run", **Q)
    assert list(tmp_path.rglob("*.json")) == []


def test_the_registry_says_what_there_is_to_know() -> None:
    table = lh.methods.frame
    assert list(table["method"]) == list(lh.methods)
    assert set(table["needs"]) == set(get_args(Needs))
    assert (table["fails"].str.len() > 0).all(), table.loc[table["fails"] == "", "method"].tolist()
    own = {"by_layer", "random_numbers", "one_shot", "greedy", "best_in_turn"}
    assert set(table.loc[table["paper"] == "", "method"]) == own
    assert "locos" in lh.methods._repr_html_()
    with pytest.raises(KeyError, match="did you mean 'greedy'"):
        lh.methods["greed"]
    assert identity(lh.methods["locos"]) == "locos"
    assert repr(lh.methods["echo"]).startswith("Method(name='echo', family='observational', needs='', halves=False")
    assert (table["unit"].str.len() > 0).all()
    assert set(map(type, table["signed"])) == {bool}
    assert set(table["family"]) <= set(FAMILIES)
    passes = table.set_index("method")["passes"]
    assert (passes["locos"], passes["knockout"], passes["css"]) == (1, 144, 100)
    assert passes["greedy"] == 144 + 143 + 142 + 141 + 140
    assert identity(Method("locos", "own", lambda m: None)) != "locos"  # type: ignore[arg-type,return-value]
    assert tuple(one.name for one in resolve(None)) == USUAL


def test_every_scorer_is_a_method() -> None:
    tables = {name: one for table in (*TABLES.values(), NAMED_SCORERS) for name, one in table.items()}
    assert {one.scorer.name for one in lh.methods.values() if one.scorer} == set(tables)
    for name, scorer in tables.items():
        method = lh.methods[name]
        assert (method.unit, method.signed, method.paper) == (scorer.unit, scorer.signed, scorer.paper)
        assert method.only_named or not scorer.only_named


def test_a_name_that_begins_like_others_is_told_them() -> None:
    for name, meant in (
        ("patching", "'patching_answer' or 'patching_all'"),
        ("function_vectors", "'aie'"),
        ("duo", "'duo_gate'"),
    ):
        with pytest.raises(ValueError, match=f"did you mean {meant}[?]"):
            resolve(name)


TEXTS: Any = ("ij(a=A)kl", "mnopqr", "stuvwx")
DOCUMENTS = [lh.DocumentTrial(name, f"{name}?", TEXTS, gold=("1",)) for name in ("a", "b")]


@pytest.mark.parametrize("kind", ["documents", "repeated", "text", "pair", "weights"])
def test_documents_and_probes_rank_as_score_heads_does(kind: Any, tmp_path: Path) -> None:
    given: Any = {
        "documents": DOCUMENTS,
        "repeated": lh.repeated_blocks(model(), block=8),
        "text": lh.plain_texts([[*range(40, 60), 40, 41]]),
        "pair": lh.context_pairs(TRIALS),
        "weights": lh.token_maps({"upper": [(73, 41), (74, 42)]}),
    }[kind]
    plain = lh.score_heads(model(), given, **Q)
    found = lh.rank(model(), given, out=tmp_path / "run", **Q)
    assert list(found) == list(plain)
    for name, scores in plain.items():
        torch.testing.assert_close(found[name].per_trial, scores.per_trial, rtol=0, atol=0)
        assert lh.methods[name].unit == scores.score_unit
        assert (tmp_path / "run" / f"{name}.json").exists()
    first, *_ = plain
    assert list(lh.rank(model(), given, first, **Q)) == [first]
    with pytest.raises(ValueError, match="method 'greedy' needs trials of a task, but was given"):
        lh.rank(model(), given, "greedy", **Q)
    with pytest.raises(ValueError, match="locos reads needles, but was given"):
        lh.rank(model(), given, ["locos"], **Q)
    for name, value in (("calibration", TRIALS), ("corruption", "remove"), ("teacher_forced", False)):
        with pytest.raises(ValueError, match=f"{name}= applies to trials of a task"):
            lh.rank(model(), given, first, **{name: value}, **Q)


@pytest.mark.parametrize(
    ("name", "needs"),
    [("qr", "pass DocumentTrials"), ("sink", "pass lh.plain_texts"), ("token_map", "pass lh.token_maps")],
)
def test_trials_are_no_documents(name: str, needs: str) -> None:
    with counted(model()) as cost, pytest.raises(ValueError, match=f"method '{name}': it reads .*{needs}"):
        lh.rank(model(), TRIALS, name, **Q)
    assert cost.work == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name, one in lh.methods.items() if one.takes_trials])
def test_scores_are_what_their_method_declares(name: str, planted: Any) -> None:
    """Of heads that write nothing the ratio is not defined."""
    method = lh.methods[name]
    if name == "context_divergence_relative":
        return
    found = method.rank(planted)
    assert found.method.removesuffix("_facilitating") == name, (
        "the name of the function's scores, but for a role of gates"
    )
    assert found.score_unit in (method.unit, ""), "a function that states none has that of its method"
    assert method.signed or not (found.per_trial < -1e-6).any()
    if name != "by_layer":  # No whole layer of this model does harm.
        assert found.signed == method.signed
    again = ranked(method, planted)
    assert (again.method, again.score_unit, again.signed) == (name, method.unit, method.signed)


@pytest.fixture(scope="module")
def planted() -> Material:
    made = lh.planted_model(layers=2, backups=0, chains=0)
    trials, others = (_told(made, seed) for seed in (0, 1))
    pairs = make_pairs(trials, made.model.tokenizer, head_geometry(made.model), corruption="remove")
    return Material.of(made.model, trials, pairs, others, masks=40, k=2)


def _told(made: Any, seed: int) -> list[EncodedTrial]:
    """The planted trials, with another span as a distractor and another answer as the wrong one."""
    trials = made.trials(8, seed=seed)
    spans = [(1, 7) if one.needle[0] > 7 else (one.needle[1] + 1, one.needle[1] + 7) for one in trials]
    return [
        replace(one, distractors=(span,), wrong=one.answer_tokens + 1) for one, span in zip(trials, spans, strict=True)
    ]
