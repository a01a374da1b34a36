"""Published gates: tables of numbers, by layer and kv head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import lens_heads as lh
from lens_heads.heads.gates import share_count
from tests.heads.test_files import PUBLISHED


def test_a_table_of_gates_is_read(tmp_path: Path) -> None:
    (file := tmp_path / "full_attention_heads.tsv").write_text("0.9\t0.1\n0.25 1.0\n\n")
    found = lh.read_gates(file, model="some-model")
    torch.testing.assert_close(found.values, torch.tensor([[0.9, 0.1], [0.25, 1.0]]))
    assert (found.unit, found.method, found.meta["model"]) == ("kv_head", "duo_gate", "some-model")
    assert [str(head) for head in found.top(2)] == ["L1K1", "L0K0"]
    query = lh.units.to_query_heads(found, 2)
    assert query.values.shape == (2, 4)
    other = lh.HeadScores.from_trials("induction", query.values[None] ** 2, ["a"])
    assert lh.compare.rank_correlation(query, other) == pytest.approx(1)


def test_what_the_last_step_of_training_left_outside_is_clipped(tmp_path: Path) -> None:
    (file := tmp_path / "gates.tsv").write_text(
        "4.730224609375000000e-03\t-1.403808593750000000e-03\t1.000000000000000000e+00\n"
    )
    torch.testing.assert_close(lh.read_gates(file).values, torch.tensor([[0.004730224609375, 0, 1]]))


def test_gates_and_published_retrieval_scores_are_compared_by_rank(tmp_path: Path) -> None:
    """Llama 2 has as many kv heads as query heads, so that a gate stands for one head."""
    if not (published := PUBLISHED / "llama-2-7b-80k.json").exists():
        pytest.skip(f"the published score file {published.name} is not beside this checkout")
    wu = lh.HeadScores.load(published)
    gates = (wu.values + 0.3 * torch.rand(32, 32, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    (file := tmp_path / "gates.tsv").write_text("\n".join("\t".join(map(str, row)) for row in gates.tolist()))
    found = lh.units.to_query_heads(lh.read_gates(file), 1)
    expected = spearmanr(gates.flatten(), wu.values.flatten()).statistic
    assert lh.compare.rank_correlation(found, wu) == pytest.approx(expected, abs=1e-5)
    shared = lh.compare.overlap(found, wu, k=20)
    both = set(gates.flatten().topk(20).indices.tolist()) & set(wu.values.flatten().topk(20).indices.tolist())
    assert len(shared.both) == len(both) > shared.expected_overlap


def test_open_gates_by_threshold_and_by_share(tmp_path: Path) -> None:
    (file := tmp_path / "gates.tsv").write_text("0.9 0.1\n0.25 1.0\n0.5 0.0\n")
    found = lh.read_gates(file)
    assert [str(head) for head in lh.heads.open_gates(found)] == ["L1K1", "L0K0", "L2K0"]
    assert [str(head) for head in lh.heads.open_gates(found, threshold=0.9)] == ["L1K1", "L0K0"]
    assert [str(head) for head in lh.heads.open_gates(found, threshold=0.500001)] == ["L1K1", "L0K0"]
    assert [str(head) for head in lh.heads.open_gates(found, threshold=1.0)] == ["L1K1"]
    assert lh.heads.gate_threshold(found, share=0.5) == pytest.approx(0.375)
    assert len(lh.heads.open_gates(found, threshold=lh.heads.gate_threshold(found, share=0.5))) == 3
    assert lh.heads.gate_threshold(found, share=1) == 0
    with pytest.raises(ValueError, match="threshold=2: must be a finite number from 0 to 1"):
        lh.heads.open_gates(found, threshold=2)
    with pytest.raises(ValueError, match="share=nan"):
        lh.heads.gate_threshold(found, share=float("nan"))


def table_of(kind: str, layers: int = 32, heads: int = 8) -> lh.HeadScores:
    """Gates as they are published: in bfloat16, most of them exactly 1, some a little below 0 and clipped."""
    drawn = np.random.default_rng(3).normal(*{"as published": (1.05, 0.4), "mixed": (0.5, 0.7)}[kind], (layers, heads))
    written = torch.tensor(drawn).bfloat16().clamp(-0.0015, 1).float()
    return lh.HeadScores.from_trials("duo_gate", written.clamp(0, 1)[None], ["training"], unit="kv_head")


def authors_heads(gates: np.ndarray, sparsity: float, seed: int) -> np.ndarray:
    """DuoAttention's `sparsify_attention_heads`, from its description: noise, a quantile, and what is not below it."""
    noisy = gates + np.random.default_rng(seed).uniform(0, 1e-6, gates.shape)
    threshold = np.quantile(noisy, sparsity)
    threshold = 2 if sparsity >= 1 else -1 if sparsity <= 0 else threshold
    return noisy >= threshold


@pytest.mark.parametrize("share", [0, 0.1, 0.25, 0.3, 0.5, 0.7, 0.75, 0.9, 1])
@pytest.mark.parametrize("kind", ["as published", "mixed"])
def test_the_asked_share_is_kept_where_gates_tie(kind: str, share: float) -> None:
    found = table_of(kind)
    gates = found.values.double().numpy()
    assert 0.3 < (np.isin(gates, (0, 1))).mean() < 0.9
    kept = lh.heads.open_gates(found, threshold=lh.heads.gate_threshold(found, share=share))
    theirs = [authors_heads(gates, round(1 - share, 9), seed) for seed in range(3)]
    assert [int(mask.sum()) for mask in theirs] == [len(kept)] * 3
    assert len(kept) == (share_count(256, share) if share else 0)
    assert kept == found.top(len(kept))
    # Only among gates that tie may the choices differ, up to the 1e-6 of their noise.
    values = sorted(found[head] for head in kept)
    for mask in theirs:
        np.testing.assert_allclose(np.sort(gates[mask]), values, atol=1e-6)


def test_shares_are_kept_however_many_heads_there_are() -> None:
    for layers, heads in ((3, 1), (11, 1), (18, 1), (30, 3), (12, 2)):
        for kind in ("as published", "mixed"):
            found = table_of(kind, layers, heads)
            for share in (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99):
                kept = len(lh.heads.open_gates(found, threshold=lh.heads.gate_threshold(found, share=share)))
                theirs = authors_heads(found.values.double().numpy(), round(1 - share, 9), 0)
                assert kept == share_count(layers * heads, share) == int(theirs.sum())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no gates"),
        ("0.1 0.2\n0.3", "line 2: 1 gates, but the first line has 2"),
        ("0.1 a", "line 1: '0.1 a' is not a line of numbers"),
        ("0.1\n1.5", "line 2: gates lie between 0 and 1"),
        ("nan", "line 1: gates lie between 0 and 1"),
        ("0.5 inf", "line 1: gates lie between 0 and 1.*HeadScores.load"),
        ("0.5 0_1", r"line 1: '0.5 0_1' is not a line of numbers \('0_1' is not a number\)"),
        ("0.5 \u0661", "is not a number.*write a gate per kv head, separated by tabs"),
        ("L0H1 0.5", "'L0H1' is not a number"),
    ],
)
def test_what_is_no_table_of_gates_is_named(tmp_path: Path, text: str, message: str) -> None:
    (file := tmp_path / "gates.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        lh.read_gates(file)
    with pytest.raises(FileNotFoundError):
        lh.read_gates(tmp_path / "none.tsv")
