"""Signatures against a plain cached forward, and words found at the same places by any tokenizer."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from lens_heads.compare import head_signatures, linear_cka
from lens_heads.compare.cka import cka_of, norms, products
from lens_heads.compare.signatures import STATISTICS, SignatureReading, pattern_statistics, readings
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking import common_texts
from tests import zoo
from tests.compare.permuted import TEXTS
from tests.conftest import tiny


def merging() -> Any:
    """A tokenizer unlike the zoo's: it puts a BOS before a text and merges letters, also with the space before them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("a", "b"), ("Ġ", "ab"), ("Ã", "©")]
    vocabulary = ["<pad>", "<bos>", "<eos>", *alphabet, *(x + y for x, y in merges)]
    raw = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, merges))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    raw.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    raw.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])  # type: ignore[assignment]
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>")


MERGING = merging()


class Reader:
    """A model as far as reading texts is concerned."""

    def __init__(self, tokenizer: Any) -> None:
        model = tiny("llama-gqa")
        self.tokenizer, self.cfg, self.blocks = tokenizer, model.cfg, model.blocks
        self.original_model, self.adapter = model.original_model, model.adapter
        self.ln_final = model.ln_final


def read(tokenizer: Any, text: str) -> SignatureReading:
    return readings(Reader(tokenizer), [text, text])[0]


def test_words_end_where_their_last_token_stands() -> None:
    text = "the abc the b"
    assert read(MERGING, text).words == [1, 3, 4, 6]  # <bos> the| ab c| the| _ b|, spaces merged where they can be
    assert read(zoo.tokenizer(), text).words == [2, 6, 10, 12]  # A token per character, no BOS.
    one = read(MERGING, text)
    assert (one.start, one.length) == (1, 6)
    assert one.tokens.tolist() == MERGING(text).input_ids + MERGING(text).input_ids[1:]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("theabcé", min_size=1, max_size=7), min_size=4, max_size=12), st.sampled_from([" ", "\n", "  "])
)
def test_a_word_has_been_read_up_to_its_end_and_no_further(words: list[str], gap: str) -> None:
    text = gap.join(words)
    ends = [found.end() for found in re.finditer(r"\S+", text)]
    for tokenizer in (zoo.tokenizer(), MERGING):
        found = read(tokenizer, text)
        for end, row in zip(ends, found.words, strict=True):
            assert (
                tokenizer.decode(found.tokens[found.start : row + 1], clean_up_tokenization_spaces=False) == text[:end]
            )
        assert found.tokens[found.start : found.start + found.length].tolist() == found.tokens[-found.length :].tolist()


def test_patterns_and_activations_are_those_of_a_plain_forward(arch: str, model: Any) -> None:
    found = head_signatures(model, TEXTS[:3], progress=False)
    shape = head_geometry(model)
    assert not has_hooks(model)
    for number, text in enumerate(TEXTS[:3]):
        one = readings(model, [text, text])[0]
        with torch.no_grad():
            _, cache = model.run_with_cache(one.tokens[None])
        written = []
        for layer in range(shape.n_layers):
            pattern, z = cache[f"blocks.{layer}.attn.hook_pattern"][0], cache[f"blocks.{layer}.attn.hook_z"][0]
            expected = pattern_statistics(pattern.float(), one.start, one.length)
            torch.testing.assert_close(found.patterns[number, layer], expected, atol=1e-4, rtol=1e-4)
            written.append(z.reshape(len(z), shape.n_heads, shape.d_head)[one.words])
        expected = linear_cka(torch.cat(written, 1), torch.cat(written, 1))
        grams = found.grams[number]
        got = cka_of(products(grams, grams), norms(grams), norms(grams))
        torch.testing.assert_close(got, expected, atol=1e-3, rtol=0)


def test_the_frame_has_every_head_with_the_mean_over_texts() -> None:
    found = head_signatures(tiny("llama-gqa"), TEXTS[:2], progress=False)
    frame = found.frame
    assert frame.columns.tolist() == ["layer", "head", "name", "depth", *STATISTICS]
    row = frame[frame["name"] == "L1H2"].iloc[0]
    assert (row["layer"], row["head"], row["depth"]) == (1, 2, 0.5)
    assert row["entropy"] == pytest.approx(float(found.patterns[:, 1, 2, 0].mean()), rel=1e-5)
    assert frame["depth"].tolist() == [0.0] * 4 + [0.5] * 4 + [1.0] * 4


def test_common_texts_are_distinct_paragraphs_and_the_same_every_time() -> None:
    texts = common_texts(n=20)
    assert len(set(texts)) == 20
    assert min(len(text.split()) for text in texts) >= 50
    assert texts == common_texts(n=20)
    assert texts[:5] != common_texts(n=5, seed=1)


def test_texts_that_cannot_be_compared_are_refused_before_anything_runs() -> None:
    model = tiny("llama-gqa")
    ran: list[Any] = []
    handle = model.original_model.register_forward_pre_hook(lambda *_: ran.append(1))
    for texts, message in (
        ([], "0 texts: at least 2"),
        (TEXTS[:1], "1 texts: at least 2"),
        ([TEXTS[0], ""], "text 1 has 0 words"),
        ([TEXTS[0], "only three words"], "text 1 has 3 words in 16 tokens, but needs at least 4 of each"),
        (
            [TEXTS[0], "word " * 100],
            r"text 1 has 500 tokens and is read twice, but the context of .* is 512\. .* at most 255 tokens",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            head_signatures(model, texts, progress=False)
    for wrong in ("one long text here", [1, 2]):
        with pytest.raises(TypeError, match=re.escape(f"texts={wrong!r}: must be a list of texts")):
            head_signatures(model, wrong, progress=False)  # type: ignore[arg-type]  # on purpose
    handle.remove()
    assert not ran
    with pytest.raises(ValueError, match=r"has no character offsets\. Load its fast version"):
        readings(Reader(object()), TEXTS)
    with pytest.raises(TypeError, match="is not a TransformerLens model"):
        head_signatures(torch.nn.Linear(1, 1), TEXTS)
