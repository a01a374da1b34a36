"""Prompts in token space: spans, the needle's place, lengths, BOS, chat frames, the space before the answer."""

from __future__ import annotations

import copy
import string
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.tokenizing import chat_frame, piece
from lens_heads.trials.trial import RESERVE, Trial
from tests import zoo

CHAT = (
    "{% for m in messages %}<user>{{ m['content'] }}</user>{% endfor %}"
    "{% if add_generation_prompt %}<model>\n{% endif %}"
)
LETTERS = string.ascii_letters + string.digits + " \n\t.,!?;:'\"()[]<>|éü\u201c\u201d"
text = st.text(LETTERS, max_size=60)  # the tiny tokenizer lacks three bytes of the 256
words = text.filter(str.strip)


@pytest.fixture
def tokenizer() -> Any:
    """A copy, so that a test may change it."""
    return copy.deepcopy(zoo.tokenizer())


def with_bos() -> Any:
    return zoo.with_bos(zoo.tokenizer())


def trial(**settings: Any) -> Trial:
    defaults: dict[str, Any] = {
        "id": "t",
        "question": "Who?",
        "answer": "Megan",
        "haystack": "One went. Two came! Three sat. Four stood up",
        "needle": "Megan hid.",
        "template": "Read:\n{haystack}\nQ: {question}\nA:",
        "chat": False,
    }
    return Trial(**{**defaults, **settings})


def span(encoded: EncodedTrial) -> str:
    assert encoded.needle is not None
    return zoo.tokenizer().decode(encoded.tokens[encoded.needle[0] : encoded.needle[1]])


def whole(encoded: EncodedTrial) -> str:
    return zoo.tokenizer().decode(encoded.tokens)


@pytest.mark.slow
@given(haystack=text, needle=words, before=text, after=text, question=words, depth=st.floats(0, 1))
def test_span_and_text_survive_any_pieces(
    haystack: str, needle: str, before: str, after: str, question: str, depth: float
) -> None:
    """Without the needle, the prompt is template, haystack and question, character by character."""
    template = before + "{haystack}" + after + "{question}"
    encoded = trial(haystack=haystack, needle=needle, template=template, question=question, depth=depth).encode(
        zoo.tokenizer()
    )
    assert encoded.needle is not None
    start, end = encoded.needle
    assert span(encoded) in (needle, " " + needle)
    rest = zoo.tokenizer().decode([*encoded.tokens[:start], *encoded.tokens[end:]])
    assert rest in (f"{before}{haystack}{after}{question}", f"{before} {haystack}{after}{question}")


@pytest.mark.slow
@given(lead=text, focus=words, tail=text, depth=st.floats(0, 1))
def test_the_focus_is_tracked_and_the_needle_stays_whole(lead: str, focus: str, tail: str, depth: float) -> None:
    needle = lead + focus + tail
    assume(needle.count(focus) == 1)
    made = trial(needle=needle, needle_focus=focus, depth=depth)
    encoded = made.encode(zoo.tokenizer())
    assert span(encoded) in (focus, " " + focus)
    assert whole(encoded) == whole(trial(needle=needle, depth=depth).encode(zoo.tokenizer()))


@pytest.mark.parametrize("focus", ["Zoe", "hid. ", "e", " "])
def test_a_focus_must_stand_once_in_the_needle(focus: str) -> None:
    with pytest.raises(ValueError, match=r"trial t: the needle_focus .* must occur once in the needle"):
        trial(needle="Megan met Kevin. He hid.", needle_focus=focus)


@pytest.mark.slow
@given(parts=st.lists(st.text("abc ", min_size=1, max_size=9), min_size=1, max_size=12), depth=st.floats(0, 0.999))
def test_the_needle_is_at_the_sentence_end_nearest_below_depth(parts: list[str], depth: float) -> None:
    haystack = ". ".join("x" + part for part in parts)
    made = trial(haystack=haystack, depth=depth, template="R\n{haystack}\n{question}")
    encoded = made.encode(zoo.tokenizer())
    assert encoded.needle is not None
    at = encoded.needle[0] - len("R\n")
    before = [
        end
        for end in range(1, len(haystack))
        if haystack[end - 1 : end + 1] == ". " and end <= int(len(haystack) * depth)
    ]
    assert at == (before[-1] if before else 0)


def body(made: Trial) -> str:
    return whole(made.encode(zoo.tokenizer())).removeprefix("Read:\n").removesuffix("\nQ: Who?\nA:")


def test_the_needle_first_in_the_middle_and_last() -> None:
    assert body(trial(depth=0.0)) == "Megan hid. One went. Two came! Three sat. Four stood up"
    assert body(trial(depth=0.5)) == "One went. Two came! Megan hid. Three sat. Four stood up"
    assert body(trial(depth=1.0)) == "One went. Two came! Three sat. Four stood up Megan hid."
    assert body(trial(depth=0.9, haystack="no end here")) == "Megan hid. no end here"
    assert body(trial(haystack="")) == "Megan hid."


@pytest.mark.parametrize(
    ("haystack", "expected"),
    [
        ("It cost 3.5 pounds in all", "Megan hid. It cost 3.5 pounds in all"),
        ('He said "Go." Then she went', 'He said "Go." Megan hid. Then she went'),
        ("Up (and down.) And on it went", "Up (and down.) Megan hid. And on it went"),
        ('It rang. "Come in here now', 'It rang. Megan hid. "Come in here now'),
        ("First.\n\nSecond one here now", "First. Megan hid.\n\nSecond one here now"),
    ],
)
def test_what_a_sentence_end_is(haystack: str, expected: str) -> None:
    assert body(trial(haystack=haystack, depth=0.8)) == expected


@pytest.mark.slow
@given(length=st.integers(RESERVE + 12, 600), depth=st.floats(0.2, 1))
def test_the_haystack_is_cut_to_the_length_less_reserve_and_needle(length: int, depth: float) -> None:
    haystack = "Yes it is. " * 60
    encoded = trial(haystack=haystack, length=length, depth=depth, template="R {haystack}|{question}").encode(
        zoo.tokenizer()
    )
    start, end = encoded.needle or (0, 0)
    rest = zoo.tokenizer().decode([*encoded.tokens[:start], *encoded.tokens[end:]])
    needle = len(piece(zoo.tokenizer(), " Megan hid."))
    kept = rest.removeprefix("R ").removesuffix("|Who?").removeprefix(" " if start == 2 else "")
    assert kept == haystack[: length - RESERVE - needle - (start == 2)]


def test_a_length_without_room_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"trial t: a length of 211 tokens leaves no room .*: 200 are reserved .* needle takes 11"
    ):
        trial(length=211).encode(zoo.tokenizer())


def test_bos_is_there_where_the_tokenizer_puts_it(tokenizer: Any) -> None:
    plain, marked = trial().encode(tokenizer), trial().encode(with_bos())
    assert plain.tokens[0] != tokenizer.bos_token_id
    assert marked.tokens.tolist() == [tokenizer.bos_token_id, *plain.tokens.tolist()]
    assert marked.needle == tuple(i + 1 for i in plain.needle or ())
    assert span(marked) == span(plain)


def test_a_chat_template_with_bos_gets_no_second_one() -> None:
    marked = with_bos()
    marked.chat_template = CHAT
    added = trial(chat=True).encode(marked).tokens.tolist()
    marked.chat_template = "<bos>" + CHAT
    written = trial(chat=True).encode(marked).tokens.tolist()
    assert added == written
    assert written.count(marked.bos_token_id) == 1
    assert written[0] == marked.bos_token_id


def test_the_chat_frame_stands_around_the_prompt(tokenizer: Any) -> None:
    plain = trial().encode(tokenizer)
    tokenizer.chat_template = CHAT
    for chat in (True, None):
        framed = trial(chat=chat).encode(tokenizer)
        assert whole(framed) == f"<user>{whole(plain)}</user><model>\n"
        assert span(framed) == span(plain)
    assert trial(chat=False).encode(tokenizer).tokens.tolist() == plain.tokens.tolist()


def test_a_template_set_later_is_used(tokenizer: Any) -> None:
    assert chat_frame(tokenizer, None) == ("", "")
    tokenizer.chat_template = CHAT
    assert chat_frame(tokenizer, None) == ("<user>", "</user><model>\n")
    tokenizer.chat_template = CHAT.replace("user", "u")
    assert chat_frame(tokenizer, None)[0] == "<u>"


def test_chat_faults_are_named(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match=r"trial t: chat=True, but .* has no chat template: use chat=False"):
        trial(chat=True).encode(tokenizer)
    tokenizer.chat_template = "{{ messages[0]['content'] }}{{ messages[0]['content'] }}"
    with pytest.raises(ValueError, match=r"does not contain the user's text exactly once: use chat=False"):
        trial(chat=True).encode(tokenizer)


@pytest.mark.parametrize(
    ("template", "chat", "answer"),
    [
        ("{haystack}\n{question}\nA:", False, " Megan"),
        ("{haystack}\n{question}\n", False, "Megan"),
        ("{question}\n{haystack}", False, " Megan"),
        ("{haystack}\n{question}\nA:", True, "Megan"),
    ],
)
def test_the_answer_has_a_space_before_it_unless_the_prompt_ends_in_one(
    tokenizer: Any, template: str, chat: bool, answer: str
) -> None:
    tokenizer.chat_template = CHAT
    encoded = trial(template=template, chat=chat).encode(tokenizer)
    assert tokenizer.decode(encoded.answer_tokens) == answer


@pytest.mark.parametrize("answer", ["\n    return 4", " Megan", "\tx"])
def test_an_answer_that_begins_with_white_space_stays_as_it_is(tokenizer: Any, answer: str) -> None:
    encoded = trial(template="{haystack}\n{question}:", answer=answer, choices=(answer, "Bo")).encode(tokenizer)
    assert tokenizer.decode(encoded.answer_tokens) == answer
    assert [tokenizer.decode(tokens) for tokens in encoded.choice_tokens] == [answer, " Bo"]


def test_a_trial_without_a_needle() -> None:
    made = trial(haystack="", needle="", template="Q: {question}\nA:")
    encoded = made.encode(zoo.tokenizer())
    assert encoded.needle is None
    assert whole(encoded) == "Q: Who?\nA:"


def test_the_question_span(tokenizer: Any) -> None:
    tokenizer.chat_template = CHAT
    for chat in (False, True):
        encoded = trial(chat=chat).encode(tokenizer)
        assert encoded.question is not None
        assert tokenizer.decode(encoded.tokens[encoded.question[0] : encoded.question[1]]) == "Who?"


def test_a_counterfactual_must_ask_something_else() -> None:
    with pytest.raises(ValueError, match="trial t: corrupt is the question itself"):
        Trial("t", "Who?", "Ann", template="{question}", corrupt=("Where?", "Who? "))
