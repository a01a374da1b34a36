"""Score files: both published forms, exactly, and every way a file can be broken."""

from __future__ import annotations

import base64
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from lens_heads.heads.files import load_heads
from lens_heads.heads.head import Head
from lens_heads.heads.made_on import MadeOn
from lens_heads.heads.scores import HeadScores
from lens_heads.runs.identity import ModelIdentity

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "wu_head_scores"

finite = st.floats(-(2.0**100), 2.0**100, width=32)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=arrays(np.float32, array_shapes(min_dims=3, max_dims=3, max_side=4), elements=finite),
    form=st.sampled_from(["envelope", "lists"]),
)
def test_both_forms_round_trip_exactly(tmp_path: Path, data: np.ndarray, form: str) -> None:
    before = HeadScores.from_trials("copy", torch.from_numpy(data), [f"t{i}" for i in range(len(data))])
    after = HeadScores.load(before.save(tmp_path / "scores.json", form=form))  # type: ignore[arg-type]
    assert torch.equal(after.per_trial, before.per_trial)
    assert torch.equal(after.values, before.values)


def test_the_envelope_keeps_ids_method_unit_and_meta_too(tmp_path: Path) -> None:
    meta = {"note": "mine"}
    about: dict[str, Any] = {
        "model": ModelIdentity("m", "abc", "torch.float32"),
        "score_unit": "logits",
        "selected": True,
        "evaluations": 41,
        "settings": {"direction": "raw"},
        "base": -1.5,
        "fit": {"r2": 0.5},
        "outcomes": {"passed": 2},
    }
    about["made_on"] = (MadeOn("a", "company", "needle", "prompt"), MadeOn("b"))
    before = HeadScores.from_trials("locos", torch.randn(5, 3, 4), [*"bacde"], meta=meta, unit="kv_head", **about)
    path = before.save(tmp_path / "s.json")
    after = HeadScores.load(path)
    assert (after.method, after.unit, after.trial_ids) == ("locos", "kv_head", tuple("bacde"))
    assert meta.items() <= after.meta.items()
    assert {name: getattr(after, name) for name in about} == about
    written = json.loads(path.read_text())
    assert set(written) == {"meta", "scores", "trial_ids", "confidence_intervals"}
    before = replace(before, selected=False)
    _, low, high = before.interval()
    written = json.loads(before.save(path).read_text())
    assert written["confidence_intervals"]["1-2"] == [float(low[1, 2]), float(high[1, 2])]
    assert written["scores"]["1-2"] == before.per_trial[:, 1, 2].tolist()


def test_a_file_of_the_previous_format_loads_with_every_field() -> None:
    """Written when `meta` held what are now fields, and a company's `cik` stood in place of a group."""
    found = HeadScores.load(Path(__file__).parent / "data" / "previous_format.json")
    assert (found.method, found.best, found.selected, found.signed) == ("lasso", "lowest", True, True)
    assert (found.unit, found.score_unit) == ("query_head", "change of logprob")
    assert found.model == ModelIdentity("made-up-2x3", "0123456789abcdef", "torch.float32")
    assert [str(head) for head in found.order] == ["L1H2", "L0H1"]
    assert [str(head) for head in found.top(6)] == ["L1H2", "L0H1", "L1H0", "L0H0", "L1H1", "L0H2"]
    assert found.trial_ids == ("capital-France", "ceo_lastname-ACME_1993", "ceo_lastname-BETA_1994")
    assert found.made_on == (
        MadeOn("capital-France", "", "1f2e3d4c5b6a7988", "aa11bb22cc33dd44"),
        MadeOn("ceo_lastname-ACME_1993", "1750", "8877665544332211", "0011223344556677"),
        MadeOn("ceo_lastname-BETA_1994", "20", "", "7766554433221100"),
    )
    assert found["L1H2"] == pytest.approx(-0.03753594681620598)
    assert found.per_trial[:, 0, 1].tolist() == [-1.152360200881958, 1.85300612449646, 1.586334228515625]
    assert set(found.meta) == {"format", "metric", "trials", "n_trials", "source"}
    assert found.settings == {"metric": "logprob"}


def test_a_single_trial_gives_complete_json(tmp_path: Path) -> None:
    before = HeadScores.from_trials("locos", torch.randn(1, 2, 2), ["a"])
    text = before.save(tmp_path / "s.json").read_text()

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    json.loads(text, parse_constant=refuse)
    assert torch.equal(HeadScores.load(tmp_path / "s.json").values, before.values)


def test_the_lists_form_is_the_published_one(tmp_path: Path) -> None:
    before = HeadScores.from_trials("copy", torch.tensor([[[0.5, 0.25]], [[1.5, 0.0]]]), ["x", "y"])
    written = json.loads(before.save(tmp_path / "s.json", form="lists").read_text())
    assert written == {"0-0": [0.5, 1.5], "0-1": [0.25, 0.0]}
    after = HeadScores.load(tmp_path / "s.json", method="mine")
    assert (after.method, after.trial_ids, after.meta["source"]) == ("mine", ("0", "1"), "s.json")


def test_the_lists_form_is_in_the_order_on_which_headkv_relies(tmp_path: Path) -> None:
    """Its loader reads `json.loads(file.readline()).items()`, takes the mean of each list, and reshapes to layers x heads."""
    before = HeadScores.from_trials("copy", torch.rand(5, 3, 4, generator=torch.Generator().manual_seed(0)), [*"abcde"])
    assert before.ranking() != sorted(before.ranking())
    with before.save(tmp_path / "s.json", form="lists").open() as file:
        listed = json.loads(file.readline())
    means = np.array([np.mean(scores) for scores in listed.values()]).reshape(3, 4)
    np.testing.assert_allclose(means, before.values.numpy(), rtol=1e-6)
    assert next(iter(json.loads(before.save(tmp_path / "s.json").read_text())["scores"])) == before.top(1)[0].key


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama-2-7b-80k", "llama-2-13b-64k"])
def test_a_published_file_is_written_as_it_was_published(tmp_path: Path, name: str) -> None:
    if not (file := PUBLISHED / f"{name}.json").exists():
        pytest.skip(f"the published score file {file.name} is not beside this checkout")
    published = json.loads(file.read_text())
    written = json.loads(HeadScores.load(file).save(tmp_path / "s.json", form="lists").read_text())
    assert list(written) == list(published)
    for key in list(published)[::101]:
        assert written[key] == pytest.approx(published[key], rel=1e-6)


def test_an_unknown_form_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="form='csv'"):
        HeadScores.from_trials("m", torch.zeros(1, 1, 1), ["a"]).save(tmp_path / "s.json", form="csv")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "trials", "shape", "best"),
    [
        (
            "llama-2-7b-80k",
            586,
            (32, 32),
            [("L16H19", 0.943), ("L11H15", 0.920), ("L8H26", 0.800), ("L6H9", 0.618), ("L7H12", 0.614)],
        ),
        ("llama-2-13b-64k", None, (40, 40), [("L13H23", 0.905)]),
    ],
)
def test_the_published_files_read_as_published(
    name: str, trials: int | None, shape: tuple[int, int], best: list[tuple[str, float]]
) -> None:
    file = PUBLISHED / f"{name}.json"
    if not file.exists():
        pytest.skip(f"the published score file {file.name} is not beside this checkout")
    found = HeadScores.load(file)
    assert (found.n_layers, found.n_heads, found.method) == (*shape, "copy")
    assert trials is None or len(found.trial_ids) == trials
    assert found.top(len(best)) == [Head.parse(head) for head, _ in best]
    for head, score in best:
        assert found[head] == pytest.approx(score, abs=5e-4)
    # The score is the plain mean of the list in the file.
    raw = json.loads(file.read_text())
    key = Head.parse(best[0][0]).key
    assert found[best[0][0]] == pytest.approx(sum(raw[key]) / len(raw[key]), abs=1e-6)


@pytest.mark.parametrize("n", [1, 3])
def test_the_envelope_keeps_the_null_exactly(tmp_path: Path, n: int) -> None:
    null = torch.randn(n, 2, 3, generator=torch.Generator().manual_seed(0)) * 10.0 ** torch.arange(-20, -17)
    found = HeadScores.from_trials("m", torch.rand(4, 2, 3), list("abcd"), null=null)
    again = HeadScores.load(found.save(tmp_path / "s.json"))
    assert again.null is not None
    assert torch.equal(again.null, null)
    assert torch.equal(again.p_values(), found.p_values())
    assert HeadScores.load(replace(found, null=None).save(tmp_path / "s.json")).null is None


def stored_null(change: dict[str, Any]) -> str:
    """A file whose null is two draws of four zeros, with a change."""
    zeros = base64.b64encode(bytes(2 * 4 * 4)).decode()
    return json.dumps({"scores": WHOLE, "null": {"draws": 2, "float32": zeros, **change}})


WHOLE = {"0-0": [1.0, 2.0], "0-1": [0.5, 0.5], "1-0": [0.0, 0.25], "1-1": [3.0, 4.0]}

BROKEN = {
    "truncated": (json.dumps(WHOLE)[:-9], ["invalid JSON at line 1"]),
    "empty file": ("", ["is empty"]),
    "nan": (json.dumps({**WHOLE, "0-1": [0.5, float("nan")]}), ["head L0H1", "trial 1", "nan"]),
    "infinite": (json.dumps({**WHOLE, "0-1": [float("inf"), 0.5]}), ["head L0H1", "trial 0", "inf"]),
    "null": (json.dumps({**WHOLE, "0-1": [0.5, None]}), ["head L0H1", "trial 1", "None"]),
    "text": (json.dumps({**WHOLE, "1-0": ["0.5", 1]}), ["head L1H0", "trial 0", "'0.5'"]),
    "bool": (json.dumps({**WHOLE, "1-0": [0.5, True]}), ["head L1H0", "trial 1", "True"]),
    "too large for float32": (json.dumps({**WHOLE, "1-0": [0.5, 1e39]}), ["L1H0"]),
    "too large for a float": ('{"0-0": [1' + "0" * 400 + "]}", ["head L0H0"]),
    "missing head": (
        json.dumps({k: v for k, v in WHOLE.items() if k != "1-0"}),
        ["head L1H0 is missing", "2 layers x 2"],
    ),
    "missing by shape": (json.dumps({"meta": {"shape": [3, 2]}, "scores": WHOLE}), ["head L2H0 is missing"]),
    "beyond the shape": (json.dumps({"meta": {"shape": [1, 2]}, "scores": WHOLE}), ["head L1H0"]),
    "ragged": (json.dumps({**WHOLE, "1-1": [3.0]}), ["head L1H1 has 1 trials, but others have 2"]),
    "ids": (json.dumps({"scores": WHOLE, "trial_ids": ["a"]}), ["1 trial_ids but 2 scores per head"]),
    "no ids": (json.dumps({"scores": WHOLE, "trial_ids": []}), ["0 trial_ids but 2 scores per head"]),
    "array": ("[1, 2]", ["holds a list", "lh.load_heads"]),
    "number": ("3", ["a JSON object"]),
    "empty object": ("{}", ["a JSON object"]),
    "empty scores": ('{"scores": {}}', ["'scores' must be an object"]),
    "scores list": ('{"scores": [1]}', ["'scores' must be an object"]),
    "empty lists": (json.dumps({k: [] for k in WHOLE}), ["no trial was successful"]),
    "meta list": (json.dumps({"meta": [1], "scores": WHOLE}), ["meta is [1]", "an object"]),
    "meta text": (json.dumps({"meta": "locos", "scores": WHOLE}), ["meta is 'locos'", "an object"]),
    "shape text": (json.dumps({"meta": {"shape": "2x2"}, "scores": WHOLE}), ["meta.shape is '2x2'", "[layers, heads]"]),
    "shape short": (json.dumps({"meta": {"shape": [2]}, "scores": WHOLE}), ["meta.shape is [2]"]),
    "shape empty": (json.dumps({"meta": {"shape": []}, "scores": WHOLE}), ["meta.shape is []"]),
    "shape of text": (json.dumps({"meta": {"shape": ["2", "2"]}, "scores": WHOLE}), ["meta.shape is ['2', '2']"]),
    "shape of zero": (json.dumps({"meta": {"shape": [0, 2]}, "scores": WHOLE}), ["meta.shape is [0, 2]"]),
    "shape too large": (json.dumps({"meta": {"shape": [10**12, 2]}, "scores": WHOLE}), ["head L2H0 is missing"]),
    "layer too large": (json.dumps({**WHOLE, "999999999999-0": [1, 2]}), ["head L2H0 is missing"]),
    "unit": (
        json.dumps({"meta": {"unit": "layer"}, "scores": WHOLE}),
        ["meta.unit is 'layer'", "query_head or kv_head"],
    ),
    "unit list": (json.dumps({"meta": {"unit": []}, "scores": WHOLE}), ["meta.unit is []"]),
    "method": (json.dumps({"meta": {"method": 3}, "scores": WHOLE}), ["meta.method is 3"]),
    "ids text": (json.dumps({"scores": WHOLE, "trial_ids": "ab"}), ["trial_ids is 'ab'", "a list"]),
    "ids number": (json.dumps({"scores": WHOLE, "trial_ids": 2}), ["trial_ids is 2"]),
    "null list": (json.dumps({"scores": WHOLE, "null": [1]}), ["the null cannot be read", "score again"]),
    "null without floats": (
        json.dumps({"scores": WHOLE, "null": {"draws": 2}}),
        ["the null cannot be read ('float32')"],
    ),
    "null of other draws": (stored_null({"draws": 3}), ["the null cannot be read"]),
    "null of no draws": (stored_null({"draws": 0}), ["draws=0: must be a positive integer"]),
    "null of no base64": (stored_null({"float32": "a null!"}), ["the null cannot be read"]),
    "null cut short": (stored_null({"float32": "AAAA"}), ["the null cannot be read"]),
    "null of infinities": (
        stored_null({"float32": base64.b64encode(bytes.fromhex("0000807f") * 8).decode()}),
        ["the null contains values that are not finite"],
    ),
    "no head": (json.dumps({**WHOLE, "layer one": [1.0, 2.0]}), ["'layer one' as a head"]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, case: str) -> None:
    text, parts = BROKEN[case]
    file = tmp_path / "broken.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"broken\.json") as error:
        HeadScores.load(file)
    for part in parts:
        assert part in str(error.value)


def test_a_file_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_bytes(b"\xff\xfe\x00\x80PK")
    with pytest.raises(ValueError, match=r"broken\.json"):
        HeadScores.load(file)


def test_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with pytest.raises(ValueError, match=r"runs is a folder: pass a score file in it, e\.g\. .*locos\.json"):
        HeadScores.load(tmp_path / "runs")


def test_no_file_is_a_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        HeadScores.load(tmp_path / "none.json")


@pytest.mark.parametrize("name", ["unit", "model", "made_on", "base", "settings", "begins"])
def test_a_name_that_the_file_needs_is_no_ones_own(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf"m: meta\['{name}'\]='mine': a score file has the scores' own {name} there"):
        HeadScores.from_trials("m", torch.ones(1, 1, 1), ["a"], meta={name: "mine"}).save(tmp_path / "s.json")
    assert not list(tmp_path.iterdir())


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    file = HeadScores.from_trials("m", torch.ones(1, 1, 1), ["a"]).save(tmp_path / "s.json")
    with pytest.raises(TypeError):
        HeadScores.from_trials("m", torch.zeros(1, 1, 1), ["a"], meta={"what": object()}).save(file)
    assert HeadScores.load(file)[0, 0] == 1.0
    assert [f.name for f in tmp_path.iterdir()] == ["s.json"]


@pytest.mark.parametrize(
    "text", ["17-24, 20-25,L3H1", "17-24\n20-25\n3-1\n", '["17-24", "L20H25", "3-1"]', "[[17, 24], [20, 25], [3, 1]]"]
)
def test_lists_of_heads_are_read_in_their_order(tmp_path: Path, text: str) -> None:
    (tmp_path / "heads.txt").write_text(text)
    assert load_heads(tmp_path / "heads.txt") == [Head(17, 24), Head(20, 25), Head(3, 1)]


@pytest.mark.parametrize(
    "listed",
    [
        '"17-24,20-25,3-1" # NQ, top 3 of 600',
        "17-24, 20-25, 3-1",
        "[17-24, '20-25', L3H1]",
        "[[17, 24], [20, 25], [3, 1]]",
        "\n  - 17-24\n  - 20:25\n  - 3-1",  # 20:25 is 1225 seconds to other readers of YAML.
    ],
)
def test_qrheads_configurations_are_read(tmp_path: Path, listed: str) -> None:
    text = f'# Default configuration\n\nattn_head_set: {listed}\nmodel_base_class: "Llama-3.1-8B-Instruct"\n'
    (tmp_path / "heads.yaml").write_text(text)
    assert load_heads(tmp_path / "heads.yaml") == [Head(17, 24), Head(20, 25), Head(3, 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('attn_head_set: "full_heads"', 'attn_head_set is "full_heads", every head of a model'),
        ("attn_head_set:", "contains no heads"),
        ("attn_head_set: 17-24, what", "cannot read 'what' as a head"),
        ("attn_head_set: [17-24", "the YAML cannot be read"),
        ("attn_head_set: {17-24: 1, a: 2}", "cannot read 'a' as a head"),
        ("attn_head_set: !!python/name:os.system x", "cannot read 'x' as a head"),
        ("", "contains no heads"),
        ("[]", "contains no heads"),
        ("17-24 what", "cannot read 'what' as a head"),
        ('["17-24"', "heads.txt"),
    ],
)
def test_a_list_with_what_is_no_head_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "heads.txt").write_text(text)
    with pytest.raises(ValueError, match=f"heads.txt.*{message}" if message != "heads.txt" else message):
        load_heads(tmp_path / "heads.txt")


def test_a_list_of_scores_is_said_to_name_neither_model_nor_trials(tmp_path: Path) -> None:
    made = HeadScores.from_trials("locos", torch.rand(3, 2, 2), ["a", "b", "c"])
    lists, whole = made.save(tmp_path / "lists.json", form="lists"), made.save(tmp_path / "whole.json")
    with pytest.warns(
        UserWarning, match=r"lists.json does not say of which model and trials .* They are called 'copy'"
    ):
        assert HeadScores.load(lists).method == "copy"
    with pytest.warns(UserWarning, match=r"on other trials$"):
        assert HeadScores.load(lists, method="locos").method == "locos"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HeadScores.load(whole)
