"""Damaged, odd and hostile files under every name that a user can pass: the right rows, or an error that names the file."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

import lens_heads as lh
from lens_heads.evidence import transfer_files
from lens_heads.heads.files import load_heads, read_scores
from lens_heads.runs import reading
from lens_heads.tasks.books import LONGEST, at_least
from lens_heads.tasks.nolima import nolima
from lens_heads.tasks.sec10k.filings import read_corpus, read_filings
from tests.attack.held import refused

ROW = {"question": "How many?", "answer": "1 + 1 = 2\n#### 2"}
GOOD = json.dumps(ROW).encode()


def gsm8k(path: Path) -> list[str]:
    return [trial.question for trial in lh.tasks.gsm8k(path=path)]


def parquet(rows: list[dict[str, Any]], folder: Path) -> bytes:
    file = folder / "made.bin"
    datasets.Dataset.from_list(rows).to_parquet(file)
    content = file.read_bytes()
    file.unlink()
    return content


REFUSED: list[tuple[str, bytes, str]] = [
    ("null.jsonl", b"null", "null.jsonl, line 1: expected an object {..}, got NoneType"),
    ("null.json", b"null", "line 1: expected an object {..}, got NoneType"),
    ("nulls.json", b"[null]", "row 1: expected an object {..}, got NoneType"),
    ("number.jsonl", b"7", "line 1: expected an object {..}, got int"),
    ("text.jsonl", b'"text"', "got str"),
    ("lists.jsonl", b"[1]\n[2]", "invalid JSON at line 2, column 1: Extra data"),
    ("list_inside.json", b'[{"question": "a", "answer": "b"}, [1]]', "row 2: expected an object {..}, got list"),
    ("true.json", b"[true]", "row 1: expected an object {..}, got bool"),
    ("empty.jsonl", b"", "empty.jsonl contains no row: pass a copy of openai/gsm8k"),
    ("blank.jsonl", b"\n \n\t\n", "contains no row"),
    ("empty.json", b"", "contains no row"),
    ("empty_list.json", b"[]", "contains no row"),
    ("bom_alone.jsonl", b"\xef\xbb\xbf", "contains no row"),
    ("empty.csv", b"", "contains no row"),
    ("header.csv", b"question,answer\n", "contains no row"),
    ("empty.parquet", b"", "is no complete Parquet file; download it again"),
    ("latin.jsonl", '{"question": "é"}'.encode("latin-1"), "not valid UTF-8 at byte 14: save the file as UTF-8"),
    ("latin.csv", "question,answer\né,1".encode("latin-1"), "not valid UTF-8 at byte 16"),
    ("utf16.json", GOOD.decode().encode("utf-16"), "not valid UTF-8 at byte 0"),
    ("utf32.jsonl", GOOD.decode().encode("utf-32"), "not valid UTF-8 at byte 0"),
    ("gzip.jsonl", b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "not valid UTF-8 at byte 1"),
    ("nul.jsonl", b"\0" * 40, "invalid JSON at line 1, column 1"),
    ("cut.jsonl", GOOD + b"\n" + GOOD[:-9], "invalid JSON at line 2, column"),
    ("cut.json", b"[" + GOOD + b",", "invalid JSON at line 1"),
    ("two.jsonl", GOOD + b" " + GOOD, "Extra data; correct it there"),
    ("comma.json", b"[" + GOOD + b",]", "invalid JSON at line 1"),
    ("single.jsonl", b"{'question': 'a'}", "Expecting property name enclosed in double quotes"),
    ("deep.jsonl", b"[" * 100_000, "more than 100 levels of lists and objects; flatten them"),
    ("deep_row.jsonl", b'{"question":' + b"[" * 400 + b"]" * 400 + b"}", "more than 100 levels"),
    ("deep_object.json", b'{"a":' * 200 + b"1" + b"}" * 200, "more than 100 levels"),
    ("half.jsonl", b'{"question": "a \\ud800 b", "answer": "1 #### 1"}', "contains \\ud800, half of a character"),
    ("half_name.jsonl", b'{"a\\uDFFFb": 1}', "contains \\udfff, half of a character"),
    ("nan.jsonl", b'{"question": NaN}', "contains NaN, which is no JSON; use a number or null"),
    ("infinity.json", b'[{"question": -Infinity}]', "contains -Infinity, which is no JSON"),
    ("large.jsonl", b'{"question": 1e999}', "contains 1e999, which is too large"),
    ("digits.jsonl", b'{"question": ' + b"9" * 5000 + b"}", "an integer of thousands of digits; shorten it"),
    ("twice.jsonl", b'{"question": "a", "question": "b"}', "the name 'question' occurs twice in an object; keep one"),
    ("missing.jsonl", b'{"question": "a"}', "row 1: field 'answer' is missing or empty; it must contain text"),
    ("other.jsonl", GOOD + b'\n{"frage": "a"}', "row 2: field 'answer' is missing or empty"),
    ("null_field.jsonl", b'{"question": null, "answer": "1 #### 1"}', "field 'question' is missing or empty"),
    ("list_field.jsonl", b'{"question": ["a"], "answer": "1 #### 1"}', "field 'question' must contain text, got ['a']"),
    ("bool_field.jsonl", b'{"question": true, "answer": "1 #### 1"}', "field 'question' must contain text, got True"),
    ("object_field.jsonl", b'{"question": {}, "answer": "1 #### 1"}', "field 'question' must contain text, got {}"),
    ("long.jsonl", json.dumps({**ROW, "question": ["x" * 10**6]}).encode(), "..."),
    ("wide.csv", b"question,answer\na,b,c\n", "line 2 has 3 cells, but the header has 2; correct it"),
    ("narrow.csv", b"question,answer\na\n", "line 2 has 1 cells, but the header has 2"),
    ("quote.csv", b'question,answer\n"a,b\n', "is not valid (unexpected end of data); correct its quotes"),
    ("quoted.csv", b'question,answer\n"a"b,c\n', "correct its quotes"),
    ("columns.csv", b"question,question\na,b\n", "the column 'question' occurs twice; rename one"),
    ("semicolon.csv", b"question;answer\na;b\n", "row 1: field 'answer' is missing"),
    ("text.parquet", GOOD, "is no complete Parquet file"),
    ("cut.parquet", b"PAR1" + b"\0" * 20, "is no complete Parquet file"),
    ("marked.parquet", b"PAR1" + b"\xff" * 60 + b"PAR1", "cannot be read as Parquet"),
    ("rows.txt", GOOD, "contains no .jsonl, .json, .csv, .tsv, .parquet file"),
    ("rows", GOOD, "contains no .jsonl"),
]


@pytest.mark.parametrize(("name", "content", "says"), REFUSED, ids=[name for name, _, _ in REFUSED])
def test_a_bad_file_of_rows_is_refused(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    refused(lambda: gsm8k(tmp_path / name), says)
    refused(lambda: gsm8k(tmp_path / name), name)


READ: list[tuple[str, bytes, list[str]]] = [
    ("plain.jsonl", GOOD, ["How many?"]),
    ("bom.jsonl", b"\xef\xbb\xbf" + GOOD, ["How many?"]),
    ("bom.csv", b'\xef\xbb\xbfquestion,answer\nHow?,"1 #### 1"\n', ["How?"]),
    ("windows.jsonl", GOOD + b"\r\n" + GOOD + b"\r\n", ["How many?"] * 2),
    ("gaps.jsonl", b"\n\n" + GOOD + b"\n\n" + GOOD, ["How many?"] * 2),
    ("spaced.jsonl", b'{ "question": "a", "answer": "1 #### 1"}\n{ "question": "b", "answer": "1 #### 1"}', ["a", "b"]),
    ("list.json", b"[" + GOOD + b"]", ["How many?"]),
    ("list.jsonl", b"[" + GOOD + b",\n" + GOOD + b"]", ["How many?"] * 2),
    ("lines.json", GOOD + b"\n" + GOOD, ["How many?"] * 2),
    ("pretty.json", json.dumps(ROW, indent=2).encode(), ["How many?"]),
    ("pretty_list.json", json.dumps([ROW], indent=2).encode(), ["How many?"]),
    ("differing.jsonl", b'{"question": 5, "answer": "1 #### 1"}\n' + GOOD, ["5", "How many?"]),
    ("extra.jsonl", GOOD + b'\n{"question": "b", "answer": "1 #### 1", "tags": [1, "x", null]}', ["How many?", "b"]),
    ("ends.jsonl", '{"question": "a\u2028b\x85c", "answer": "1 #### 1"}'.encode(), ["a\u2028b\x85c"]),
    ("pair.jsonl", b'{"question": "\\ud83d\\ude00", "answer": "1 #### 1"}', ["\U0001f600"]),
    ("date.jsonl", b'{"question": "2020-01-01", "answer": "1 #### 1"}', ["2020-01-01"]),
    ("none.csv", b"question,answer\nNone,1 #### 1\nNA,1 #### 1\n007,1 #### 1\n", ["None", "NA", "007"]),
    ("breaks.csv", b'question,answer\n"a\nb",1 #### 1\n', ["a\nb"]),
    ("tabs.tsv", b"question\tanswer\na,b\t1 #### 1\n", ["a,b"]),
    ("index.csv", b",question,answer\n0,a,1 #### 1\n", ["a"]),
    ("huge.csv", b"question,answer\n" + b"x" * 300_000 + b",1 #### 1\n", ["x" * 300_000]),
    ("huge.jsonl", json.dumps({**ROW, "question": "x" * 5_000_000}).encode(), ["x" * 5_000_000]),
]


@pytest.mark.parametrize(("name", "content", "questions"), READ, ids=[name for name, _, _ in READ])
def test_an_odd_file_of_rows_is_read(name: str, content: bytes, questions: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert sorted(gsm8k(tmp_path / name)) == sorted(questions)


def test_parquet_is_read_and_a_flipped_byte_never_goes_further_than_an_error(tmp_path: Path) -> None:
    content = parquet([ROW] * 3, tmp_path)
    (tmp_path / "rows.parquet").write_bytes(content)
    assert gsm8k(tmp_path / "rows.parquet") == ["How many?"] * 3
    (tmp_path / "rows.parquet").write_bytes(content[:-9] + b"\xff" + content[-8:])
    refused(lambda: gsm8k(tmp_path / "rows.parquet"), "rows.parquet: cannot be read as Parquet")


def _loop(folder: Path) -> Path:
    (folder / "loop.jsonl").symlink_to(folder / "loop.jsonl")
    return folder / "loop.jsonl"


def _dangling(folder: Path) -> Path:
    (folder / "gone.jsonl").symlink_to(folder / "nowhere")
    return folder / "gone.jsonl"


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.jsonl")
    return folder / "pipe.jsonl"


def _named_folder(folder: Path) -> Path:
    (folder / "rows.jsonl").mkdir()
    return folder


def _mixed(folder: Path) -> Path:
    (folder / "a.jsonl").write_bytes(GOOD)
    (folder / "b.csv").write_bytes(b"question,answer\n")
    return folder


PLACES: list[tuple[str, Callable[[Path], Any], str]] = [
    ("loop", _loop, "loop.jsonl is a link that leads to no file: correct the link"),
    ("dangling", _dangling, "gone.jsonl is a link that leads to no file"),
    ("pipe", _pipe, "pipe.jsonl is a device or a pipe: save its content to a file"),
    ("device", lambda _: "/dev/zero", "/dev/zero is a device or a pipe"),
    ("missing", lambda folder: folder / "no.jsonl", "no.jsonl does not exist: pass a copy of openai/gsm8k, main, test"),
    ("empty folder", lambda folder: folder, "contains no .jsonl, .json, .csv, .tsv, .parquet file: pass a copy"),
    ("folder named like a file", _named_folder, "rows.jsonl is a folder: pass a file in it"),
    ("mixed folder", _mixed, "contains both .jsonl and .csv files: pass the file to read"),
    ("below a file", lambda folder: Path(__file__) / "x.jsonl", "x.jsonl does not exist"),
    ("long name", lambda folder: folder / ("x" * 300 + ".jsonl"), "cannot be read (File name too long)"),
    ("nul", lambda _: "a\0.jsonl", "contains a character that no path can have"),
    ("empty name", lambda _: "", "path='': is empty"),
    ("number", lambda _: 5, "path=5: must be a path"),
    ("truth value", lambda _: True, "path=True: must be a path"),
    ("list", lambda _: ["a.jsonl"], "path=['a.jsonl']: must be a path"),
    ("bytes", lambda _: b"a.jsonl", "path=b'a.jsonl': must be a path"),
    ("stranger's home", lambda _: "~nobody-here/x.jsonl", "there is no such user; write the whole path"),
]


@pytest.mark.parametrize(("where", "says"), [line[1:] for line in PLACES], ids=[line[0] for line in PLACES])
def test_a_place_without_rows_is_refused(where: Callable[[Path], Any], says: str, tmp_path: Path) -> None:
    refused(lambda: gsm8k(where(tmp_path)), says)


def test_a_folder_is_read_as_a_whole_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl"):
        (tmp_path / name).write_bytes(GOOD)
    (tmp_path / "._a.jsonl").write_bytes(b"\0\5\x16\7")
    assert {trial.id.rpartition("-")[2] for trial in lh.tasks.gsm8k(path=tmp_path)} == {"1", "2"}
    (tmp_path / "b.jsonl").write_bytes(b"{}")
    refused(lambda: gsm8k(tmp_path), "b.jsonl, row 1: field 'answer' is missing")


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "rows.jsonl").write_bytes(GOOD)
    monkeypatch.setattr(Path, "read_bytes", denied)
    refused(lambda: gsm8k(tmp_path / "rows.jsonl"), "rows.jsonl: cannot be read (Permission denied); check its perm")


def test_a_file_that_no_memory_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "rows.jsonl").open("wb") as file:
        file.truncate(reading.LARGEST + 1)
    refused(lambda: gsm8k(tmp_path / "rows.jsonl"), "rows.jsonl: is larger than 4 GiB; split it")


EVERY_READER: dict[str, Callable[[Path], Any]] = {
    "gsm8k": lambda path: lh.tasks.gsm8k(path=path),
    "musique": lambda path: lh.tasks.musique("hub", path=path),
    "babilong": lambda path: lh.tasks.babilong("hub", path=path),
    "qrhead": lambda path: lh.tasks.qrhead(path),
    "popqa": lambda path: lh.tasks.parametric("popqa", path=path),
    "arithmetic": lambda path: lh.tasks.arithmetic(n=1, source="hub", path=path),
    "hellaswag": lambda path: lh.tasks.hellaswag(path=path),
    "boolq": lambda path: lh.tasks.boolq(path=path),
    "arc_challenge": lambda path: lh.tasks.arc_challenge(path=path),
    "mmlu": lambda path: lh.tasks.mmlu(path=path),
    "wmdp": lambda path: lh.tasks.wmdp(path=path),
    "mbpp": lambda path: lh.tasks.mbpp(path=path),
    "humaneval": lambda path: lh.tasks.humaneval(path=path),
    "edgar-corpus": lambda path: read_corpus(path),
    "scores": lambda path: read_scores(path),
    "heads": lambda path: load_heads(path),
    "rankings": lambda path: transfer_files.read_rankings(path),
    "swearing": lambda path: lh.tasks.swearing(path),
}


@pytest.mark.parametrize("content", [b"null", b"[null]", b"{}", b"\xff\xfe", b'{"a":'], ids=repr)
@pytest.mark.parametrize("reader", EVERY_READER)
def test_every_reader_refuses_what_is_no_table(reader: str, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_bytes(content)
    if reader == "swearing" and content.isascii() and any(chr(byte).isalpha() for byte in content):
        pytest.skip("a word list may hold any words")
    refused(lambda: EVERY_READER[reader](file), "rows.json")


@pytest.mark.parametrize("reader", EVERY_READER)
def test_every_reader_names_a_missing_file(reader: str, tmp_path: Path) -> None:
    refused(lambda: EVERY_READER[reader](tmp_path / "none.json"), "none.json")
    refused(lambda: EVERY_READER[reader](5), "=5: must be a path")  # type: ignore[arg-type]


PARAGRAPH = {"title": "T", "paragraph_text": "Ann lives in Rome.", "is_supporting": True}
MUSIQUE = {"question": "Where?", "answer": "Rome", "paragraphs": [PARAGRAPH]}
DOCUMENTS = {"idx": "q", "question": "Who?", "paragraphs": [{"idx": "a", "paragraph_text": "He."}], "gt_docs": ["a"]}

FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("musique", {**MUSIQUE, "paragraphs": [PARAGRAPH, None]}, "field 'paragraphs' must be a list of {title"),
    ("musique", {**MUSIQUE, "paragraphs": "T"}, "got 'T'"),
    ("musique", {**MUSIQUE, "paragraphs": [{**PARAGRAPH, "is_supporting": "yes"}]}, "must be true or false, got 'yes'"),
    ("musique", {**MUSIQUE, "answer_aliases": ["a", 1]}, "field 'answer_aliases' must be a list"),
    ("musique", {**MUSIQUE, "question_decomposition": [1]}, "field 'question_decomposition' must be a list"),
    ("qrhead", {**DOCUMENTS, "gt_docs": "a"}, "field 'gt_docs' must be a list of paragraph ids, got 'a'"),
    ("qrhead", {**DOCUMENTS, "gt_docs": [["a"]]}, "rows.json, row 1"),
    ("qrhead", {**DOCUMENTS, "paragraphs": [[]]}, "field 'paragraphs' must be a list"),
    (
        "qrhead",
        {**DOCUMENTS, "paragraphs": [{"idx": True, "paragraph_text": "x"}]},
        "'idx' must contain text, got True",
    ),
    ("popqa", {"question": "?", "possible_answers": "[" * 9999}, "field 'possible_answers' must be a JSON list"),
    ("popqa", {"question": "?", "possible_answers": '["a", null]'}, "field 'possible_answers' must be a JSON list"),
    ("popqa", {"question": "?", "possible_answers": "[NaN]"}, "field 'possible_answers' must be a JSON list"),
    ("hellaswag", {"activity_label": "a", "ctx_a": "b", "endings": [1, 2]}, "field"),
    ("arc_challenge", {"question": "?", "choices": []}, "field 'choices' must be {'text'"),
    ("boolq", {"question": "?", "passage": "p", "label": None}, "field 'label' must be one of"),
    ("mmlu", {"question": "?", "subject": "s", "choices": ["a"], "answer": 0}, "field 'choices' must be a list"),
]


@pytest.mark.parametrize(("reader", "row", "says"), FIELDS, ids=[f"{line[0]}-{i}" for i, line in enumerate(FIELDS)])
def test_a_field_of_another_kind_is_named(reader: str, row: dict[str, Any], says: str, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    refused(lambda: EVERY_READER[reader](tmp_path / "rows.json"), says)


def test_truth_values_in_a_table_of_text_are_read(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("question,passage,answer\nIs it?,It is.,true\nWas it?,No.,FALSE\n")
    assert {trial.answer for trial in lh.tasks.boolq(path=tmp_path / "rows.csv")} == {"yes", "no"}


# Filings --------------------------------------------------------------------------------------------------------------


FILING = {"cik": "1", "company": "ACME INC", "item_1": "We make anvils."}


def archive(path: Path, content: bytes, name: str = "1_1993.json") -> Path:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(name, content)
    return path


def _flipped(folder: Path) -> Path:
    path = archive(folder / "f.zip", json.dumps(FILING).encode())
    content = path.read_bytes()
    at = content.index(b"anvils")
    path.write_bytes(content[:at] + b"ANVILS" + content[at + 6 :])
    return path


def _encrypted(folder: Path) -> Path:
    path = archive(folder / "f.zip", json.dumps(FILING).encode())
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(content)
    return path


FILINGS: list[tuple[str, Callable[[Path], Path], str]] = [
    ("no json", lambda folder: archive(folder / "f.zip", b"x", "a.txt"), "contains no .json file"),
    ("null", lambda folder: archive(folder / "f.zip", b"null"), "1_1993.json: expected an object"),
    ("empty", lambda folder: archive(folder / "f.zip", b""), "1_1993.json: is empty; it must contain JSON"),
    ("deep", lambda folder: archive(folder / "f.zip", b"[" * 9999), "1_1993.json: more than 100 levels"),
    ("flipped", _flipped, "f.zip: cannot be unpacked (Bad CRC-32"),
    ("encrypted", _encrypted, "f.zip: cannot be unpacked (File"),
    (
        "list",
        lambda folder: archive(folder / "f.zip", b'{"cik": [1], "company": "A"}'),
        "field 'cik' must contain text",
    ),
    (
        "number",
        lambda folder: archive(folder / "f.zip", json.dumps({**FILING, "item_1": 5}).encode()),
        "section's text",
    ),
    (
        "no year",
        lambda folder: archive(folder / "f.zip", json.dumps(FILING).encode(), "x.json"),
        "no year in the file name",
    ),
    ("missing", lambda folder: folder / "none.zip", "is neither a folder nor a .zip"),
]


@pytest.mark.parametrize(("made", "says"), [line[1:] for line in FILINGS], ids=[line[0] for line in FILINGS])
def test_bad_filings_are_refused(made: Callable[[Path], Path], says: str, tmp_path: Path) -> None:
    path = made(tmp_path)
    refused(lambda: read_filings(path), says)


@pytest.mark.parametrize(
    ("truth", "says"),
    [
        (b"", "columns must be filename and some of"),
        (b"filename,registrant_name_truth\na.txt,A,B\n", "line 2 has 3 cells"),
        (b"filename,registrant_name_truth\na.txt,A\na.txt,B\n", "filename 'a.txt' occurs twice; keep one row"),
        (b"\xff", "not valid UTF-8"),
        (b'filename,registrant_name_truth\n"a.txt,A\n', "correct its quotes"),
    ],
    ids=["empty", "wide", "twice", "latin", "quote"],
)
def test_bad_true_values_are_refused(truth: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"filename": "a.txt", "cik": 1, "year": 1993, "section_1": "x"}))
    (tmp_path / "truth.csv").write_bytes(truth)
    refused(lambda: read_corpus(tmp_path / "rows.jsonl", tmp_path / "truth.csv"), says)


# Books ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("海" * 3_000, 2_000), ("海" * 3_000, 50_000), ("x", 50_000), ("It rained. " * 20, 50_000), ("a b", 1)],
    ids=["chinese", "chinese, long", "a letter", "english", "short"],
)
def test_a_book_grows_no_further_than_a_prompt_can_use(text: str, tokens: int) -> None:
    book = at_least(text, tokens)
    assert len(book) <= 8 * tokens + len(text) + 2
    assert len(book) >= min(2 * tokens, len(book.split()) * 2 - 1)


@pytest.mark.parametrize("length", [LONGEST + 1, 10**12, True, 2.5, "1000"], ids=repr)
def test_a_context_that_no_text_reaches_is_refused_before_it_is_composed(length: Any, tmp_path: Path) -> None:
    (tmp_path / "haystack").mkdir()
    (tmp_path / "haystack" / "book.txt").write_text("It rained. " * 20)
    entry = {"id": "a", "needle": "{CHAR} sings.", "questions": {"onehop": "Who?"}, "character_set": ["Ann"]}
    entry |= {"tests": {"T": {"input_args": []}}, "task_template": "{haystack} {question}"}
    (tmp_path / "needles.json").write_text(json.dumps([entry]))
    refused(lambda: nolima(tmp_path, lengths=[length]), "lengths=")
    refused(lambda: lh.tasks.packaged(context_length=length), f"context_length={length!r}")
    refused(lambda: lh.tasks.babilong(context_length=length), f"context_length={length!r}")
