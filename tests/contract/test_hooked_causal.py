"""Causal methods on a HookedTransformer, where TransformerLens still has one (3.9), against its own `run_with_hooks`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads.answering.evaluation import answer_batch
from lens_heads.answering.patch_metrics import answer_logprob
from lens_heads.interventions.replay import prefilled
from lens_heads.model.hooks import has_hooks
from lens_heads.trials.pairs import TokenPair
from tests.conftest import random_trial
from tests.contract.test_hooked_transformer import CONFIGS, HookedTransformer, build
from tests.pairs import trial_of
from tests.ranking.causal.test_patching import random_pair

pytestmark = pytest.mark.skipif(HookedTransformer is None, reason="this TransformerLens has no HookedTransformer")


@pytest.fixture(params=tuple(CONFIGS))
def hooked_model(request: pytest.FixtureRequest) -> Any:
    return build(request.param)


def metric(logits: Tensor, pair: TokenPair) -> float:
    start, end = pair.answer
    return float(answer_logprob(logits[:, start - 1 : end - 1], pair.gold)[0])


@pytest.mark.parametrize("positions", ["answer", "all"])
def test_patching_equals_one_run_with_hooks_per_head(hooked_model: Any, positions: Any) -> None:
    pair = random_pair()
    rows = slice(pair.answer[0] - 1, pair.answer[1] - 1) if positions == "answer" else slice(None)
    _, cache = hooked_model.run_with_cache(pair.clean[None])
    wanted = torch.zeros(3, 4)
    base = metric(hooked_model(pair.corrupt[None]), pair)
    for layer in range(3):
        for head in range(4):
            name = f"blocks.{layer}.attn.hook_z"

            def put(z: Tensor, hook: Any, name: str = name, head: int = head) -> Tensor:
                z[:, rows, head] = cache[name][:, rows, head]
                return z

            wanted[layer, head] = metric(hooked_model.run_with_hooks(pair.corrupt[None], fwd_hooks=[(name, put)]), pair)
    found = lh.patch_heads(hooked_model, [trial_of(pair)], positions=positions, progress=False).per_trial[0]
    torch.testing.assert_close(found, wanted - base, atol=3e-5, rtol=1e-4)
    assert not has_hooks(hooked_model)


def test_attribution_is_the_gradient_times_the_change(hooked_model: Any) -> None:
    pair = random_pair()
    names = [f"blocks.{layer}.attn.hook_z" for layer in range(3)]
    _, clean = hooked_model.run_with_cache(pair.clean[None, :-1])
    _, corrupt = hooked_model.run_with_cache(pair.corrupt[None, :-1])
    probes: dict[str, Tensor] = {}

    def probe(z: Tensor, hook: Any) -> Tensor:
        probes[hook.name] = torch.zeros_like(z, requires_grad=True)
        return z + probes[hook.name]

    logits = hooked_model.run_with_hooks(pair.corrupt[None, :-1], fwd_hooks=[(name, probe) for name in names])
    value = answer_logprob(logits[:, pair.answer[0] - 1 :], pair.gold)[0]
    gradients = torch.autograd.grad(value, [probes[name] for name in names])
    wanted = torch.stack([((clean[n] - corrupt[n]) * g)[0].sum((0, 2)) for n, g in zip(names, gradients, strict=True)])
    found = lh.attribution_patch(hooked_model, [trial_of(pair)], progress=False, positions="all").per_trial[0]
    torch.testing.assert_close(found, wanted.detach(), atol=3e-5, rtol=1e-3)


@pytest.mark.parametrize("component", ["q", "k", "v"])
def test_paths_equal_two_runs_with_hooks(hooked_model: Any, component: Any) -> None:
    pair, sender, receiver = random_pair(), (0, 2), (2, 1)
    _, base = hooked_model.run_with_cache(pair.clean[None, :-1])
    _, other = hooked_model.run_with_cache(pair.corrupt[None, :-1])
    arrived: list[Tensor] = []

    def hold(z: Tensor, hook: Any) -> Tensor:
        z = base[hook.name].clone()
        if hook.layer() == sender[0]:
            z[:, :, sender[1]] = other[hook.name][:, :, sender[1]]
        return z

    name = f"blocks.{receiver[0]}.attn.hook_{component}"
    frozen = [(f"blocks.{layer}.attn.hook_z", hold) for layer in range(3)]
    hooked_model.run_with_hooks(
        pair.clean[None, :-1], fwd_hooks=[*frozen, (name, lambda x, hook: arrived.append(x.clone()))]
    )

    def put(x: Tensor, hook: Any) -> Tensor:
        place = receiver[1] if component == "q" else receiver[1] // (4 // x.shape[2])
        x[:, :, place] = arrived[0][:, :, place]
        return x

    logits = hooked_model.run_with_hooks(pair.clean[None, :-1], fwd_hooks=[(name, put)])
    wanted = metric(hooked_model(pair.clean[None, :-1]), pair) - metric(logits, pair)
    found = lh.path_patch(hooked_model, [trial_of(pair)], [sender], [receiver], component=component, progress=False)
    assert float(found.values[sender]) == pytest.approx(wanted, abs=3e-5)


def test_replaying_and_recovery_run_on_it_too(hooked_model: Any) -> None:
    trials = [random_trial(0, n=24), random_trial(1, n=17)]
    kept = prefilled(hooked_model, trials)
    with lh.ablate(hooked_model, ["L1H1", "L2H0"], kind="zero"):
        fast = answer_batch(hooked_model, trials, 3, filled=kept, begins=[1])
        plain = answer_batch(hooked_model, trials, 3)
    for one, other in zip(fast, plain, strict=True):
        assert one.record["logprob"] == pytest.approx(other.record["logprob"], abs=1e-4)
        assert one.record["text"] == other.record["text"]
    heads = ["L1H1", "L2H0"]
    found = lh.recovery(
        hooked_model,
        trials,
        heads,
        heads,
        controls=lh.Controls(("random",), 2),
        flipped=False,
        progress=False,
        kind="zero",
    )
    mine = found.per_trial[found.per_trial["set"] == "patched"].set_index("trial")
    with lh.ablate(hooked_model, heads, kind="zero"):
        ablated = lh.evaluate(hooked_model, trials, generate=False, progress=False)
    for trial, mean in zip(trials, ablated.metrics["logprob"].tolist(), strict=True):
        assert mine.loc[trial.id, "lp_ablated"] == pytest.approx(mean * len(trial.answer_tokens), abs=1e-3)
