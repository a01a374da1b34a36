"""What hooks are told of the running forward: the announced pass, or what cache and mask say, and never an older one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lens_heads.model import passes
from lens_heads.model.forward import Cache, advance, prefill
from lens_heads.model.passes import Pass, following
from tests import zoo
from tests.conftest import random_trial

TOKENS = torch.stack([random_trial(i, n=12).tokens for i in range(2)])
PADS = torch.tensor([0, 3])


@pytest.fixture(scope="module", params=["gpt2", "llama-gqa"])
def model(request: Any) -> Any:
    return zoo.bridge(request.param, n_ctx=64)


def filled(model: Any, rows: int) -> Cache:
    cache = Cache(model, 2)
    prefill(model, TOKENS[:, :rows], cache, PADS)
    return cache


def test_advance_announces_offset_padding_variants_and_parts(model: Any) -> None:
    cache, needles = filled(model, 4), torch.tensor([[1, 3]])
    cache.assign(2, 1, {"needle": needles})
    with following(model) as running:
        advance(model, TOKENS[:, 4:6], cache, PADS)
    assert running.now.offset == 4
    assert running.now.pads is not None
    assert running.now.variants is not None
    assert running.now.pads.tolist() == PADS.tolist()
    assert running.now.variants.tolist() == [0, 1]
    assert running.now.named["needle"].tolist() == [[1, 3], [1, 3]]


def test_a_forward_of_the_users_own_is_known_by_its_cache_and_mask(model: Any) -> None:
    """The pass read from a call is the one that `advance` would have announced, but for variants and parts."""
    cache = filled(model, 4)
    mask = (torch.arange(6) >= PADS[:, None]).long()
    with following(model) as running:
        model(TOKENS[:, 4:6], past_key_values=cache.store, attention_mask=mask)
    assert (running.now.offset, running.now.variants, running.now.named) == (4, None, {})
    assert running.now.pads is not None
    assert running.now.pads.tolist() == PADS.tolist()


def test_a_forward_without_a_cache_begins_at_the_first_position(model: Any) -> None:
    with following(model) as running:
        advance(model, TOKENS[:, 4:6], filled(model, 4), PADS)
        model(TOKENS)
    assert (running.now.offset, running.now.variants) == (0, None)


def test_a_pass_that_an_interrupt_left_is_not_that_of_another_forward(model: Any) -> None:
    left = Pass(40, None, torch.zeros(2, dtype=torch.long))
    token = passes._ANNOUNCED.set((Cache(model, 2).store, left))
    try:
        with following(model) as running:
            model(TOKENS)
        assert running.now is not left
        with following(model) as running:
            advance(model, TOKENS[:, 4:6], filled(model, 4), PADS)
        assert running.now is not left
        assert running.now.offset == 4
    finally:
        passes._ANNOUNCED.reset(token)


def test_nothing_is_set_on_the_librarys_cache(model: Any) -> None:
    cache = filled(model, 4)
    cache.assign(2, 1, {"needle": torch.tensor([[1, 3]])})
    advance(model, TOKENS[:, 4:6], cache, PADS)
    assert vars(cache.store).keys() == vars(Cache(model, 2).store).keys()
    assert not {"variants", "named"} & vars(cache.store).keys()
