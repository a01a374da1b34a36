"""Published runs: matrices and statistics recomputed from the JSON by plain loops; files that are not laid out so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom

from lens_heads.compare import head_overlaps
from lens_heads.evidence.transfer_files import read_counts, read_rankings
from lens_heads.heads.head import Head

EDGAR = Path(__file__).parents[3] / "shared" / "data" / "edgar_haystack"
RUN, RANKED = EDGAR / "ablation_llama3_8b", EDGAR / "ranking_llama3_8b" / "ranked_heads.json"
published = pytest.mark.skipif(not EDGAR.exists(), reason=f"{EDGAR} is not there")


def raw(name: str) -> Any:
    return json.loads((RUN / name).read_text())


def rate(cell: Any) -> float:
    return cell["matches"] / cell["attempts"]


@pytest.mark.slow
@published
def test_the_published_matrix_comes_out() -> None:
    m = read_counts(RUN)
    cross, base = raw("cross_task_within_heads_ablation.json"), raw("baseline_results.json")
    assert (len(m.sources), len(m.targets), m.draws) == (9, 9, 1)
    assert list(m.ks) == raw("meta.json")["ablation_k_values"]
    assert m.meta == {"model": "meta-llama/Meta-Llama-3-8B-Instruct"}
    table = m.frame.set_index(["method", "task", "k"])
    for task in base:
        assert table.loc[("none", task, 0), "value"] == rate(base[task]) == base[task]["accuracy"]
        assert table.loc[("none", task, 0), "trials"] == base[task]["attempts"]
    for k in m.ks:
        cells = cross[str(k)]["per_source_task"]
        for source in m.sources:
            for target in m.targets:
                assert table.loc[(source, target, k), "value"] == cells[source][target]["accuracy"]
                drop = rate(base[target]) - rate(cells[source][target])
                assert m.drop().loc[(k, source), target] == pytest.approx(drop)


@published
def test_the_published_diagonal_is_the_within_task_run() -> None:
    m, within, base = read_counts(RUN), raw("within_task_ablation.json"), raw("baseline_results.json")
    for task in m.sources:
        for k in m.ks:
            assert m.drop().loc[(k, task), task] == pytest.approx(rate(base[task]) - rate(within[task][str(k)]))


@published
def test_published_statistics_are_plain_loops() -> None:
    m = read_counts(RUN)
    cross, base = raw("cross_task_within_heads_ablation.json"), raw("baseline_results.json")
    control, tasks = raw("random_ablation_control.json"), list(base)
    for k in m.ks:
        cells = cross[str(k)]["per_source_task"]
        for task in tasks:
            harmed = [rate(base[task]) - rate(cells[source][task]) for source in tasks]
            harms = {target: rate(base[target]) - rate(cells[task][target]) for target in tasks}
            others = [harm for target, harm in harms.items() if target != task]
            chance = rate(base[task]) - rate(control[str(k)]["per_task"][task])
            assert m.fragility().loc[k, task] == pytest.approx(sum(harmed) / 9)
            assert m.fragility(relative=True).loc[k, task] == pytest.approx(sum(harmed) / 9 / rate(base[task]))
            assert m.disruptivity().loc[k, task] == pytest.approx(sum(others) / 8)
            assert m.specificity().loc[k, task] == pytest.approx(harms[task] - sum(others) / 8)
            assert m.statistic("random").loc[k, task] == pytest.approx(chance)
            assert m.beyond_random().loc[k, task] == pytest.approx(sum(harmed) / 9 - chance)


@published
def test_published_intervals_hold_the_statistic() -> None:
    m = read_counts(RUN)
    _, low, high = m.interval("fragility")
    value = m.fragility()
    assert ((low <= value) & (value <= high)).mean().mean() > 0.98
    assert (high - low).loc[32].mean() < 0.3


@published
def test_published_heads_overlap_far_beyond_chance() -> None:
    ranked = read_rankings(RANKED)
    lists = json.loads(RANKED.read_text())["tasks"]
    table = head_overlaps(ranked, k=16, shape=(32, 32))
    assert len(table) == 36
    for r in table.to_dict("records"):
        a, b = ({(e["layer"], e["head"]) for e in lists[r[name]][:16]} for name in "ab")
        assert r["overlap"] == len(a & b)
        assert r["jaccard"] == len(a & b) / len(a | b)
        assert r["share_of_a"] == r["share_of_b"] == len(a & b) / 16
        assert r["expected_overlap"] == pytest.approx(16 * 16 / 1024)
        assert r["p_value"] == pytest.approx(hypergeom.sf(len(a & b) - 1, 1024, 16, 16))
    assert table["overlap"].mean() > 20 * 16 * 16 / 1024
    assert ranked["registrant_name"][0] == Head(17, 24)
    assert {len(heads) for heads in ranked.values()} == {128}


# Files made here


def written(folder: Path, **files: Any) -> Path:
    cell = {"attempts": 4, "matches": 3}
    found = {
        "baseline_results": {"a": cell, "b": cell},
        "cross_task_within_heads_ablation": {"8": {"per_source_task": {s: {"a": cell, "b": cell} for s in "ab"}}},
    } | files
    for name, content in found.items():
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_a_run_without_control_or_meta_is_read(tmp_path: Path) -> None:
    m = read_counts(written(tmp_path))
    assert (m.sources, m.draws, m.meta) == (("a", "b"), 0, {})
    assert np.abs(m.drop().to_numpy()).max() == 0


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no baseline": ({"baseline_results": None}, FileNotFoundError, "baseline_results.json is missing"),
    "no cross": ({"cross_task_within_heads_ablation": None}, FileNotFoundError, "cross_task.* is missing"),
    "a list": ({"baseline_results": []}, ValueError, "baseline_results.json must contain a JSON object, not a list"),
    "no sources": (
        {"cross_task_within_heads_ablation": {"8": {}}},
        ValueError,
        "must contain an object 'per_source_task', but",
    ),
    "no counts": (
        {"baseline_results": {"a": {"accuracy": 1.0}}},
        ValueError,
        "source 'none', target 'a', k=0 must have an integer k, attempts and matches: KeyError",
    ),
    "no k": (
        {"cross_task_within_heads_ablation": {"x": {"per_source_task": {"a": {"a": {"attempts": 1, "matches": 1}}}}}},
        ValueError,
        "k='x' must have an integer k",
    ),
    "ragged": (
        {"random_ablation_control": {"8": {"per_task": {"a": {"attempts": 4, "matches": 3}}}}},
        ValueError,
        "target 'b'",
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_other_layouts_are_refused(case: Any, tmp_path: Path) -> None:
    files, error, message = case
    with pytest.raises(error, match=message):
        read_counts(written(tmp_path, **files))


def test_other_rankings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ranked.json"
    for content, message in (
        ("{", "ranked.json: invalid JSON at line 1"),
        ('{"heads": []}', "ranked.json must contain an object 'tasks'"),
        ('{"tasks": {"a": [{"layer": 1}]}}', "task 'a' must list objects with layer and head"),
        ('{"tasks": {"a": [{"layer": 1, "head": -2}]}}', "non-negative integer"),
        ('{"tasks": {"a": [{"layer": 1, "head": 2}, {"layer": 1, "head": 2}]}}', "task 'a' lists L1H2 more than once"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            read_rankings(path)
    with pytest.raises(FileNotFoundError, match="is missing"):
        read_rankings(tmp_path / "none.json")
