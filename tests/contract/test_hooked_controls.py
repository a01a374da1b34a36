"""Models as controls on a HookedTransformer: untrained, or with exchanged output weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.model import copies
from lens_heads.model.geometry import head_geometry, output_weights
from lens_heads.model.hooks import has_hooks, hooked
from lens_heads.model.identity import fingerprint, identify
from tests.conftest import random_trial
from tests.contract.test_hooked_transformer import CONFIGS, HookedTransformer, build

pytestmark = pytest.mark.skipif(HookedTransformer is None, reason="this TransformerLens has no HookedTransformer")
TOKENS = random_trial().tokens[None]
CONTROLS = (lh.sanity.random_initialised, lh.sanity.shuffled_outputs)


@pytest.fixture(params=CONFIGS)
def hooked_model(request: pytest.FixtureRequest) -> Any:
    return build(request.param)


@pytest.mark.parametrize("control", CONTROLS)
def test_a_new_model_of_the_same_shape_and_the_original_stays(hooked_model: Any, control: Any) -> None:
    before, state = identify(hooked_model), torch.get_rng_state()
    one, again, other = (control(hooked_model, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert identify(hooked_model) == before
    assert identify(one) == identify(again)
    assert len({fingerprint(one), fingerprint(other), before.weights}) == 3
    assert replace(head_geometry(one), name="") == replace(head_geometry(hooked_model), name="")
    assert head_geometry(one).name.startswith(f"{head_geometry(hooked_model).name} ")
    assert head_geometry(one).name.endswith("seed 1")
    assert one.tokenizer.get_vocab() == hooked_model.tokenizer.get_vocab()
    assert type(one) is HookedTransformer
    assert not one.training
    with torch.no_grad():
        assert torch.isfinite(one(TOKENS)).all()


def test_random_weights_are_those_of_init_weights(hooked_model: Any) -> None:
    made = lh.sanity.random_initialised(hooked_model, seed=3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        again = type(hooked_model)(made.cfg, tokenizer=hooked_model.tokenizer)
    for (name, mine), (_, theirs) in zip(made.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(mine, theirs), name
        if "W_" in name:
            assert float(mine.detach().std()) == pytest.approx(hooked_model.cfg.initializer_range, rel=0.3)


def test_outputs_are_the_originals_in_another_order(hooked_model: Any) -> None:
    made, shape = lh.sanity.shuffled_outputs(hooked_model), head_geometry(hooked_model)
    for layer in range(shape.n_layers):
        old, new = output_weights(hooked_model, layer), output_weights(made, layer)
        order = [[torch.equal(mine, one) for one in old].index(True) for mine in new]
        assert sorted(order) == list(range(shape.n_heads))
        assert all(head != other for head, other in enumerate(order))
    mine, theirs = dict(made.named_parameters()), dict(hooked_model.named_parameters())
    changed = {name for name in theirs if not torch.equal(mine[name], theirs[name])}
    assert changed == {f"blocks.{layer}.attn.W_O" for layer in range(shape.n_layers)}
    report = lh.check_model(made)
    assert report.passed, report.frame.to_string()


def test_a_copy_has_the_weights_and_no_hooks() -> None:
    model = build("gpt2")
    with hooked(model, [("blocks.0.attn.hook_z", lambda z, hook: z * 0)]):
        made = copies.copied(model, "copy")
    assert not has_hooks(made)
    assert fingerprint(made) == fingerprint(model)
    with torch.no_grad():
        assert torch.equal(made(TOKENS), model(TOKENS))
