"""What the README says was found is what the stored results say, and stands on the page of results too."""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import lens_heads as lh
from lens_heads.ranking.masks.in_turn import MADE_ON
from lens_heads.studies.claims import published
from lens_heads.tasks.packaged import entries, packaged

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


def stored(study: str) -> dict[str, Any]:
    return json.loads((ROOT / f"benchmarks/results/study_{study}.json").read_text())


@pytest.fixture(scope="module")
def locos() -> dict[str, Any]:
    return stored("locos")["models"]


def flat(file: str) -> str:
    """A page without line breaks."""
    return " ".join((ROOT / file).read_text().split())


def the(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """The one row with these values."""
    (found,) = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    return found


def claim(one: dict[str, Any], id: str) -> dict[str, Any]:
    return the(one["claims"], id=id)


def bounds(row: dict[str, Any]) -> str:
    return f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def difference(row: dict[str, Any]) -> str:
    return "the same heads" if row["found"] == "they are the same heads" else bounds(row)


def rows_of(cells: dict[str, list[str]]) -> list[str]:
    """Rows of a table in Markdown."""
    return [f"| {label} | {' | '.join(each)} |" for label, each in cells.items()]


def sentences(locos: dict[str, Any]) -> list[str]:
    """The README's sentences and rows about results, filled from the file."""
    smol = locos[SMOL]
    rows = {
        "heads ablated, chosen by LOCOS's own cost": [
            f"{locos[name]['k']} of {locos[name]['heads']}" for name in MODELS
        ]
    }
    lost = [f"{claim(locos[name], 'retrieval')['share']:.0%}".replace("%", " %") for name in MODELS]
    rows["cost, as a share of what leaving the needle out costs the intact model"] = lost
    rows["cost of as many random heads"] = [bounds(claim(locos[name], "random")) for name in MODELS]
    for label, id in BEYOND.items():
        rows[f"cost beyond the heads of: {label}"] = [difference(claim(locos[name], id)) for name in MODELS]
    rows["area over log k: LOCOS, exact, attention, patching"] = [
        ", ".join(
            f"{area(locos[name], method):.1f}" for method in ("locos", "locos_exact", "attention_spatial", "patching")
        )
        for name in MODELS
    ]
    rows["of its ten best, among the ten most literal"] = [str(len(literal(locos[name]))) for name in MODELS]
    return [
        *rows_of(rows),
        f"Parametric recall is not spared on SmolLM2 ({bounds(claim(smol, 'parametric'))} nats beyond random heads)",
    ]


CHOOSING = {"patching": "patching", "exact LOCOS": "locos_exact", "LOCOS": "locos", "attention": "attention_mass"}
"""The columns of the README's table of choices, beside random heads."""


def choice_sentences() -> list[str]:
    """The README's rows and numbers about passages in which the question decides."""
    models = stored("choosing")["models"]
    one, passes = models[GEMMA], models[GEMMA]["passages"]
    (judged,) = {row["trials"] for row in one["claims"]}
    columns = {**CHOOSING, "random heads": "random"}

    def cells(table: str) -> str:
        rows = [the(one[table], method=name, kind="mean") for name in columns.values()]
        return " | ".join(f"{row['area']:.2f} [{row['low']:.2f}, {row['high']:.2f}]" for row in rows)

    def share(id: str) -> list[str]:
        low, high = re.findall(r"\[(\d+)%, (\d+)%\]", claim(one, id)["found"])[0]
        return [claim(one, id)["found"].split("%")[0], low, high]

    locos, attention = share("locos"), share("attention")
    turned = claim(one, "turns")
    alone = [row for row in one["heads"] if row["low"] > 0 and row["literal"] < 0.5]
    assert (one["k"]["locos"], one["k"]["attention_mass"]) == (8, 8)
    taken = re.search(r"another question takes (\S+) \[(\S+), (\S+)\] of what", one["question_note"])
    assert taken is not None
    worth = [f"{100 * float(number):.0f}" for number in taken.groups()]
    parts = {
        name: {row["head"] for row in one["roles"] if name in row["parts"].split(", ")} for name in ("selects", "names")
    }
    free = the(one["ungated"], method="locos", kind="mean")
    return [
        f"Gemma-3-270m is right in {bounds(claim(one, 'ability'))} of choices. On {judged:.0f} questions, of the "
        f"{passes['both right']} of {passes['all']} passages of which it answers both ({passes['told apart']} with first tokens "
        "that differ)",
        f"| Gemma-3-270m, by | {' | '.join(columns)} |",
        f"| nats of the choice, right minus other | {cells('areas')} |",
        f"| nats of the right answer | {cells('answer_areas')} |",
        f"LOCOS's eight heads take {locos[0]} % of the choice [{locos[1]} %, {locos[2]} %], attention's eight {attention[0]} % "
        f"[{attention[1]} %, {attention[2]} %]",
        f"Gemma prefers the other answer (-{turned['value']:.2f} nats [-{turned['high']:.2f}, -{turned['low']:.2f}])",
        f"Scored towards right minus other, LOCOS takes {bounds(claim(one, 'direction'))} nats more",
        f"Of {len(one['heads'])} heads exchanged alone, {len(alone)} surely carry some choice",
        f"{len(parts['selects'])} of Gemma's 72 heads carry what the question selects, "
        f"{len(parts['selects'] & parts['names'])} of these the name, too",
        f"On {free['trials']} questions of passages that no answer chose, LOCOS's eight take "
        f"{bounds(free | {'value': free['cost']})} nats beyond random heads",
        "before the gate, another question takes {} % [{} %, {} %] of the needle's worth".format(*worth),
    ]


def test_choices_are_told_as_they_were_found() -> None:
    readme = flat("README.md")
    for sentence in choice_sentences():
        assert sentence in readme
    models = stored("choosing")["models"]
    said = {row["id"]: row["verdict"] for row in models[GEMMA]["claims"]}
    holding = ("ability", "locos", "attention", "turns", "direction")
    assert {id: said[id] for id in holding} == dict.fromkeys(holding, "holds")
    assert said["writes"] == said["chooses"] == "cannot be told"
    assert not any(models[name]["does"] for name in (SMOL, f"{SMOL}, onehop", f"{GEMMA}, onehop"))
    assert "SmolLM2 is not shown to choose, nor Gemma one hop away: nothing is said of their heads there" in readme


def area(one: dict[str, Any], method: str) -> float:
    """The mean cost of a ranking's heads over log k, by trapezoids."""
    rows = [row for row in one["ablation"] if (row["method"], row["set"], row["metric"]) == (method, "top", "logprob")]
    costs = {math.log(row["k"]): row["drop"] for row in rows}
    ks = sorted(costs)
    return sum((b - a) * (costs[a] + costs[b]) / 2 for a, b in pairwise(ks)) / (ks[-1] - ks[0])


def literal(one: dict[str, Any]) -> set[str]:
    """The best ten heads by LOCOS that are also among the ten with the largest literal share."""
    return {row["name"] for row in one["top"]["locos"]} & {row["name"] for row in one["top"]["literal_share"]}


def test_rankings_are_ahead_by_area_where_the_readme_says_so(locos: dict[str, Any]) -> None:
    for name in MODELS:
        own = area(locos[name], "locos")
        assert area(locos[name], "attention_spatial") < own
        assert min(area(locos[name], "patching"), area(locos[name], "dla")) > own
    failed = [name for name in MODELS if claim(locos[name], "factorial")["verdict"] == "does not hold"]
    assert len(failed) == 2, "that both parts are needed fails on two of three"


def test_no_passage_needs_its_question() -> None:
    """What the README says of the packaged trials: the answer is the one first name, and stands in the needle."""
    names = {name for split in ("select", "test") for entry in entries(split) for name in entry.characters}
    for trial in packaged(split="test", n=60, context_length=300, seed=1):
        words = set(re.findall(r"\w+", f"{trial.haystack} {trial.needle}"))
        assert words & names == {trial.answer}
        assert trial.answer in trial.needle


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
        for id in (*BEYOND.values(), "parametric", "random"):
            assert difference(claim(locos[name], id)) in page, (name, id)


def fragile_sentences() -> list[str]:
    """The README's rows and numbers about tasks that share heads."""
    found = stored("fragile_tasks")
    assert tuple(found["models"]) == MODELS
    models = found["models"].values()
    assert [pair["models"] for pair in found["pairs"]] == [[GEMMA, SMOL], [GEMMA, QWEN], [SMOL, QWEN]]

    def sources(source: str) -> list[dict[str, Any]]:
        return [the(one["sources"], source=source, task="all tasks") for one in models]

    def beyond(row: dict[str, Any]) -> str:
        return bounds({name: row[f"beyond{end}"] for name, end in (("value", ""), ("low", "_low"), ("high", "_high"))})

    def row_of(pair: dict[str, Any], how: str) -> dict[str, Any]:
        return the(pair["correlations"], statistic="logprob: fragility beyond random", how=how)

    def correlated(how: str) -> str:
        row = row_of(found["pairs"][0], how)
        return f"(r = {row['r']:.2f}, p = {row['p']:.3f})"

    with_qwen = [row_of(pair, "tasks alike") for pair in found["pairs"][1:]]
    own, others = sources("the task's own heads"), sources("other tasks' heads")
    relative = the(published("lens_heads.studies.fragile_paper.claims")["model"], id="interchangeable")["relative"]
    preset = next(iter(models))["settings"]["preset"]
    cells = {
        "heads ablated": [f"{one['heads_for_k'][str(preset['headline_k'])]} of {one['heads']}" for one in models],
        "cost of the fact's own heads": [beyond(row) for row in own],
        "cost of other facts' heads": [beyond(row) for row in others],
        f"p of these by rank among {preset['random_sets']} random sets": [f"{row['p']:.3f}" for row in others],
    }
    return [
        *rows_of(cells),
        f"looks alike in Gemma and SmolLM2 {correlated('tasks alike')}, but random heads alone give r = "
        f"{row_of(found['pairs'][0], 'random heads alone')['r']:.2f}, and it cannot be told inside one format of answers "
        f"{correlated('inside strata')}",
        f"On Qwen, within {'a quarter' if relative == 0.25 else relative} of what they cost, that cannot be told",
        "nor in the pairs with Qwen (" + ", ".join(f"p = {one['p']:.3f}" for one in with_qwen) + ")",
    ]


def capability_sentences() -> list[str]:
    """The README's rows about heads found by compressed sensing."""
    found = stored("capability")
    assert tuple(found["models"]) == MODELS
    models = found["models"].values()

    def holding(one: dict[str, Any], id: str) -> str:
        """In how many of the capabilities that the model has a claim holds."""
        asked = [row for row in one["claims"] if row["id"] == id and "not above chance" not in row["found"]]
        return f"{sum(row['verdict'] == 'holds' for row in asked)} of {len(asked)}"

    def damage(method: str) -> list[str]:
        rows = [the(one["methods"], method=method) for one in models]
        return [f"{row['damage']:.2f} with {row['evaluations']}" for row in rows]

    def alone(one: dict[str, Any]) -> str:
        row = claim(one, "alone")
        return row["found"].split(":")[0] if row["verdict"] == "holds" else row["verdict"]

    told = {
        "carry it, of the capabilities the model has": [holding(one, "carries") for one in models],
        "cost it more than other capabilities' heads do": [holding(one, "specific") for one in models],
        "cost other tasks, beyond random heads": [bounds(claim(one, "spared")) for one in models],
        "a head that damages at least three alone": [alone(one) for one in models],
        "damage to retrieval, with evaluations": damage("css"),
        "damage by ablating every head alone": damage("one_shot"),
    }
    preset = next(iter(models))["settings"]["preset"]
    assert (preset["mask_draws"], preset["k"]) == (6, 5)
    return [
        *rows_of(told),
        f"in six draws of {preset['n_masks']} masks",
    ]


def test_the_other_studies_are_told_as_they_were_found() -> None:
    readme = flat("README.md")
    for sentence in [*fragile_sentences(), *capability_sentences()]:
        assert sentence in readme


def test_the_verdicts_behind_the_other_studies() -> None:
    facts = stored("fragile_tasks")
    said = {
        id: {name: claim(one, id)["verdict"] for name, one in facts["models"].items()}
        for id in ("transfer", "interchangeable")
    }
    assert said["transfer"] == {GEMMA: "holds", SMOL: "cannot be told", QWEN: "holds"}
    assert said["interchangeable"] == {GEMMA: "holds", SMOL: "does not hold", QWEN: "cannot be told"}
    assert {claim(pair, "fragility")["verdict"] for pair in facts["pairs"]} == {"cannot be told"}
    capabilities = stored("capability")["models"]
    alone = {name: claim(one, "alone")["verdict"] for name, one in capabilities.items()}
    assert alone == {GEMMA: "holds", SMOL: "holds", QWEN: "cannot be told"}
    assert {claim(one, "spared")["verdict"] for one in capabilities.values()} == {"does not hold"}
    for task in ("retrieval", "induction"):
        assert the(capabilities[QWEN]["claims"], id="carries", capability=task)["verdict"] == "does not hold"


def test_the_rows_of_the_other_studies_are_on_the_page_of_results() -> None:
    page = flat("benchmarks/RESULTS.md")
    numbers = [
        sentence for sentence in [*fragile_sentences(), *capability_sentences()] if sentence.startswith("| cost")
    ]
    for cell in (cell.strip() for row in numbers for cell in row.strip("| ").split("|")[1:]):
        if "[" in cell:
            assert cell in page


def test_what_kinds_of_heads_carry() -> None:
    runs = [json.loads(line)["results"] for line in (ROOT / "benchmarks/results/kinds.jsonl").read_text().splitlines()]
    said = {
        (run["model"], task, row["method"]): row["verdict"]
        for run in runs
        for task, one in run["behaviours"].items()
        for row in one["methods"]
        if row["claimed"]
    }
    claims = [(task, method) for task in ("induction", "look-ups") for method in ("induction", "echo")]
    for task, method in [*claims, ("succession", "successor")]:
        assert said[SMOL, task, method] == "holds"
        assert said[GEMMA, task, method] != "holds"
    assert "Do such heads carry what their score claims?" in flat("README.md")


METHODS = (
    "greedy",
    "best_in_turn",
    "locos_exact",
    "css",
    "eap_ig",
    "patching_answer",
    "one_shot",
    "attention_spatial",
    "random heads",
)
"""The ranking methods of the README's table."""


def method_rows() -> list[str]:
    rows = {row["method"]: row for row in json.loads((ROOT / "benchmarks/results/methods_overall.json").read_text())}
    lines = []
    for name in METHODS:
        row = rows[name]
        label = name if name == "random heads" else f"`{name}`"
        lines.append(f"| {label} | {row['passes']:.0f} | {row['share']:.2f} | {row['cpr_log']:.2f} |")
    return lines


def cells() -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """The rows of every model and task, by method."""
    lines = (ROOT / "benchmarks/results/methods.jsonl").read_text().splitlines()
    runs = [json.loads(line)["results"] for line in lines]
    return {(run["model"], run["task"]): {row["method"]: row for row in run["rows"]} for run in runs}


def shared() -> list[tuple[str, str]]:
    """The pairs that every method ran on, and none was made on."""
    return [cell for cell, rows in cells().items() if "greedy" in rows and cell not in MADE_ON]


def share(method: str, made_on: bool) -> float:
    """The mean share of a method over the pairs that `best_in_turn` was made on, or over the others."""
    return fmean(rows[method]["share"] for cell, rows in cells().items() if (cell in MADE_ON) == made_on)


def shares_said() -> list[str]:
    """The README's sentences about shares."""
    others = len(cells()) - len(MADE_ON)
    return [
        f"All rows are over the {len(shared())} pairs that every method ran on and none was made on",
        f"was made on {len(MADE_ON)} more: its share is {share('best_in_turn', True):.2f} there and "
        f"{share('best_in_turn', False):.2f} on all {others} others, about that of its own part `attribute_in_turn` "
        f"({share('attribute_in_turn', False):.2f}) and above one pass of `locos_exact` ({share('locos_exact', False):.2f})",
    ]


def test_what_a_ranking_costs_and_finds() -> None:
    readme, found = flat("README.md"), json.loads((ROOT / "benchmarks/results/methods_overall.json").read_text())
    for row in method_rows():
        assert row in readme
    assert f"over {len(cells())} pairs of a model and a task" in readme
    assert {row["cells"] for row in found} == {
        len([cell for cell, rows in cells().items() if "greedy" in rows and cell not in MADE_ON])
    }
    for sentence in shares_said():
        assert sentence in readme
    best = max(found, key=lambda row: row["cpr_log"])
    assert f"Heads to keep are found by others: `{best['method']}`" in readme


PAGES = [ROOT / "README.md", *sorted(ROOT.glob("lens_heads/**/*.md")), *sorted(ROOT.glob("benchmarks/*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_name_of_the_library_on_a_page_exists(page: Path) -> None:
    for name in re.findall(r"`lh\.([a-zA-Z_][\w.]*\w)", page.read_text(encoding="utf-8")):
        attrgetter(name)(lh)


def test_every_function_in_the_table_of_questions_exists() -> None:
    table = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("| question | function |")[2].partition("\n\n")[0]
    )
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z_.]+)`", row.split(" | ", 1)[1])]
    assert len(named) > 40
    for name in named:
        assert callable(attrgetter(name)(lh)) or name in ("verdicts", "methods", "sanity"), name
