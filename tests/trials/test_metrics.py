"""Text metrics: examples worked out by hand, and rouge against the rouge-score package."""

from __future__ import annotations

import pytest

from lens_heads.trials.answers import rouge
from lens_heads.trials.judges import Judge, judge_of
from lens_heads.trials.metrics import TEXT_METRICS, contains_answer, exact_match, normalize, text_scores, token_f1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat, and a dog!", "cat and dog"),
        ("An apple\na day", "apple day"),
        ("theatre", "theatre"),  # An article inside a word stays.
        ("U.S.A.", "usa"),
        ("well-known", "wellknown"),
        ("1990-1995", "19901995"),
        ("a - b -- c", "b c"),
        ("1,000 dogs.", "1000 dogs"),
        ("No.5", "no5"),
        ("so...5", "so5"),
        ("  A  ", ""),
        ("", ""),
    ],
)
def test_normalisation_is_squads(text: str, expected: str) -> None:
    assert normalize(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$3.50", "3.50"),
        ("It is -5.", "it is -5"),
        ("(-5)", "-5"),
        ("\N{MINUS SIGN}5", "-5"),
        ("-$5", "-5"),
        (".5", ".5"),
        ("-.5", "-.5"),
        ("+5", "5"),
        ("3.5.", "3.5"),
    ],
)
def test_numbers_keep_their_sign_and_their_point(text: str, expected: str) -> None:
    assert normalize(text) == expected


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("The Eiffel Tower.", "eiffel tower", 1),
        ("5", "-5", 0),
        ("-5.", "-5", 1),
        ("eiffel", "eiffel tower", 0),
        ("eiffel tower in paris", "eiffel tower", 0),
        ("", "", 0),
        ("the", "a", 0),  # Both are nothing after normalisation.
    ],
)
def test_exact_match(text: str, gold: str, expected: float) -> None:
    assert exact_match(text, gold) == expected


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("She lives in New York City.", "york city", 1),
        ("She lives in New York.", "new york", 1),
        ("Yuki", "Yuki", 1),
        ("to concatenate", "cat", 0),
        ("cats", "cat", 0),
        ("york new", "new york", 0),
        ("new shiny york", "new york", 0),
        ("born in 1929", "1", 0),
        ("35", "3.5", 0),
        ("it is 3.5.", "3.5", 1),
        ("it is -5", "5", 0),
        ("北京", "北京", 1),
        ("答案是北京。", "北京", 1),
        ("东京", "北京", 0),
        ("я живу в Киеве", "Киев", 0),
        ("город «Киев»", "киев", 1),
        ("she said “Yuki”", "Yuki", 1),
        ("new a york", "new york", 1),  # Articles are gone on both sides.
        ("anything", "the", 0),
        ("", "cat", 0),
    ],
)
def test_contains_needs_whole_words_in_a_row(text: str, gold: str, expected: float) -> None:
    assert contains_answer(text, gold) == expected


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("cat sat mat", "the cat sat on mats", 2 * 2 / (3 + 4)),
        ("yes yes yes", "yes", 2 * 1 / (3 + 1)),
        ("yes", "yes yes yes", 2 * 1 / (1 + 3)),
        ("The same.", "same", 1),
        ("dog", "cat", 0),
        ("", "cat", 0),
        ("the", "a", 0),
    ],
)
def test_token_f1_counts_shared_words(text: str, gold: str, expected: float) -> None:
    assert token_f1(text, gold) == pytest.approx(expected)


def test_rouge_by_hand() -> None:
    """gold [the, red, car], text [a, red, car, drove]: two of three found, two of four right."""
    scores = text_scores("a red car drove", ["the red car"])
    assert scores["rouge1_recall"] == pytest.approx(2 / 3)
    assert scores["rougeL"] == pytest.approx(2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3))
    swapped = text_scores("car red", ["red car"])
    assert swapped["rouge1_recall"] == 1  # Order counts for the longest common subsequence only.
    assert swapped["rougeL"] == 0.5
    assert text_scores("running", ["runs"])["rouge1_recall"] == 1  # Stemmed.


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("a red car drove", "the red car"),
        ("She was visiting the museums of Dresden, twice", "she visited a museum in Dresden"),
        ("nothing here", "Yuki"),
        ("one two three two one", "two one two"),
    ],
)
def test_rouge_is_the_packages(text: str, gold: str) -> None:
    from rouge_score.rouge_scorer import RougeScorer

    expected = RougeScorer(["rouge1", "rougeL"], use_stemmer=True).score(target=gold, prediction=text)
    scores = text_scores(text, [gold])
    assert scores["rougeL"] == pytest.approx(expected["rougeL"].fmeasure)
    assert scores["rouge1_recall"] == pytest.approx(expected["rouge1"].recall)
    assert rouge("rouge1", gold, text) == pytest.approx((expected["rouge1"].recall, expected["rouge1"].fmeasure))


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("北京", "北京", 1),
        ("答案是北京。", "北京", 1),
        ("上海", "北京", 0),
        ("Это Киев.", "Киев", 1),
        ("Beijing", "北京", 0),
    ],
)
def test_an_answer_that_rouge_cannot_read_is_found_or_not(text: str, gold: str, expected: float) -> None:
    scores = text_scores(text, [gold])
    assert (scores["rouge1_recall"], scores["rougeL"]) == (expected, expected)
    assert rouge("rouge1", gold, text) == (expected, expected)


@pytest.mark.parametrize("text", ["", " ", "...", "\n"])
@pytest.mark.parametrize("gold", ["Yuki", "the", "...", ""])
def test_an_empty_text_scores_zero_everywhere(text: str, gold: str) -> None:
    assert text_scores(text, [gold]) == dict.fromkeys(TEXT_METRICS, 0.0)


def test_each_metric_takes_the_alias_it_likes_best() -> None:
    answers = ["United States of America", "America", "the U.S."]
    scores = text_scores("in america, I think", answers)
    assert scores["contains"] == 1
    assert scores["exact_match"] == 0
    assert scores["rouge1_recall"] == 1
    assert scores["token_f1"] == pytest.approx(2 * 1 / (4 + 1))  # By "America"; the full name gives 2/8.
    assert text_scores("US", answers) == text_scores("US", answers[::-1])
    assert text_scores("US", answers)["exact_match"] == 1
    assert text_scores("US", answers[:2])["exact_match"] == 0


def test_metrics_read_the_answer_that_the_judge_finds() -> None:
    """Cut at the line's end, and -3.5 is 35 by SQuAD's normalisation only."""
    text, answers = "-3.5 miles\nQuestion: 7", ["35 miles", "7"]
    squads = text_scores(text, answers, judge_of(cut=("\n",), normalization="squad", rule="exact_match"))
    assert squads == {
        "rougeL": 0.4,
        "rouge1_recall": 0.5,
        **dict.fromkeys(("contains", "exact_match", "token_f1", "correct"), 1),
    }
    ours = text_scores(text, answers, Judge(cut=("\n",)))
    assert (ours["contains"], ours["exact_match"], ours["token_f1"], ours["correct"]) == (0, 0, 0.5, 0)
    assert text_scores(text, answers)["contains"] == text_scores(text, answers)["correct"] == 1


def test_correct_is_the_judges_verdict() -> None:
    rooms = judge_of(rule="only_label", labels=("attic", "cellar"))
    assert [text_scores(text, ["attic"], rooms)["correct"] for text in ("the attic", "attic, cellar", "")] == [1, 0, 0]
    assert text_scores("attic, cellar", ["attic"], rooms)["contains"] == 1
