"""Workers: calls shared among processes give the numbers of one process, and survive the death of a worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads.model.copies import SEVERAL, packed, unpacked
from lens_heads.model.worker_devices import devices_of, each_takes
from lens_heads.model.workers import OPEN
from tests import zoo
from tests.conftest import random_trial, tiny

pytest.importorskip("ray")
TRIALS = [random_trial(seed, needle=(5, 9)) for seed in range(5)]
PROMPTS = [random_trial(seed).tokens for seed in range(4)]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """The order of sums depends on the number of threads, and workers share them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def crew(one_thread: None) -> Iterator[Any]:
    """A model with two workers."""
    model = tiny("llama-gqa")
    with lh.worker_pool(model, 2):
        yield model
    assert not OPEN


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def alone(model: Any) -> Any:
    """Another model of the same weights, which has no workers."""
    return unpacked(packed(model), "cpu")


@pytest.mark.parametrize("arch", zoo.ARCHITECTURES)
def test_a_packed_model_is_the_same_model(arch: str) -> None:
    model, tokens = tiny(arch), torch.arange(3, 20)[None]
    with torch.no_grad():
        assert torch.equal(alone(model)(tokens), model(tokens))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_folders_of_one_and_of_two_workers_are_equal(crew: Any, tmp_path: Path) -> None:
    for name, model in (("one", alone(crew)), ("two", crew)):
        lh.score_heads(model, TRIALS, teacher_forced=True, out=tmp_path / name / "scores", progress=False)
        lh.knockout_heads(model, PROMPTS, kind="zero", out=tmp_path / name / "knockout", progress=False)
    assert files(tmp_path / "one") == files(tmp_path / "two")


@pytest.mark.slow
def test_a_call_of_several_loops_goes_on_alike(crew: Any) -> None:
    one, two = (lh.ranking.sahara(model, PROMPTS, k=3, kind="zero", progress=False) for model in (alone(crew), crew))
    assert one.order == two.order
    assert one.meta["angles"] == pytest.approx(two.meta["angles"], abs=1e-3)


class Deadly:
    """A measure whose process dies when it is called for the first time anywhere; `each`: whenever it is called."""

    def __init__(self, marker: Path, each: bool = False) -> None:
        self.marker, self.each = marker, each

    def __call__(self, intact: Tensor, ablated: Tensor) -> Tensor:
        if self.each or not self.marker.exists():
            self.marker.touch()
            os._exit(1)
        return intact.max() - ablated.max()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_that_dies_gives_its_unit_back(tmp_path: Path) -> None:
    model = tiny("llama-gqa")
    measure = Deadly(tmp_path / "died")
    with lh.worker_pool(model, 2):
        with pytest.warns(UserWarning, match="a worker died"):
            found = lh.knockout_heads(model, PROMPTS, kind="zero", measure=measure, progress=False)
        again = lh.knockout_heads(model, PROMPTS, kind="zero", measure=measure, progress=False)
    expected = lh.knockout_heads(model, PROMPTS, kind="zero", measure=measure, progress=False)
    assert found.trial_ids == expected.trial_ids
    torch.testing.assert_close(found.per_trial, expected.per_trial)
    torch.testing.assert_close(again.per_trial, expected.per_trial)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_workers_that_die_between_calls(tmp_path: Path) -> None:
    import ray

    model = tiny("llama-gqa")
    with lh.worker_pool(model, 2):
        ray.kill(OPEN[-1].actors[0])
        with pytest.warns(UserWarning, match=r"a worker died \(1 left\)"):
            found = lh.knockout_heads(model, PROMPTS, kind="zero", progress=False)
        ray.kill(OPEN[-1].actors[0])
        with pytest.warns(UserWarning, match="0 left"), pytest.raises(RuntimeError, match="start new ones"):
            lh.knockout_heads(model, PROMPTS, kind="zero", progress=False)
    torch.testing.assert_close(
        found.per_trial, lh.knockout_heads(model, PROMPTS, kind="zero", progress=False).per_trial
    )


@pytest.mark.slow
def test_bad_input_leaves_the_workers_ready(crew: Any) -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        lh.knockout_heads(crew, PROMPTS, kind="nonsense", progress=False)
    with pytest.raises(ValueError, match="hooks attached"), lh.ablate(crew, ["L0H0"], kind="zero"):
        lh.evaluate(crew, TRIALS, generate=False, progress=False)
    assert len(lh.evaluate(crew, TRIALS, generate=False, progress=False).trial_ids) == 5


@pytest.mark.slow
def test_a_unit_that_fails_in_a_worker_is_reported_as_here(crew: Any) -> None:
    def metric(logits: Tensor, gold: Tensor) -> Tensor:
        return logits[:, 0, 0] / (0 if int(gold[0]) == int(TRIALS[0].answer_tokens[0]) else 1)

    with pytest.warns(UserWarning, match="1 of 5 failed"):
        found = lh.patch_heads(crew, TRIALS, metric=metric, progress=False)
    assert len(found.trial_ids) == 4


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ("cuda:7", "no device 'cuda:7'"),
        (0, "workers=0"),
        (2.5, "workers=2.5"),
        (True, "workers"),
        ("gpu", "no device 'gpu'"),
    ],
)
def test_workers_that_cannot_be(workers: Any, message: str) -> None:
    before = list(OPEN)
    with pytest.raises(ValueError, match=message):
        lh.score_heads(tiny("gpt2"), TRIALS, progress=False, workers=workers)
    assert before == OPEN


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_study_counts_the_work_of_its_workers() -> None:
    from tests.studies.test_ranking_methods import run

    methods = ["locos", "attribute_ablation", "patching_answer"]
    one, two = (
        run(zoo.bridge("qwen3", n_ctx=2048), None, methods, **more).frame.set_index("method")
        for more in ({}, {"workers": 2})
    )
    for column in ("passes", "area", "cpr"):
        assert dict(one[column]) == pytest.approx(dict(two[column]), abs=1e-4), column
    assert two["passes"]["attribute_ablation"] == pytest.approx(3, abs=0.1)


@pytest.mark.slow
def test_means_are_shared(crew: Any) -> None:
    one, two = (lh.mean_activations(model, TRIALS, progress=False) for model in (alone(crew), crew))
    assert torch.equal(one.z, two.z)
    assert torch.equal(one.q, two.q)


def test_a_model_can_be_spread_by_its_worker() -> None:
    """As over several GPUs; here all of it comes to the CPU."""
    model, tokens = tiny("llama-gqa"), torch.arange(3, 20)[None]
    spread = unpacked(packed(model), SEVERAL)
    assert spread.original_model.hf_device_map == {"": "cpu"}
    with torch.no_grad():
        assert torch.equal(spread(tokens), model(tokens))


@pytest.mark.parametrize(
    ("how", "gpus", "each", "devices"),
    [
        ("auto", 8, 1, ["cuda"] * 8),
        ("auto", 8, 4, [SEVERAL] * 2),
        ("auto", 0, 1, ["cpu"]),
        (3, 8, 2, [SEVERAL] * 3),
        (4, 2, 0.5, ["cuda"] * 4),
        ("2", 0, 1, ["cpu"] * 2),
        ("cpu,cpu", 8, 1, ["cpu"] * 2),
    ],
)
def test_the_devices_of_workers(
    how: Any, gpus: int, each: float, devices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert devices_of(how, None, each_takes(each)) == devices


@pytest.mark.parametrize(
    ("how", "each", "message"), [(3, 4, "8 GPUs here"), ("cpu", 2, "num_gpus=2"), (2, 0, "num_gpus=0")]
)
def test_gpus_that_are_not_there(how: Any, each: float, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    with pytest.raises(ValueError, match=message):
        devices_of(how, None, each_takes(each))


@pytest.mark.slow
def test_the_devices_of_a_cluster() -> None:
    class Cluster:
        def __init__(self, **there: float) -> None:
            self.there = there

        def cluster_resources(self) -> dict[str, float]:
            return self.there

    assert devices_of("ray://head:10001", Cluster(GPU=8.0, CPU=64.0), 2) == [SEVERAL] * 4
    assert devices_of("ray://head:10001", Cluster(CPU=3.0), 1) == ["cpu"] * 3
