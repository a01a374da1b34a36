"""What the README says was found is what the stored results say, and stands on the page of results too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
GEMMA, SMOL = "gemma-3-270m", "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def locos() -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks/results/study_locos.json").read_text())["models"]


def flat(file: str) -> str:
    """A page without line breaks."""
    return " ".join((ROOT / file).read_text().split())


def cost(one: dict[str, Any], method: str, frame: str = "headline", **where: Any) -> str:
    """What a ranking's heads cost, in nats."""
    wanted = {"method": method, "set": "top", "metric": "logprob", "task": "retrieval", "k": one["k"], **where}
    (row,) = [row for row in one[frame] if all(row[name] == value for name, value in wanted.items())]
    return f"{row['drop']:.1f}"


def claim(one: dict[str, Any], id: str) -> dict[str, Any]:
    (found,) = [row for row in one["claims"] if row["id"] == id]
    return found


def bounds(row: dict[str, Any]) -> str:
    return f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def sentences(locos: dict[str, Any]) -> list[str]:
    """The README's sentences about results, filled from the file."""
    gemma, smol = locos[GEMMA], locos[SMOL]
    few: dict[str, Any] = {"frame": "ablation", "k": 6}
    shares = [f"{claim(one, 'retrieval')['share']:.0%}".replace("%", " %") for one in (gemma, smol)]
    return [
        f"the {gemma['k']} best heads by LOCOS are ablated, Gemma-3-270m ({gemma['heads']} heads) loses {shares[0]} of what the "
        f"needle adds to the answer's log-probability, SmolLM2-135M ({smol['heads']} heads) {shares[1]}; no set of random heads "
        "among 40, nor among 40 in the same layers, costs as much.",
        f"On Gemma, the six best heads of the exact read-out cost {cost(gemma, 'locos_exact', **few)} nats, of the raw direction "
        f"{cost(gemma, 'locos', **few)}, of attention {cost(gemma, 'attention_spatial', **few)}, of ablating every head alone "
        f"{cost(gemma, 'one_shot', **few)}, of patching every head {cost(gemma, 'patching', **few)} (30 trials). At {gemma['k']} "
        f"heads raw is ahead of exact by {bounds(less(claim(gemma, 'exact')))}.",
        f"On SmolLM2, the {smol['k']} best of the exact read-out cost {bounds(claim(smol, 'exact'))} nats more than those of the "
        f"raw direction, and {bounds(claim(smol, 'one_shot_exact'))} more than those of ablating every head alone.",
        f"on SmolLM2 the raw direction's heads cost less than those of patching (by {bounds(less(claim(smol, 'patching')))} "
        f"nats) and of plain attribution, and parametric recall is not spared ({bounds(claim(smol, 'parametric'))} nats beyond "
        "random heads).",
    ]


def less(row: dict[str, Any]) -> dict[str, Any]:
    """A difference the other way round."""
    return {"value": -row["value"], "low": -row["high"], "high": -row["low"]}


def test_every_sentence_about_results_is_in_the_readme(locos: dict[str, Any]) -> None:
    readme = flat("README.md")
    for sentence in sentences(locos):
        assert sentence in readme


def test_the_verdicts_behind_the_sentences(locos: dict[str, Any]) -> None:
    """Words such as "more", "less" and "suffers" stand only where a verdict does."""
    said = {(name, row["id"]): row["verdict"] for name, one in locos.items() for row in one["claims"]}
    holds = [(GEMMA, "retrieval"), (SMOL, "retrieval"), (SMOL, "exact"), (SMOL, "one_shot_exact")]
    assert [said[one] for one in holds] == ["holds"] * len(holds)
    refuted = [(GEMMA, "exact"), (SMOL, "patching"), (SMOL, "factorial"), (SMOL, "parametric")]
    assert [said[one] for one in refuted] == ["does not hold"] * len(refuted)
    for name in (GEMMA, SMOL):
        assert "rank 1 among 40 random sets" in claim(locos[name], "retrieval")["found"]
    assert claim(locos[SMOL], "factorial")["found"].startswith("dla -")


def test_every_number_is_on_the_page_of_results(locos: dict[str, Any]) -> None:
    page = flat("benchmarks/RESULTS.md")
    for name, id in (
        (SMOL, "exact"),
        (SMOL, "one_shot_exact"),
        (SMOL, "parametric"),
        (GEMMA, "exact"),
        (SMOL, "patching"),
    ):
        assert bounds(claim(locos[name], id)) in page
