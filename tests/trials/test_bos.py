"""A prompt begins with one BOS, or with none where the tokenizer has none: for needles and for documents alike."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lens_heads.trials.bos import opening, put_bos
from lens_heads.trials.documents import FRAMES, DocumentTrial
from lens_heads.trials.trial import Trial
from tests import zoo
from tests.conftest import real_model

CHAT = "{{ messages[0]['content'] }}<eos>"


def made(adds: bool, template: str | None = None, bos: str = "<bos>") -> Any:
    """A tokenizer that puts a BOS before a text or does not, with a chat template or without."""
    tokenizer = copy.deepcopy(zoo.tokenizer())
    tokenizer.bos_token = bos
    tokenizer.chat_template = template
    return zoo.with_bos(tokenizer) if adds else tokenizer


def first(tokenizer: Any, documents: bool, frame: str | None = None) -> list[int]:
    if documents:
        found = DocumentTrial("t", "Who?", ("One text.", "Another one."), ("1",)).encode(tokenizer, frame=frame)
        assert found.null_tokens[:2].tolist() == found.tokens[:2].tolist()
        return found.tokens.tolist()
    return (
        Trial(id="t", question="Who?", answer="Ann", haystack="Some text.", needle="Ann did.")
        .encode(tokenizer)
        .tokens.tolist()
    )


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize(
    ("tokenizer", "beginning"),
    [
        (made(adds=True), 1),
        (made(adds=False), 0),
        (made(adds=True, template=CHAT), 1),
        (made(adds=False, template=CHAT), 0),
        (made(adds=True, template="<bos>" + CHAT), 1),
        (made(adds=False, template="<bos>" + CHAT), 1),
        (made(adds=True, template="<bos>user " + CHAT), 1),
    ],
    ids=[
        "adds",
        "none",
        "adds, chat",
        "none, chat",
        "adds, chat with BOS",
        "chat with BOS alone",
        "BOS opens the turn",
    ],
)
def test_there_is_one_bos_or_none(tokenizer: Any, beginning: int, documents: bool) -> None:
    tokens = first(tokenizer, documents)
    assert tokens.count(tokenizer.bos_token_id) == beginning
    assert (tokens[0] == tokenizer.bos_token_id) == bool(beginning)


def test_a_text_that_begins_with_the_bos_needs_none() -> None:
    tokenizer = made(adds=True)
    assert opening(tokenizer, "Some text") == [tokenizer.bos_token_id]
    assert opening(tokenizer, "<bos>Some text") == []
    assert opening(made(adds=False), "Some text") == []


@pytest.mark.real
@pytest.mark.parametrize("documents", [False, True])
def test_a_frame_that_opens_with_the_bos_gets_no_second_one(documents: bool) -> None:
    """SmolLM2's BOS is "<|im_start|>", with which its chat frame begins."""
    tokenizer = real_model("smollm2-135m-instruct").tokenizer
    assert FRAMES["qwen2.5"].prefix.startswith(tokenizer.bos_token)
    assert opening(tokenizer, "x") == [], "its own tokenizer adds none to a plain text"
    forced = copy.deepcopy(tokenizer)
    put_bos(forced, True)
    assert opening(forced, "x") == [tokenizer.bos_token_id]
    for each in (tokenizer, forced):
        tokens = first(each, documents)
        assert tokens[0] == tokenizer.bos_token_id
        assert tokens[1] != tokenizer.bos_token_id


@pytest.mark.slow
@pytest.mark.real
def test_gemmas_bos_is_there_once() -> None:
    tokenizer = real_model("gemma-3-270m").tokenizer
    for documents in (False, True):
        tokens = first(tokenizer, documents)
        assert tokens[0] == tokenizer.bos_token_id
        assert tokens.count(tokenizer.bos_token_id) == 1
