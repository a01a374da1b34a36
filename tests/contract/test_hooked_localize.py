"""Masked runs on a HookedTransformer, where TransformerLens still has one (3.9), against its own `run_with_hooks`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.masks.designs import draw_masks
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.trials.encoded import EncodedTrial
from tests.conftest import random_trial
from tests.contract.test_hooked_transformer import CONFIGS, HookedTransformer, build

pytestmark = pytest.mark.skipif(HookedTransformer is None, reason="this TransformerLens has no HookedTransformer")


def few_shot() -> list[EncodedTrial]:
    """Prompts of two lengths that share their first 20 tokens, with two choices each."""
    shots, made = random_trial(99, n=20).tokens, []
    for i, length in enumerate((8, 11, 8)):
        trial = random_trial(i, n=length, needle=(0, 1), answer=1)
        choices = (trial.answer_tokens, torch.tensor([5, 6]))
        tokens = torch.cat([shots, trial.tokens])
        made.append(replace(trial, tokens=tokens, needle=None, choices=("x", "y"), choice_tokens=choices))
    return made


def by_hand(model: Any, trial: EncodedTrial, mask: np.ndarray) -> float:
    """Log of the first choice's share, from one full forward per choice with the mask's heads at zero."""

    def zero(z: Tensor, hook: Any, at: np.ndarray) -> Tensor:
        z[:, :, torch.from_numpy(at)] = 0
        return z

    hooks = [
        (f"blocks.{layer}.attn.hook_z", lambda z, hook, at=row: zero(z, hook, at)) for layer, row in enumerate(mask)
    ]
    totals = []
    for tokens in trial.choice_tokens:
        logits = model.run_with_hooks(torch.cat([trial.tokens, tokens])[None], fwd_hooks=hooks)[0].log_softmax(-1)
        rows = logits[len(trial) - 1 : len(trial) - 1 + len(tokens)]
        totals.append(rows.gather(-1, tokens[:, None]).sum())
    return float(torch.stack(totals).log_softmax(0)[0])


@pytest.mark.parametrize("name", tuple(CONFIGS))
def test_masked_runs_equal_run_with_hooks(name: str) -> None:
    model, trials = build(name), few_shot()
    measured = MaskedMetric(model, trials, metric="choice_logprob", progress=False)
    masks = np.concatenate([np.zeros((1, 3, 4), dtype=bool), draw_masks("stratified", 4, 3, 4, 0.2)])
    found = measured(masks)
    with torch.no_grad():
        wanted = [[by_hand(model, trial, mask) for trial in trials] for mask in masks]
    np.testing.assert_allclose(found, wanted, atol=1e-4, rtol=1e-4)
    assert measured.share_run < 0.7, "what the prompts share is run once for all of them"
    assert not has_hooks(model)
