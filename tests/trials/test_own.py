"""prompt_trial: one's own prompt, fed as it is, with its needle and question marked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lens_heads as lh
from lens_heads.trials.own import prompt_trial
from lens_heads.trials.tokenizing import piece
from tests import zoo

PROMPT = "Anna lives in Bergen. Tom lives in Oslo.\nWhere does Anna live?\nAnswer:"
WORDS = st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), min_size=1, max_size=12)
"""The tiny tokenizer lacks the bytes of some other characters."""


def marked(tokenizer: Any, trial: lh.EncodedTrial, span: tuple[int, int] | None) -> str:
    assert span is not None
    return tokenizer.decode(trial.tokens[span[0] : span[1]])


def test_the_prompt_is_fed_as_it_is_and_its_parts_are_marked() -> None:
    tokenizer = zoo.tokenizer()
    trial = prompt_trial(tokenizer, PROMPT, "Bergen", needle="lives in Bergen", question="Where does Anna live?")
    assert tokenizer.decode(trial.tokens, skip_special_tokens=True) == PROMPT
    assert marked(tokenizer, trial, trial.needle) == "lives in Bergen"
    assert marked(tokenizer, trial, trial.question) == "Where does Anna live?"
    assert tokenizer.decode(trial.answer_tokens) == " Bergen"
    assert tokenizer.decode(prompt_trial(tokenizer, PROMPT, "Bergen", spaced=False).answer_tokens) == "Bergen"
    bare = prompt_trial(tokenizer, PROMPT, "Bergen")
    assert bare.needle is bare.question is None
    assert bare.tokens.tolist() == trial.tokens.tolist()


@given(before=WORDS, needle=WORDS, after=WORDS)
def test_any_needle_is_where_it_stands(before: str, needle: str, after: str) -> None:
    prompt, tokenizer = before + needle + after, zoo.tokenizer()
    if not needle.strip() or prompt.count(needle) != 1:
        return
    trial = prompt_trial(tokenizer, prompt, "x", needle=needle)
    start, end = trial.needle or (0, 0)
    assert trial.tokens[start:end].tolist() == piece(tokenizer, needle)


def test_bad_parts_are_named() -> None:
    tokenizer = zoo.tokenizer()
    for needle, message in (
        ("Bregen", "occurs 0 times .* copy it from the prompt"),
        ("lives in", "occurs 2 times .* give more of the text around it"),
        (" ", "needle is empty"),
    ):
        with pytest.raises(ValueError, match=message):
            prompt_trial(tokenizer, PROMPT, "Bergen", needle=needle)
    with pytest.raises(ValueError, match="prompt is empty"):
        prompt_trial(tokenizer, " \n", "Bergen")
    with pytest.raises(ValueError, match="answer is empty"):
        prompt_trial(tokenizer, PROMPT, "")

    class Slow:
        """A tokenizer that does not say where its tokens begin."""

        is_fast = False

        def __getattr__(self, name: str) -> Any:
            return getattr(tokenizer, name)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return tokenizer(*args, **kwargs)

    with pytest.raises(ValueError, match="tokenizer Slow does not say which characters"):
        prompt_trial(Slow(), PROMPT, "Bergen", needle="Bergen")
