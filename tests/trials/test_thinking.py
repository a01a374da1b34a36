"""Thinking is no answer: which text counts, when a row may end, and what closes a block that a prompt leaves open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from lens_heads.model.decoding import decode, opened, text_of
from lens_heads.trials.answers import answer_steps, passes
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.judges import judge_of
from lens_heads.trials.thinking import MARKERS, after_thinking, closing, thoughts, unclosed
from tests import zoo

WRITTEN = {
    "think": ("<think>", "Oslo?\n\nNo.", "</think>", "Bergen"),
    "answer tags": ("<think>\n", "Oslo?", "\n</think>\n<answer>\n", "Bergen\n</answer>"),
    "gpt-oss": (
        "<|channel|>analysis<|message|>",
        "Oslo?\nNo.",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        "Bergen<|return|>",
    ),
    "gpt-oss, twice": (
        "<|channel|>analysis<|message|>",
        "Oslo?<|end|><|start|>assistant<|channel|>commentary<|message|>Oslo!",
        "<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>",
        "Bergen",
    ),
    "Magistral": ("[THINK]", "Oslo?", "[/THINK]", "Bergen"),
    "Seed": ("<seed:think>", "Oslo?\n", "</seed:think>", "Bergen"),
    "LongCat": ("<longcat_think>", "Oslo?\n", "</longcat_think>\n", "Bergen"),
    "EXAONE Deep": ("<thought>\n", "Oslo?\n", "</thought>\n\n", "Bergen"),
    "tuned": ("<reasoning>\n", "Oslo?\n", "</reasoning>\n<answer>\n", "Bergen\n</answer>"),
    "tuned too": ("<thinking>", "Oslo?\n", "</thinking>", "Bergen"),
    "Kimi": ("◁think▷", "Oslo?\n", "◁/think▷", "Bergen"),
    "Cohere": ("<|START_THINKING|>", "Oslo?", "<|END_THINKING|><|START_RESPONSE|>", "Bergen<|END_RESPONSE|>"),
    "Apertus": ("<|inner_prefix|>", "Oslo?", "<|inner_suffix|>", "Bergen"),
    "OpenThinker": (
        "<|begin_of_thought|>\n\n",
        "Oslo?",
        "\n\n<|end_of_thought|>\n\n<|begin_of_solution|>\n\n",
        "Bergen\n\n<|end_of_solution|>",
    ),
    "Gemma 4": ("<|channel>thought\n", "Oslo?", "<channel|>", "Bergen"),
    "Apriel": ("Here are my reasoning steps:\n", "Oslo?", "\n[BEGIN FINAL RESPONSE]\n", "Bergen\n[END FINAL RESPONSE]"),
    "Granite": ("Here is my thought process:\n", "Oslo?\n\n", "Here's my response:\n\n", "Bergen"),
}


def bytes_of(text: str) -> list[int]:
    return zoo.tokenizer()(text, add_special_tokens=False).input_ids


def trial(prompt: str = "Where?", answer: str = "Oslo") -> EncodedTrial:
    return EncodedTrial(bytes_of(prompt), None, answer, bytes_of(answer), "t")  # type: ignore[arg-type]


@pytest.mark.parametrize(("begin", "middle", "end", "answer"), WRITTEN.values(), ids=WRITTEN)
def test_only_what_follows_thinking_is_the_answer(begin: str, middle: str, end: str, answer: str) -> None:
    text = begin + middle + end + answer
    assert after_thinking(text).split("\n")[0] == "Bergen"
    assert not passes(trial(), text)
    assert passes(trial(answer="Bergen"), text)
    assert answer_steps(trial(), bytes_of(text), zoo.tokenizer()) == []
    at = len((begin + middle + end).encode())
    assert answer_steps(trial(answer="Bergen"), bytes_of(text), zoo.tokenizer()) == list(range(at, at + 6))


@pytest.mark.parametrize(("begin", "middle", "end", "answer"), WRITTEN.values(), ids=WRITTEN)
def test_an_open_block_is_no_answer_and_its_closing_text_closes_it(
    begin: str, middle: str, end: str, answer: str
) -> None:
    for text in (begin, begin + middle):
        assert after_thinking(text) == ""
        assert unclosed(text)
        assert begin.startswith(unclosed(text))
        assert closing(text + closing(text)) == unclosed(text + closing(text)) == ""
        assert after_thinking(text + closing(text) + "Bergen") == "Bergen"
    assert closing(begin + middle + end) == ""


@pytest.mark.parametrize(("begin", "middle", "end", "answer"), WRITTEN.values(), ids=WRITTEN)
def test_thinking_that_the_prompt_began(begin: str, middle: str, end: str, answer: str) -> None:
    """Nothing generated says so until the block is closed, so the prompt's end is asked."""
    model: Any = SimpleNamespace(tokenizer=zoo.tokenizer())
    asked = trial(f"Where?{begin}" if "Here" not in begin else begin, "Bergen")
    (lead,) = opened(model, [asked])
    written = bytes_of(middle + end + answer)
    assert text_of(model, bytes_of(middle), lead=lead) == ""
    assert text_of(model, written, lead=lead) == "Bergen"
    at = len((middle + end).encode())
    assert answer_steps(asked, written, zoo.tokenizer()) == list(range(at, at + 6))


def test_every_marker_of_the_table_was_tried() -> None:
    import re

    tried = [begin + middle + end for begin, middle, end, _ in WRITTEN.values()]
    for marker in MARKERS:
        assert any(re.search(marker.opens, text) and re.search(marker.closes, text, re.DOTALL) for text in tried)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bergen", "Bergen"),
        ("\nBergen", "\nBergen"),  # Blank lines stay where there was no thinking.
        ("<think></think>\n \n  Bergen", "  Bergen"),  # Indentation is code's own.
        ("Sure. <think>Oslo?</think>Bergen", "Sure. Bergen"),
        ("<think>Oslo</think>Bergen<think>or Oslo</think>.", "Bergen."),
        ("Bergen<think>or Oslo", "Bergen"),
        ("<think>a</think>\n<think>b", ""),
        ("I think so", "I think so"),
        ("a <answer>x</answer>", "a <answer>x</answer>"),  # Tags of an answer count only after thinking.
        ("He wrote: Here is my thought process: x", "He wrote: Here is my thought process: x"),
    ],
)
def test_what_is_left(text: str, expected: str) -> None:
    assert after_thinking(text) == expected
    assert bool(thoughts(text)) == (text != expected)


@pytest.mark.parametrize(
    "begin",
    [
        "<|im_end|>\n<|im_start|>assistant\n",
        "<｜Assistant｜>",
        "<end_of_turn>\n<start_of_turn>model\n",
        "<turn|>\n<|turn>model\n",
        "[/INST]",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ],
)
def test_a_marker_that_the_user_wrote_opens_nothing(begin: str) -> None:
    asked = "Begin with <think> or [THINK], please."
    assert unclosed(asked + begin) == closing(asked + begin) == ""
    assert unclosed(f"{asked}{begin}<think>\n") == "<think>"
    assert closing(f"{asked}{begin}<think>\n") == "\n</think>\n\n"
    assert unclosed(f"{asked}{begin}<think>\n\n</think>\n\n") == ""


def test_a_template_that_ends_before_the_channel_is_named() -> None:
    assert closing("<|end|><|start|>assistant") == "<|channel|>final<|message|>"
    assert closing("<|im_start|>assistant\n") == closing("") == ""


def decoded(text: str, prompt: str = "Where?", **judge: Any) -> str:
    """What greedy decoding keeps of a model that writes `text` byte by byte."""
    ids = bytes_of(text)
    model: Any = SimpleNamespace(tokenizer=zoo.tokenizer())
    script = iter(ids)

    def forward(_: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(torch.tensor([[next(script)]]), 256).float()

    judges = [judge_of(**judge)] if judge else None
    leads = opened(model, [trial(prompt)])
    (steps,) = decode(model, torch.zeros(1, 1, dtype=torch.long), forward, len(ids), judges, leads)
    return zoo.tokenizer().decode(steps)


@pytest.mark.parametrize(("begin", "middle", "end", "answer"), WRITTEN.values(), ids=WRITTEN)
def test_a_row_ends_after_the_answer_not_in_thinking(begin: str, middle: str, end: str, answer: str) -> None:
    whole = begin + middle + end + "\n\nBergen\n"
    assert decoded(whole + "more") == whole
    began = "Where?" + begin if "Here" not in begin else begin
    assert decoded(whole[len(begin) :] + "more", began) == whole[len(begin) :]


def test_without_thinking_a_row_ends_at_the_first_newline() -> None:
    assert decoded("Bergen\nmore") == "Bergen\n"
    assert decoded("\nBergen\nmore") == "\n"
    assert decoded("def f():\n  pass\n\nx", multiline=True, cut=("\n\n",)) == "def f():\n  pass\n\n"
    text = "<think>\n\nOslo\n\n</think>\n\ndef f():\n  pass\n\n"
    assert decoded(text + "x", multiline=True, cut=("\n\n",)) == text
