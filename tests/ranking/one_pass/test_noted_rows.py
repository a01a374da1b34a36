"""Rows that are noted while they run, and rows that run a second time with hooks: the same layers, to rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lens_heads.model.directions import Directions
from lens_heads.model.forward import notes_queries
from lens_heads.model.geometry import head_geometry
from lens_heads.model.modes import evaluating
from lens_heads.ranking.one_pass import batch, capture
from lens_heads.ranking.one_pass.layer_view import LayerView
from lens_heads.trials.encoded import EncodedTrial
from tests import zoo
from tests.conftest import random_trial

NOTING = ["llama-gqa", "llama-mqa", "qwen3", "gemma3", "olmo2", "olmo3"]
FIELDS = ("pattern", "values", "z", "u", "constant", "tokens", "next_tokens", "row_positions", "is_answer")


@pytest.mark.slow
def test_which_architectures_note_their_rows() -> None:
    """GPT-2 hooks z where sdpa has no module; Gemma 2 caps its scores, which sdpa cannot."""
    assert [name for name in zoo.ARCHITECTURES if notes_queries(zoo.bridge(name))] == NOTING


def layers(model: Any, trials: list[EncodedTrial], **options: Any) -> dict[tuple[Any, ...], LayerView]:
    """Every view that a scorer of any kind could see, by layer, trial, rows and reading."""
    directions = Directions(model, head_geometry(model), "exact")
    seen: dict[tuple[Any, ...], LayerView] = {}

    def see(layer: int, row: int, views: capture.Views) -> None:
        seen.update({(layer, row, *kind): view for kind, view in views.items()})

    with torch.no_grad(), evaluating(model):
        found = batch.prepared(model, trials, **options)
        capture.read_outs(model, found, {"exact": directions})
        capture.watch(model, found, {"exact": directions}, range(len(trials)), see)
    return seen


@pytest.mark.parametrize(
    "options",
    [
        {"teacher_forced": True, "max_new_tokens": 0},
        {"teacher_forced": True, "max_new_tokens": 0, "chunk": 8, "back": 7},
        {"teacher_forced": False, "max_new_tokens": 6, "back": 30, "chunk": 5},
        {"teacher_forced": False, "max_new_tokens": 0, "back": 3},
    ],
    ids=["forced", "forced, chunks", "decoded, more rows than the shortest prompt", "prompt rows only"],
)
@pytest.mark.parametrize("several", [False, True], ids=["one", "batch"])
@pytest.mark.parametrize("name", NOTING)
def test_noted_rows_are_those_that_hooks_see(
    name: str, options: dict[str, Any], several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts are longer than the sliding window; the batch is padded."""
    model = zoo.bridge(name)
    trials = [random_trial(0, 40, (20, 33)), *([random_trial(1, 17, (0, 3))] if several else [])]
    noted = layers(model, trials, **options)
    monkeypatch.setattr(batch, "notes_queries", lambda model: False)
    hooked = layers(model, trials, **options)
    assert noted.keys() == hooked.keys()
    kinds = {rows for *_, rows, _ in noted}
    assert kinds == (
        {"prompt"}
        if options["max_new_tokens"] == 0 and not options["teacher_forced"]
        else {"prompt", "generated", "answer"}
    )
    for place, view in noted.items():
        for field in FIELDS:
            mine, theirs = getattr(view, field), getattr(hooked[place], field)
            assert (mine is None) == (theirs is None), (place, field)
            if mine is not None:
                torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


def test_a_hook_on_patterns_is_obeyed(gqa: Any, trial: EncodedTrial) -> None:
    """Such a hook changes what rows attend to, which sdpa would not see: the rows run again with it."""
    with gqa.hooks(fwd_hooks=[("blocks.0.attn.hook_pattern", lambda pattern, hook: pattern * 0)]):
        assert not notes_queries(gqa)
        (view,) = [
            view
            for (layer, _, rows, _), view in layers(gqa, [trial], teacher_forced=True, max_new_tokens=0).items()
            if (layer, rows) == (0, "answer")
        ]
    assert not view.pattern.any()
    assert not view.z.any()
