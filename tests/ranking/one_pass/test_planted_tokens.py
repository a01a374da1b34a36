"""Scores of texts and of weights on models whose heads were built by hand."""

from __future__ import annotations

import torch

import lens_heads as lh
from tests.planted_tokens import INDUCTION, PREVIOUS, SUCCESSOR, induction_model, successor_model


def test_an_induction_circuit_is_found_and_nothing_else() -> None:
    model = induction_model()
    probe = lh.repeated_blocks(model, block=12, copies=3)
    found = lh.score_heads(model, probe, ["induction", "echo", "previous"], progress=False)
    for name, head in (("induction", INDUCTION), ("previous", PREVIOUS)):
        assert found[name][head] > 0.9
        others = found[name].values.clone()
        others[head.layer, head.head] = 0
        assert float(others.max()) < 0.2
    assert float(found["echo"].values.max()) < 0.2


def test_a_map_in_the_weights_is_found_and_nothing_else() -> None:
    pairs = [(token, token + 1) for token in range(20, 40)]
    model = successor_model(pairs)
    maps = {"planted": pairs, "copying": [(token, token) for token in range(20, 41)]}
    found = lh.score_heads(model, lh.token_maps(maps), progress=False)["token_map"]
    planted, copying = found.per_trial
    assert float(planted[SUCCESSOR.layer, SUCCESSOR.head]) == 1
    planted[SUCCESSOR.layer, SUCCESSOR.head] = 0
    assert float(planted.max()) < 0.3, "chance is 1 in 21"
    assert float(copying[SUCCESSOR.layer, SUCCESSOR.head]) <= 1 / 21 + 1e-6, "40 alone has no image, so no logit but 0"
    assert not planted[0].any(), "layer 0 cannot read what its own MLP writes"


def test_suppression_is_the_smallest_logit() -> None:
    pairs = [(token, token) for token in range(20, 40)]
    model = successor_model(pairs)
    block = model.blocks[SUCCESSOR.layer].attn
    with torch.no_grad():
        block.original_component.c_proj.weight.mul_(-1)
    maps = {"up": lh.ranking.TokenMap(tuple(pairs)), "down": lh.ranking.TokenMap(tuple(pairs), lowest=True)}
    up, down = lh.score_heads(model, lh.token_maps(maps), progress=False)["token_map"].per_trial
    at = SUCCESSOR.layer, SUCCESSOR.head
    assert float(down[at]) == 1
    assert float(up[at]) == 0
