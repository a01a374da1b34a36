"""NoLiMa: presets, grids, the official layout and own folders, on small copies of the format."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest

from lens_heads.tasks.nolima import PRESETS, nolima
from tests import zoo
from tests.tasks.nolima_files import NAMES, entry, folder, needle_file, second


def test_the_plain_grid_and_its_ids(tmp_path: Path) -> None:
    trials = nolima(folder(tmp_path), lengths=[1_000, 2_000], depths=[0.0, 0.125], characters=2)
    assert len(trials) == 3 * 2 * 2 * 2
    assert len({trial.id for trial in trials}) == len(trials)
    assert trials[0].id == "0401-T16_C02-onehop-Yuki-len1000-depth0"
    assert trials[-1].id == "0402-T02-onehop-Stuart-len2000-depth12.5"
    assert {trial.meta["book"] for trial in trials} == {"rand_book_1", "rand_book_2"}, "entries take books in turn"
    assert all(trial.haystack.startswith(f"Book {trial.meta['book'][-1]} begins.") for trial in trials)
    assert all(len(trial.haystack.split()) >= 2_000 for trial in trials), "short books are repeated"
    assert all(trial.chat is None for trial in trials)


def test_the_paper_preset(tmp_path: Path) -> None:
    trials = nolima(folder(tmp_path), preset="paper")
    assert len(trials) == 200
    counts = Counter((trial.meta["entry"], trial.meta["test"], trial.depth) for trial in trials)
    assert len(counts) == 3 * 10
    assert set(counts.values()) == {6, 7}, "200 over 30 strata"
    assert {trial.meta["character"] for trial in trials} == {"Yuki"}
    assert {trial.length for trial in trials} <= set(PRESETS["paper"].lengths)
    assert (min(PRESETS["paper"].lengths), max(PRESETS["paper"].lengths), len(PRESETS["paper"].lengths)) == (
        1_000,
        50_000,
        20,
    )
    assert {trial.chat for trial in trials} == {False}
    assert [trial.id for trial in trials] == [trial.id for trial in nolima(tmp_path, preset="paper", seed=42)]
    assert [trial.id for trial in trials] != [trial.id for trial in nolima(tmp_path, preset="paper", seed=43)]


def test_the_scripts_preset(tmp_path: Path) -> None:
    trials = nolima(folder(tmp_path), preset="scripts", n=900)
    assert len(trials) == 3 * 3 * 10 * 10
    assert {trial.meta["character"] for trial in trials} == set(NAMES[:3])
    assert sorted({trial.length for trial in trials})[::9] == [1_000, 5_000]
    assert {trial.chat for trial in trials} == {True}
    assert len(nolima(tmp_path, preset="scripts")) == 200
    assert {trial.chat for trial in nolima(tmp_path, preset="scripts", chat=False)} == {False}


def test_the_evaluation_preset_leaves_the_characters_of_selection(tmp_path: Path) -> None:
    root = folder(tmp_path, [entry(), second(), entry(id="0403", character_set=[*NAMES, *"ABCDEFGHIJ"])])
    trials = nolima(root, preset="evaluation")
    assert len(trials) == 5 * 5 * (3 * 2 + 2 * 12), "fewer than 800: all of the grid"
    assert sorted({trial.length for trial in trials}) == [1_000, 4_750, 8_500, 12_250, 16_000]
    assert sorted({trial.depth for trial in trials}) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert not {trial.meta["character"] for trial in trials} & set(NAMES[:3])
    needle_file(root / "needlesets" / "needle_set.json", [entry(character_set=NAMES[:3])])
    with pytest.raises(ValueError, match=r"entry '0401': field 'character_set' has 3 names, and the evaluation preset"):
        nolima(root, preset="evaluation")
    assert len(nolima(root, preset="evaluation", characters=["Katie"])) == 2 * 25


def test_the_evaluation_preset_draws_800(tmp_path: Path) -> None:
    root = folder(tmp_path, [entry(character_set=[f"N{i}" for i in range(20)])])
    assert len(nolima(root, preset="evaluation")) == 800


def test_official_files_come_from_the_hub_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = folder(tmp_path)
    direct = entry(questions={"direct": "Which character lives next to the {1}?"})
    needle_file(root / "needlesets" / "needle_set_ONLYDirect.json", [direct])
    asked: list[tuple[str, str, str]] = []

    def fetch(repo: str, name: str, repo_type: str) -> str:
        asked.append((repo, name, repo_type))
        return str(root / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    assert len(nolima(lengths=[500], depths=1)) == 3
    books = [f"haystack/rand_shuffle/rand_book_{i}.txt" for i in range(1, 6)]
    assert [name for _, name, _ in asked] == ["needlesets/needle_set.json", *books]
    assert {(repo, kind) for repo, _, kind in asked} == {("amodaresi/NoLiMa", "dataset")}
    assert nolima(questions="direct")[0].question == "Which character lives next to the Semper Opera House?"
    assert asked[6][1] == "needlesets/needle_set_ONLYDirect.json"
    assert {trial.meta["entry"] for trial in nolima(questions="twohop")} == {"0401"}, "entries without twohop left out"
    with pytest.raises(ValueError, match="field 'questions' has no 'threehop'"):
        nolima(questions="threehop")


def test_no_hub_names_the_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: object, **kwargs: object) -> str:
        raise OSError("no route")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(
        FileNotFoundError, match=r"could not load needlesets/needle_set.json of amodaresi/NoLiMa .* source="
    ):
        nolima()


def test_direct_questions_are_found_in_either_file(tmp_path: Path) -> None:
    own = entry(questions={"onehop": "Who has been to {2}?", "direct": "Who lives next to the {1}?"})
    root = folder(tmp_path, [own])
    assert nolima(root, questions="direct")[0].question == "Who lives next to the Semper Opera House?"
    needle_file(root / "needlesets" / "needle_set_ONLYDirect.json", [entry(questions={"direct": "Who is at {1}?"})])
    assert nolima(root, questions="direct")[0].question == "Who is at Semper Opera House?"


def test_an_own_folder_takes_every_needle_file(tmp_path: Path) -> None:
    root = folder(tmp_path, [entry()], name="animals.json")
    needle_file(root / "plants.json", [second()])
    assert {trial.meta["entry"] for trial in nolima(root)} == {"0401", "0402"}
    assert {trial.meta["entry"] for trial in nolima(root, needle_set="plants.json")} == {"0402"}
    with pytest.raises(FileNotFoundError, match=r"contains no needle set trees.json, only animals.json, plants.json"):
        nolima(root, needle_set="trees.json")
    needle_file(root / "plants.json", [entry()])
    with pytest.raises(ValueError, match=r"plants.json, entry '0401': .*animals.json, entry '0401' has the same id"):
        nolima(root)


def test_entries_that_lack_the_question_type_are_left_out_of_an_own_folder_with_a_warning(tmp_path: Path) -> None:
    root = folder(tmp_path)
    with pytest.warns(UserWarning, match="left out the entries without a 'twohop' question: 0402"):
        trials = nolima(root, questions="twohop")
    assert {trial.meta["entry"] for trial in trials} == {"0401"}
    with pytest.raises(ValueError, match=r"entry '0401': field 'questions' has no 'direct', only 'onehop', 'twohop'"):
        nolima(root, questions="direct")


def test_every_other_fault(tmp_path: Path) -> None:
    root = folder(tmp_path / "whole")
    with pytest.raises(ValueError, match=r"unknown preset 'papers': use 'paper', 'scripts' or 'evaluation', or None"):
        nolima(root, preset="papers")
    with pytest.raises(ValueError, match=r"n=99 is out of range: there are 45 trials"):
        nolima(root, n=99)
    with pytest.raises(ValueError, match=r"entry '0401': .* 5 names, so characters=6 is out of range; use 1 to 5"):
        nolima(root, characters=6)
    with pytest.raises(
        ValueError, match=r"5 names \(Yuki, .*\), but characters=\['Yuki', 'Zoe'\] contains Zoe; use only these"
    ):
        nolima(root, characters=["Yuki", "Zoe"])
    with pytest.raises(ValueError, match=r"characters='Yuki' must be a number or a list of names such as \['Yuki'\]"):
        nolima(root, characters="Yuki")
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        nolima(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty contains no needle set: put a .json file in"):
        nolima(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match=r"haystack contains no .txt file"):
        nolima(folder(tmp_path / "bare", books=0))


def lined_book(root: Path) -> str:
    """A book of lines of many lengths, in every file of the folder."""
    text = "\n".join(f"Line {i} goes on{' and on' * (i % 7)}." for i in range(400))
    for file in (root / "haystack" / "rand_shuffle").iterdir():
        file.write_text(text, encoding="utf-8")
    return text


@pytest.mark.parametrize("depth", [0.0, 0.04, 0.36, 0.5, 0.96, 1.0])
@pytest.mark.parametrize("length", [250, 1_000])
def test_the_benchmarks_needles_end_a_line_of_a_window_of_the_book(tmp_path: Path, length: int, depth: float) -> None:
    """With a token a character, the text is that of their placement, worked out on the characters."""
    text, tokenizer = lined_book(folder(tmp_path)), zoo.tokenizer()
    (trial,) = nolima(tmp_path, benchmark=True, lengths=[length], depths=[depth], chat=False, n=1)
    at = 0 if depth == 0 else next(i for i, c in enumerate(text) if c == "\n" and i / (length + 1) >= depth)
    start = at - round(length * depth)
    before, after = text[start : at + 1].rpartition("\n")[0], text[at + 1 : start + length]
    lead = " " if before else ""
    encoded = trial.encode(tokenizer)
    expected = trial.template.format(haystack=f"{before}{lead}{trial.needle}\n{after}", question=trial.question)
    assert tokenizer.decode(encoded.tokens) == tokenizer.decode(tokenizer("").input_ids) + expected
    assert encoded.needle is not None
    assert tokenizer.decode(encoded.tokens[slice(*encoded.needle)]) == lead + trial.needle
    assert (encoded.meta["length"], encoded.meta["depth"], trial.length) == (length, depth, length)
    bare = replace(trial, needle="").encode(tokenizer)
    assert bare.needle is None
    assert tokenizer.decode(bare.tokens).endswith(
        trial.template.format(haystack=f"{before}\n{after}", question=trial.question)
    )


@pytest.mark.slow
def test_the_benchmark_is_its_grid_with_its_characters_and_judging(tmp_path: Path) -> None:
    lined_book(folder(tmp_path))
    trials = nolima(tmp_path, benchmark=True, n=3 * 5 * 8 * 26)
    assert len({trial.id for trial in trials}) == len(trials), "every test in every book, once a length and depth"
    assert sorted({trial.length for trial in trials}) == [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000]
    np.random.seed(42)
    drawn = {i / 25: str(np.random.choice(NAMES)) for i in range(26)}
    assert {(trial.depth, trial.answer) for trial in trials} == set(drawn.items())
    judge = trials[0].judge
    said = ("It is\nYuki, I think", "Yukiko", "yuki", "")
    assert [judge.correct(text, ["Yuki"]) for text in said] == [1, 1, 0, 0]
    assert len(nolima(tmp_path, benchmark=True)) == 200
    assert nolima(tmp_path)[0].judge.correct("Yukiko", ["Yuki"]) == 0
    with pytest.raises(
        ValueError, match="preset='paper' is the LOCOS paper's, and benchmark=True asks for NoLiMa's own"
    ):
        nolima(tmp_path, preset="paper", benchmark=True)


def test_a_book_that_the_benchmarks_window_does_not_fit_is_named(tmp_path: Path) -> None:
    root = folder(tmp_path)
    (trial,) = nolima(root, benchmark=True, lengths=[300], depths=[0.5], chat=False, n=1)
    with pytest.raises(ValueError, match=r"no line of the book ends at or after token 150, where depth 0.5 of 300"):
        replace(trial, haystack="no line ends here " * 50).encode(zoo.tokenizer())
    with pytest.raises(ValueError, match=r"the book has 205 tokens, and a window of 300 from token 50 on goes beyond"):
        replace(trial, haystack="x" * 200 + "\nx" * 2 + "x").encode(zoo.tokenizer())


def test_the_span_decodes_to_the_needle(tmp_path: Path) -> None:
    tokenizer = zoo.tokenizer()
    for trial in nolima(folder(tmp_path), lengths=[600], depths=5, chat=False):
        encoded = trial.encode(tokenizer)
        assert encoded.needle is not None
        start, end = encoded.needle
        assert tokenizer.decode(encoded.tokens[start:end]).strip() == trial.needle
