"""Slips that give a result like any other: each is refused, or told by one warning that names what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads import stats
from lens_heads.answering.evaluation import Evaluation
from lens_heads.model.identity import identify
from lens_heads.runs.identity import ModelIdentity
from tests import zoo
from tests.attack.calls import PAIRS, TRIALS, TWO, M, curve, named, scores
from tests.attack.held import refused
from tests.conftest import random_trial

Q: dict[str, Any] = {"progress": False}
FORCED: dict[str, Any] = {"teacher_forced": True, **Q}
HITS = np.array([1.0, 0.0, 1.0, 0.0, 1.0])
SERIES = pd.Series([1.0, 2.0, 3.0, 4.0], index=list("abcd"))


def entered_twice() -> None:
    block = lh.ablate(M(), "L0H1", kind="zero")
    with block:
        pass
    with block:
        pass


def within_inference_mode() -> Any:
    with torch.inference_mode():
        return zoo.bridge("llama-gqa")


def on_meta() -> Any:
    return zoo.bridge("llama-gqa").to("meta")


def of_own_trials() -> None:
    """Another task's trials are those that chose the heads."""
    chose = lh.score_heads(M(), TWO, "attention_mass", **FORCED)["attention_mass"]
    options: dict[str, Any] = {"kind": "zero", "generate": False, "controls": "random", **Q}
    lh.ablation_curve(M(), TRIALS[2:8], chose, ks=[1], specificity={"other": TWO}, **options)


def file_of(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


REFUSED: list[tuple[str, Callable[[], Any], str]] = [
    ("a block twice", entered_twice, "call ablate(...) again for another `with`"),
    ("weights by head", lambda: lh.ablate(M(), {"L0H1": 0.5}, kind="zero").__enter__(), "heads are a mapping"),  # type: ignore[arg-type]
    ("a table of heads", lambda: lh.ablate(M(), scores().frame, kind="zero").__enter__(), "pass the column that names them"),
    ("heads of the wrong unit", lambda: lh.units.query_heads(scores().top(2), 2), "is a query head already"),
    ("a written query head", lambda: lh.units.query_heads("L0H1", 2), "L0H1 is a query head already"),
    ("razor by other methods", lambda: lh.razor_attention_heads(scores(), named("echo"), group=2), "of method 'mine'"),
    ("half a sink", lambda: lh.ablate(M(), "L0H1", kind="streaming", sink=0.5).__enter__(), "sink=0.5: must be a non-negat"),
    ("more draws than spans", lambda: lh.score_heads(M(), TWO[0], "locos", null_spans=999, **FORCED), "null_spans=999: the prom"),
    ("specificity of own trials", of_own_trials, "was made on 2 of the trials"),
    ("a metric of one argument", lambda: lh.patch_heads(M(), PAIRS, metric=lambda x: x[:, 0, 0], **Q), "take two arguments"),
    ("a model without weights", lambda: lh.score_heads(on_meta(), TWO, "locos", **FORCED), "on device 'meta', without"),
    ("weights of inference", lambda: lh.evaluate(within_inference_mode(), TWO, **Q), "torch.inference_mode"),
    ("correlation 5", lambda: stats.difference(stats.wilson(0.5, 9), stats.wilson(0.5, 9), correlation=5), "correlation=5"),
    ("two levels", lambda: stats.difference(stats.wilson(0.5, 9), stats.wilson(0.5, 9, level=0.5)), "levels 0.95 and 0.5"),
    ("pairs of other lengths", lambda: stats.paired_share_interval(HITS, HITS[:3]), "5 and 3 right answers"),
    ("losses of other lengths", lambda: stats.relative_loss_interval(HITS, HITS[:3]), "5 and 3 right answers"),
    ("other orders of tasks", lambda: stats.permutation_test(SERIES, SERIES[::-1]), "a and b have different indices"),  # type: ignore[arg-type]
    ("CKA of NaN", lambda: lh.compare.linear_cka(torch.full((9, 1, 2), torch.nan), torch.rand(9, 1, 2)), "x has values that"),
    ("a map of numbers", lambda: lh.plots.head_map(torch.zeros(3, 4)), "head_map: got a Tensor"),  # type: ignore[arg-type]
    ("bars of numbers", lambda: lh.plots.ranking_bars(pd.DataFrame()), "ranking_bars: got a DataFrame"),  # type: ignore[arg-type]
    ("a frame for its curve", lambda: lh.plots.ablation_curves(curve().frame, "logprob"), "draws the curve of ablation_curve"),
    ("another frame", lambda: lh.plots.drop_bars(scores().frame), "the frame has no column 'group'"),
    ("no frame", lambda: lh.plots.cache_curves([1], "correct"), "got a list"),  # type: ignore[arg-type]
    ("names of fewer heads", lambda: lh.plots.similarity_map(["a"], np.eye(3), title=""), "must be [head, head] of the 1"),
    ("fewer words", lambda: lh.plots.token_curve("x", ["a"], np.ones(3)), "1 words and 3 values"),
    ("trials as texts", lambda: lh.plain_texts(TRIALS), "trial random-0 is no text"),  # type: ignore[arg-type]
    ("methods in a string", lambda: lh.rank(M(), TWO, "locos,dla", **Q), "several methods are a list, ['locos', 'dla']"),
    ("scorers in a string", lambda: lh.score_heads(M(), TWO, "locos,dla", **Q), "several methods are a list"),
    ("a loaded model", lambda: lh.load_model(zoo.hf_model("llama-gqa")), "a LlamaForCausalLM is no name: pass"),
    ("texts beyond the context", lambda: lh.describe(zoo.bridge("llama-gqa", n_ctx=48), **Q), "pass shorter ones, text="),
    ("another vocabulary's probe", lambda: lh.score_heads(M(), replace(PROBE, vocabulary="other"), **Q), "of another vocabulary"),
]  # fmt: skip

PROBE = lh.repeated_blocks(M(), block=8)


@pytest.mark.parametrize(("call", "says"), [line[1:] for line in REFUSED], ids=[line[0] for line in REFUSED])
def test_refused(call: Callable[[], Any], says: str) -> None:
    refused(call, says, M())


@pytest.mark.parametrize(
    ("name", "says"),
    [("a.csv", "put the values of a table"), ("a.tsv", "lh.read_gates"), ("a.safetensors", "HeadVectors.load")],
)
def test_files_that_another_function_reads(name: str, says: str, tmp_path: Path) -> None:
    refused(lambda: lh.HeadScores.load(file_of(tmp_path, name, "1,2")), says)


def test_a_list_of_heads_is_no_score_file(tmp_path: Path) -> None:
    refused(
        lambda: lh.HeadScores.load(file_of(tmp_path, "a.json", '["L0H1"]')), "a list of heads is read by lh.load_heads"
    )


def under(kind: str, **options: Any) -> None:
    with lh.ablate(M(), "L0H1", kind=kind, **options):
        lh.evaluate(M(), TWO, generate=False, **Q)


def patched_behind() -> None:
    with lh.patch(M(), "L0H1", TRIALS[9], positions="answer"):
        lh.evaluate(M(), TWO, generate=False, **Q)


def reversed_pairs() -> list[Any]:
    """Of which the corrupt run has the answer more."""
    found = [item["corrupt"] > item["clean"] for item in lh.patch_heads(M(), PAIRS, **Q).meta["trials"]]
    turned = [replace(one, tokens=one.corrupt, corrupt=one.tokens) for one in PAIRS]
    return [one if late else other for one, other, late in zip(PAIRS, turned, found, strict=True)]


def evaluation(right: float) -> Evaluation:
    return Evaluation(tuple(one.id for one in TWO), {"correct": torch.full((2,), right)}, ("", ""), ("", ""))


TOLD: list[tuple[str, Callable[[], Any], str]] = [
    ("a window larger than prompts", lambda: under("streaming"), "kind='streaming': nothing was changed, since no prompt has"),
    ("chunks larger than prompts", lambda: under("chunks", n_chunks=3), "kind='chunks': nothing was changed, since no prompt"),
    ("patched behind the prompt", patched_behind, "kind='patch': nothing was changed, since no row that ran"),
    (
        "a shorter run to resample",
        lambda: under("resample", reference=lh.trial_activations(M(), random_trial(99, 12))),
        "kind='resample': the reference has 12 positions and a prompt has 2",
    ),
    (
        "means of what is evaluated",
        lambda: under("mean", reference=lh.mean_activations(M(), TWO, **Q)),
        "the reference of the ablation was computed on 2 of the trials that are evaluated under it",
    ),
    ("patching pairs that are reversed", lambda: lh.patch_heads(M(), reversed_pairs(), **Q), "in the corrupt one, which has the"),
    ("their gradients", lambda: lh.attribution_patch(M(), reversed_pairs(), positions="all", **Q), "in the corrupt one, which"),
    ("their paths", lambda: lh.path_patch(M(), reversed_pairs(), None, "logits", **Q), "in the corrupt one, which has"),
    (
        "their faithfulness",
        lambda: lh.faithfulness(M(), reversed_pairs(), scores(), ks=2, controls=(), positions="all", **Q),
        "in the corrupt one, which has the answer",
    ),
    (
        "caches that hold all",
        lambda: lh.streaming(M(), TWO, {"r": scores()}, controls=lh.Controls("random", draws=1), max_new_tokens=1, **Q),
        "trial random-0 has no more than sink + recent = 68 tokens (2 of 2 trials)",
    ),
    (
        "evaluations exchanged",
        lambda: lh.answering.answerable(TWO, evaluation(0.0), evaluation(1.0)),
        "more trials are right without their needle (2 of 2) than with it (0)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "says"), [line[1:] for line in TOLD], ids=[line[0] for line in TOLD])
def test_told(call: Callable[[], Any], says: str) -> None:
    with pytest.warns(UserWarning, match=re.escape(says)):
        call()


def test_what_is_meant_is_not_told(recwarn: pytest.WarningsRecorder) -> None:
    """A window that is short enough, a run as long as the prompts, means of other trials."""
    under("streaming", sink=1, recent=4)
    under("chunks", n_chunks=3, chunk_size=4)
    under("resample", reference=lh.trial_activations(M(), random_trial(99, 40)))
    under("mean", reference=lh.mean_activations(M(), TRIALS[2:4], **Q))
    with lh.patch(M(), "L0H1", TWO[0]):  # Of the very run that is evaluated.
        lh.evaluate(M(), TWO[0], generate=False, **Q)
    assert not [str(one.message) for one in recwarn if "kind=" in str(one.message) or "reference" in str(one.message)]


NAN = torch.tensor([*[0.1] * 11, torch.nan])
FRAME = pd.DataFrame(torch.rand(2, 6).numpy(), columns=list("abcdef"))
SAME = replace(scores(), values=torch.zeros(3, 4), per_trial=torch.zeros(5, 3, 4))


def other(**about: Any) -> Any:
    return lh.HeadScores.from_trials("mine", scores(1).per_trial, [f"o{i}" for i in range(5)], **about)


def gates(**about: Any) -> Any:
    return scores(heads=2, unit="kv_head", **about)


def twice() -> None:
    heads = (head for head in ["L0H1", "L1H1"])
    for _ in range(2):
        lh.inspection.provenance(M(), TWO, heads, **FORCED)


OF_TWO = [replace(scores(), model=ModelIdentity("m", weights)) for weights in ("1", "2")]

NEIGHBOURS: list[tuple[str, Callable[[], Any], str]] = [
    ("NaN among values", lambda: stats.positive_mean_p(NAN), "values is nan at [11]: must be finite"),
    ("NaN in a null", lambda: stats.family_wise_p(NAN, torch.rand(9, 12)), "values is nan"),
    ("NaN among clusters", lambda: stats.effective_n(NAN.numpy(), None), "values is nan"),
    ("alpha for a level", lambda: stats.mean_interval(torch.rand(9), level=0.05), "level=0.05: is the share of intervals"),
    ("columns in another order", lambda: stats.permutation_test(FRAME, FRAME[list("fedcba")]), "different columns"),  # type: ignore[arg-type]
    ("heads of where", lambda: lh.ablate(M(), torch.where(torch.eye(3, 4) > 0), kind="zero").__enter__(), "tuple of arrays"),  # type: ignore[arg-type]
    ("heads of a mask", lambda: lh.ablate(M(), torch.ones(3, 2) > 0, kind="zero").__enter__(), "pass the places where it is"),  # type: ignore[arg-type]
    ("an iterator twice", twice, "or nothing left after another use: pass a list"),
    ("gates with the lowest best", lambda: lh.write_gates(gates(best="lowest"), "gates.tsv"), "its lowest scores are best"),
    ("the worst of nothing", lambda: SAME.bottom(2), "ranks nothing: all 12 heads score 0"),
    ("one choice", lambda: replace(TWO[0], choices=("x",), choice_tokens=([1],)), "the only choice 'x' is right whatever"),
    ("a margin above every share", lambda: lh.verdicts.spared(curve(), "mine", 1, metric="greedy_match", margin=50), "margin=50"),
    ("other units pooled", lambda: lh.compare.pool_scores({"a": scores(), "b": other(score_unit="nats")}), "score_unit is ''"),
    (
        "other settings compared",
        lambda: lh.compare.compare_checkpoints(scores(settings={"kind": "zero"}), scores(1, settings={"kind": "mean"}), k=2),
        "kind is 'zero' in one and 'mean' in the other",
    ),
    ("heads not measured", lambda: curve().heads(lh.Condition.top("mine", 3)), "nothing was measured for"),
    ("a figure of two models", lambda: lh.plots.scatter(*OF_TWO), "are scores of different weights"),
    ("agreement of two models", lambda: lh.plots.method_agreement(dict(zip("ab", OF_TWO, strict=True))), "different weights"),
    ("no kind", lambda: lh.recovery(M(), TWO, "L0H0", "L0H1"), "argument: 'kind', e.g. kind='zero', 'mean' (with"),  # type: ignore[call-arg]
    ("no positions", lambda: lh.attribution_patch(M(), PAIRS), "argument: 'positions', e.g. positions='answer' or 'all'"),  # type: ignore[call-arg]
    ("one table of many", lambda: lh.plots.jaccard_curves(FRAME), "Pass {name: compare.jaccard_curve(a, b)}"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("call", "says"), [line[1:] for line in NEIGHBOURS], ids=[line[0] for line in NEIGHBOURS])
def test_neighbours_are_refused(call: Callable[[], Any], says: str) -> None:
    refused(call, says, M())


def test_a_header_of_numbers_is_no_layer(tmp_path: Path) -> None:
    file = file_of(tmp_path, "gates.tsv", "0\t1\n0.5\t0.2\n0.1\t0.9\n")
    refused(lambda: lh.read_gates(file), "its first line counts the columns: write the table without a header")


def test_a_file_keeps_its_method(tmp_path: Path) -> None:
    file = scores().save(tmp_path / "mine.json")
    refused(lambda: lh.HeadScores.load(file, method="copy"), "holds scores of method 'mine'")
    assert lh.HeadScores.load(file, method="mine").method == "mine"


@pytest.mark.parametrize(
    ("kind", "options"),
    [("scale", {"factor": 1.0}), ("identity", {"u": 0}), ("emphasise", {"factor": 1, "span": (1, 3)})],
)
def test_options_that_change_nothing_are_told(kind: str, options: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match=f"kind='{kind}', .*leaves every head as it is"):
        under(kind, **options)


class Switched(torch.nn.Module):
    """A module of another library, which is on or off."""

    def __init__(self) -> None:
        super().__init__()
        self.disabled = False


def test_an_adapter_that_is_switched_off_makes_another_model() -> None:
    model = zoo.bridge("llama-gqa", hf=zoo.hf_model("llama-gqa", seed=3))
    plain = identify(model)
    model.original_model.adapter = Switched()
    on = identify(model, again=False)
    model.original_model.adapter.disabled = True
    assert len({plain.weights, on.weights, identify(model, again=False).weights}) == 3


def test_weights_beside_an_adapter_are_not_read_alone() -> None:
    model = zoo.bridge("llama-gqa", hf=zoo.hf_model("llama-gqa", seed=4))
    model.original_model.model.layers[0].mlp.base_layer = torch.nn.Identity()
    for read in (lambda: lh.compare.ov_similarity(model), lambda: lh.compare.weight_change(M(), model)):
        refused(read, "has an adapter beside its own, which is not read: merge it first")
