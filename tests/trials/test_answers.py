"""The gate and the answer steps: which generated tokens wrote the answer."""

from __future__ import annotations

import pytest

from lens_heads.trials.answers import answer_steps, passes, rouge
from lens_heads.trials.encoded import EncodedTrial
from tests import zoo


def ids(text: str) -> list[int]:
    """One token per byte."""
    return zoo.tokenizer()(text, add_special_tokens=False).input_ids


def trial(answer: str, aliases: tuple[str, ...] = (), answer_tokens: list[int] | None = None) -> EncodedTrial:
    gold = ids(answer) if answer_tokens is None else answer_tokens
    return EncodedTrial([5, 6, 7], None, answer, gold, "t", aliases=aliases)  # type: ignore[arg-type]


def steps(one: EncodedTrial, text: str) -> list[int]:
    return answer_steps(one, ids(text), zoo.tokenizer())


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("Paris", "It is Paris.", True),
        ("Paris", "paris", True),
        ("Paris", "It is London.", False),
        ("Paris", "", False),
        ("eat a sandwich", "eating sandwiches", True),  # Stemmed; 2 of 3 words.
        ("red blue", "red", False),  # Half is not above half.
        ("red blue green", "green and red", True),
        ("red", "a very long answer of many words that are not right until red", True),  # Recall, not precision.
        ("北京", "北京", True),  # ROUGE has no token for it.
        ("北京", "上海", False),
        ("北京", "", False),
    ],
)
def test_the_gate_is_stemmed_recall_above_one_half(answer: str, text: str, expected: bool) -> None:
    assert passes(trial(answer), text) is expected


def test_rouge_recall_and_f1_by_hand() -> None:
    recall, f1 = rouge("rouge1", "red blue green", "red blue car bus tram")
    assert recall == pytest.approx(2 / 3)
    assert f1 == pytest.approx(2 * (2 / 3) * (2 / 5) / (2 / 3 + 2 / 5))
    assert rouge("rougeL", "a b c d", "a c b d")[0] == pytest.approx(3 / 4)  # In order: a b d.


def test_an_alias_passes_the_gate_too() -> None:
    assert not passes(trial("New York City"), "NYC")
    assert passes(trial("New York City", aliases=("NYC", "Gotham")), "NYC")


def test_steps_are_where_the_answer_tokens_stand() -> None:
    assert steps(trial("Paris"), "It is Paris.") == [6, 7, 8, 9, 10]


def test_the_first_match_counts() -> None:
    assert steps(trial("ab"), "xab ab") == [1, 2]


def test_the_trials_own_tokens_come_before_other_spellings() -> None:
    """The trial's tokens hold a leading space: its match is later in the text than the bare one, and still chosen."""
    assert steps(trial("ab", answer_tokens=ids(" ab")), "ab ab") == [2, 3, 4]


def test_with_or_without_a_leading_space() -> None:
    assert steps(trial("ab", answer_tokens=ids("!ab")), "x ab") == [1, 2, 3]
    assert steps(trial("ab", answer_tokens=ids(" ab")), "xab") == [1, 2]


@pytest.mark.parametrize("text", ["the PARIS", "the paris", "the pArIs"])
def test_case_is_no_matter_when_tokens_do_not_match(text: str) -> None:
    assert steps(trial("Paris"), text) == [4, 5, 6, 7, 8]


def test_tokens_anywhere_come_before_text_of_another_case() -> None:
    assert steps(trial("Paris"), "PARIS Paris") == [6, 7, 8, 9, 10]


class Pieces:
    """A tokenizer of whole pieces, to see steps that overlap the answer in part."""

    bos_token_id = None

    def __init__(self, *pieces: str) -> None:
        self.pieces = list(pieces)

    def decode(self, generated: list[int]) -> str:
        return "".join((*self.pieces, "?" * 100)[min(i, len(self.pieces))] for i in generated)

    def __call__(self, text: str, **_: object) -> object:
        from types import SimpleNamespace

        return SimpleNamespace(input_ids=[self.pieces.index(text)] if text in self.pieces else [99])


def test_by_text_every_step_that_overlaps_the_answer_counts() -> None:
    tokenizer = Pieces("The ci", "ty of Pa", "r", "is is", " big")
    assert answer_steps(trial("Paris", answer_tokens=[50]), [0, 1, 2, 3, 4], tokenizer) == [1, 2, 3]
    # A step that ends where the answer begins, or begins where it ends, is outside.
    tokenizer = Pieces("of ", "Paris", " is")
    assert answer_steps(trial("PARIS", answer_tokens=[50]), [0, 1, 2], tokenizer) == [1]


def test_letters_that_grow_in_lower_case_do_not_shift_the_steps() -> None:
    """The lower case of a dotted capital I is two characters long."""
    tokenizer = Pieces("\u0130\u0130\u0130 ", "x ", "PARIS", " y")
    assert answer_steps(trial("Paris", answer_tokens=[50]), [0, 1, 2, 3], tokenizer) == [2]


def test_no_answer_is_no_steps() -> None:
    assert steps(trial("Paris"), "It is London.") == []
    assert steps(trial("Paris"), "") == []
    assert steps(trial("Paris"), "Pari") == []


def test_thinking_is_skipped() -> None:
    text = "<think>Paris? paris!</think>Paris"
    assert steps(trial("Paris"), text) == list(range(len(text) - 5, len(text)))
    text = "<think>Paris</think>PARIS"
    assert steps(trial("Paris"), text) == list(range(len(text) - 5, len(text)))
    assert steps(trial("Paris"), "<think>Paris</think>London") == []


def test_thinking_that_never_ends_holds_no_answer() -> None:
    assert steps(trial("Paris"), "<think>Paris, PARIS") == []


def test_thinking_that_began_in_the_prompt_is_skipped_too() -> None:
    text = "Paris? paris!</think>Paris"
    assert steps(trial("Paris"), text) == list(range(len(text) - 5, len(text)))


def test_aliases_are_found_after_the_answer_itself() -> None:
    one = trial("New York", aliases=("Gotham", "NYC"))
    assert steps(one, "in NYC") == [
        2,
        3,
        4,
        5,
    ]  # An alias as it would follow a text: the space before it belongs to it.
    assert steps(one, "NYC Gotham") == [3, 4, 5, 6, 7, 8, 9]  # In the order of the aliases.
    assert steps(one, "NYC or New York") == list(range(7, 15))
    assert steps(one, "in nyc") == [3, 4, 5]
