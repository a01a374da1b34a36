"""Published gates: tables of numbers, by layer and kv head."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import lens_heads as lh


def test_a_table_of_gates_is_read(tmp_path: Path) -> None:
    (file := tmp_path / "full_attention_heads.tsv").write_text("0.9\t0.1\n0.25 1.0\n\n")
    found = lh.read_gates(file, "some-model")
    torch.testing.assert_close(found.values, torch.tensor([[0.9, 0.1], [0.25, 1.0]]))
    assert (found.unit, found.method, found.meta["model"]) == ("kv_head", "duo_gate", "some-model")
    assert [str(head) for head in found.top(2)] == ["L1H1", "L0H0"]
    query = lh.units.to_query_heads(found, 2)
    assert query.values.shape == (2, 4)
    other = lh.HeadScores.from_trials("induction", query.values[None] ** 2, ["a"])
    assert lh.compare.rank_correlation(query, other) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no gates"),
        ("0.1 0.2\n0.3", "line 2: 1 gates, but the first line has 2"),
        ("0.1 a", "line 1: '0.1 a' is not a line of numbers"),
        ("0.1\n1.5", "line 2: gates lie between 0 and 1"),
        ("nan", "line 1: gates lie between 0 and 1"),
    ],
)
def test_what_is_no_table_of_gates_is_named(tmp_path: Path, text: str, message: str) -> None:
    (file := tmp_path / "gates.tsv").write_text(text)
    with pytest.raises(ValueError, match=message):
        lh.read_gates(file)
    with pytest.raises(FileNotFoundError):
        lh.read_gates(tmp_path / "none.tsv")
