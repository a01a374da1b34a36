"""The page of results is written from the measured files: it is up to date, and a number that changes there changes in it."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import lens_heads as lh
from tests.scripts import BENCHMARKS, script


def write(*arguments: str | Path) -> None:
    """The script, in this process. It ends with a sentence where it fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["results_page.py", *map(str, arguments)])
        script("results_page").main()


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A copy of the measured files."""
    return Path(shutil.copytree(BENCHMARKS / "results", tmp_path / "results"))


@pytest.fixture(scope="module")
def before() -> str:
    """The page of the measured files as they are."""
    return page_of(BENCHMARKS / "results")


def page_of(results: Path) -> str:
    module = script("results_page")
    return module.page(module.Results(results))


def changed_lines(results: Path, before: str) -> list[str]:
    return sorted(set(page_of(results).splitlines()) - set(before.splitlines()))


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    write("--check")


@pytest.mark.slow
def test_check_fails_for_a_page_that_is_out_of_date_and_leaves_it_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| locos | 0.99 |\n")
    for to in (page, tmp_path / "missing.md"):
        with pytest.raises(SystemExit) as ended:
            write("--check", "--to", to)
        assert ended.value.code == f"{to} is out of date: run python benchmarks/results_page.py"
    assert page.read_text() == "| locos | 0.99 |\n"


@pytest.mark.slow
def test_a_claim_that_changes_in_a_study_changes_in_the_page(results: Path, before: str) -> None:
    file = results / "study_locos.json"
    study = json.loads(file.read_text())
    claim = study["models"]["gemma-3-270m"]["claims"][0]
    claim |= {"value": 0.123456, "low": 0.0123456, "high": 0.987, "verdict": "does not hold"}
    file.write_text(json.dumps(study))
    (line,) = changed_lines(results, before)
    assert claim["claim"] in line
    assert "**does not hold**: 0.12 [0.01, 0.99]" in line


@pytest.mark.slow
def test_a_number_in_a_sentence_comes_from_the_file_too(results: Path, before: str) -> None:
    file = results / "study_fragile_tasks.json"
    study = json.loads(file.read_text())
    study["models"]["gemma-3-270m"]["settings"]["preset"]["trials"]["n"] = 6789
    file.write_text(json.dumps(study))
    (line,) = changed_lines(results, before)
    assert "6789 trials of other companies" in line


@pytest.mark.slow
def test_the_newest_run_of_a_benchmark_is_shown_and_no_older_one(results: Path, before: str) -> None:
    file = results / "score_pass.jsonl"
    oldest, *_, newest = map(json.loads, file.read_text().splitlines())
    newest["date"] = "2031-02-03"
    newest["results"]["models"]["gemma-3-270m"][0]["ratios"]["all/prefill"] = 4.321
    oldest["date"] = "2030-01-01"
    file.write_text("".join(f"{json.dumps(run)}\n" for run in (oldest, newest)))
    about, row = changed_lines(results, before)  # And no line of 2030.
    assert "4.32" in row
    assert "2031-02-03" in about


@pytest.mark.slow
def test_every_measured_file_is_read(results: Path) -> None:
    module, read = script("results_page"), set[str]()

    class Recorded(module.Results):
        def runs(self, name: str) -> Any:
            read.add(f"{name}.jsonl")
            return super().runs(name)

        def study(self, name: str) -> Any:
            read.add(f"{name}.json")
            return super().study(name)

    written = module.page(Recorded(results))
    assert read == {file.name for file in results.iterdir() if file.suffix in (".json", ".jsonl")}
    page = results.parent / "page.md"
    write("--results", results, "--to", page)
    assert page.read_text() == written
    (results / "patching.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match=r"patching\.jsonl"):
        page_of(results)


@pytest.mark.slow
def test_the_demo_is_read_from_the_study_s_own_layout(results: Path, before: str) -> None:
    file = results / "demo.json"
    study = json.loads(file.read_text())
    assert "28 trials choose the heads." in before
    for row in study["models"]["gemma-3-270m"]["texts"]:
        if (row["task"], row["metric"], row["set"]) == ("retrieval", "contains", "top"):
            row |= {"value": 0.123, "low": 0.012, "high": 0.456}
    file.write_text(json.dumps(study))
    (line,) = changed_lines(results, before)
    assert line.startswith("| gemma-3-270m | retrieval |")
    assert "0.12 [0.01, 0.46]" in line


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((results[^)]*)\)", (BENCHMARKS / "RESULTS.md").read_text())
    assert {"results/locos_curves.png", "results/study_locos.json", "results/patching.jsonl"} <= set(links)
    assert [link for link in links if not (BENCHMARKS / link).exists()] == []


@pytest.mark.slow
def test_a_method_that_changes_in_the_table_changes_in_the_page(results: Path, before: str) -> None:
    file = results / "methods.jsonl"
    runs = [json.loads(line) for line in file.read_text().splitlines()]
    row = runs[0]["results"]["rows"][0]
    row |= {"damage": 12.3456, "damage_low": 11.1, "damage_high": 13.9}
    file.write_text("".join(json.dumps(run) + "\n" for run in runs))
    (line,) = changed_lines(results, before)
    assert line.startswith(f"| `{row['method']}` |")
    assert "12.35 [11.10, 13.90]" in line


def test_the_means_over_tasks_are_those_of_the_table() -> None:
    module = script("methods")
    stored = json.loads((BENCHMARKS / "results" / "methods_overall.json").read_text())
    again = {row["method"]: row for row in module.overall(BENCHMARKS / "results")}
    assert {*again} == {row["method"] for row in stored}
    for row in stored:
        for name, value in row.items():
            now = again[row["method"]][name]
            assert now == (pytest.approx(value, abs=1e-6) if isinstance(value, float) else value), (row["method"], name)


@pytest.mark.slow
def test_the_table_of_methods_is_that_of_the_stored_trials() -> None:
    """The means in the table, from the values per trial beside it."""
    bench = lh.Bench.load(BENCHMARKS / "results" / "methods")
    runs = [json.loads(line)["results"] for line in (BENCHMARKS / "results" / "methods.jsonl").read_text().splitlines()]
    assert {(cell.model, cell.task) for cell in bench.cells} == {(run["model"], run["task"]) for run in runs}
    for run in runs:
        cell, rows = bench.cell(run["model"], run["task"]), {row["method"]: row for row in run["rows"]}
        assert {*cell.methods} == {*rows} - {"random heads"}
        for method in rows:
            for name, values in (("damage", cell.damage(method)), ("elsewhere", cell.damage(method, other=True))):
                assert float(values.to_numpy().mean()) == pytest.approx(rows[method][name], abs=1e-6), (method, name)
            assert float(cell.area(method).to_numpy().mean()) == pytest.approx(rows[method]["area"], abs=1e-6)
