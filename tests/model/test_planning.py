"""What a run would cost: operations are those that torch counts, and what is planned grows as it must."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lens_heads.model.forward import CHUNK
from lens_heads.model.planning import MACHINES, Job, Machine, Shape, Sizes, jobs, shape_of
from lens_heads.model.timing import this_machine
from tests import commands, zoo

QWEN = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
SLOW = Machine("slow", 1e12, 1e12, 1e12, 2)


@pytest.fixture(scope="module")
def qwen() -> Shape:
    return shape_of(json.dumps(QWEN))


@pytest.mark.parametrize("name", ["gpt2", "llama-gqa", "qwen3", "gemma3", "olmo2"])
def test_operations_are_those_that_torch_counts(name: str, tmp_path: Path) -> None:
    model = zoo.hf_model(name)
    model.save_pretrained(tmp_path)
    shape, n = shape_of(str(tmp_path)), 37
    assert shape.params == sum(each.numel() for each in model.parameters())
    assert (shape.n_layers, shape.d_vocab) == (zoo.LAYERS, zoo.VOCAB)
    model.set_attn_implementation("eager")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.arange(3, 3 + n)[None], logits_to_keep=1)
    counted = counter.get_total_flops() - 2 * shape.d_model * shape.d_vocab
    assert sum(shape.flops(n, n)) == pytest.approx(
        counted, rel=0.02
    )  # Rotary angles, and Gemma's scaling, come on top.


def test_a_shape_from_json_alone(qwen: Shape) -> None:
    assert qwen.name == "qwen3"
    assert qwen.params / 1e9 == pytest.approx(
        8.19, abs=0.01
    )  # As its model card says: 8.2 billion, 6.95 without embeddings.
    assert qwen.block_params / 1e9 == pytest.approx(6.95, abs=0.01)
    assert qwen.cache_bytes(32000, 2) / 2**30 == pytest.approx(4.39, abs=0.01)


def test_chunks_add_up(qwen: Shape) -> None:
    """The formula on the page: 2 P n + 2 L H e n (n + c)."""
    n = 8 * CHUNK
    expected = 2 * qwen.block_params * n + 2 * 36 * 32 * 128 * n * (n + CHUNK)
    assert SLOW.seconds(qwen, n) == pytest.approx(expected / 1e12)
    one = replace(SLOW, bandwidth=1e10).seconds(qwen, 1, n)
    assert one == pytest.approx((qwen.block_params * 2 + qwen.cache_bytes(n + 1, 2)) / 1e10)  # Read, not computed.


def named(shape: Shape, machine: Machine, sizes: Sizes) -> dict[str, Job]:
    return {job.name: job for job in jobs(shape, machine, sizes)}


def test_jobs_grow_as_they_must(qwen: Shape) -> None:
    base = Sizes(4000)
    found, longer = named(qwen, SLOW, base), named(qwen, SLOW, replace(base, context=8000))
    more, masks = named(qwen, SLOW, replace(base, sets=120)), named(qwen, SLOW, replace(base, masks=400))
    for name, job in found.items():
        assert longer[name].seconds > job.seconds
    assert SLOW.memory(qwen, 8000) > SLOW.memory(qwen, 4000)
    assert SLOW.memory(qwen, 4000, kept=True) > SLOW.memory(qwen, 4000) > SLOW.memory(qwen, 4000, devices=2)
    assert found["score, gold answers"].forwards == 1
    assert more["ablate sets of heads"].forwards == pytest.approx(2 * found["ablate sets of heads"].forwards - 1)
    assert masks["localize by masks"].seconds > 1.9 * found["localize by masks"].seconds
    assert found["patch every head, all positions"].forwards == 1 + (1 + 36 * 32 / 2) / 2  # Half of the prompt differs.
    assert found["patch every head, answer rows"].seconds < 0.05 * found["patch every head, all positions"].seconds


def test_a_run_on_many_gpus_is_of_the_known_order(qwen: Shape) -> None:
    """600 trials of 32,000 tokens on Qwen3-8B take an H100 about two seconds each at half of its peak."""
    score = named(qwen, MACHINES["h100"], Sizes(32000))["score, gold answers"]
    assert 1 < score.seconds < 4
    assert 18 < MACHINES["h100"].memory(qwen, 32000) / 2**30 < 30


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "gemma3"])
def test_rates_of_this_machine(name: str, tmp_path: Path) -> None:
    zoo.hf_model(name).save_pretrained(tmp_path)
    shape = shape_of(str(tmp_path))
    here = this_machine(shape, torch.float32)
    assert here.width == 4
    assert here.measured is not None
    assert min(here.measured) >= 0
    assert 0 < here.seconds(shape, 1) <= here.seconds(shape, 300) <= here.seconds(shape, 3000)
    assert 0 < here.unembedding(shape, 1) <= here.unembedding(shape, 100)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{", "the configuration: invalid JSON at line 1, column 2"),
        ('{"model_type": "nothing"}', "nothing"),
        ('{"hidden_size": 3}', "model_type"),
    ],
)
def test_configurations_that_cannot_be(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shape_of(name)


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    folder = str(commands.model_folder(tmp_path / "tiny"))
    given = ["plan", "-m", folder, "--context", "300", "--trials", "40"]
    assert commands.run(*given, "--on", "h100", "--devices", "8", monkeypatch=monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "40 trials of 300 tokens on 8 x H100 SXM" in shown
    assert "patch every head, answer rows" in shown
    assert commands.run(*given, monkeypatch=monkeypatch) == 0
    assert "(measured)" in capsys.readouterr().out
    for wrong, says in ((["--on", "abacus"], "--on 'abacus': use here or a100"), (["--devices", "0"], "devices=0")):
        assert commands.run(*given, *wrong, monkeypatch=monkeypatch) == 2
        assert says in capsys.readouterr().err
