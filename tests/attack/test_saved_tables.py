"""Damaged folders of saved curves: the same table, or an error of ours that names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.runs.tables import read_table, read_tables, write_table, write_tables
from tests.attack.held import refused

TABLE = pd.DataFrame({"method": ["a", "b", "c"] * 4, "set": "top", "k": range(12), "draw": 0, "heads": "", "task": "t"})
TABLE = TABLE.assign(trial=[f"trial {i}" for i in range(12)], logprob=[0.5 * i for i in range(12)])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("table") / "t.parquet"
    write_table(file, TABLE)
    return file.read_bytes()


@pytest.mark.parametrize("part", range(40))
def test_no_flipped_byte_changes_a_table_silently(tmp_path: Path, whole: bytes, part: int) -> None:
    file = tmp_path / "t.parquet"
    for at in range(part, len(whole), 200):
        data = bytearray(whole)
        data[at] ^= 0x01 if at % 2 else 0xFF
        file.write_bytes(data)
        try:
            found = read_table(file)
        except ValueError:
            refused(lambda: read_table(file), str(file))
        else:
            pd.testing.assert_frame_equal(found, TABLE)


FILES: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "an empty table": ("per_trial.parquet", lambda file: file.write_bytes(b""), "not a complete Parquet table"),
    "half a table": (
        "per_trial.parquet",
        lambda file: file.write_bytes(file.read_bytes()[:500]),
        "not a complete Parquet table",
    ),
    "noise": ("per_trial.parquet", lambda file: file.write_bytes(bytes(range(256))), "not a complete Parquet table"),
    "a CSV": ("per_trial.parquet", lambda file: TABLE.to_csv(file), "not a complete Parquet table"),
    "another table": (
        "per_trial.parquet",
        lambda file: write_table(file, pd.DataFrame({"x": [1]})),
        "is not an ablation curve (no column 'method')",
    ),
    "no table": ("per_trial.parquet", lambda file: file.unlink(), "is missing"),
    "a folder": ("per_trial.parquet", lambda file: (file.unlink(), file.mkdir()), "is a folder"),
    "empty meta": ("curve.json", lambda file: file.write_text(""), "is empty"),
    "half of the meta": ("curve.json", lambda file: file.write_text('{"rank'), "invalid JSON"),
    "meta that is a list": ("curve.json", lambda file: file.write_text("[]"), "no object in curve.json"),
    "meta in another encoding": ("curve.json", lambda file: file.write_bytes(b'{"a": "\xff"}'), "not valid UTF-8"),
    "no meta": ("curve.json", lambda file: file.unlink(), "is missing"),
}


@pytest.mark.parametrize(("name", "damage", "says"), FILES.values(), ids=FILES)
def test_a_damaged_curve(tmp_path: Path, name: str, damage: Callable[[Path], Any], says: str) -> None:
    write_table(tmp_path / "per_trial.parquet", TABLE)
    (tmp_path / "curve.json").write_text('{"main_task": "t"}')
    pd.testing.assert_frame_equal(AblationCurve.load(tmp_path).per_trial, TABLE)
    damage(tmp_path / name)
    refused(lambda: AblationCurve.load(tmp_path), says)


@pytest.mark.parametrize("text", ["", "[]", "7", '{"a": '])
def test_damaged_rest_of_a_comparison(tmp_path: Path, text: str) -> None:
    write_tables(tmp_path, {"pairs": TABLE}, "match.json", {"p": 0.5})
    assert read_tables(tmp_path, ["pairs"], "match.json", "HeadMatch")[1] == {"p": 0.5}
    (tmp_path / "match.json").write_text(text)
    refused(lambda: read_tables(tmp_path, ["pairs"], "match.json", "HeadMatch"), "match.json")


def test_a_table_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused(
        lambda: write_tables(tmp_path / "file", {"pairs": TABLE}, "match.json", {}), "pairs.parquet cannot be written"
    )
