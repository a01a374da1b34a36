"""What is given beside a model is refused if it is another model's, in every function that takes it; a name is no sign."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.inspection.explorer.stored import store
from lens_heads.interventions.activations import TrialActivations, trial_activations
from lens_heads.model.hooks import has_hooks
from lens_heads.model.identity import identify
from lens_heads.ranking.gates.soft_injection import soft_injection
from tests import zoo
from tests.conftest import random_trial, tiny
from tests.pairs import trial_of
from tests.ranking.causal.test_patching import random_pair

QUIET: dict[str, Any] = {"progress": False}
HEADS = ["L0H1", "L2H3"]
TRIALS = [random_trial(seed, 20) for seed in range(2)]
MADE_ON = [random_trial(seed, 22) for seed in range(20, 23)]
FORCED: dict[str, Any] = {"generate": False, **QUIET}


def moved() -> Any:
    """The model of the tests from a folder of another name."""
    model = zoo.bridge("llama-gqa")
    model.cfg.model_name = "moved"
    return model


@cache
def made(of: str) -> dict[str, Any]:
    """Scores, means, vectors and a run of a model: "other" has other weights, "moved" another name, "shape" fewer layers."""
    models = {"other": lambda: zoo.bridge("llama-gqa", seed=9), "moved": moved, "itself": lambda: tiny("llama-gqa")}
    if of == "shape":
        return {
            "scores": lh.HeadScores.from_trials("mine", torch.rand(2, 2, 4), ["a", "b"]),
            "means": lh.MeanActivations(torch.rand(2, 4, 8), torch.rand(2, 4, 8), ("a",)),
            "vectors": lh.HeadVectors(torch.rand(2, 4, 8)),
            "run": TrialActivations(torch.rand(2, 30, 4, 8), "a"),
        }
    model = models[of]()
    return {
        "scores": lh.score_heads(model, MADE_ON, ["locos"], teacher_forced=True, **QUIET)["locos"],
        "means": lh.mean_activations(model, MADE_ON, **QUIET),
        "vectors": lh.task_vectors(model, MADE_ON),
        "run": trial_activations(model, MADE_ON[0]),
    }


def within(context: AbstractContextManager[Any], model: Any) -> None:
    with context, torch.no_grad():
        model(TRIALS[0].tokens[None])


def curve(model: Any, **given: Any) -> Any:
    rankings = given.pop("rankings", lh.HeadScores.from_trials("plain", torch.arange(12.0).reshape(1, 3, 4), ["b"]))
    return lh.ablation_curve(model, TRIALS, rankings, ks=(1,), controls=(), **{"kind": "zero", **given}, **FORCED)


def explored(model: Any, path: Path, **given: Any) -> None:
    pytest.importorskip("anywidget")
    scores = lh.HeadScores.from_trials("plain", torch.arange(12.0).reshape(1, 3, 4), ["b"])
    lh.explore(model, TRIALS, **{"rankings": scores, **given})


Call = Callable[[Any, Any, Path], Any]
CALLS: dict[str, tuple[str, Call]] = {
    "ablate mean": ("means", lambda m, x, _: within(lh.ablate(m, HEADS, kind="mean", reference=x), m)),
    "ablate query_mean": ("means", lambda m, x, _: within(lh.ablate(m, HEADS, kind="query_mean", reference=x), m)),
    "ablate resample": ("run", lambda m, x, _: within(lh.ablate(m, HEADS, kind="resample", reference=x), m)),
    "ablate an Ablation": ("means", lambda m, x, _: within(lh.ablate(m, HEADS, kind=lh.Ablation("mean", x)), m)),
    "patch": ("run", lambda m, x, _: within(lh.patch(m, HEADS, x), m)),
    "ablate add": ("vectors", lambda m, x, _: within(lh.ablate(m, HEADS, kind="add", reference=x), m)),
    "ablate mix": ("vectors", lambda m, x, _: within(lh.ablate(m, HEADS, kind="mix", reference=x), m)),
    "steer": ("vectors", lambda m, x, _: within(lh.steer(m, HEADS, x), m)),
    "ablation_curve": ("scores", lambda m, x, _: curve(m, rankings=x)),
    "ablation_curve reference": ("means", lambda m, x, _: curve(m, kind="mean", reference=x)),
    "generality": (
        "scores",
        lambda m, x, _: lh.evidence.generality(m, {"a": TRIALS}, x, controls=(), **QUIET, kind="zero"),
    ),
    "transfer_matrix": (
        "scores",
        lambda m, x, _: lh.evidence.transfer_matrix(
            m, {"a": TRIALS}, {"a": x}, ks=(1,), controls=(), metric="logprob", **FORCED, kind="zero"
        ),
    ),
    "recovery": (
        "scores",
        lambda m, x, _: lh.recovery(
            m, TRIALS, HEADS, HEADS, ranking=x, controls=(), flipped=False, **QUIET, kind="zero"
        ),
    ),
    "recovery reference": (
        "means",
        lambda m, x, _: lh.recovery(
            m, TRIALS, HEADS, HEADS, controls=(), kind="mean", reference=x, flipped=False, **QUIET
        ),
    ),
    "faithfulness": (
        "scores",
        lambda m, x, _: lh.faithfulness(m, trial_of(random_pair()), x, ks=(2,), controls=(), **QUIET, positions="all"),
    ),
    "faithfulness outside": (
        "means",
        lambda m, x, _: lh.faithfulness(
            m,
            trial_of(random_pair()),
            made("itself")["scores"],
            ks=(2,),
            outside="mean",
            reference=x,
            controls=(),
            **QUIET,
            positions="all",
        ),
    ),
    "knockout_heads": ("means", lambda m, x, _: lh.knockout_heads(m, TRIALS[0], kind="mean", reference=x, **QUIET)),
    "influence": ("means", lambda m, x, _: lh.influence(m, ["some text"], HEADS, kind="mean", reference=x, **QUIET)),
    "contrast": (
        "means",
        lambda m, x, _: lh.contrast(m, TRIALS, HEADS, alpha=0.5, kind="mean", reference=x, max_new_tokens=1, **QUIET),
    ),
    "localize_heads": (
        "means",
        lambda m, x, _: lh.localize_heads(m, TRIALS, method="one_shot", kind="mean", reference=x, **QUIET),
    ),
    "attribute_ablation": (
        "means",
        lambda m, x, _: lh.attribute_ablation(m, TRIALS, kind="mean", reference=x, **QUIET),
    ),
    "aie": (
        "vectors",
        lambda m, x, _: lh.average_indirect_effect(m, TRIALS, vectors=x, **QUIET, metric="first_token_prob"),
    ),
    "patch_heads": ("vectors", lambda m, x, _: lh.patch_heads(m, trial_of(random_pair()), donor=x, **QUIET)),
    "soft_injection": (
        "vectors",
        lambda m, x, _: soft_injection(m, [random_trial(seed) for seed in range(5)], x, steps=1, **QUIET),
    ),
    "streaming": (
        "scores",
        lambda m, x, _: lh.streaming(
            m, TRIALS, {"a": x}, shares=(0.5,), recent=6, controls=lh.Controls("random", 1), max_new_tokens=1, **QUIET
        ),
    ),
    "lowest_groups": ("scores", lambda m, x, _: lh.deploy.lowest_groups(x, lh.head_geometry(m), k=1)),
    "describe": ("scores", lambda m, x, _: lh.describe(m, HEADS, text="hello there", rankings=x, **QUIET)),
    "token_curves": ("scores", lambda m, x, _: lh.token_curves(m, "abc def ghi", span=x)),
    "match_heads": (
        "scores",
        lambda m, x, _: lh.match_heads(
            m,
            m,
            signatures=["scores"],
            rankings=({"a": x}, {"a": made("itself")["scores"]}),
            permutations=1,
            resamples=2,
            **QUIET,
        ),
    ),
    "explore": ("scores", lambda m, x, path: explored(m, path, rankings=x)),
    "explore reference": ("means", lambda m, x, path: explored(m, path, reference=x)),
    "a stored explorer": ("scores", lambda m, x, path: store(path, m, TRIALS, x)),
    "why": (
        "means",
        lambda m, x, _: lh.why(
            m, "hello there ", "x", k=1, reference=x, controls=lh.Controls("random", 1), max_new_tokens=1
        ),
    ),
}
"""Every function that takes scores, means, vectors or a run beside a model: which, and a call with a model and such a thing."""


@pytest.mark.parametrize("name", CALLS)
def test_what_another_model_made_is_refused(name: str, tmp_path: Path) -> None:
    kind, call = CALLS[name]
    model = tiny("llama-gqa")
    with pytest.raises(ValueError, match=r"made on other weights \(llama-gqa, \w+\) than those of llama-gqa \(\w+\): "):
        call(model, made("other")[kind], tmp_path / "out")
    assert not has_hooks(model)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_of_another_shape_is_refused(name: str, tmp_path: Path) -> None:
    kind, call = CALLS[name]
    model = tiny("llama-gqa")
    with pytest.raises(ValueError, match=r"shape|layers|another model"):
        call(model, made("shape")[kind], tmp_path / "out")
    assert not has_hooks(model)


@pytest.mark.parametrize("name", CALLS)
def test_the_same_weights_under_another_name_are_accepted(name: str, tmp_path: Path) -> None:
    kind, call = CALLS[name]
    given = made("moved")[kind]
    assert given.model.name == "moved"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Of few trials and ties.
        call(tiny("llama-gqa"), given, tmp_path / "out")


def test_a_curve_of_another_model_is_not_shown_beside_this_one() -> None:
    pytest.importorskip("anywidget")
    found, other = (
        lh.ablation_curve(
            m,
            TRIALS,
            lh.HeadScores.from_trials("plain", torch.arange(12.0).reshape(1, 3, 4), ["b"]),
            ks=(1,),
            kind="zero",
            controls=(),
            **FORCED,
        )
        for m in (moved(), zoo.bridge("llama-gqa", seed=9))
    )
    lh.explore(tiny("llama-gqa"), TRIALS, made("itself")["scores"], curve=found)
    with pytest.raises(ValueError, match="the curve was made on other weights"):
        lh.explore(tiny("llama-gqa"), TRIALS, made("itself")["scores"], curve=other)


@pytest.mark.parametrize("kind", ["means", "vectors"])
def test_files_keep_whose_they_are(kind: str, tmp_path: Path) -> None:
    value = made("other")[kind]
    again = type(value).load(value.save(tmp_path / "saved.safetensors"))
    assert (again.model, again.model.wrapper) == (identify(zoo.bridge("llama-gqa", seed=9)), "TransformerBridge")
    name = "ablate mean" if kind == "means" else "steer"
    with pytest.raises(ValueError, match="other weights"):
        CALLS[name][1](tiny("llama-gqa"), again, tmp_path)
    older = replace(
        value, model=replace(value.model, name="", weights="", dtype="", wrapper="")
    )  # As older files know it.
    CALLS[name][1](tiny("llama-gqa"), type(value).load(older.save(tmp_path / "older.safetensors")), tmp_path)


def test_what_cannot_be_compared_is_not_refused() -> None:
    """Weights in another precision, or under the names of another class."""
    means = made("other")["means"]
    for change in ({"dtype": "torch.bfloat16"}, {"wrapper": "HookedTransformer"}, {"weights": ""}):
        CALLS["ablate mean"][1](tiny("llama-gqa"), replace(means, model=replace(means.model, **change)), Path())


def test_values_that_were_spoiled_after_they_were_made() -> None:
    means, scores = made("itself")["means"], made("itself")["scores"]
    spoiled = replace(means, z=means.z.clone())
    spoiled.z[0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="z of the reference holds values that are not finite"):
        CALLS["ablate mean"][1](tiny("llama-gqa"), spoiled, Path())
    worse = replace(scores, values=scores.values.clone())
    worse.values[0, 0] = torch.inf
    with pytest.raises(ValueError, match="ranking 'locos' holds scores that are not finite"):
        curve(tiny("llama-gqa"), rankings=worse)


def test_weights_that_change_are_other_weights_at_once() -> None:
    """Although contexts that are entered thousands of times do not read all weights each time."""
    model = zoo.bridge("llama-gqa")
    means = made("itself")["means"]
    for _ in range(2):
        within(lh.ablate(model, HEADS, kind="mean", reference=means), model)
    with torch.no_grad():
        next(model.original_model.parameters()).mul_(2)
    with pytest.raises(ValueError, match="other weights"):
        within(lh.ablate(model, HEADS, kind="mean", reference=means), model)
    within(lh.ablate(model, HEADS, kind="mean", reference=lh.mean_activations(model, MADE_ON, **QUIET)), model)


def test_contexts_do_not_hash_the_weights_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, means, hashed = zoo.bridge("llama-gqa"), made("itself")["means"], []
    from lens_heads.model import identity

    whole = identity.fingerprint
    monkeypatch.setattr(identity, "fingerprint", lambda m: hashed.append(m) or whole(m))
    for _ in range(5):
        within(lh.ablate(model, HEADS, kind="mean", reference=means), model)
    assert len(hashed) == 1


OWN: dict[str, Call] = {
    "contrast": lambda m, x, trials: lh.contrast(
        m, trials, HEADS, alpha=0.5, kind="mean", reference=x["means"], max_new_tokens=1, **QUIET
    ),
    "attribute_ablation": lambda m, x, trials: lh.attribute_ablation(
        m, trials, kind="mean", reference=x["means"], **QUIET
    ),
    "aie": lambda m, x, trials: lh.average_indirect_effect(
        m, trials, vectors=x["vectors"], **QUIET, metric="first_token_prob"
    ),
    "soft_injection": lambda m, x, trials: soft_injection(m, [*TRIALS, *trials], x["vectors"], steps=1, **QUIET),
    "localize_heads": lambda m, x, trials: lh.localize_heads(
        m, trials, method="one_shot", kind="mean", reference=x["means"], **QUIET
    ),
}


@pytest.mark.parametrize("read", [False, True], ids=["made", "read from a file"])
@pytest.mark.parametrize("relabelled", [False, True], ids=["", "under other ids"])
@pytest.mark.parametrize("name", OWN)
def test_means_and_vectors_of_the_trials_themselves_are_refused(
    name: str, relabelled: bool, read: bool, tmp_path: Path
) -> None:
    trials = [replace(trial, id=f"again {i}") for i, trial in enumerate(MADE_ON)] if relabelled else MADE_ON
    given = {kind: made("itself")[kind] for kind in ("means", "vectors")}
    if read:
        given = {kind: type(one).load(one.save(tmp_path / kind)) for kind, one in given.items()}
    first = "again 0" if relabelled else "random-20"
    with pytest.raises(ValueError, match=rf"the reference was computed on 3 of the .* \('{first}'"):
        OWN[name](tiny("llama-gqa"), given, trials)  # type: ignore[arg-type]  # trials in place of a path


@pytest.mark.slow
def test_cards_and_matches_of_another_model_are_not_shown_beside_this_one() -> None:
    pytest.importorskip("anywidget")
    other, itself = zoo.bridge("llama-gqa", seed=9), moved()
    texts = ["the river ran past the mill", "a bell rang over the grey sea"]
    settings: dict[str, Any] = {"signatures": ["patterns"], "texts": texts, "permutations": 1, "resamples": 2, **QUIET}
    cards, matches = (
        {m: make(m) for m in (other, itself)}
        for make in (
            lambda m: lh.describe(m, HEADS, text="hello there", **QUIET),
            lambda m: lh.match_heads(m, m, **settings),
        )
    )
    scores = made("itself")["scores"]
    lh.explore(tiny("llama-gqa"), TRIALS, scores, cards=cards[itself], match=matches[itself])
    with pytest.raises(ValueError, match=r"the cards were made on other weights .*: describe this model"):
        lh.explore(tiny("llama-gqa"), TRIALS, scores, cards=cards[other])
    with pytest.raises(ValueError, match=r"the match was made on other weights .*: match this model"):
        lh.explore(tiny("llama-gqa"), TRIALS, scores, match=matches[other])
    with pytest.raises(ValueError, match="the match was made on other weights"):
        lh.evidence.validate_match(
            matches[other], tiny("llama-gqa"), tiny("llama-gqa"), {"a": TRIALS}, groups={"x": HEADS}, k=1, kind="zero"
        )
