"""MBPP and HumanEval: rows become trials whose own answers pass their tests; wrong programs do not; nothing runs unasked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch

import lens_heads as lh
from lens_heads.answering import evaluation
from lens_heads.evidence import grid as ablation
from lens_heads.tasks.code import humaneval, mbpp
from lens_heads.tasks.templates import template
from lens_heads.trials import sandbox
from lens_heads.trials.metrics import text_scores
from tests import zoo
from tests.sandboxed import needs_confinement
from tests.tasks.row_files import write

FULL = [
    {
        "task_id": 7001,
        "text": "Write a function to find the largest gap between neighbours.",
        "code": "def gap(items):\r\n    pairs = zip(items, items[1:])\r\n    return max(abs(a - b) for a, b in pairs)",
        "test_list": ["assert gap([1, 5, 2]) == 4", "assert gap([3, 3]) == 0"],
        "test_setup_code": "",
        "challenge_test_list": [],
    },
    {
        "task_id": 7002,
        "text": "Write a function to give the depth of a tree.",
        "code": "def depth(node):\n    return 0 if node is None else 1 + max(depth(node.left), depth(node.right))",
        "test_list": ["assert depth(Node(Node())) == 2"],
        "test_setup_code": "class Node:\n    def __init__(self, left=None, right=None):\n"
        "        self.left, self.right = left, right",
        "challenge_test_list": [],
    },
]
TREES = {  # As MBPP's 367 and 927: the setup needs the code.
    "task_id": 7004,
    "text": "Write a function to give the depth of a tree.",
    "code": "class Node:\r\n    def __init__(self, data):\r\n        self.left = None\r\n"
    "def depth(node):\r\n    return 0 if node is None else 1 + depth(node.left)",
    "test_list": ["assert depth(root) == 2"],
    "test_setup_code": "root = Node(1)\r\nroot.left = Node(2)",
    "challenge_test_list": [],
}
SANITIZED = [
    {
        "source_file": "mine",
        "task_id": 7003,
        "prompt": "Write a function to find the area of a circle.",
        "code": "import math\ndef area(radius):\n    return math.pi * radius ** 2",
        "test_imports": ["import math"],
        "test_list": ["assert math.isclose(area(2), 12.566, abs_tol=0.001)"],
    }
]
PROBLEM = {
    "task_id": "HumanEval/901",
    "prompt": 'from typing import List\n\n\ndef evens(items: List[int]) -> List[int]:\n    """Keep the even ones.\n'
    '    >>> evens([1, 2])\n    [2]\n    """\n',
    "canonical_solution": "    return [item for item in items if item % 2 == 0]\n",
    "test": "\n\nMETADATA = {'author': 'me'}\n\n\ndef check(candidate):\n    assert candidate([1, 2, 4]) == [2, 4]\n"
    "    assert candidate([]) == []\n",
    "entry_point": "evens",
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def verdict(trial: lh.Trial, text: str) -> float:
    return trial.judge.correct(text, (trial.answer, *trial.aliases))


@pytest.mark.slow
@needs_confinement
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
@pytest.mark.parametrize("rows", [[*FULL, TREES], SANITIZED], ids=["full", "sanitized"])
def test_mbpp_rows_of_either_config_pass_with_their_own_code(
    tmp_path: Path, name: str, rows: list[dict[str, Any]]
) -> None:
    trials = {trial.id: trial for trial in mbpp(path=write(tmp_path / name, rows), allow_code_execution=True)}
    assert sorted(trials) == sorted(f"mbpp-{row['task_id']}" for row in rows)
    for row in rows:
        trial = trials[f"mbpp-{row['task_id']}"]
        assert verdict(trial, f"{trial.answer}\n[DONE]\n\nYou are an expert [") == 1
        assert verdict(trial, trial.answer.replace("return ", "return not ")) == 0
        assert verdict(trial, "") == verdict(trial, "[DONE]") == verdict(trial, "\n") == 0
        prompt = zoo.tokenizer().decode(trial.encode(zoo.tokenizer()).tokens)
        asked = f"your task: {row.get('text') or row['prompt']} Your code should pass these tests:\n\n"
        assert prompt.endswith(asked + "\n".join(row["test_list"]) + "\n[BEGIN]\n")


def test_mbpp_is_read_to_done_and_its_answer_is_the_reference(tmp_path: Path) -> None:
    trial = next(t for t in mbpp(path=write(tmp_path / "rows.jsonl", FULL)) if t.id == "mbpp-7001")
    assert (
        trial.answer
        == "def gap(items):\n    pairs = zip(items, items[1:])\n    return max(abs(a - b) for a, b in pairs)"
    )
    encoded = trial.encode(zoo.tokenizer())
    assert zoo.tokenizer().decode(encoded.answer_tokens) == trial.answer
    assert trial.judge.ended("def gap(items):\n    pass\n[DONE]")
    assert not trial.judge.ended("def gap(items):\n\n    pass\n")


@needs_confinement
@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("\n    return [item for item in items if item % 2 == 0]", 1),
        (
            "\n    found = []\n    for item in items:\n        found += [] if item % 2 else [item]\n    return found\n\n\ndef f(",
            1,
        ),
        ("\n    return items[:0] if not items else [2, 4]\n\n# Tests\nx = (", 1),
        ("\n    return [i for i in items if i % 2 == 0]\nif __name__ == '__main__':\n    (", 1),
        ("\nreturn [item for item in items if item % 2 == 0]", 0),  # Not in the function.
        ("\n    return items", 0),
        ("\n    import sys\n    sys.exit(0)", 0),
        (" # Done by hand.\n    return [item for item in items if item % 2 == 0]\n", 1),
        ("    return [item for item in items if item % 2 == 0]", 0),  # In the line of the docstring.
        ("", 0),
        ("\n\ndef evens(items):\n    return 1", 0),
    ],
)
def test_a_humaneval_body_keeps_its_indentation_and_ends_where_the_function_does(
    tmp_path: Path, text: str, right: float
) -> None:
    (trial,) = humaneval(path=write(tmp_path / "rows.jsonl", [PROBLEM]), allow_code_execution=True)
    assert verdict(trial, text) == right
    assert text_scores(text, [trial.answer], trial.judge)["correct"] == right


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_a_humaneval_trial_is_its_row(tmp_path: Path, name: str) -> None:
    (trial,) = humaneval(path=write(tmp_path / name, [PROBLEM]))
    assert (trial.id, trial.meta) == ("humaneval-901", {"kind": "humaneval", "function": "evens"})
    encoded = trial.encode(zoo.tokenizer())
    assert zoo.tokenizer().decode(encoded.tokens).endswith(PROBLEM["prompt"].rstrip())
    assert zoo.tokenizer().decode(encoded.answer_tokens) == f"\n{PROBLEM['canonical_solution'].rstrip()}"


@pytest.mark.slow
@needs_confinement
def test_the_examples_pass_their_own_tests() -> None:
    shown = re.findall(r"tests:\n\n((?:assert .+\n)+)\[BEGIN\]\n((?:.+\n)+?)\[DONE\]", template("mbpp")["template"])
    assert len(shown) == 3
    for tests, code in shown:
        assert sandbox.run(code, tests, code).why == ""
        assert "AssertionError" in sandbox.run(code, tests.replace("==", "!=", 1), code).why


@pytest.mark.parametrize(("task", "row"), [(mbpp, FULL[0]), (humaneval, PROBLEM)])
def test_nothing_runs_that_was_not_allowed(
    gqa: Any, tmp_path: Path, task: Any, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (trial,) = task(path=write(tmp_path / "rows.jsonl", [row]))
    shape = (lh.head_geometry(gqa).n_layers, lh.head_geometry(gqa).n_heads)
    monkeypatch.setattr(sandbox, "run", lambda *_, **__: pytest.fail("it ran"))
    remedy = r"allow_code_execution=True .*--allow-code-execution.*\), or use generate=False"
    with pytest.raises(ValueError, match=remedy):
        verdict(trial, trial.answer)
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "answer_batch", lambda *_, **__: pytest.fail("the model worked"))
        patch.setattr(ablation, "answer_batch", lambda *_, **__: pytest.fail("the model worked"))
        short = lh.Trial("short", "1 + 1 =", trial.answer, template="{question}", judge=trial.judge)
        with pytest.raises(ValueError, match=f"trial short: judging it runs generated code: .*{remedy}"):
            lh.evaluate(gqa, short, max_new_tokens=4, progress=False)
        ranking = lh.HeadScores.from_trials("mine", torch.rand(1, *shape), ["other"])
        with pytest.raises(ValueError, match=remedy):
            lh.ablation_curve(gqa, [short], ranking, kind="zero", max_new_tokens=4, progress=False)
    found = lh.evaluate(gqa, short, generate=False, progress=False)
    assert found.metrics["logprob"].isfinite().all()


def test_the_hub_is_asked_for_config_and_split(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    given: list[Any] = FULL
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: asked.append((args, kwargs)) or given)
    assert len(mbpp()) == len(mbpp(config="sanitized", split="train")) == 2
    given = [PROBLEM]
    assert len(humaneval()) == 1
    assert asked == [
        (("google-research-datasets/mbpp", "full"), {"split": "test"}),
        (("google-research-datasets/mbpp", "sanitized"), {"split": "train"}),
        (("openai/openai_humaneval",), {"split": "test"}),
    ]


def test_draws_follow_the_seed(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", [{**FULL[0], "task_id": i} for i in range(40)])
    assert mbpp(n=5, path=file, seed=1) == mbpp(n=5, path=file, seed=1)
    assert [trial.id for trial in mbpp(n=5, path=file, seed=1)] != [trial.id for trial in mbpp(n=5, path=file, seed=2)]


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        (mbpp, {"text": ""}, r"rows.jsonl, row 1: field 'prompt' is missing or empty; it must contain text"),
        (mbpp, {"code": " "}, r"row 1: field 'code' is missing or empty"),
        (mbpp, {"task_id": None}, r"row 1: field 'task_id' is missing or empty"),
        (mbpp, {"test_list": []}, r"row 1: field 'test_list' must be a list of 1 or more non-empty strings, got \[\]"),
        (mbpp, {"test_list": ["assert 1", " "]}, r"field 'test_list' must be a list .*, got \['assert 1', ' '\]"),
        (mbpp, {"test_list": "assert 1"}, r"field 'test_list' must be a list .*, got 'assert 1'"),
        (mbpp, {"test_imports": "import math"}, r"field 'test_imports' must be a list .*, got 'import math'"),
        (
            humaneval,
            {"entry_point": "odds"},
            r"row 1: field 'entry_point' must name a function in 'prompt', got 'odds'",
        ),
        (humaneval, {"test": ""}, r"row 1: field 'test' is missing or empty"),
        (humaneval, {"canonical_solution": "\n"}, r"row 1: field 'canonical_solution' is missing or empty"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, task: Any, change: dict[str, Any], message: str) -> None:
    row = {**(FULL[0] if task is mbpp else PROBLEM), **change}
    with pytest.raises(ValueError, match=message):
        task(path=write(tmp_path / "rows.jsonl", [row]))


def test_other_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown config 'main': use 'full' or 'sanitized'"):
        mbpp(config="main")
    with pytest.raises(ValueError, match="unknown split 'dev': use 'test', 'train', 'validation' or 'prompt'"):
        mbpp(split="dev")
    file = write(tmp_path / "rows.jsonl", FULL)
    with pytest.raises(ValueError, match=r"n=3 is out of range: there are 2 tasks in .*rows.jsonl"):
        mbpp(n=3, path=file)
    with pytest.raises(ValueError, match=r"n=0 is out of range: there are 2 problems in"):
        humaneval(n=0, path=file)
