"""Attribution patching: TransformerLens's numbers, a finite difference, and integrated gradients that close."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformer_lens.tools.analysis.attribution_patching import attribution_patch as of_transformer_lens

import lens_heads as lh
from lens_heads.answering.patch_metrics import answer_logprob
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks, hooked
from lens_heads.trials.pairs import TokenPair
from tests import handmade, planted, zoo
from tests.conftest import tiny
from tests.pairs import trial_of
from tests.ranking.causal import byhand
from tests.ranking.causal.test_patching import random_pair


def scores(model: Any, pair: TokenPair, **options: Any) -> Tensor:
    return lh.attribution_patch(model, [trial_of(pair)], progress=False, **{"positions": "all", **options}).per_trial[0]


def by_autograd(arch: str, pair: TokenPair, base: Tensor, positions: str) -> Tensor:
    """(z_clean - z_corrupt) . d metric / d z on the plain Hugging Face model, the gradient taken in the run on `base`."""
    hf = zoo.hf_model(arch)
    clean, corrupt = byhand.read_z(hf, pair.clean), byhand.read_z(hf, pair.corrupt)
    start, end = pair.answer
    leaves = [torch.zeros_like(z[None], requires_grad=True) for z in clean]
    handles = [
        handmade.out_projection(attention).register_forward_pre_hook(
            lambda module, args, leaf=leaf: (args[0] + leaf, *args[1:])
        )
        for attention, leaf in zip(handmade.attentions(hf), leaves, strict=True)
    ]
    logprobs = hf(base[None]).logits[0].log_softmax(-1)
    metric = torch.stack([logprobs[start - 1 + i, token] for i, token in enumerate(pair.gold.tolist())]).mean()
    gradients = torch.autograd.grad(metric, leaves)
    for handle in handles:
        handle.remove()
    scores = torch.zeros(len(clean), hf.config.num_attention_heads)
    rows = range(start - 1, end - 1) if positions == "answer" else range(end - 1)
    for layer in range(len(clean)):
        for head in range(scores.shape[1]):
            for row in rows:
                at = byhand.columns(hf, head)
                scores[layer, head] += (clean[layer] - corrupt[layer])[row, at] @ gradients[layer][0, row, at]
    return scores


@pytest.mark.parametrize("positions", ["answer", "all"])
def test_it_is_the_directional_derivative_of_the_metric(arch: str, model: Any, positions: Any) -> None:
    pair = random_pair()
    wanted = by_autograd(arch, pair, pair.corrupt, positions)
    assert wanted.abs().max() > 1e-2
    torch.testing.assert_close(scores(model, pair, positions=positions), wanted, atol=1e-4, rtol=1e-3)


def test_it_is_what_transformer_lens_gives_summed_over_positions(model: Any) -> None:
    pair, shape = random_pair(), head_geometry(model)
    rows = slice(pair.answer[0] - 1, pair.answer[1] - 1)
    theirs = of_transformer_lens(
        model,
        pair.clean[None, :-1],
        pair.corrupt[None, :-1],
        lambda logits: answer_logprob(logits[:, rows].float(), pair.gold)[0],
    )
    wanted = torch.zeros(shape.n_layers, shape.n_heads)
    for node, score in theirs.node_scores.items():
        if node.kind == "attn_head_out":
            wanted[node.layer, node.head] += score
    torch.testing.assert_close(scores(model, pair), wanted, atol=1e-5, rtol=1e-4)


def test_integrated_gradients_average_over_the_way_from_corrupt_to_clean(gqa: Any) -> None:
    """One step is the clean end alone; two are the mean of the middle and the end."""
    pair = random_pair()
    at_clean = by_autograd("llama-gqa", pair, pair.clean, "all")
    embed = gqa.embed(torch.stack([pair.corrupt, pair.clean])[:, :-1]).detach()
    middle = [("hook_embed", lambda x, hook: embed.mean(0, keepdim=True))]
    found = scores(gqa, pair, ig_steps=2)
    grads: dict[int, Tensor] = {}
    z = [byhand.read_z(zoo.hf_model("llama-gqa"), tokens) for tokens in (pair.clean, pair.corrupt)]

    def probe(layer: int) -> Any:
        def add(x: Tensor, hook: Any) -> Tensor:
            grads[layer] = torch.zeros_like(x, requires_grad=True)
            return x + grads[layer]

        return add

    hooks = [(f"blocks.{layer}.attn.hook_z", probe(layer)) for layer in range(3)]
    rows = slice(pair.answer[0] - 1, pair.answer[1] - 1)
    with hooked(gqa, middle + hooks):
        metric = answer_logprob(gqa(pair.corrupt[None, :-1])[:, rows], pair.gold)[0]
    at_middle = torch.zeros(3, 4)
    for layer, gradient in enumerate(torch.autograd.grad(metric, list(grads.values()))):
        change = (z[0][layer] - z[1][layer])[:-1].reshape(gradient[0].shape)
        at_middle[layer] = (change * gradient[0]).sum((0, 2))
    torch.testing.assert_close(found, (at_middle + at_clean) / 2, atol=2e-4, rtol=1e-3)


def test_it_works_on_frozen_parameters_and_leaves_no_gradient(gqa: Any) -> None:
    pair = random_pair()
    wanted = scores(gqa, pair)
    assert all(parameter.grad is None for parameter in gqa.original_model.parameters())
    fresh = zoo.bridge("llama-gqa").requires_grad_(False)
    assert torch.equal(scores(fresh, pair), wanted)


def test_it_finds_the_planted_heads() -> None:
    found = lh.attribution_patch(planted.model(), planted.trials(4), progress=False, positions="all")
    assert set(found.top(2)) == {planted.COPIER, planted.WRITER}
    assert found.bottom(1) == [planted.SUPPRESSOR]
    assert found.method == "attribution"
    steps = lh.attribution_patch(planted.model(), planted.trials(4), ig_steps=3, progress=False, positions="all")
    assert (steps.method, set(steps.top(2))) == ("eap_ig", {planted.COPIER, planted.WRITER})


def test_clean_into_clean_is_nothing(gqa: Any) -> None:
    pair = random_pair()
    assert scores(gqa, TokenPair(pair.clean, pair.clean, pair.answer, "same")).abs().max() == 0


def test_logit_difference_uses_the_corrupt_favourite(gqa: Any) -> None:
    pair = random_pair(4)
    row = pair.answer[0] - 1
    favourite = int(handmade.logits(zoo.hf_model("llama-gqa"), pair.corrupt)[row].argmax())

    def difference(logits: Tensor, gold: Tensor) -> Tensor:
        return logits[:, 0, int(gold[0])] - logits[:, 0, favourite]

    named = scores(gqa, pair, metric="first_token_logit_diff")
    torch.testing.assert_close(named, scores(gqa, pair, metric=difference))


def test_bad_input_is_refused_and_leaves_no_hook() -> None:
    model = tiny("llama-gqa")
    with pytest.raises(ValueError, match="ig_steps=0: must be a positive integer"):
        lh.attribution_patch(model, [trial_of(random_pair())], ig_steps=0, progress=False, positions="all")
    with pytest.raises(ValueError, match=r"pair random-1: the metric has no gradient\. Compute it"):
        lh.attribution_patch(
            model,
            [trial_of(random_pair())],
            metric=lambda logits, gold: logits.detach()[:, 0, 0],
            progress=False,
            positions="all",
        )
    with pytest.raises(ValueError, match="the metric is nan"):
        lh.attribution_patch(
            model,
            [trial_of(random_pair())],
            metric=lambda x, gold: x[:, 0, 0] * torch.nan,
            progress=False,
            positions="all",
        )
    assert not has_hooks(model)
