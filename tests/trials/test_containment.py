"""Whether and where a text holds an answer, in any script; and that gate, judges and answer steps agree on it."""

from __future__ import annotations

import random
import unicodedata

import pytest

from lens_heads.trials.answers import answer_steps, passes, recall, rouge
from lens_heads.trials.containment import contains, find, normalize, occurrences, words
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.judges import Judge, judge_of
from lens_heads.trials.metrics import text_scores
from tests import zoo

HOLDS = [  # answer, text
    ("서울", "서울입니다."),
    ("서울", "답: 서울"),
    ("القاهرة", "والقاهرة"),
    ("القاهرة", "في القاهرة."),
    ("القاهرة", "للقاهرة"),  # "for Cairo": the article is written otherwise.
    ("القاهرة", "القَاهِرَة"),  # With vowel points.
    ("القاهرة", "القــاهرة"),  # Stretched.
    ("ירושלים", "בירושלים"),
    ("İstanbul", "istanbul"),
    ("istanbul", "İSTANBUL"),
    ("Isparta", "ısparta"),
    ("cafe\u0301", "caf\u00e9"),
    ("서울", unicodedata.normalize("NFD", "서울은")),
    ("Straße", "STRASSE 5"),
    ("ΑΘΗΝΑΣ", "αθηνας"),  # A final sigma.
    ("東京", "東京です。"),
    ("北京", "答案是北京。"),
    ("กรุงเทพ", "อยู่ที่กรุงเทพครับ"),
    ("2008", "2008年"),
    ("パリ", "パリです"),
    ("दिल्ली", "यह दिल्ली है।"),
    ("C++", "in C++."),
    ("C#", "C# (2000)"),
    ("A+", "an A+, no less"),
    ("-5", "It is \N{MINUS SIGN}5."),
    ("-5", "(-5)"),
    ("5", "٥"),
    ("2008", "२००८ में"),
    ("2008", "\uff12\uff10\uff10\uff18"),  # Full-width digits.
    ("3.5", "3,5 km"),
    ("3,5", "3.5 km"),
    ("3.5", "٣٫٥"),
    ("1000", "1,000 dogs"),
    ("1,234.5", "1.234,5 €"),
    ("1234567", "12,34,567"),
    ("1000000", "1\u202f000\u202f000"),
    ("1995", "1990-1995"),
    ("Oslo", "Oslo's"),
    ("Oslo", "Oslo\u2019s"),
    ("Oslo", "Oslo-based"),
    ("Oslo", "Oslo\u2014the capital"),
    ("Oslo", "\u00abOslo\u00bb"),
    ("Oslo", "**Oslo**"),
    ("Oslo", "Os\u00adlo"),  # A soft hyphen.
    ("US", "the U.S. of course"),
    ("U.S.A.", "in the USA"),
    ("email", "an e-mail"),
    ("O'Brien", "O\u2019Brien"),
    ("new york", "New a York"),
    ("\N{GREEN APPLE}", "a\N{GREEN APPLE}!"),
    ("H2O", "H₂O"),
    ("5", "$5"),
    ("5", "5%"),
    ("30", "12:30"),
    ("A", "The answer is A."),  # An article, and the answer.
]
HOLDS_NOT = [
    ("Łódź", "I'd say Kraków"),
    ("Łódź", "Lodz"),
    ("Øre", "Re: no idea"),
    ("北京 2008", "東京 2008"),
    ("γ-ray", "an X-ray"),
    ("C++", "C"),
    ("C", "C++"),
    ("C", "C#"),
    ("A", "A-"),
    ("-5", "5"),
    ("5", "-5"),
    ("5", "\N{MINUS SIGN}5"),
    ("5", "3.5"),
    ("5", "3,5"),
    ("35", "3,5"),
    ("35", "3-5"),
    ("123", "1,2,3"),
    ("2", "±2"),
    ("दिल", "दिल्ली"),  # "heart" in Delhi: a word does not end before a mark.
    ("アメリ", "アメリカ"),
    ("Киев", "в Киеве"),
    ("cat", "concatenate"),
    ("לב", "כלב"),  # "heart" in "dog": two letters.
    ("울", "서울"),
    ("the", "anything"),
    ("10²", "102"),
    ("", "x"),
]


def trial(answer: str, normalization: str = "numbers") -> EncodedTrial:
    return EncodedTrial([1], None, answer, [1], "t", judge=Judge(normalization=normalization))  # type: ignore[arg-type]


@pytest.mark.parametrize(("gold", "text"), HOLDS)
def test_a_text_that_holds_the_answer(gold: str, text: str) -> None:
    assert contains(text, gold) == text_scores(text, [gold])["correct"] == 1
    assert occurrences(f"{text} / {text}", gold) == 2 * occurrences(text, gold)
    assert passes(trial(gold), text)


@pytest.mark.parametrize(("gold", "text"), HOLDS_NOT)
def test_a_text_that_does_not_hold_the_answer(gold: str, text: str) -> None:
    assert contains(text, gold) == text_scores(text, [gold])["correct"] == 0
    assert not gold or not passes(trial(gold), text)


@pytest.mark.parametrize(
    ("gold", "text", "place"),
    [
        ("Paris", "in PARIS now", "PARIS"),
        ("İstanbul", "İİİ istanbul x", "istanbul"),
        ("서울", "답은 서울입니다", "서울"),
        ("القاهرة", "في والقاهرة", "القاهرة"),
        ("cafe\u0301", "un caf\u00e9 x", "caf\u00e9"),
        ("caf\u00e9", "un cafe\u0301 x", "cafe\u0301"),
        ("1000", "of 1,000 dogs", "1,000"),
        ("New York", "(new  york)", "new  york"),
        ("U.S.", "the US.", "US"),
    ],
)
def test_where_it_stands_in_the_text_itself(gold: str, text: str, place: str) -> None:
    at = text.index(place)
    assert find(text, gold) == (at, at + len(place))
    assert find(text, gold, at + 1) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("北京", "北京。"),
        ("Łódź", "ŁÓDŹ!"),
        ("cafe\u0301", "Café"),
        ("-5", "\N{MINUS SIGN}5."),
        ("«Киев»", "киев"),
        ("1,000", "1\u202f000"),
    ],
)
def test_equal_texts_of_every_script(one: str, other: str) -> None:
    assert normalize(one) == normalize(other)
    assert judge_of("exact_match").correct(one, [other]) == 1


def test_words_are_split_at_punctuation_and_where_the_script_changes() -> None:
    assert words("The γ-ray of 2008年、東京タワー: C++ -5") == [
        *("the", "γ", "ray", "of", "2008", "年", "東京", "タワー", "c++", "-5")
    ]
    assert words("...") == []


def test_an_article_is_an_answer_only_as_it_is_written() -> None:
    assert contains("A", "A") == contains("It is (A).", "A") == 1
    assert contains("b, a letter", "A") == contains("A letter", "a") == contains("an A", "the") == 0
    assert passes(trial("A"), "b, a letter")  # The gate is ROUGE's there.


def test_the_gates_recall_by_hand() -> None:
    assert recall("北京 2008", "2008 北京") == 1
    assert recall("北京 2008", "東京 2008") == 1 / 2
    assert recall("Łódź i Kraków", "Kraków, Łódź") == 2 / 3
    assert recall("da da", "да da") == 1 / 2  # Each as often; the Cyrillic word only looks alike.
    assert recall("서울 부산", "서울은 아니다") == 1 / 2
    assert recall("...", "...") == 0


def test_on_plain_words_the_gate_is_the_rouge_score_packages() -> None:
    """Letters, digits, and ASCII punctuation that makes no sign of a number or a name."""
    rng = random.Random(0)
    known = "run running runs ran museums museum a the well known x 7 1929 visited of oslo eat eating sandwich"
    between = [" ", " ", " ", ", ", ". ", "\n", "; ", "/", "_", '" ', " ("]
    for _ in range(400):
        text = "".join(rng.choice(known.split()) + rng.choice(between) for _ in range(rng.randint(0, 12)))
        gold = " ".join(rng.choices(known.split(), k=rng.randint(1, 5)))
        assert recall(gold, text) == rouge("rouge1", gold, text)[0], (gold, text)
        assert passes(trial(gold), text) == passes(trial(gold, "rouge"), text)


def test_the_authors_gate_stays_available() -> None:
    for gold, text in (("Łódź", "I'd say Kraków"), ("-5", "5"), ("C++", "C"), ("γ-ray", "an X-ray")):
        assert passes(trial(gold, "rouge"), text)
        assert not passes(trial(gold), text)
    assert normalize("3.5") == "3.5"
    assert Judge(normalization="rouge").normalize("3.5: é ok") == "3 5 ok"


def test_numbers_of_other_scripts_and_notations() -> None:
    number = judge_of("number")
    for text, gold in (("3,5 km", "3.5"), ("١٢", "12"), ("1.234,5", "1234.5"), ("-7", "\N{MINUS SIGN}7")):
        assert number.correct(text, [gold]) == 1
    assert number.correct("3,5", ["3"]) == number.correct("-7", ["7"]) == 0


@pytest.mark.parametrize(
    ("gold", "text", "place"),
    [
        ("Zoë", "it is ZOË.", "ZOË"),  # Two bytes, the last of the answer: both are its steps.
        (unicodedata.normalize("NFD", "서울"), "「서울」은", "서울"),  # Found by text: composed, it is other tokens.
        ("cafe\u0301", "CAF\u00c9 x", "CAF\u00c9"),
        ("Ñandú", "un ñandú.", "ñandú"),
    ],
)
def test_steps_of_an_answer_of_several_bytes_a_character(gold: str, text: str, place: str) -> None:
    """A token a byte: every byte of the answer is a step of it, and none beside it is."""
    tokenizer = zoo.tokenizer()
    one = EncodedTrial([1], None, gold, [0], "t")  # type: ignore[arg-type]
    generated = tokenizer(text, add_special_tokens=False).input_ids
    assert len(generated) == len(text.encode())
    start = len(text[: text.index(place)].encode())
    assert answer_steps(one, generated, tokenizer) == list(range(start, start + len(place.encode())))
