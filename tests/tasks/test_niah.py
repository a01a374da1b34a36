"""Wu et al.'s folder: their three needles' quirks, the grid, and the span of the real needle."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from lens_heads.tasks.niah import niah
from tests import zoo

NEEDLES = [
    {
        "needle": "The best walk in Porto is along the river at dusk.",
        "question": "Which walk?",
        "real_needle": "along the river at dusk",
    },
    {
        "question": "Why is he late?",
        "needle": "He is late because he lost a shoe.",
        "real_needle": "Because he lost a shoe.",
    },
    {"needle": " Tea is best cold. ", "question": "How is tea best?", "real_needle": "cold"},
]


def folder(root: Path, needles: object = NEEDLES) -> Path:
    lines = needles if isinstance(needles, str) else "\n".join(json.dumps(needle) for needle in needles)  # type: ignore[attr-defined]
    (root / "needles.jsonl").write_text(lines)
    for i in (1, 2, 3):
        (root / f"part{i}").mkdir(exist_ok=True)
        (root / f"part{i}" / "p1.txt").write_text(f"Novel {i} opens. " + "It goes on. " * 30)
    return root


def test_the_default_grid_is_theirs(tmp_path: Path) -> None:
    trials = niah(folder(tmp_path))
    assert len(trials) == 3 * 20 * 10
    assert len({trial.id for trial in trials}) == 600
    assert trials[1].id == "niah-1-len1000-depth11"
    assert (trials[-1].length, trials[-1].depth) == (50_000, 1.0)
    assert all(trial.haystack.startswith(f"Novel {trial.meta['needle']} opens.") for trial in trials)
    assert all(len(trial.haystack.split()) >= 50_000 for trial in trials[::200])


def test_answer_and_focus(tmp_path: Path) -> None:
    """The answer is real_needle as written, the focus as the needle writes it."""
    trials = niah(folder(tmp_path), lengths=[300], depths=[0.5])
    assert [trial.answer for trial in trials] == ["along the river at dusk", "Because he lost a shoe.", "cold"]
    assert [trial.needle_focus for trial in trials] == ["along the river at dusk", "because he lost a shoe.", "cold"]
    assert trials[2].needle == "Tea is best cold."


@pytest.mark.parametrize("depth", [0.0, 0.4, 1.0])
def test_the_span_is_that_of_the_real_needle_inside_the_needle(tmp_path: Path, depth: float) -> None:
    tokenizer = zoo.tokenizer()
    for trial in niah(folder(tmp_path), lengths=[400], depths=[depth], chat=False):
        encoded = trial.encode(tokenizer)
        assert encoded.needle is not None
        start, end = encoded.needle
        assert tokenizer.decode(encoded.tokens[start:end]) == " " + trial.needle_focus
        before = tokenizer.decode(encoded.tokens[:start])
        after = tokenizer.decode(encoded.tokens[end:])
        assert before.endswith(trial.needle.split(trial.needle_focus)[0].rstrip())
        assert after.startswith(trial.needle.split(trial.needle_focus)[1])
        assert after.endswith(f"\nBased on the content of the book, Question: {trial.question}\nAnswer:")


def test_chat_puts_the_book_between_tags(tmp_path: Path) -> None:
    folder(tmp_path)
    assert niah(tmp_path, chat=True)[0].template.startswith("<book>{haystack}</book>\nBased on")
    assert niah(tmp_path)[0].template.startswith("{haystack}\nBased on")


def test_a_draw_is_stratified_over_needle_and_depth(tmp_path: Path) -> None:
    trials = niah(folder(tmp_path), n=45, seed=1)
    assert Counter((trial.meta["needle"], trial.depth) for trial in trials).most_common()[-1][1] == 1
    assert len({(trial.meta["needle"], trial.depth) for trial in trials}) == 30
    assert trials == niah(tmp_path, n=45, seed=1)
    assert trials != niah(tmp_path, n=45, seed=2)
    with pytest.raises(ValueError, match="n=601 is out of range: there are 600 trials"):
        niah(tmp_path, n=601)


def test_a_data_viewer_page_is_read_for_its_texts(tmp_path: Path) -> None:
    folder(tmp_path)
    page = {"features": [], "rows": [{"row": {"text": "One. "}}, {"row": {"text": "Two."}}]}
    (tmp_path / "part1" / "p1.txt").write_text(json.dumps(page, separators=(",", ":")))
    (tmp_path / "part1" / "p2.txt").write_text("Three.")
    assert niah(tmp_path, lengths=[3], depths=1)[0].haystack == "One. \n\nTwo.\n\nThree."
    (tmp_path / "part1" / "p1.plain.txt").write_text("Plain.")
    assert niah(tmp_path, lengths=[1], depths=1)[0].haystack == "Plain.\n\nThree.", "a plain copy replaces the page"
    (tmp_path / "part1" / "p2.txt").write_text('{"features":[],"rows":[{"row":{}}]}')
    with pytest.raises(ValueError, match=r"p2.txt: begins like a data viewer page, but"):
        niah(tmp_path)


@pytest.mark.parametrize(
    ("needles", "message"),
    [
        ('{"needle": "a"', r"needles.jsonl: invalid JSON at line 1, column"),
        ('\n["needle"]', r"needles.jsonl, line 2: expected an object .needle, question, real_needle., got list"),
        ('{"needle": "a b", "question": "c?"}', r"line 1: field 'real_needle' is missing or empty"),
        ('{"needle": "a b", "question": " ", "real_needle": "b"}', r"line 1: field 'question' is missing or empty"),
        (
            '{"needle": "a b", "question": "c?", "real_needle": "c"}',
            r"line 1: field 'real_needle' must occur once in 'a b', not 0 times, got 'c'",
        ),
        (
            '{"needle": "a b a", "question": "c?", "real_needle": "a"}',
            r"must occur once in 'a b a', not 2 times, got 'a'",
        ),
        ("\n", r"needles.jsonl: the file contains no needle: write one JSON object per line"),
    ],
)
def test_faults_are_named(tmp_path: Path, needles: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        niah(folder(tmp_path, needles))


def test_headkvs_folders_count_their_parts_from_0_and_ask_for_the_answer(tmp_path: Path) -> None:
    folder(tmp_path, [{**needle, "answer": f"answer {i}"} for i, needle in enumerate(NEEDLES)])
    (tmp_path / "part0").mkdir()
    with pytest.raises(ValueError, match=r"part0 to part3 for 3 needles, .*: remove part0 .* or part3"):
        niah(tmp_path)
    (tmp_path / "part3").rename(tmp_path / "part0" / "p")  # Not a text.
    (tmp_path / "part0" / "p1.txt").write_text("Novel 0 opens. " + "It goes on. " * 30)
    trials = niah(tmp_path, lengths=[300], depths=[0.5])
    assert [trial.haystack.split(" opens.")[0] for trial in trials] == ["Novel 0", "Novel 1", "Novel 2"]
    assert [trial.meta["book"] for trial in trials] == ["part0", "part1", "part2"]
    assert [trial.id.split("-")[1] for trial in trials] == ["1", "2", "3"]
    assert [trial.answer for trial in trials] == ["answer 0", "answer 1", "answer 2"]
    assert trials[0].needle_focus == "along the river at dusk"


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"needles.jsonl does not exist"):
        niah(tmp_path)
    folder(tmp_path, [*NEEDLES, NEEDLES[0]])
    with pytest.raises(
        FileNotFoundError, match=r"part4 contains no .txt file: put the haystack of needle 4 of needles.jsonl there"
    ):
        niah(tmp_path)
