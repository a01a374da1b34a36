"""check: everything holds on every architecture, and each statement notices when it does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.model.check import CheckReport
from lens_heads.model.forward import Cache, notes_queries
from lens_heads.model.geometry import _centered
from lens_heads.model.hooks import has_hooks, hooked
from lens_heads.model.noted_queries import NotedQueries
from tests import zoo
from tests.conftest import tiny


def failed(report: CheckReport) -> list[str]:
    return [check.name for check in report.checks if not check.passed]


def test_everything_holds_on_every_architecture(model: Any) -> None:
    report = lh.check_model(model)
    assert report.passed, report.frame.to_string()
    assert len(report.checks) == 15 + notes_queries(model)
    assert not has_hooks(model)


def test_a_bfloat16_model_holds_within_its_own_tolerance() -> None:
    report = lh.check_model(zoo.bridge("llama-gqa", dtype=torch.bfloat16))
    assert report.passed, report.frame.to_string()
    assert {check.tolerance for check in report.checks if check.tolerance} == {0.05}


@pytest.mark.parametrize(
    ("hook", "edit", "name"),
    [
        ("attn.hook_pattern", lambda x: x * 1.01, "patterns sum to one"),
        ("attn.hook_pattern", lambda x: x.flip(-1), "patterns are causal and inside the window"),
        ("hook_attn_out", lambda x: x * 1.05, "head writes sum to the attention output"),
        ("hook_resid_post", lambda x: x + 1.0, "attention and MLP outputs sum to the residual stream"),
    ],
)
def test_a_broken_model_is_noticed(hook: str, edit: Any, name: str) -> None:
    """What the check sees is changed behind the model's back: a hook added before shows it something else."""
    model = zoo.bridge("llama-gqa")

    def change(x: torch.Tensor, hook: Any) -> torch.Tensor:
        return edit(x)

    with hooked(model, [(f"blocks.1.{hook}", change)]):
        assert name in failed(lh.check_model(model))


def test_values_that_are_not_the_ones_read_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that explains any z would hide them, but it would not survive an edit of the pattern."""
    whole = Cache.values
    monkeypatch.setattr(Cache, "values", lambda self, layer: whole(self, layer).roll(1, dims=-1))
    assert "z = pattern @ v of the head's kv group" in failed(lh.check_model(tiny("llama-gqa")))


def test_a_wrong_read_out_does_not_close(monkeypatch: pytest.MonkeyPatch) -> None:
    from lens_heads.model.directions import Directions

    exact = Directions.unembedding
    monkeypatch.setattr(Directions, "unembedding", lambda self, *args: 1.01 * exact(self, *args))
    assert failed(lh.check_model(tiny("gemma3"))) == [
        "the last norm and the unembedding give the logits",
        "contributions close on the logit",
    ]


def test_patterns_of_noted_queries_that_are_not_the_model_s_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a model's attention did more than scale and mask."""
    whole = NotedQueries.pattern
    monkeypatch.setattr(NotedQueries, "pattern", lambda self, layer: whole(self, layer).roll(1, -1))
    assert failed(lh.check_model(tiny("gemma3"))) == ["patterns follow from queries noted under sdpa"]


def test_processed_weights_are_refused() -> None:
    from transformer_lens.model_bridge import TransformerBridge

    model = TransformerBridge.boot_transformers(
        "x", hf_model=zoo.hf_model("gpt2"), tokenizer=zoo.tokenizer(), device="cpu"
    )
    model.enable_compatibility_mode(disable_warnings=True)
    with pytest.raises(ValueError, match="processed weights"):
        lh.check_model(model)


def test_the_check_runs_without_dropout_and_restores_training() -> None:
    model = zoo.bridge("gpt2", hf=zoo.hf_model("gpt2", resid_pdrop=0.5, embd_pdrop=0.5)).train()
    report = lh.check_model(model)
    assert report.passed, report.frame.to_string()
    assert model.training
    assert model.original_model.training


def test_rows_of_zeros_neither_hide_centered_weights_nor_look_like_them() -> None:
    """As those of a pruned head."""
    weights = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    centered = weights - weights.mean(-1, keepdim=True)
    for some, expected in ((weights, False), (centered, True)):
        pruned = some.clone()
        pruned[0] = 0
        assert _centered(some) == _centered(pruned) == expected
    assert not _centered(torch.zeros(4, 64))
