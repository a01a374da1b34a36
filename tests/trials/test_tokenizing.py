"""Pieces of text keep every character on tokenizers that put a space before a text; spans, chat frames, dates and thinking."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lens_heads.trials import tokenizing
from lens_heads.trials.own import prompt_trial
from lens_heads.trials.tokenizing import adds_space, char_span, chat_frame, piece, prompt_rules, prompt_start
from lens_heads.trials.trial import Trial
from tests import zoo
from tests.trials import sentencepiece

TOKENIZERS = {
    "prepend": sentencepiece.fast(True),
    "first": sentencepiece.fast(False),
    "slow": sentencepiece.slow(),
    "bytes": zoo.tokenizer(),
}
FAST = [one for name, one in TOKENIZERS.items() if name != "slow"]
TEXTS = st.text(st.sampled_from("Oslo inTom\n .,:(a0é"), min_size=1, max_size=14)
PROMPT = "Anna lives in Bergen. Tom lives in Oslo.\nWhere does Anna live?\nAnswer:"


@pytest.mark.parametrize("name", TOKENIZERS)
def test_which_tokenizers_put_a_space_before_a_text(name: str) -> None:
    assert adds_space(TOKENIZERS[name]) == (name != "bytes")


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=80, deadline=None)
@given(before=TEXTS, text=TEXTS)
def test_pieces_lose_and_add_nothing(name: str, before: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    if name == "first":  # It puts no space before one, so that it writes "Oslo" and " Oslo" alike where a text begins.
        before = "(" + before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        begun, inside = prompt_start(tokenizer, before), piece(tokenizer, text)
    skip = 1 if tokenizer.bos_token_id in begun else 0
    assert tokenizer.decode([*begun[skip:], *inside]) == before + text


@pytest.mark.parametrize("text", ["\n\nOslo", "\nOslo", "\n", " Oslo", "Oslo", "  Oslo", "é", ""])
@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_piece_that_begins_with_lines_does_not_get_a_space(name: str, text: str) -> None:
    """Lines merge with the line that would be put before them to keep the tokenizer from adding its space."""
    tokenizer = TOKENIZERS[name]
    begun = tokenizer("Anna:", add_special_tokens=False).input_ids
    assert tokenizer.decode([*begun, *piece(tokenizer, text)]) == "Anna:" + text


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_prompt_as_it_is_has_the_tokens_of_the_models_own_tokenizer(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    own = tokenizer(PROMPT).input_ids
    assert prompt_trial(tokenizer, PROMPT, "Bergen").tokens.tolist() == own
    assert Trial("t", PROMPT, "Bergen", template="{question}").encode(tokenizer).tokens.tolist() == own
    assert Trial("t", PROMPT, "Bergen", template="{haystack}{question}").encode(tokenizer).tokens.tolist() == own
    for depth, whole in ((1, "Anna lives. Tom lives in Oslo. Who?"), (0, "Tom lives in Oslo. Anna lives. Who?")):
        hidden = Trial("t", "Who?", "Oslo", "Anna lives.", "Tom lives in Oslo.", "{haystack} {question}", depth)
        assert hidden.encode(tokenizer).tokens.tolist() == tokenizer(whole).input_ids


@pytest.mark.parametrize("tokenizer", FAST, ids=["prepend", "first", "bytes"])
@settings(max_examples=60, deadline=None)
@given(before=TEXTS, part=TEXTS, after=TEXTS)
def test_spans_are_where_the_characters_are(tokenizer: Any, before: str, part: str, after: str) -> None:
    """Exactly the tokens whose text reaches into the part: told by what the tokens before and after them say."""
    before = "(" + before  # As above.
    text = before + part + after
    for first in (True, False):
        ids = tokenizer(text, add_special_tokens=False).input_ids if first else piece(tokenizer, text)
        start, end = char_span(tokenizer, text, len(before), len(before + part), first) or (0, 0)
        lead = [] if first else piece(tokenizer, "a")
        said = [len(tokenizer.decode([*lead, *ids[:i]])) - len(tokenizer.decode(lead)) for i in (start, end)]
        assert said[0] <= len(before) + (part[:1] == " ")
        assert said[1] >= len(before + part.rstrip(" "))


def test_needles_and_questions_are_marked_on_llama_2s_kind() -> None:
    for tokenizer in FAST:
        trial = prompt_trial(tokenizer, PROMPT, "Bergen", needle="lives in Bergen", question="Where does Anna live?")
        for span, text in ((trial.needle, "lives in Bergen"), (trial.question, "Where does Anna live?")):
            assert span is not None
            assert tokenizer.decode(trial.tokens[slice(*span)]).strip() == text
        asked = Trial("t", "Where?", "Oslo", "Anna lives.", "Tom lives in Oslo.", "{haystack}\n{question} Answer:")
        made = asked.encode(tokenizer)
        for span, text in ((made.needle, "Tom lives in Oslo."), (made.question, "Where?")):
            assert span is not None
            assert tokenizer.decode(made.tokens[slice(*span)]).strip() == text
    with pytest.raises(ValueError, match="tokenizer Slow does not say which characters"):
        prompt_trial(sentencepiece.slow(), PROMPT, "Bergen", needle="lives in Bergen")


def test_text_that_a_tokenizer_cannot_write_is_warned_of() -> None:
    collapsing = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<unk>": 2}, unk_token="<unk>"))
    collapsing.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    collapsing.normalizer = normalizers.Lowercase()  # type: ignore[assignment]
    collapsing.decoder = decoders.WordPiece()  # type: ignore[assignment]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=collapsing, unk_token="<unk>")
    for text in ("a  b", "a c", "A b"):
        for write in (piece, prompt_start):
            with pytest.warns(UserWarning, match="cannot write a text as it is: it turns"):
                write(tokenizer, text)


USER = "{% for m in messages %}[{{ m['content'] }}]{% endfor %}"
DATED = "Today: {{ strftime_now('%d %b %Y') }} ({{ strftime_now(\"%Y-%m-%d, %-d.%m. %H\") }}) " + USER


def with_template(template: str) -> Any:
    made = copy.deepcopy(zoo.tokenizer())
    made.chat_template = template
    return made


def test_a_templates_date_is_pinned_and_stated() -> None:
    tokenizer = with_template(DATED)
    day = tokenizing.DATE
    wanted = f"Today: {day:%d %b %Y} ({day:%Y-%m-%d}, {day.day}.{day:%m}. 00) ["
    assert chat_frame(tokenizer, None) == (wanted, "]")
    assert prompt_rules(tokenizer) == {"begins": "no BOS", "template_date": day.isoformat()}
    assert "template_date" not in prompt_rules(with_template("{{ messages[0]['content'] }}"))
    asked = with_template(
        "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% endif %}{{ messages[0]['content'] }}"
    )
    assert chat_frame(asked, True) == (str(day.year), "")


@pytest.mark.parametrize(
    ("template", "suffix"),
    [
        (USER + "{{ '<think>\\n' }}", "]<think>\n"),
        (USER + "{{ '<think>\\n' }}{# <think>\\n\\n</think>\\n\\n #}", "]<think>\n\n</think>\n\n"),
        (
            USER + "<think>{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}",
            "]<think></think>",
        ),
        (USER + "{% if thinking %}<think>{% else %}</think>{% endif %}", "]</think>"),
        (USER + "<|start|>assistant", "]<|start|>assistant<|channel|>final<|message|>"),
        (USER + "[THINK]{# [THINK][/THINK] #}", "][THINK][/THINK]"),
        ("<think>x</think>" + USER, "]"),
    ],
)
def test_thinking_is_closed_where_the_family_does_it(template: str, suffix: str) -> None:
    assert chat_frame(with_template(template), True)[1] == suffix


def test_a_template_that_raises_is_one_sentence() -> None:
    for template in ("{{ raise_exception('a system message is required') }}", "{% if %}", "{{ messages[7].x.y }}"):
        with pytest.raises(
            ValueError, match=r"trial t: the chat template .* cannot be filled .*: use chat=False, or set"
        ):
            Trial("t", "Who?", "Ann", template="{question}").encode(with_template(template))
