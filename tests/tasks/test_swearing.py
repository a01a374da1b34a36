"""Swearing: the user's words decide; the shipped scenes hold none; a faulty list is named with its line."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from lens_heads.tasks.rows import packaged_rows
from lens_heads.tasks.swearing import swearing
from tests import zoo

WORDS = "# mine\nDrat\nblast\nfiddle sticks  # two words\n\nDRAT\n"
MILD = "damn damned hell bloody crap arse ass bastard bugger bollocks blast blasted bitch dick drat piss sod shit fuck"


@pytest.fixture
def words(tmp_path: Path) -> Path:
    file = tmp_path / "words.txt"
    file.write_text(WORDS)
    return file


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (' "Drat!"', 1),
        (" DRAT, it hurts", 1),
        (" oh,blast!he said", 1),
        (" Fiddle\u00a0Sticks", 1),
        (" the blasted hammer", 0),  # Only what is listed.
        (" hydrate", 0),
        (" fiddle with sticks", 0),
        (" Ouch!\nDrat!", 0),
        ("", 0),
    ],
)
def test_any_of_the_words_is_right_when_whole(words: Path, text: str, right: float) -> None:
    trials = swearing(words)
    assert {trial.judge.correct(text, [trial.answer]) for trial in trials} == {right}


def test_a_trial_is_a_scene_with_one_of_the_words_for_its_answer(words: Path) -> None:
    trials = swearing(words)
    assert len(trials) == len({trial.id for trial in trials}) == 48
    assert {trial.answer for trial in trials} == {"Drat", "blast", "fiddle sticks"}
    assert {trial.meta["words"] for trial in trials} == {3}
    trial = next(trial for trial in trials if trial.id == "swearing-pain-1")
    encoded = trial.encode(zoo.tokenizer())
    assert zoo.tokenizer().decode(encoded.tokens) == "He hit his thumb with the hammer and shouted:"
    assert zoo.tokenizer().decode(encoded.answer_tokens) == f" {trial.answer}"
    assert swearing(words, n=9, seed=3) == swearing(words, n=9, seed=3)
    assert [trial.answer for trial in swearing(words, seed=3)] != [trial.answer for trial in swearing(words, seed=4)]


def test_the_splits_share_no_scene_and_have_every_kind(words: Path) -> None:
    select, test = (swearing(words, split=split) for split in ("select", "test"))
    assert len(select) == len(test) == 24
    assert {trial.id for trial in select} | {trial.id for trial in test} == {trial.id for trial in swearing(words)}
    for split in (select, test):
        assert set(Counter(trial.meta["scene"] for trial in split).values()) == {4}
    with pytest.raises(ValueError, match="split"):
        swearing(words, split="train")


def test_hundreds_of_words_and_their_own_signs(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("\n".join([*(f"word{i}" for i in range(500)), "sh*t"]))
    judge = swearing(file, n=1)[0].judge
    assert [judge.correct(text, []) for text in ("word7", "so: Sh*t!")] == [0, 0], "without an accepted answer"
    assert [judge.correct(text, ["x"]) for text in ("word499.", "so: Sh*t!", "shot", "word500")] == [1, 1, 0, 0]


def test_the_scenes_are_different_and_hold_no_swear_word() -> None:
    rows = packaged_rows("swearing")
    prompts = [row.text("prompt") for row in rows]
    assert len(set(prompts)) == len({row.text("id") for row in rows}) == 48
    kinds = [row.text("kind") for row in rows]
    assert {kinds.count(kind) for kind in kinds} == {8}
    for prompt in prompts:
        assert not set(re.findall(r"\w+", prompt.lower())) & set(MILD.split())
        assert re.search(r"\w:$", prompt), "it stops where the word goes"
        assert '"' not in prompt


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drat\n***\n", r"words.txt, line 2: '\*\*\*' contains no letter: write one word or phrase per line"),
        ("# none\n\n", r"words.txt: the file contains no word: write one word or phrase per line"),
        ("", r"words.txt: the file contains no word: write one word or phrase per line"),
    ],
)
def test_a_faulty_list_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "words.txt"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        swearing(file)


def test_other_faults_are_named(tmp_path: Path, words: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none.txt does not exist: check its name"):
        swearing(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="n=49 is out of range: there are 48 packaged scenes"):
        swearing(words, n=49)
    words.write_bytes(b"dr\xe4t")
    with pytest.raises(ValueError, match="not valid UTF-8 at byte 2: save the file as UTF-8"):
        swearing(words)
