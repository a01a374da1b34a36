"""Spans: one for all prompts or one for each, counted from behind the padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.interventions.spans import inside, spans_of
from lens_heads.model.forward import Cache, advance, left_pad, prefill
from tests.conftest import random_trial


@pytest.mark.parametrize("kind", ["emphasise", "add", "mix"])
@torch.no_grad()
def test_each_prompt_of_a_batch_has_its_own(model: Any, kind: str) -> None:
    lengths, spans = (24, 11, 17), [(2, 6), (5, 9), (0, 3)]
    rows, heads = [random_trial(i, n, needle=(1, 4)).tokens for i, n in enumerate(lengths)], [(0, 1), (1, 2), (2, 0)]
    vectors = lh.task_vectors(model, random_trial(7)) if kind != "emphasise" else None
    expected = []
    for row, span in zip(rows, spans, strict=True):
        with lh.ablate(model, heads, kind, vectors, span=span):
            expected.append(model(row[None])[0, -1])
    tokens, pads = left_pad(rows, "cpu")
    with lh.ablate(model, heads, kind, vectors, span=spans):
        cache = Cache(model, 3)
        prefill(model, tokens[:, :-1], cache, pads, chunk=7)
        got = advance(model, tokens[:, -1:], cache, pads)[:, -1]
    torch.testing.assert_close(got, torch.stack(expected), atol=3e-5, rtol=3e-4)


def test_variants_repeat_the_spans_of_their_prompts() -> None:
    pads, places = torch.tensor([0, 2]), torch.arange(6)
    found = inside(((1, 3), (0, 2)), places, pads.repeat(2), 4)
    expected = [[1, 2], [2, 3], [1, 2], [2, 3]]
    assert [row.nonzero()[:, 0].tolist() for row in found] == expected


def test_other_numbers_of_spans_than_prompts(gqa: Any) -> None:
    with (
        lh.ablate(gqa, ["L0H0"], "emphasise", span=[(0, 2), (1, 3)]),
        pytest.raises(ValueError, match="there are 2 spans, but 1 prompts in the batch"),
    ):
        gqa(random_trial().tokens[None])


@pytest.mark.parametrize("given", [5, "ab", (3, 3), (5, 2), (-1, 2), [(0, 2), (1,)], [], (0.5, 2), None])
def test_what_is_no_span(gqa: Any, given: Any) -> None:
    with pytest.raises(ValueError, match="span"), lh.ablate(gqa, ["L0H0"], "emphasise", span=given):
        pass


def test_spellings_of_spans() -> None:
    assert spans_of("span", (2, 5)) == spans_of("span", [[2, 5]]) == spans_of("span", [torch.tensor(2), 5]) == ((2, 5),)
    assert spans_of("span", [(0, 1), (4, 9)]) == ((0, 1), (4, 9))
