"""Judges: verdicts worked out by hand from each benchmark's definition, and what a faulty judge says."""

from __future__ import annotations

from typing import Any

import pytest

from lens_heads.tasks.templates import judge, template
from lens_heads.trials.containment import contains, normalize, squad
from lens_heads.trials.judges import RULES, Judge, OnlyLabel, judge_of
from lens_heads.trials.trial import Trial
from tests import zoo
from tests.sandboxed import needs_confinement

ROOMS = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
BABILONG = judge(template("babilong"), labels=ROOMS)
THINGS = judge(template("babilong"), labels=("apple", "football", "milk", "nothing"))
MUSIQUE = judge(template("musique"))
NUMBER = judge(template("arithmetic"))


@pytest.mark.parametrize(
    ("text", "target", "right"),
    [
        (" kitchen", "kitchen", 1),
        ("The Kitchen", "kitchen", 1),  # In any case, anywhere.
        ("In the kitchen. Before that, in the garden.", "kitchen", 1),  # The first sentence counts.
        ("In the kitchen or in the garden", "kitchen", 0),  # Another label.
        ("garden", "kitchen", 0),
        (". kitchen", "kitchen", 0),  # The first sentence is empty.
        ("kitchen <example> garden", "kitchen", 1),
        ("kitchen <CONTEXT> garden", "kitchen", 1),
        ("kitchen Question: where is the garden", "kitchen", 1),
        ("Question: kitchen", "kitchen", 0),
        ("the cellar", "kitchen", 0),
        ("kitchens", "kitchen", 1),  # Labels are not whole words there.
        ("", "kitchen", 0),
        (" \n", "kitchen", 0),
    ],
)
def test_babilong_takes_one_label_only(text: str, target: str, right: float) -> None:
    assert BABILONG.correct(text, [target]) == right


def test_babilong_labels_in_the_question_do_not_count() -> None:
    asked = BABILONG.without("Where was the milk before the Kitchen?")
    assert set(asked.labels) == set(ROOMS) - {"kitchen"}
    text = "before the kitchen it was in the garden"
    assert (asked.correct(text, ["garden"]), BABILONG.correct(text, ["garden"])) == (1, 0)
    assert asked.correct("kitchen", ["kitchen"]) == 0


@pytest.mark.parametrize(
    ("text", "target", "right"),
    [
        ("apple, milk", "milk,apple", 1),
        ("milk and apple", "milk,apple", 1),
        ("apple", "milk,apple", 0),
        ("apple, milk and football", "milk,apple", 0),
        ("apple, milk", "apple", 0),
        ("nothing", "nothing", 1),
        ("", "milk,apple", 0),
    ],
)
def test_babilong_wants_all_of_several_labels(text: str, target: str, right: float) -> None:
    assert THINGS.correct(text, [target]) == right


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        (" The River Ossel.", "River Ossel", 1),
        ("the  ossel", "River Ossel", 0),
        ("It is the River Ossel", "River Ossel", 0),
        ("River Ossel\nQuestion: and then", "River Ossel", 1),
        ("-3.5", "35", 1),  # SQuAD's normalisation drops sign and point.
        ("A. B. O'Neill-Smith", "ab oneillsmith", 0),  # "A." is an article once its point is gone: ' b oneillsmith'.
        ("A. B. O'Neill-Smith", "B. ONeillSmith", 1),
        ("", "River Ossel", 0),
        ("the", "a", 0),  # Both are empty after normalisation: an empty answer is wrong.
    ],
)
def test_musique_compares_all_words(text: str, answer: str, right: float) -> None:
    assert MUSIQUE.correct(text, [answer]) == right


def test_any_accepted_answer_will_do() -> None:
    assert MUSIQUE.correct("the Ossel", ["River Ossel", "Ossel"]) == 1
    assert MUSIQUE.correct("the Ossel", []) == 0


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        (" 143", "143", 1),
        ("143.", "143", 1),
        ("143.0", "143", 1),
        ("It is 143, I think", "143", 1),
        ("1,043", "1043", 1),
        ("-12", "-12", 1),
        ("\N{MINUS SIGN}12", "-12", 1),
        ("12", "-12", 0),
        ("1430", "143", 0),
        ("14 or 143", "143", 0),  # The first number counts.
        ("one hundred", "100", 0),
        ("\n143", "143", 0),
        ("", "143", 0),
    ],
)
def test_numbers_are_compared_as_numbers(text: str, answer: str, right: float) -> None:
    assert NUMBER.correct(text, [answer]) == right


EITHER = judge_of(cut=("\n", ". "), rule="either_contains")


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("Delaware.", "Delaware", 1),
        ("the State of Delaware", "Delaware", 1),
        ("1", "1929", 1),
        ("1929", "192", 1),
        ("1930", "1929", 0),
        ("4342 persons", "4,342", 1),
        ("SanDisk", "SanDisk Corporation", 1),
        ("", "Delaware", 0),
        (" \nDelaware", "Delaware", 0),
        ("Ohio. Delaware", "Delaware", 0),
        ("the", "the Delaware", 0),
        ("Delaware", "a", 0),
        ("company", "PA", 0),
        ("Wayne, PA 19087", "PA", 1),
        ("PA", "PA", 1),
        ("145", "45", 1),
    ],
)
def test_either_contains_is_loose_both_ways_but_for_postal_codes(text: str, answer: str, right: float) -> None:
    assert EITHER.correct(text, [answer]) == right


LETTER = judge_of(cut=("\n",), rule="first_label", labels=("A", "B", "C", "D"))


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("A", "A", 1),
        (" A.", "A", 1),
        ("(A)", "A", 1),
        ("**A**: because", "A", 1),
        ("The answer is A", "A", 1),
        ("The answer is A, not B", "A", 1),
        ("B. A is wrong", "A", 0),  # The first letter counts.
        ("I say B", "B", 1),  # No choice is called I.
        ("An apple", "A", 0),
        ("an a", "A", 0),
        ("BAD USA", "A", 0),  # Whole words.
        ("none\nA", "A", 0),
        ("", "A", 0),
    ],
)
def test_the_first_letter_in_the_text_is_the_answer(text: str, answer: str, right: float) -> None:
    assert LETTER.correct(text, [answer]) == right


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("Yes, it is.", "yes", 1),
        ("No; yes would be wrong", "yes", 0),
        ("I know: yes", "yes", 1),  # Whole words.
        ("iron oxide", "iron oxide", 1),  # The longer of two that begin there.
        ("iron oxide", "iron", 0),
        ("Iron (oxide)", "iron", 1),
        ("5.5 (m)", "5.5 (m)", 1),  # Labels are no patterns.
        ("5x5 (m)", "5.5 (m)", 0),
    ],
)
def test_labels_in_any_case_where_the_judge_says_so(text: str, answer: str, right: float) -> None:
    labels = ("yes", "no", "iron", "iron oxide", "5.5 (m)")
    assert judge_of(rule="first_label", labels=labels, ignore_case=True).correct(text, [answer]) == right


@pytest.mark.parametrize("text", ["She lives in New York.", "-3.5", "it was york", "", "a the"])
@pytest.mark.parametrize("answer", ["New York", "3.5", "-3.5", "the"])
def test_the_default_is_contains(text: str, answer: str) -> None:
    assert Judge().correct(text, [answer]) == contains(text, answer)
    assert Judge().normalize(text) == normalize(text)
    assert Judge().extract(text) == text


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("in New York City", "new york", 1),
        ("in Newer York", "new york", 0),
        ("35", "3.5", 1),
        ("", "x", 0),
        ("a", "an", 0),
    ],
)
def test_contains_with_squads_normalisation(text: str, answer: str, right: float) -> None:
    assert Judge(normalization="squad").correct(text, [answer]) == right


def test_the_cut_is_the_first_and_minds_the_case() -> None:
    assert Judge(cut=("STOP", "\n")).extract(" a stop b\nc STOP d") == "a stop b"
    assert Judge(cut=("STOP", "\n"), ignore_case=True).extract(" a stop b\nc STOP d") == "a"
    assert Judge(cut=("(", "a|b")).extract("x a b (y") == "x a b"  # The strings are no patterns.


@pytest.mark.parametrize(
    ("text", "expected"), [("The  Cat, and a dog!", "cat and dog"), ("-3.5", "35"), ("theatre", "theatre")]
)
def test_squads_normalisation(text: str, expected: str) -> None:
    assert squad(text) == expected


@pytest.mark.slow
@needs_confinement
def test_code_is_read_with_its_white_space_and_run_between_preamble_and_tests() -> None:
    judge = judge_of(
        cut=("\ndef",),
        rule="passes_tests",
        multiline=True,
        preamble="def two():\n",
        tests="assert two() == 2",
        allowed=True,
    )
    assert judge.extract("\n    return 2\n\ndef other") == "\n    return 2\n"
    assert [
        judge.correct(text, ["    return 2"]) for text in ("    return 2", "\treturn 1 + 1\ndef (", "    return 3")
    ] == [
        1,
        1,
        0,
    ]
    assert judge.correct("return 2", ["    return 2"]) == 0, "no body of the function"
    assert judge.correct("    return 2", []) == 0, "without an accepted answer"


@needs_confinement
@pytest.mark.parametrize("text", ["    pass", " \n\t", ""])
def test_no_code_does_not_pass_though_it_would(text: str) -> None:
    judge = judge_of(rule="passes_tests", preamble="def two():\n    pass\n", tests="two()", allowed=True)
    assert judge.correct(text, ["    return 2"]) == float(bool(text.strip()))


def test_no_code_runs_that_was_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lens_heads.trials.sandbox.run", lambda *_, **__: pytest.fail("it ran"))
    judge = judge_of(rule="passes_tests", tests="assert True")
    with pytest.raises(
        ValueError, match=r"a text: judging it runs generated code: allow that with allow_code_execution"
    ):
        judge.correct("x = 1", ["any"])
    with pytest.raises(ValueError, match=r"trial t: .*PassesTests\(allowed=True\)"):
        judge.check_allowed("trial t")
    Judge().check_allowed("trial t")


def test_a_trial_keeps_its_judge_in_tokens() -> None:
    trial = Trial(id="t", question="Where?", answer="kitchen", judge=BABILONG)
    assert trial.encode(zoo.tokenizer()).judge == BABILONG
    assert Trial(id="t", question="Where?", answer="kitchen").encode(zoo.tokenizer()).judge == Judge()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"rule": "close"},
            r"rule='close': must be one of contains, exact_match, number, final_number, either_contains",
        ),
        ({"normalization": "none"}, "normalization='none': must be 'numbers' or 'squad'"),
        ({"cut": "\n"}, "a judge's cut is .*: must be a list of"),
        ({"cut": ["", "x"]}, "non-empty strings"),
        *(
            ({"rule": rule}, f"judge '{rule}' has no labels: pass the possible answers")
            for rule in ("only_label", "first_label", "any_of", "rhymes")
        ),
        ({"labels": ["a"]}, "judge 'contains' has no field 'labels': the fields are cut, ignore_case"),
        ({"rule": "only_label", "labels": "ab"}, "a judge's labels is 'ab': must be a list of"),
        ({"rule": "passes_tests", "allowed": True}, "judge 'passes_tests' has tests='': pass the program"),
        ({"rule": "passes_tests", "tests": " \n"}, r"'passes_tests' has tests=' \\n'"),
        ({"tests": "assert True"}, "judge 'contains' has no field 'tests'"),
        ({"rule": "only_label", "preamble": "import math"}, "judge 'only_label' has no field 'preamble'"),
        ({"rule": "number", "allowed": True}, "judge 'number' has no field 'allowed'"),
    ],
)
def test_a_faulty_judge_says_what_is_wrong(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judge_of(**fields)


def test_every_rule_has_a_class_of_its_own() -> None:
    assert len({*RULES.values()}) == len(RULES) == 10
    assert all(kind.rule == name for name, kind in RULES.items())
    assert judge_of("only_label", labels=["a"]) == OnlyLabel(labels=("a",))


def test_no_label_left_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no labels"):
        judge_of(rule="only_label", labels=("yes", "no")).without("yes or no?")
