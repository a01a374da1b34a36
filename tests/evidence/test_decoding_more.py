"""Decoding with some heads more, or against the model without them: equal to plain loops, better on a planted model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.evidence.contrast import contrasted
from lens_heads.evidence.reinforce import reinforced_heads
from lens_heads.heads.head import Head
from lens_heads.model.geometry import head_geometry, output_weights
from lens_heads.model.hooks import has_hooks, hooked
from lens_heads.trials.context_pairs import ContextPair
from tests import planted
from tests.conftest import random_trial

QUIET: dict[str, Any] = {"progress": False, "max_new_tokens": 4}
HEADS = ["L0H1", "L2H3"]


def test_the_formula_of_contrast() -> None:
    one, other = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0)).unbind()
    p, q = one.softmax(-1), other.softmax(-1)
    torch.testing.assert_close(contrasted(one, other, 0.5, None), 1.5 * p.log() - 0.5 * q.log())
    entropy = -(p * p.log()).sum(-1, keepdim=True)
    torch.testing.assert_close(contrasted(one, other, None, None), (1 + entropy) * p.log() - entropy * q.log())
    capped = entropy.clamp(max=1.0)
    torch.testing.assert_close(contrasted(one, other, None, 1.0), (1 + capped) * p.log() - capped * q.log())


@torch.no_grad()
def test_contrast_equals_full_forwards_token_by_token(model: Any) -> None:
    """The prompt's rows are intact; heads are ablated from its last token on."""
    trial = random_trial(n=20)
    found = lh.contrast(model, trial, HEADS, alpha=0.7, **QUIET, kind="zero")
    tokens, n = trial.tokens, len(trial)

    def both(tokens: Any) -> Any:
        whole = model(tokens[None])[0]

        def late(layer: int, head: int) -> Any:
            def zero(z: Any, hook: Any) -> Any:
                split = z.clone().reshape(*z.shape[:2], head_geometry(model).n_heads, -1)
                split[:, n - 1 :, head] = 0
                return split.reshape(z.shape)

            return (f"blocks.{layer}.attn.hook_z", zero)

        with hooked(model, [late(0, 1), late(2, 3)]):
            ablated = model(tokens[None])[0]
        return contrasted(whole, ablated, 0.7, None)

    forced = both(torch.cat([tokens, trial.answer_tokens[:-1]]))[n - 1 :].log_softmax(-1)
    expected = forced[range(len(forced)), trial.answer_tokens].mean()
    torch.testing.assert_close(found.metrics["logprob"][0], expected, atol=1e-4, rtol=1e-4)
    steps: list[int] = []
    for _ in range(4):
        steps.append(int(both(torch.cat([tokens, torch.tensor(steps, dtype=torch.long)]))[-1].argmax()))
    text = model.tokenizer.decode(steps).split("\n")[0]
    assert found.texts[0] == text or text.startswith(found.texts[0])
    assert not has_hooks(model)


def test_no_contrast_is_plain_decoding(gqa: Any) -> None:
    trials = [random_trial(seed, 20) for seed in range(2)]
    plain, none = lh.evaluate(gqa, trials, **QUIET), lh.contrast(gqa, trials, HEADS, alpha=0.0, **QUIET, kind="zero")
    assert none.texts == plain.texts
    torch.testing.assert_close(none.metrics["logprob"], plain.metrics["logprob"], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_contrast_helps_a_planted_model(tmp_path: Any) -> None:
    model, trials = planted.model(), planted.trials(8)
    plain = lh.evaluate(model, trials, **QUIET)
    how: dict[str, Any] = {"out": tmp_path / "run", **QUIET}
    found = lh.contrast(model, trials, [planted.COPIER, planted.WRITER], **{"kind": "zero", **how})
    assert found.mean("logprob") > plain.mean("logprob")
    worse = lh.contrast(model, trials, [planted.SUPPRESSOR], **QUIET, kind="zero")
    assert worse.mean("logprob") < found.mean("logprob")
    assert lh.contrast(model, trials, [planted.COPIER, planted.WRITER], **{"kind": "zero", **how}).frame.equals(
        found.frame
    )
    with pytest.raises(ValueError, match="alpha=-1"):
        lh.contrast(model, trials, [planted.COPIER], alpha=-1, **QUIET, kind="zero")


@torch.no_grad()
def test_reinforced_heads_equal_a_plain_loop(model: Any) -> None:
    """Layer by layer: each layer is chosen with those below already scaled at the last row."""
    trial, shape = random_trial(n=24), head_geometry(model)
    both = ContextPair(trial.tokens, torch.cat([trial.tokens[:19], trial.tokens[21:]]), trial.answer_tokens, "x")
    found = reinforced_heads(model, both, factor=3.0)
    z = [f"blocks.{layer}.attn.hook_z" for layer in range(shape.n_layers)]

    def last(tokens: Any, scaled: list[Head]) -> list[Any]:
        seen: list[Any] = []

        def look(layer: int) -> Any:
            def hook(x: Any, hook: Any) -> Any:
                split = x.clone().reshape(*x.shape[:2], shape.n_heads, -1)
                seen.append(split[0, -1].float().clone())
                for head in scaled:
                    if head.layer == layer:
                        split[:, -1, head.head] *= 3
                return split.reshape(x.shape)

            return hook

        with hooked(model, [(name, look(layer)) for layer, name in enumerate(z)]):
            model(tokens[None])
        return [torch.einsum("he,hed->hd", row, output_weights(model, layer)) for layer, row in enumerate(seen)]

    bare, chosen = last(both.without, []), list[Head]()
    for layer in range(shape.n_layers):
        with_ = last(both.tokens, chosen)[layer]
        apart, idle = (with_ - bare[layer]).norm(dim=-1), bare[layer].norm(dim=-1)
        cut = idle.mean() + ((idle - idle.mean()) ** 2).mean().sqrt()
        chosen += [
            Head(layer, head) for head in range(shape.n_heads) if apart[head] > apart.median() and idle[head] <= cut
        ]
    assert found == chosen
    assert found
    assert not has_hooks(model)


@pytest.mark.slow
def test_reinforcement_helps_a_planted_model(tmp_path: Any) -> None:
    model, trials = planted.model(), planted.trials(6)
    plain = lh.evaluate(model, trials, **QUIET)
    once = lh.reinforce(model, trials, factor=1.0, **QUIET)
    torch.testing.assert_close(once.metrics["logprob"], plain.metrics["logprob"], atol=1e-5, rtol=1e-5)
    assert once.texts == plain.texts
    found = lh.reinforce(model, trials, factor=2.0, out=tmp_path / "run", **QUIET)
    assert found.mean("logprob") > plain.mean("logprob")
    with pytest.raises(ValueError, match="has no needle"):
        lh.reinforce(
            model,
            [random_trial(needle=(7, 11)).__class__(torch.tensor([1, 2, 3]), None, "x", torch.tensor([4]), "a")],
            **QUIET,
        )
