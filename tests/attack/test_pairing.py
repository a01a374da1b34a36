"""Things given beside each other that do not belong together: another order, another model, one thing under two names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads import compare, stats
from lens_heads.heads.circuit import Circuit, Stage
from lens_heads.runs.identity import ModelIdentity
from tests import zoo
from tests.attack.calls import PAIRS, QUERY, TRIALS, TWO, M, curve, named, scores
from tests.attack.held import refused

Q: dict[str, Any] = {"progress": False}
CURVE: dict[str, Any] = {"kind": "zero", "generate": False, "controls": (), **Q}
HITS = pd.Series([1.0, 0.0, 1.0, 1.0, 0.0], index=list("abcde"))
TABLE = pd.DataFrame(np.random.default_rng(0).random((3, 5)), index=[1, 2, 4], columns=list("abcde"))
MASKS = lh.ranking.draw_masks("stratified", 30, 3, 4, 0.25)
EFFECTS = 5.0 - 2.0 * MASKS[:, 1, 2]
GROUPED = [replace(one, group=f"g{i % 2}") for i, one in enumerate(TRIALS[:8])]


def another(dtype: torch.dtype = torch.float32) -> Any:
    return zoo.bridge("llama-gqa", seed=7, dtype=dtype)


def measured_before_a_change() -> Any:
    model = another()
    known = lh.ranking.MaskedMetric(model, TWO, **Q)
    none = np.zeros((1, 3, 4), dtype=bool)
    known(none)
    with torch.no_grad():
        next(iter(model.original_model.parameters())).mul_(1.5)
    return known(none)


def circuits() -> dict[str, Circuit]:
    made = {name: replace(scores(), model=ModelIdentity("m", name)) for name in "ab"}
    return {name: Circuit((Stage("logits", (), one, ()),), 1.0, (3, 4), {}) for name, one in made.items()}


REFUSED: list[tuple[str, Callable[[], Any], str]] = [
    (
        "hits in another order",
        lambda: stats.paired_share_interval(HITS, HITS[::-1]),
        "first and second have different indices",
    ),
    (
        "losses in another order",
        lambda: stats.relative_loss_interval(HITS, HITS[::-1]),
        "before and after have different ind",
    ),
    (
        "rows in another order",
        lambda: stats.paired_share_interval(HITS.reset_index(drop=True), HITS.reset_index(drop=True)[::-1]),
        "read by place",
    ),
    (
        "strata in another order",
        lambda: stats.permutation_test(HITS, HITS, strata=HITS[::-1]),
        "a and strata have different",
    ),
    (
        "trials in another order",
        lambda: stats.rank_p(HITS, TABLE[list("edcba")]),
        "observed and random have different indices",
    ),
    (
        "labels by name",
        lambda: lh.probe_heads(M(), TRIALS[:5], labels=HITS, folds=2, **Q),
        "labels is indexed by name ('a', ...)",
    ),
    ("responses by name", lambda: lh.ranking.solve_masks(MASKS[:5], HITS, alpha=0.1), "response is indexed by name"),
    ("weights that changed", measured_before_a_change, "make a new MaskedMetric"),
    (
        "rankings exchanged",
        lambda: lh.ablation_curve(M(), TWO, {"locos": named("dla"), "dla": named("locos")}, ks=[1], **CURVE),
        "ranking 'locos' holds scores of 'dla'",
    ),
    ("circuits of two models", lambda: compare.circuit_reuse(circuits()), "different weights"),
    (
        "means of what is knocked out",
        lambda: lh.knockout_heads(M(), TWO, kind="mean", reference=lh.mean_activations(M(), TWO, **Q), **Q),
        "the reference was computed on 2 of the prompts",
    ),
    (
        "a bare function",
        lambda: lh.score_heads(M(), TWO, lambda view: view, **Q),
        'lh.Scorer("a name of your own", function)',
    ),
    ("two dtypes", lambda: compare.weight_change(M(), another(torch.bfloat16)), "load both in one dtype"),
    (
        "scores as gates",
        lambda: lh.heads.open_gates(named("locos").__class__("dla", torch.rand(3, 4) * 9, torch.rand(1, 3, 4), ("a",))),
        "gates lie between 0 and 1",
    ),
    ("a table twice", lambda: lh.AblationCurve(pd.concat([curve().per_trial] * 2), {}), "per_trial has rows twice"),
    (
        "a table on its side",
        lambda: lh.evidence.correlate(TABLE.T, TABLE.T),
        "a has rows a, b, c: rows are k, columns tasks",
    ),
    (
        "fewer groups than folds",
        lambda: lh.probe_heads(M(), GROUPED, labels=[0, 0, 1, 1] * 2, folds=4, **Q),
        "use folds=2 or fewer",
    ),
    (
        "a metric without gradient",
        lambda: lh.attribution_patch(
            M(), PAIRS, positions="all", metric=lambda logits, gold: torch.zeros(len(logits)), **Q
        ),
        "Compute it from the logits",
    ),
    (
        "means that nothing reads",
        lambda: lh.rank(M(), TWO, "locos", calibration=TRIALS[4:], **Q),
        "calibration= changes nothing: locos ablate no head",
    ),
    (
        "no room for means",
        lambda: lh.rank(zoo.bridge("llama-gqa", n_ctx=64), TWO, "greedy", k=1, **Q),
        "give other trials of the task, calibration=",
    ),
]


@pytest.mark.parametrize(("call", "says"), [line[1:] for line in REFUSED], ids=[line[0] for line in REFUSED])
def test_refused(call: Callable[[], Any], says: str) -> None:
    refused(call, says, M())


def begun_otherwise() -> Any:
    found = lh.score_heads(M(), TRIALS[4:6], "locos", teacher_forced=True, **Q)["locos"]
    begins = "no BOS" if found.model.begins != "no BOS" else "<s>"
    return lh.ablation_curve(M(), TWO, replace(found, model=replace(found.model, begins=begins)), ks=[1], **CURVE)


def one_task_twice() -> Any:
    others = [replace(one, id=f"again {one.id}") for one in TRIALS[2:6]]
    return lh.ablation_curve(M(), TRIALS[2:6], scores(), ks=[1], specificity={"other": others}, **CURVE)


def patched_from_a_shorter_prompt() -> None:
    with lh.patch(M(), "L0H1", TRIALS[0], positions="all"):
        lh.evaluate(M(), TRIALS[8], generate=False, **Q)


def k_of_the_test() -> None:
    with suppress(ValueError):  # Of a curve without the needle's benefit.
        lh.verdicts.smallest_k(curve(), "mine")


def under_hooks(call: Callable[[Any], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with lh.ablate(M(), "L0H1", kind="zero"):
            return call(M())

    return run


TEXTS = ["hello there " * 6] * 3
TOLD: list[tuple[str, Callable[[], Any], str]] = [
    ("one model twice", lambda: compare.weight_change(M(), M()), "have the same weights, so that no head changed"),
    (
        "a query twice",
        lambda: lh.score_documents(M(), [QUERY, replace(QUERY, id="again")], **Q),
        "trials q, again have the same prompt",
    ),
    (
        "a pair twice",
        lambda: lh.score_heads(
            M(),
            lh.context_pairs([lh.trials.ContextPair([1, 40, 41], [1, 41], [42], id=one) for one in "ab"]),
            "context_divergence",
            **Q,
        ),
        "trials a, b have the same prompt",
    ),
    (
        "a base of another metric",
        lambda: lh.ranking.solve_masks(MASKS, EFFECTS, method="paper", base=0.0),
        "base=0 lies farther from all responses",
    ),
    ("another beginning", begun_otherwise, "was made on prompts that begin with"),
    ("a task twice", one_task_twice, "tasks 'main' and 'other' have 4 prompts in common"),
    (
        "a column twice",
        lambda: lh.evidence.correlate(TABLE.assign(b=TABLE["a"]), TABLE.assign(b=TABLE["a"])),
        "tasks a, b have the same fragility",
    ),
    ("k of the test", k_of_the_test, "a k that is chosen on the trials of a verdict"),
    (
        "checkpoints by file name",
        lambda: compare.checkpoint_series({"step 100": scores(), "step 2000": scores(1), "step 300": scores(2)}, k=2),
        "in the order given, step 100, step 2000",
    ),
    (
        "a shorter run to patch",
        patched_from_a_shorter_prompt,
        "the run that is patched in has 26 positions and a prompt has 34",
    ),
    (
        "looked at under hooks",
        under_hooks(lambda model: lh.look(model, TRIALS[0])),
        "what is seen will be those of the changed model",
    ),
    (
        "matched under hooks",
        under_hooks(lambda model: lh.match_heads(model, model, texts=TEXTS, resamples=2, permutations=1, **Q)),
        "signatures will be those of the changed",
    ),
    (
        "explored under hooks",
        under_hooks(lambda model: lh.explore(model, TWO, scores())),
        "what is shown will be those of the changed",
    ),
    (
        "a question in the needle",
        lambda: lh.evaluate(M(), replace(TWO[0], question=TWO[0].needle), generate=False, **Q),
        "overlap, so that what is read",
    ),
]


@pytest.mark.parametrize(("call", "says"), [line[1:] for line in TOLD], ids=[line[0] for line in TOLD])
def test_told(call: Callable[[], Any], says: str) -> None:
    with pytest.warns(UserWarning, match=re.escape(says)):
        call()


def test_what_belongs_together_is_not_told(recwarn: pytest.WarningsRecorder) -> None:
    """One order, tables cut out of one, a base of the metric, steps in order, trials of another task."""
    assert stats.paired_share_interval(HITS, HITS).value == 0
    rows = pd.DataFrame({"set": ["top"] * 5 + ["none"] * 5, "right": [0.0, 1.0] * 5})
    stats.paired_share_interval(rows.right[rows.set == "top"], rows.right[rows.set == "none"])
    stats.rank_p(HITS, TABLE)
    lh.ranking.solve_masks(MASKS, EFFECTS, method="paper", base=5.0)
    compare.checkpoint_series({"step 2": scores(), "step 10": scores(1), "step 100": scores(2)}, k=2)
    lh.ablation_curve(M(), TRIALS[2:4], scores(), ks=[1], specificity={"other": TRIALS[4:6]}, **CURVE)
    said = [str(one.message) for one in recwarn]
    assert not [one for one in said if "in common" in one or "order" in one or "base" in one]


def test_a_curve_is_read_with_its_own_table(tmp_path: Path) -> None:
    first, second = curve().save(tmp_path / "a"), curve().save(tmp_path / "b")
    table = pd.read_parquet(second / "per_trial.parquet")
    table.assign(logprob=0.0).to_parquet(first / "per_trial.parquet")
    refused(lambda: lh.AblationCurve.load(first), "is not the table that curve.json was saved with")
    assert lh.AblationCurve.load(second).rankings == ["mine"]
    about = json.loads((second / "curve.json").read_text())
    (second / "curve.json").write_text(json.dumps({name: value for name, value in about.items() if name != "table"}))
    assert lh.AblationCurve.load(second).rankings == ["mine"]  # As files of before.


def test_values_that_are_no_mean_over_trials_have_no_interval() -> None:
    mean = scores()
    other = replace(mean, values=mean.values + torch.tensor([1.0, 0.0, 0.0, 0.0]))
    assert not mean.interval().low.isnan().any()
    assert other.interval().low.isnan()[:, 0].all()
    assert not other.interval().low.isnan()[:, 1:].any()


def test_answers_counted_from_one(tmp_path: Path) -> None:
    row = {"subject": "s", "choices": ["iron", "air", "tea", "ice"]}
    rows = [{**row, "question": f"Which is metal {at}?", "answer": 1 + at % 3} for at in range(20)]
    pd.DataFrame(rows).to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    with pytest.warns(UserWarning, match="the first: answers are counted from 0"):
        lh.tasks.mmlu(path=tmp_path / "rows.jsonl")
