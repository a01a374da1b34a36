"""Where sentences end: abbreviations, numbers, headings, lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_heads.tasks.sec10k.sentences import sentences


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    "sentence",
    [
        "SanDisk Corp. was founded in the U.S. by J. P. Doe, Jr. in 1988.",
        "Our offices are at 601 McCarthy Blvd., No. 5, Milpitas, CA 95035, near St. Paul.",
        "Sales rose 4.2% to $1.5 million, i.e. by approx. 3.",
        'Acme, Inc. (the "Company") sells pumps to Apex Co. of Ohio.',
        "Dr. Kanwar J.S. Chadha, age 54, joined us.",
        "The dividend of $.10 was paid.",
    ],
)
def test_abbreviations_initials_and_numbers_end_no_sentence(sentence: str) -> None:
    assert cut(sentence) == [sentence]
    assert cut(f"It rained. {sentence} We left.") == ["It rained.", sentence, "We left."]


def test_an_abbreviation_ends_a_sentence_before_a_word_that_begins_one() -> None:
    assert cut("We bought Apex, Inc. The price was low.") == ["We bought Apex, Inc.", "The price was low."]
    assert cut("We sell in the U.S. As of May 1, we sold 3.") == ["We sell in the U.S.", "As of May 1, we sold 3."]
    assert cut('He said "no." She left (at 5 p.m.) then.') == ['He said "no."', "She left (at 5 p.m.) then."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("EMPLOYEES As of May 1, we had 3.", ["EMPLOYEES", "As of May 1, we had 3."]),
        ("ITEM 2. PROPERTIES The Company owns it.", ["ITEM 2.", "PROPERTIES", "The Company owns it."]),
        ("Item 2.\nProperties\nOur offices are here.", ["Item 2.", "Properties", "Our offices are here."]),
        ("Employees. We had 3.", ["Employees.", "We had 3."]),
        ("General Our offices are here.", ["General", "Our offices are here."]),
        ("FIRST AMERICAN CORP. was founded.", ["FIRST AMERICAN CORP. was founded."]),
        ("• We had 3.\n- 6 -\no We left.", ["We had 3.", "6 -", "We left."]),
        ("Held by\nfew, and in Ohio,\nTexas and Maine.", ["Held by\nfew, and in Ohio,\nTexas and Maine."]),
    ],
)
def test_headings_bullets_and_lines(text: str, expected: list[str]) -> None:
    assert cut(text) == expected


@given(st.text(alphabet="ab AB.!?\n\"',()1o-", max_size=80))
def test_sentences_are_in_order_and_leave_out_only_space_and_bullets(text: str) -> None:
    spans = sentences(text)
    ends = [0, *(end for _, end in spans)]
    starts = [*(start for start, _ in spans), len(text)]
    assert all(start < end for start, end in spans)
    assert all(end <= start for end, start in zip(ends, starts, strict=True))
    left = "".join(text[end:start] for end, start in zip(ends, starts, strict=True))
    assert not left.strip(" \n-o")
