"""What the README says was found is what the stored results say, and stands on the page of results too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
GEMMA, SMOL = "gemma-3-270m", "smollm2-135m-instruct"
QWEN = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
MODELS = (GEMMA, SMOL, QWEN)
BEYOND = {
    "the best attention baseline": "baseline",
    "every head ablated alone": "one_shot",
    "every head patched": "patching",
}
"""Rows of the README's table, and the claims they stand for."""


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


def difference(row: dict[str, Any]) -> str:
    return "the same heads" if row["found"] == "they are the same heads" else bounds(row)


def sentences(locos: dict[str, Any]) -> list[str]:
    """The README's sentences and rows about results, filled from the file."""
    gemma, smol = locos[GEMMA], locos[SMOL]
    few: dict[str, Any] = {"frame": "ablation", "k": 6}
    (preset,) = {json.dumps(one["settings"]["preset"]): one["settings"]["preset"] for one in locos.values()}.values()
    rows = {"heads ablated": [f"{locos[name]['k']} of {locos[name]['heads']}" for name in MODELS]}
    lost = [f"{claim(locos[name], 'retrieval')['share']:.0%}".replace("%", " %") for name in MODELS]
    rows["lost of what the needle adds to the answer's log-probability"] = lost
    for label, id in BEYOND.items():
        rows[f"cost beyond the heads of: {label}"] = [difference(claim(locos[name], id)) for name in MODELS]
    rows["cost of the exact read-out's heads beyond these"] = [
        difference(claim(locos[name], "exact")) for name in MODELS
    ]
    return [
        f"and had {preset['rivals']} of the {preset['select'][1]['n']} selection trials.",
        *(f"| {label} | {' | '.join(cells)} |" for label, cells in rows.items()),
        f"On Gemma, the six best heads of the exact read-out cost {cost(gemma, 'locos_exact', **few)} nats, of the raw direction "
        f"{cost(gemma, 'locos', **few)}, of attention {cost(gemma, 'attention_spatial', **few)}, of ablating every head alone "
        f"{cost(gemma, 'one_shot', **few)}, of patching every head {cost(gemma, 'patching', **few)} (30 trials).",
        f"parametric recall is not spared on SmolLM2 ({bounds(claim(smol, 'parametric'))} nats beyond random heads)",
    ]


def test_every_sentence_about_results_is_in_the_readme(locos: dict[str, Any]) -> None:
    readme = flat("README.md")
    for sentence in sentences(locos):
        assert sentence in readme


def test_the_verdicts_behind_the_sentences(locos: dict[str, Any]) -> None:
    """Words such as "more", "less" and "suffers" stand only where a verdict does."""
    said = {(name, row["id"]): row["verdict"] for name, one in locos.items() for row in one["claims"]}
    for id in ("retrieval", "baseline"):
        assert [said[name, id] for name in MODELS] == ["holds"] * len(MODELS)
    assert [said[SMOL, id] for id in ("exact", "one_shot_exact")] == ["holds"] * 2
    refuted = [(GEMMA, "exact"), (QWEN, "exact"), (SMOL, "one_shot"), (SMOL, "patching"), (SMOL, "factorial")]
    refuted.append((SMOL, "parametric"))
    assert [said[one] for one in refuted] == ["does not hold"] * len(refuted)
    assert said[QWEN, "patching"] == "cannot be told"
    for name in MODELS:
        assert "rank 1 among 40 random sets" in claim(locos[name], "retrieval")["found"]
    assert claim(locos[SMOL], "factorial")["found"].startswith("dla -")


def test_every_number_is_on_the_page_of_results(locos: dict[str, Any]) -> None:
    page = flat("benchmarks/RESULTS.md")
    for name in MODELS:
        for id in (*BEYOND.values(), "exact", "parametric"):
            assert difference(claim(locos[name], id)) in page, (name, id)
