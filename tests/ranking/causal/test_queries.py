"""AtP*'s query side: the directional derivative along the exact change of the pattern, which a real run provides."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.answering.patch_metrics import answer_logprob
from lens_heads.model.hooks import has_hooks
from tests import planted
from tests.conftest import random_trial


def test_it_is_the_slope_along_the_pattern_that_the_clean_queries_make(arch: str, model: Any) -> None:
    trial, step = random_trial(), 2e-2
    found = lh.ranking.attribute_queries(model, trial, progress=False)
    rows = slice(len(trial.tokens) - 1, None)
    corrupt = trial.tokens.clone()
    corrupt[7:11] = model.tokenizer(".", add_special_tokens=False).input_ids[0]
    clean, broken = (torch.cat([tokens, trial.answer_tokens[:-1]])[None] for tokens in (trial.tokens, corrupt))
    for layer, head in ((0, 1), (1, 0), (2, 3)):
        query, pattern = f"blocks.{layer}.attn.q.hook_out", f"blocks.{layer}.attn.hook_pattern"
        query = query if query in model.hook_dict and arch != "gpt2" else f"blocks.{layer}.attn.hook_q"
        seen: dict[str, torch.Tensor] = {}
        with torch.no_grad():
            model.run_with_hooks(clean, fwd_hooks=[(query, lambda x, hook, seen=seen: seen.update(q=x.clone()))])
            for name, hooks in (
                ("before", []),
                ("after", [(query, lambda x, hook, seen=seen: seen["q"].reshape(x.shape))]),
            ):
                keep = (pattern, lambda x, hook, name=name, seen=seen: seen.update({name: x.clone()}))
                model.run_with_hooks(broken, fwd_hooks=[*hooks, keep])
            change = torch.zeros_like(seen["before"])
            change[:, head] = (seen["after"] - seen["before"])[:, head]
            values = []
            for e in (step, -step):
                move = (pattern, lambda x, hook, e=e, change=change: x + e * change)
                logits = model.run_with_hooks(broken, fwd_hooks=[move])[:, rows]
                values.append(float(answer_logprob(logits.double(), trial.answer_tokens)[0]))
        slope = (values[0] - values[1]) / (2 * step)
        assert float(found.values[layer, head]) == pytest.approx(slope, abs=2e-3, rel=3e-2), (layer, head)
    assert not has_hooks(model)


def test_queries_that_do_not_change_have_no_effect() -> None:
    """The planted heads ask from the last token alone, which both prompts share."""
    found = lh.ranking.attribute_queries(planted.model(), planted.trials(3), progress=False)
    assert float(found.values[0].abs().max()) < 1e-5
