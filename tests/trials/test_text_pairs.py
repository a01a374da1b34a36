"""Pairs from texts: the model's own tokens, aligned, and everything that would give a wrong map refused in a sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.model.geometry import head_geometry
from lens_heads.trials.pairs import TokenPair, make_pairs, pairs_digest
from tests import zoo
from tests.conftest import tiny
from tests.trials import sentencepiece

CLEAN, CORRUPT = "Anna and Tom met. Tom gave it to", "Anna and Tom met. Eve gave it to"


@pytest.mark.parametrize(
    ("tokenizer", "texts"),
    [
        (zoo.tokenizer(), (CLEAN, CORRUPT, "\tAnna", "\nTom")),
        (sentencepiece.fast(True), ("Anna lives in", "Tom lives in", "Oslo", "Bergen")),
        (sentencepiece.slow(), ("Anna lives in", "Tom lives in", "Oslo", "Bergen")),
    ],
    ids=["bytes", "prepend", "slow"],
)
def test_both_sides_are_the_models_own_tokens_and_the_answer(tokenizer: Any, texts: tuple[str, ...]) -> None:
    clean, corrupt, answer, wrong = texts
    pair = TokenPair.of(lh.pair(tokenizer, clean, corrupt, answer, wrong=wrong, id="p"))
    start, end = pair.answer
    assert pair.clean[:start].tolist() == tokenizer(clean).input_ids
    assert pair.corrupt[:start].tolist() == tokenizer(corrupt).input_ids
    assert end == len(pair)
    spaced = answer if answer[0].isspace() else " " + answer
    assert tokenizer.decode(pair.clean.tolist(), skip_special_tokens=True) == clean + spaced
    assert pair.wrong is not None
    assert int(pair.wrong[0]) != int(pair.gold[0])


def test_a_wrong_answer_is_what_the_difference_compares_with() -> None:
    model = tiny("llama-gqa")
    trial = lh.pair(model, CLEAN + ":", CORRUPT + ":", "\tAnna", wrong="\nTom")
    pair = TokenPair.of(trial)
    bare = TokenPair(pair.clean, pair.corrupt, pair.answer, pair.id)
    row, (gold, wrong) = pair.answer[0] - 1, (int(pair.gold[0]), int(pair.wrong[0]))  # type: ignore[index]
    expected = []
    for tokens in (pair.clean, pair.corrupt):
        logits = model(tokens[None, : row + 1])[0, -1]
        expected.append(float(logits[gold] - logits[wrong]))
    (measured,) = lh.patch_heads(model, trial, metric="first_token_logit_diff", progress=False).meta["trials"]
    assert [measured["clean"], measured["corrupt"]] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert pairs_digest([pair]) != pairs_digest([bare])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            (CLEAN, CORRUPT + " us", "Anna"),
            r"has 32 tokens and the corrupt one 35, .* part at token 18 \('Tom ' and 'Eve '\)",
        ),
        ((CLEAN, CLEAN, "Anna"), "both prompts are 'Anna and Tom met.*every head would score 0"),
        ((CLEAN, CORRUPT + " ", "Anna"), "one prompt ends in whitespace and the other does not"),
        ((CLEAN, CORRUPT, "Anna", "Tom"), "'Anna' and 'Tom' begin with the same token ' '"),
        ((CLEAN, CORRUPT, "Anna<eos>"), "the answer contains the special token '<eos>'"),
        ((CLEAN[:-5] + "<pad>", CORRUPT, "Anna"), "part at|special token '<pad>'"),
        ((CLEAN, "", "Anna"), "the prompt is empty"),
        ((CLEAN, CORRUPT, ""), "the answer is empty"),
    ],
)
def test_what_makes_no_pair_says_why(texts: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lh.pair(zoo.tokenizer(), *texts[:3], wrong=next(iter(texts[3:]), None))
    with pytest.raises(TypeError, match="prompt=3: must be text"):
        lh.pair(zoo.tokenizer(), CLEAN, 3, "Anna")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="str is no model with a tokenizer and no tokenizer"):
        lh.pair("gpt2", *texts[:3])


def test_pairs_of_ones_own_tokens_with_a_bos_in_them_are_refused() -> None:
    """`tokenizer(" Mary")` begins with a BOS where the tokenizer adds one."""
    model = tiny("llama-gqa")
    tokenizer, shape = model.tokenizer, head_geometry(model)
    ids = {text: tokenizer(text).input_ids for text in (CLEAN, CORRUPT, " Mary")}
    n = len(ids[CLEAN])

    def made(answer: list[int], clean: list[int] = ids[CLEAN], corrupt: list[int] = ids[CORRUPT]) -> lh.EncodedTrial:
        return lh.EncodedTrial(clean, None, "x", answer, "mine", corrupt=corrupt)  # type: ignore[arg-type]

    with pytest.raises(
        ValueError, match=r"trial mine: .* the answer .* the special token '<bos>' .*add_special_tokens=False"
    ):
        make_pairs(made(ids[" Mary"]), tokenizer, shape)
    assert len(make_pairs(made(ids[" Mary"][1:]), tokenizer, shape)) == 1, "a BOS may begin a prompt"
    inside = [*ids[CORRUPT][: n - 6], *ids[" Mary"]]
    with pytest.raises(ValueError, match="pair mine: the corrupt prompt contains the special token '<bos>'"):
        make_pairs(made([77], corrupt=inside), tokenizer, shape)
    with pytest.raises(ValueError, match=r"trial x: the wrong answer .* must begin with another token"):
        lh.EncodedTrial([5, 6], None, "x", [7], "x", corrupt=[5, 8], wrong=torch.tensor([7, 9]))  # type: ignore[arg-type]
