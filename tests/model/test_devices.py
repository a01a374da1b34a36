"""What runs a model, on one that is elsewhere than the CPU and on one spread over devices: no mixture, and the CPU's results."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads import compare
from lens_heads.interventions.activations import trial_activations
from lens_heads.model.identity import fingerprint
from lens_heads.model.load import load_model
from lens_heads.trials.documents import Document, DocumentTrial
from tests import zoo
from tests.conftest import few_shot, random_trial, tiny
from tests.devices import CPU, FIRST, Elsewhere, device_of, on_one, spread
from tests.evidence.test_repair import trial as choice_trial
from tests.model.test_directions import random_lens
from tests.model.test_load import saved
from tests.rounding import rounding

HEADS = ["L0H1", "L1H2", "L2H0"]
TEXT = "the cat sat on the mat, and the cat"
NAMED = ["locos_name", "locos_beside", "locos_rest", "task_kv", "task_kv_write"]
PAIRS = {"mine": lh.ranking.TokenMap(tuple((token, token + 2) for token in range(5, 11)))}
DOCUMENTS = [Document("a cat"), Document("a dog")]
SCORES = lh.HeadScores.from_trials("known", torch.arange(12.0).reshape(1, 3, 4), ["other"])
Case = Callable[[Any], Any]


def trials(n: int = 2, first: int = 0) -> list[lh.EncodedTrial]:
    return [random_trial(seed, n=24 - 2 * (seed - first)) for seed in range(first, first + n)]


def pairs(n: int = 2) -> list[lh.EncodedTrial]:
    return lh.trials.make_pairs(trials(n), zoo.tokenizer(), lh.head_geometry(tiny("llama-gqa")))


def means(model: Any) -> lh.MeanActivations:
    return lh.mean_activations(model, trials(2, first=7), progress=False)


def score(**options: Any) -> Case:
    return lambda model: lh.score_heads(model, trials(), progress=False, **options)


def score_probe(probe: Callable[[Any], Any]) -> Case:
    return lambda model: lh.score_heads(model, probe(model), progress=False)


@cache
def lens() -> Path:
    return random_lens(Path(tempfile.mkdtemp()) / "lens.safetensors")[0]


SCORING: dict[str, Case] = {
    "forced": score(teacher_forced=True, null_spans=2),
    "forced, in batches": score(teacher_forced=True, direction="exact", batch_size=2),
    "decoded": score(max_new_tokens=3),
    "decoded, in batches": score(max_new_tokens=3, direction="exact", batch_size=2, chunk=7),
    "tuned lens": lambda model: score(teacher_forced=True, direction=lens())(model),
    "named": score(methods=NAMED, teacher_forced=True),
    "repeated": score_probe(lambda model: lh.repeated_blocks(model, block=8)),
    "text": score_probe(lambda model: lh.plain_texts([TEXT])),
    "context": score_probe(lambda model: lh.context_pairs(trials())),
    "weights": score_probe(lambda model: lh.token_maps(PAIRS)),
    "documents": lambda model: lh.score_documents(
        model, DocumentTrial("d", "who?", tuple(DOCUMENTS), ("1",)), progress=False
    ),
    "rerank": lambda model: lh.rerank(model, "who?", DOCUMENTS, HEADS),
    "look": lambda model: lh.look(model, trials()[0]),
    "look at its own answer": lambda model: lh.look(model, trials()[0], generated=True, max_new_tokens=3),
    "token curves": lambda model: lh.token_curves(model, 4 * TEXT),
    "provenance": lambda model: lh.inspection.provenance(model, trials(), HEADS, max_new_tokens=3),
    "literalness": lambda model: lh.inspection.literalness(model, trials(), teacher_forced=True),
}


OPTIONS: dict[str, dict[str, Any]] = {
    "scale": {"factor": 0.5},
    "add": {"span": [(2, 9), (3, 8)]},
    "emphasise": {"span": (2, 9)},
    "chunks": {"n_chunks": 3, "chunk_size": 4},
}


def vectors(model: Any) -> lh.HeadVectors:
    return lh.task_vectors(model, trials(2, first=7))


def ablated(kind: str, model: Any) -> Any:
    reference = {"mean": means, "query_mean": means}.get(kind, lambda model: trial_activations(model, trials(1, 7)[0]))
    reference = vectors if kind in ("add", "mix") else reference
    needs = kind in ("mean", "query_mean", "resample", "patch", "add", "mix")
    options = OPTIONS.get(kind, {})
    with lh.ablate(model, HEADS, kind=kind, reference=reference(model) if needs else None, **options):
        return lh.evaluate(model, trials(), batch_size=2, max_new_tokens=3, progress=False)


def patched(model: Any) -> Any:
    with lh.patch(model, HEADS, pairs(1)[0]):
        return lh.evaluate(model, trials(1), max_new_tokens=3, progress=False)


def curve(model: Any, given: Any, **options: Any) -> Any:
    run: dict[str, Any] = {"ks": (1, 3), "controls": ["random"], "max_new_tokens": 3, "progress": False}
    return lh.ablation_curve(model, given, SCORES, **run, **options)


ABLATION: dict[str, Case] = {
    **{
        kind: partial(ablated, kind)
        for kind in (
            *("zero", "mean", "resample", "patch", "scale"),
            *("query_mean", "query_zero", "uniform", "streaming", "identity", "add", "mix", "emphasise", "chunks"),
        )
    },
    "patch of a pair": patched,
    "means": means,
    "intact": lambda model: lh.evaluate(model, trials(), max_new_tokens=3, progress=False),
    "choices": lambda model: lh.evaluate(model, [choice_trial(), choice_trial(1)], max_new_tokens=2, progress=False),
    "curve": lambda model: curve(model, trials(), reference=means(model), batch_size=2),
    "curve of prompts that begin alike": lambda model: curve(model, few_shot((5, 7, 6)), kind="zero"),
    "curve of prompts of one length": lambda model: curve(model, few_shot((5, 5)), kind="uniform", batch_size=2),
    "influence": lambda model: lh.influence(model, [TEXT], HEADS, progress=False, kind="uniform"),
}


def faithful(model: Any, **options: Any) -> Any:
    run: dict[str, Any] = {"ks": (1, 3), "controls": ["random"], "corruption": "remove", "progress": False}
    return lh.faithfulness(model, pairs(), SCORES, **run, **{"positions": "all", **options})


def knocked(**options: Any) -> Case:
    return lambda model: lh.knockout_heads(model, [TEXT, "a dog lay"], progress=False, **{"kind": "uniform", **options})


def flipped(model: Any) -> None:
    with pytest.raises(lh.evidence.NothingFlipped):
        lh.recovery(
            model,
            trials(1),
            ["L0H1"],
            ["L1H2"],
            controls=lh.Controls(draws=1),
            max_new_tokens=3,
            progress=False,
            kind="zero",
        )


def paired(method: Callable[..., Any], *args: Any, **options: Any) -> Case:
    return lambda model: method(model, pairs(), *args, progress=False, **options)


CAUSAL: dict[str, Case] = {
    "patch heads": paired(lh.patch_heads),
    "patch heads at all positions": paired(lh.patch_heads, positions="all", metric="kl"),
    "patch heads one by one": paired(lh.patch_heads, heads_per_pass=1),
    "path to the logits": paired(lh.path_patch, None, "logits"),
    "path to queries": paired(lh.path_patch, None, ["L2H1"]),
    "path to values": paired(lh.path_patch, None, ["L2H1"], component="v", base="corrupt", freeze_mlps=True),
    "attribution": paired(lh.attribution_patch, positions="all"),
    "attribution in steps": paired(lh.attribution_patch, positions="answer", ig_steps=2),
    "attributed ablation": lambda model: paired(lh.attribute_ablation, reference=means(model))(model),
    "attributed queries": paired(lh.ranking.attribute_queries),
    "gradient importance": paired(lh.ranking.gradient_importance),
    "indirect effects": lambda model: lh.average_indirect_effect(
        model, trials(), vectors=vectors(model), progress=False, metric="first_token_prob"
    ),
    "knockout": knocked(),
    "knockout by an own measure": knocked(kind="zero", measure=lambda intact, ablated: (intact - ablated).abs().sum()),
    "sahara": lambda model: lh.ranking.sahara(model, [TEXT, "a dog lay"], k=2, progress=False, kind="uniform"),
    "faithfulness": faithful,
    "faithfulness by means": lambda model: faithful(model, outside="mean", reference=means(model)),
    "faithfulness with corrupt MLPs": lambda model: faithful(model, mlps="corrupt", positions="answer"),
    "recovery": lambda model: lh.recovery(
        model,
        trials(),
        ["L0H1"],
        ["L1H2"],
        ranking=SCORES,
        controls=lh.Controls(["random"], 2),
        flipped=False,
        progress=False,
        kind="zero",
    ),
    "recovery of flipped answers": flipped,
    "repair": lambda model: lh.evidence.repair(
        model, [choice_trial()], ["L0H1"], controls=lh.Controls(("random", "random_like"), 2), progress=False
    ),
}


def matched(model: Any) -> Any:
    texts = [TEXT, "a dog lay on the rug, and a dog", "one two three four five six"]
    return lh.match_heads(model, model, texts=texts, resamples=2, permutations=10, progress=False)


def masked(model: Any, **options: Any) -> Any:
    masks = np.random.default_rng(0).random((5, 3, 4)) < 0.3
    return lh.ranking.MaskedMetric(model, trials(), batch_size=2, progress=False, **options)(masks)


def localized(method: str, **options: Any) -> Case:
    run: dict[str, Any] = {"n_masks": 10, "sparsity": 0.2, "k": 2, "progress": False}
    return lambda model: lh.localize_heads(model, trials(), method=method, **run, **{"kind": "zero", **options})


def trained(method: Callable[..., Any], *more: Callable[[Any], Any], **options: Any) -> Case:
    run: dict[str, Any] = {"steps": 3, "batch_size": 2, "progress": False, **options}
    return lambda model: method(model, trials(5), *(one(model) for one in more), **run)


def streamed(model: Any) -> Any:
    run: dict[str, Any] = {
        "shares": [0.5],
        "sink": 1,
        "recent": 5,
        "controls": lh.Controls("random", 2),
        "max_new_tokens": 2,
        "progress": False,
    }
    return lh.streaming(model, trials(), {"known": SCORES}, **run).per_trial


def probed(model: Any) -> Any:
    return lh.probe_heads(
        model, [random_trial(seed) for seed in range(6)], labels=["a", "b"] * 3, folds=2, progress=False
    )


def why(model: Any) -> Any:
    prompt = "the cat sat on the mat. the cat sat on the"
    return lh.why(
        model,
        prompt,
        " mat",
        needle="the cat sat on the mat.",
        kind="zero",
        controls=lh.Controls("random", 3),
        max_new_tokens=3,
    )


OTHER: dict[str, Case] = {
    "check": lambda model: lh.check_model(model).frame.query("not passed").to_dict("records"),
    "masks": masked,
    "masks of patterns, generated": lambda model: masked(model, kind="uniform", metric="exact_match", max_new_tokens=3),
    "localized": localized("css"),
    "localized in turn": localized("best_in_turn"),
    "match": matched,
    "describe": lambda model: lh.describe(model, HEADS, text=[TEXT], progress=False),
    "OV circuits": compare.ov_similarity,
    "change of weights": lambda model: compare.weight_change(model, model),
    "why": why,
    "duo": trained(lh.ranking.duo, sink=1, recent=5),
    "duo by a teacher": trained(lh.ranking.duo, sink=1, recent=5, full="teacher"),
    "hardkuma": trained(lh.ranking.hardkuma, sink=1, recent=5),
    "lofit": trained(lh.ranking.lofit, k=2),
    "soft injection": trained(lh.ranking.soft_injection, vectors),
    "head gating": trained(lh.ranking.head_gating),
    "streaming": streamed,
    "contrast": lambda model: lh.contrast(model, trials(), HEADS, max_new_tokens=3, progress=False, kind="zero"),
    "reinforce": lambda model: lh.reinforce(model, trials(), max_new_tokens=3, progress=False),
    "probe": probed,
    "shuffled outputs": lambda model: score(methods="locos", teacher_forced=True)(lh.sanity.shuffled_outputs(model)),
    "redrawn": lambda model: score(methods="locos", teacher_forced=True)(lh.sanity.random_initialised(model)),
}

CASES = {
    f"{part}: {name}": case
    for part, cases in {"scoring": SCORING, "ablation": ABLATION, "causal": CAUSAL, "other": OTHER}.items()
    for name, case in cases.items()
}
MODELS = {"one, llama-gqa": on_one, **{f"spread, {name}": spread for name in ("llama-gqa", "gemma3", "gpt2")}}


@pytest.fixture(scope="module", params=MODELS)
def elsewhere(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """The name of an architecture, and such a model elsewhere."""
    name = request.param.split(", ")[1]
    with Elsewhere():
        return name, MODELS[request.param](name)


@cache
def on_the_cpu(name: str, case: str) -> Any:
    return CASES[case](tiny(name))


APART = ("reference", "donor", "vectors", "fit")
"""What tells roundings apart: hashes of numbers, and fits that count how often an entry is above zero."""
Bound = Callable[[Any], dict[str, float]]
"""From expected numbers, how far those found may lie apart: `atol` and `rtol`."""


def same_sums(wanted: Any) -> dict[str, float]:
    """The bound of the same sums on the same processor."""
    return {"atol": 1e-5, "rtol": 1e-4}


def assert_same(found: Any, wanted: Any, at: str = "", bound: Bound = same_sums) -> None:
    """Equal results, of which every tensor is on the CPU."""
    assert type(found) is type(wanted), at
    if isinstance(found, Tensor):
        assert device_of(found) == CPU, at
    if isinstance(found, Tensor | np.ndarray | float):
        torch.testing.assert_close(found, wanted, equal_nan=True, msg=lambda said: f"{at}: {said}", **bound(wanted))
    elif isinstance(found, pd.DataFrame):
        whole = {"recovery"} & set(found)
        numbers = [name for name in wanted.select_dtypes("number") if name not in whole]
        rest = [one.drop(columns=[*whole, *numbers]) for one in (found, wanted)]
        pd.testing.assert_frame_equal(*rest)
        for name in numbers:
            assert_same(found[name].to_numpy(), wanted[name].to_numpy(), f"{at}.{name}", bound)
        if whole:  # A share of a cost that may be small, of log-probabilities that are rounded at their own size.
            off = (found["recovery"] - wanted["recovery"]).abs() * wanted["cost"].abs()
            assert float(off.max()) < 2 * rounding(float(wanted["lp_ablated"].abs().max())), at
            assert found["recovery"].isna().equals(wanted["recovery"].isna()), at
    elif isinstance(found, dict):
        assert found.keys() == wanted.keys(), at
        for name in found:
            if name not in APART or bound is same_sums:
                assert_same(found[name], wanted[name], f"{at}.{name}", bound)
    elif isinstance(found, list | tuple):
        assert len(found) == len(wanted), at
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_same(one, other, f"{at}[{number}]", bound)
    elif is_dataclass(found):
        for field in fields(found):
            assert_same(getattr(found, field.name), getattr(wanted, field.name), f"{at}.{field.name}", bound)
    elif isinstance(found, str | int | None):
        assert found == wanted, at


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every trial counts as answered, at its first and last step: random models answer nothing."""
    monkeypatch.setattr("lens_heads.trials.answers.passes", lambda trial, text: True)
    monkeypatch.setattr(
        "lens_heads.trials.answers.answer_steps", lambda trial, generated, tokenizer: sorted({0, len(generated) - 1})
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore", "error:.*(failed|fails)")  # What fails may be tried again by itself, or left out.
@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("answered")
def test_devices_change_no_result_and_never_mix(elsewhere: tuple[str, Any], case: str) -> None:
    name, model = elsewhere
    wanted = on_the_cpu(name, case)
    with Elsewhere():
        found = CASES[case](model)
    assert_same(found, wanted, case)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore", "error:.*(failed|fails)")
@pytest.mark.parametrize("case", ["ablation: curve", "causal: knockout", "causal: recovery", "other: masks"])
def test_nor_where_no_prefill_is_kept(elsewhere: tuple[str, Any], case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, model = elsewhere
    wanted = on_the_cpu(name, case)
    monkeypatch.setattr("lens_heads.interventions.replay.MOST_BYTES", 0)
    with Elsewhere():
        assert_same(CASES[case](model), wanted, case)


def test_a_model_has_the_same_identity_there(elsewhere: tuple[str, Any]) -> None:
    name, model = elsewhere
    with Elsewhere():
        found = fingerprint(model)
    assert found == fingerprint(tiny(name))


@pytest.mark.slow
def test_a_model_is_loaded_to_its_device_and_its_results_are_stored(tmp_path: Path) -> None:
    options: dict[str, Any] = {"teacher_forced": True, "progress": False, "out": tmp_path / "run"}
    with Elsewhere():
        model = load_model(saved(tmp_path / "my-model", "llama-gqa"), device=FIRST)
        assert {weights.device for weights in model.parameters()} == {FIRST}
        there = lh.score_heads(model, trials(), **options)
    here = lh.score_heads(load_model(tmp_path / "my-model", device="cpu"), trials(), **options)  # As stored.
    assert_same(
        {name: one.per_trial for name, one in there.items()}, {name: one.per_trial for name, one in here.items()}
    )
