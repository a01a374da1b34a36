"""Thinking: the markers between which a model thinks before it answers. Nothing between them is the answer.

The one table of them, for decoding (when may a row end?), gate and judges (which text is the answer?), answer steps (which
tokens wrote it?) and chat frames (does the template leave a block open?). Markers are those of the models' chat templates, as
vLLM's reasoning parsers list them too.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Marker(NamedTuple):
    """How some models mark thinking.

    `opens`, `closes`: regular expressions; `closes` also takes what wraps the answer. `closing`: the text after which the
    answer follows a block that a prompt left open. `ends`: what a wrapped answer ends with, if anything does.
    """

    models: str
    opens: str
    closes: str
    closing: str
    ends: str = ""


def _tags(models: str, name: str) -> Marker:
    return Marker(models, rf"<{name}>", rf"</{name}>(?:\s*<answer>)?", f"\n</{name}>\n\n", r"</answer>")


HARMONY = Marker(
    "gpt-oss",
    # Any channel but the final one (analysis, commentary), as soon as its first token is there.
    r"<\|channel\|>(?!final)",
    r"(?:<\|start\|>assistant)?<\|channel\|>final.*?<\|message\|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
    r"<\|(?:return|end|call)\|>",
)
MARKERS = (
    _tags(
        "DeepSeek R1 and V3, Qwen 3 and QwQ, GLM 4.5, Kimi K2, MiniMax, Nemotron, OLMo 3, SmolLM3, EXAONE 4, Hunyuan, Granite 4",
        "think",
    ),
    _tags("Seed-OSS", "seed:think"),
    _tags("LongCat", "longcat_think"),
    _tags("EXAONE Deep", "thought"),
    _tags("models tuned on such answers", "thinking"),
    _tags("models tuned on such answers", "reasoning"),
    Marker("Magistral, Ministral 3", r"\[THINK\]", r"\[/THINK\]", "[/THINK]"),
    Marker("Kimi-VL, Kimi-Dev", r"◁think▷", r"◁/think▷", "◁/think▷"),
    Marker(
        "Command A Reasoning",
        r"<\|START_THINKING\|>",
        r"<\|END_THINKING\|>(?:\s*<\|START_(?:RESPONSE|TEXT)\|>)?",
        "<|END_THINKING|><|START_RESPONSE|>",
        r"<\|END_(?:RESPONSE|TEXT)\|>",
    ),
    Marker("Apertus", r"<\|inner_prefix\|>", r"<\|inner_suffix\|>", "<|inner_suffix|>"),
    Marker(
        "OpenThinker, Sky-T1",
        r"<\|begin_of_thought\|>",
        r"<\|end_of_thought\|>(?:\s*<\|begin_of_solution\|>)?",
        "\n\n<|end_of_thought|>\n\n<|begin_of_solution|>\n\n",
        r"<\|end_of_solution\|>",
    ),
    Marker("Gemma 4", r"<\|channel>", r"<channel\|>", "<channel|>"),
    HARMONY,
    Marker(
        "Apriel",
        r"(?:\A|<\|assistant\|>)\s*Here are my reasoning steps:",
        r"\[BEGIN FINAL RESPONSE\]",
        "\n[BEGIN FINAL RESPONSE]\n",
        r"\[END FINAL RESPONSE\]",
    ),
    # Words, not tags: they count only where a text begins.
    Marker(
        "Granite 3.2",
        r"\A\s*Here(?:'s| is) my thought process:",
        r"Here(?:'s| is) my response:",
        "\n\nHere is my response:\n\n",
    ),
)
TAIL = 64
"""Tokens at the end of a prompt in which an open block is looked for: more than any marker has bytes."""

_OPENS = re.compile("|".join(f"(?P<m{i}>{marker.opens})" for i, marker in enumerate(MARKERS)))
_TAGS = [marker for marker in MARKERS if not marker.opens.startswith(r"\A")]
_CLOSES = {marker: re.compile(marker.closes, re.DOTALL) for marker in MARKERS}

_TURN = re.compile(
    r"<\|(?:im_start|assistant|start_header_id|start|turn|start_of_role|CHATBOT_TOKEN)\|?>|<｜Assistant｜>"
    r"|<start_of_turn>|\[/INST\]"
)
"""Where a chat template begins the model's turn."""


def thoughts(text: str) -> list[tuple[int, int]]:
    """The half-open character ranges of a text that are no part of the answer: blocks of thinking with their markers.

    What stands before a closing marker that nothing opened was opened by the prompt. A block left open reaches to the end.
    """
    found, at, marker = [], 0, None
    first = _opening(text, 0)
    unopened = [(hit.end(), marker) for marker in _TAGS if (hit := _CLOSES[marker].search(text))]
    unopened = [(end, marker) for end, marker in unopened if first is None or end <= first[0].start()]
    if unopened:
        at, marker = min(unopened, key=lambda each: each[0])
        found.append((0, at))
    while (opening := _opening(text, at)) is not None:
        hit, marker = opening
        closed = _CLOSES[marker].search(text, hit.end())
        at = closed.end() if closed else len(text)
        found.append((hit.start(), at))
    if marker is not None and marker.ends and (end := re.compile(marker.ends).search(text, at)):
        found.append((end.start(), len(text)))
    return found


def after_thinking(text: str) -> str:
    """The text without thinking, nor the blank lines that come first then; empty while nothing else is written."""
    hidden = thoughts(text)
    if not hidden:
        return text
    starts, ends = [0, *(end for _, end in hidden)], [*(start for start, _ in hidden), len(text)]
    shown = "".join(text[start:end] for start, end in zip(starts, ends, strict=True))
    return re.sub(r"\A\s*\n|\A\s+\Z", "", shown)


def unclosed(text: str) -> str:
    """The marker of the block of thinking that a text leaves open, or "".

    What a model writes after such a text is read as `unclosed(text) + written`.
    """
    found = _unclosed(text)
    return found[0][0] if found else ""


def closing(text: str) -> str:
    """What must follow a text so that an answer may follow; "" for a text that is not thinking.

    A gpt-oss template ends before the channel is named: the final one is what closes it.
    """
    found = _unclosed(text)
    if found:
        return found[1].closing
    return "<|channel|>final<|message|>" if text.endswith("<|start|>assistant") else ""


def _opening(text: str, at: int) -> tuple[re.Match[str], Marker] | None:
    hit = _OPENS.search(text, at)
    return (hit, MARKERS[int(str(hit.lastgroup)[1:])]) if hit else None


def _unclosed(text: str) -> tuple[re.Match[str], Marker] | None:
    """The last opening without a closing in the turn that the text ends in: a marker that the user wrote opens nothing."""
    turns = [hit.start() for hit in _TURN.finditer(text)]
    at = turns[-1] if turns else 0
    while (opening := _opening(text, at)) is not None:
        hit, marker = opening
        closed = _CLOSES[marker].search(text, hit.end())
        if closed is None:
            return opening
        at = closed.end()
    return None
