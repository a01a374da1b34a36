"""The table of families is what a run of it finds, with the versions that are installed."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from typing import Any

import pytest

from tests.scripts import BENCHMARKS, script

STORED = json.loads((BENCHMARKS / "results" / "families.json").read_text(encoding="utf-8"))
ROWS = {row["family"]: row for row in STORED["families"]}
SAME = all(version(package) == number for package, number in STORED["versions"].items())
FEW = ("Qwen 2, 2.5", "Gemma 4", "T5")


def test_no_family_is_wrong_or_ends_in_a_foreign_error() -> None:
    assert set(ROWS) == set(script("families").FAMILIES)
    counts = [row["verdict"] for row in ROWS.values()]
    assert not {"wrong", "foreign error"} & set(counts)
    assert counts.count("exact") >= 66
    assert all(row["why"] for row in ROWS.values() if row["verdict"] != "exact")
    assert all("\n" not in row["why"] and "/" not in row["why"].split(":")[0] for row in ROWS.values())


@pytest.mark.skipif(not SAME, reason="stored with other versions: python benchmarks/families.py")
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in FEW else pytest.mark.slow) for name in ROWS])
def test_a_family_is_what_the_table_says(name: str) -> None:
    found: dict[str, Any] = script("families").judged(name)
    assert (found["verdict"], without_numbers(found["why"])) == (
        ROWS[name]["verdict"],
        without_numbers(ROWS[name]["why"]),
    )


def without_numbers(text: str) -> str:
    """Errors differ by the processor that measures them."""
    return re.sub(r"\d[\d.e+-]*", "", text)


def test_a_family_that_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: a head's write that is a tenth too large is no rounding."""
    module = script("families")
    weights = module.Witness.weights
    monkeypatch.setattr(module.Witness, "weights", lambda one, layer: 1.1 * weights(one, layer))
    found = module.judged("Qwen 3")
    assert found["verdict"] == "wrong"
    assert found["why"].startswith("contributions ")
