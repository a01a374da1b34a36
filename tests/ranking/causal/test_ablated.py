"""Attribution of an ablation, and importances by gradients: exact where the model is linear, finite differences elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.answering.patch_metrics import answer_logprob
from lens_heads.model.hooks import has_hooks
from tests import planted, zoo
from tests.conftest import random_trial, tiny


def logprob(model: Any, trial: Any, **how: Any) -> float:
    """The answer's log-probability under an ablation, in double the precision that a difference needs."""
    tokens = torch.cat([trial.tokens, trial.answer_tokens[:-1]])[None]
    with torch.no_grad(), lh.ablate(model, **how):
        logits = model(tokens)[:, len(trial.tokens) - 1 :]
    return float(answer_logprob(logits.double(), trial.answer_tokens)[0])


def test_zero_is_the_derivative_by_a_gate_on_the_head(arch: str, model: Any) -> None:
    """A factor of 1 + e and 1 - e on the head's output: the slope, by central differences."""
    trial, step = random_trial(), 2e-2
    found = lh.attribute_ablation(model, trial, kind="zero", progress=False)
    for head in ("L0H1", "L1H2", "L2H3"):
        up, down = (logprob(model, trial, heads=head, kind="scale", factor=1 + e) for e in (step, -step))
        assert found[head] == pytest.approx((up - down) / (2 * step), abs=2e-3, rel=2e-2), head
    assert not has_hooks(model)


def test_mean_is_a_step_towards_the_mean(arch: str, model: Any) -> None:
    trial, step = random_trial(), 2e-2
    means = lh.mean_activations(model, [random_trial(seed) for seed in range(3, 6)], progress=False)
    found = lh.attribute_ablation(model, [trial], kind="mean", reference=means, progress=False)
    tokens = torch.cat([trial.tokens, trial.answer_tokens[:-1]])[None]
    for layer, head in ((0, 0), (2, 1)):

        def towards(z: torch.Tensor, hook: Any, share: float, at: tuple[int, int] = (layer, head)) -> torch.Tensor:
            split = z.clone().reshape(*z.shape[:2], 4, -1)
            split[:, :, at[1]] += share * (means.z[at] - split[:, :, at[1]])
            return split.reshape(z.shape)

        values = []
        for share in (step, -step):
            with torch.no_grad():
                hooks = [(f"blocks.{layer}.attn.hook_z", lambda z, hook, s=share, f=towards: f(z, hook, s))]
                logits = model.run_with_hooks(tokens, fwd_hooks=hooks)[:, len(trial.tokens) - 1 :]
            values.append(float(answer_logprob(logits.double(), trial.answer_tokens)[0]))
        slope = (values[1] - values[0]) / (2 * step)
        assert found[lh.Head(layer, head)] == pytest.approx(slope, abs=2e-3, rel=2e-2)


@pytest.mark.slow
def test_planted_heads_rank_as_testing_each_alone_does() -> None:
    model, trials = planted.model(), planted.trials(8)
    found = lh.attribute_ablation(model, trials, kind="zero", progress=False)
    alone = {}
    for head in (planted.COPIER, planted.WRITER, planted.DECOY, planted.SUPPRESSOR):
        costs = [
            logprob(model, t, heads=[], kind="zero") - logprob(model, t, heads=[head], kind="zero") for t in trials
        ]
        alone[head] = sum(costs) / len(costs)
    assert found.top(2) == sorted(alone, key=alone.__getitem__, reverse=True)[:2]
    assert found[planted.SUPPRESSOR] < 0
    assert alone[planted.SUPPRESSOR] < 0
    assert found[planted.DECOY] == pytest.approx(0, abs=1e-6)


def test_importance_by_gradients_is_the_absolute_slope_normalised_by_layer(gqa: Any) -> None:
    trials = [random_trial(seed) for seed in range(3)]
    slopes = lh.attribute_ablation(gqa, trials, kind="zero", progress=False).per_trial.abs()
    plain = lh.ranking.gradient_importance(gqa, trials, normalise=False, progress=False)
    torch.testing.assert_close(plain.values, slopes.mean(0))
    found = lh.ranking.gradient_importance(gqa, trials, progress=False)
    torch.testing.assert_close(found.values, slopes.mean(0) / slopes.mean(0).norm(dim=-1, keepdim=True))
    torch.testing.assert_close(found.values.norm(dim=-1), torch.ones(3))
    with torch.no_grad():
        hf = zoo.hf_model("llama-gqa")
        hf.model.layers[1].self_attn.o_proj.weight.zero_()
    silent = zoo.bridge("llama-gqa", hf=hf)
    with pytest.raises(ValueError, match="no head of layer 1 has any"):
        lh.ranking.gradient_importance(silent, trials, progress=False)


def test_importance_is_a_share_of_absolute_scores(gqa: Any) -> None:
    trials = [random_trial(seed) for seed in range(3)]
    scores = lh.attribution_patch(gqa, trials, metric="kl", ig_steps=3, progress=False, positions="all")
    found = lh.ranking.importance(scores)
    assert float(found.values.sum()) == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(found.values, scores.per_trial.abs().mean(0) / scores.per_trial.abs().mean(0).sum())
    nothing = lh.HeadScores.from_trials("none", torch.zeros(2, 3, 4), ["a", "b"])
    with pytest.raises(ValueError, match="none: all scores are zero"):
        lh.ranking.importance(nothing)


def test_kl_is_the_divergence_from_the_clean_run(arch: str, model: Any) -> None:
    """In the corrupt run by a loop; patching every head of a one-layer difference back gives 0."""
    trial = random_trial()
    corrupt = trial.tokens.clone()
    corrupt[7:11] = zoo.tokenizer()(".", add_special_tokens=False).input_ids[0]
    rows = slice(len(trial.tokens) - 1, None)
    with torch.no_grad():
        p, q = (
            zoo.hf_model(arch)(torch.cat([tokens, trial.answer_tokens[:-1]])[None])
            .logits[0, rows]
            .double()
            .log_softmax(-1)
            for tokens in (trial.tokens, corrupt)
        )
    expected = 0.0
    for row in range(3):
        expected += sum(float(a.exp() * (a - b)) for a, b in zip(p[row], q[row], strict=True)) / 3
    for found in (
        lh.patch_heads(model, trial, metric="kl", progress=False),
        lh.attribution_patch(model, trial, metric="kl", progress=False, positions="all"),
    ):
        (record,) = found.meta["trials"]
        assert record["clean"] == pytest.approx(0, abs=1e-6)
        assert record["corrupt"] == pytest.approx(-expected, abs=1e-4, rel=1e-4)


@pytest.mark.slow
def test_more_steps_come_closer_to_the_integral() -> None:
    model, trial = tiny("llama-gqa"), random_trial()
    coarse, fine = (
        lh.attribution_patch(model, trial, metric="kl", ig_steps=m, progress=False, positions="all") for m in (2, 24)
    )
    finer = lh.attribution_patch(model, trial, metric="kl", ig_steps=48, progress=False, positions="all")
    gap = float((fine.values - finer.values).abs().max())
    assert gap < float((coarse.values - finer.values).abs().max())


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"kind": "uniform"}, "kind='uniform': only 'mean' and 'zero'"),
        ({"kind": "mean"}, "kind='mean' needs a reference"),
        ({"kind": "zero", "reference": object()}, "kind='zero' takes no reference"),
        ({"kind": "zero", "metric": "kl"}, "metric='kl' compares with a corrupt run"),
        ({"kind": "zero", "metric": lambda logits, gold: logits.detach()[:, 0, 0]}, "the metric has no gradient"),
    ],
)
def test_what_does_not_fit_is_named(gqa: Any, how: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lh.attribute_ablation(gqa, random_trial(), progress=False, **how)
    assert not has_hooks(gqa)
