"""What a run would cost: operations are those that torch counts, and what is planned grows as it must."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lens_heads.model.forward import CHUNK
from lens_heads.model.planning import Job, Machine, Shape, Sizes, jobs, shape_of
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
SLOW = Machine((1e-3, 1e-4, 1e-8, 1e-7), (1e-2, 1e-3), 2)


@pytest.fixture(scope="module")
def qwen() -> Shape:
    return shape_of(json.dumps(QWEN))


def test_a_shape_from_json_alone(qwen: Shape) -> None:
    assert qwen.name == "qwen3"
    assert qwen.params / 1e9 == pytest.approx(
        8.19, abs=0.01
    )  # As its model card says: 8.2 billion, 6.95 without embeddings.
    assert qwen.cache_bytes(32000, 2) / 2**30 == pytest.approx(4.39, abs=0.01)


def test_chunks_add_up(qwen: Shape) -> None:
    """Chunk by chunk, as `prefill` runs them: a constant, per token, per token and key, per key."""
    constant, token, pair, key = SLOW.layer
    for n, past in ((3 * CHUNK + 100, 0), (CHUNK, 700), (1, 4000)):
        expected, done = 0.0, 0
        while done < n:
            size = min(CHUNK, n - done)
            keys = past + done + size
            expected += constant + token * size + pair * size * keys + key * keys
            done += size
        assert SLOW.seconds(qwen, n, past) == pytest.approx(qwen.n_layers * expected)
    assert SLOW.unembedding(5) == pytest.approx(0.015)


def named(shape: Shape, machine: Machine, sizes: Sizes) -> dict[str, Job]:
    return {job.name: job for job in jobs(shape, machine, sizes)}


def test_jobs_grow_as_they_must(qwen: Shape) -> None:
    base = Sizes(4000)
    found, longer = named(qwen, SLOW, base), named(qwen, SLOW, replace(base, context=8000))
    more, masks = named(qwen, SLOW, replace(base, sets=120)), named(qwen, SLOW, replace(base, masks=400))
    for name, job in found.items():
        assert longer[name].seconds > job.seconds
    assert SLOW.memory(qwen, 8000) > SLOW.memory(qwen, 4000)
    assert SLOW.memory(qwen, 4000, kept=True) > SLOW.memory(qwen, 4000)
    assert found["score, gold answers"].forwards == 1
    assert more["ablate sets of heads"].forwards == pytest.approx(2 * found["ablate sets of heads"].forwards - 1)
    assert masks["localize by masks"].seconds > 1.9 * found["localize by masks"].seconds
    assert found["patch every head, all positions"].forwards == 1 + (1 + 36 * 32 / 2) / 2  # Half of the prompt differs.
    assert found["patch every head, answer rows"].seconds < 0.05 * found["patch every head, all positions"].seconds


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "gemma3"])
def test_rates_of_this_machine(name: str, tmp_path: Path) -> None:
    zoo.hf_model(name).save_pretrained(tmp_path)
    shape = shape_of(str(tmp_path))
    here = this_machine(shape, torch.float32)
    assert here.width == 4
    assert min(here.layer) >= 0
    assert 0 < here.seconds(shape, 1) <= here.seconds(shape, 300) <= here.seconds(shape, 3000)
    assert 0 < here.unembedding(1) <= here.unembedding(100)


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


HEADS = 12
SETS = 1 + 2 + 2 * 3 * 2 + 2
"""None; the best of each k; three draws of two controls for each k; and the worst. One head each, in the mean."""
PLANS = {
    "score": ([], "score, decoding"),
    "score --teacher-forced": (["--workers", "2"], "score, gold answers"),
    "rank": (["--methods", "locos,one_shot"], "one_shot"),
    "patch": (["--positions", "all"], "patch every head, all positions"),
    "localize": (["--masks", "30", "--sparsity", "0.2"], "localize by masks"),
    "ablate": (["--scores", "SCORES", "--ks", "1,2", "--draws", "3"], "ablate sets of heads"),
}


@pytest.fixture(scope="module")
def known() -> Machine:
    return this_machine(
        shape_of(json.dumps(QWEN | {"num_hidden_layers": 2, "hidden_size": 32, "vocab_size": 300})), torch.float32
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", PLANS)
def test_a_command_says_what_it_takes_and_runs_nothing(
    command: str, known: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("lens_heads.model.timing.this_machine", lambda *_: known)
    monkeypatch.setattr("lens_heads.model.load.load_model", None)
    folder, data = commands.model_folder(tmp_path / "tiny"), commands.needles(tmp_path / "data")
    given = [f"source={data}", "needle_set=one.json", "lengths=[260]", "depths=[0.2,0.8]", "chat=false"]
    more, job = PLANS[command]
    more = [str(commands.score_file(tmp_path / "s.json")) if one == "SCORES" else one for one in more]
    task = ["-m", str(folder), "--task", "nolima", *[part for pair in given for part in ("--with", pair)]]
    out = tmp_path / "run"
    assert commands.run(*command.split(), *task, *more, "-o", str(out), "--plan", monkeypatch=monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "4 trials of about 84 tokens, 85 at most" in shown
    (row,) = [line for line in shown.splitlines() if job in line]
    forwards = float(row.split("│")[2].replace(",", ""))
    masked = round(0.2 * HEADS)
    known_runs = {
        "one_shot": HEADS,
        "localize by masks": 1 + 30 * masked / (masked + 1),
        "ablate sets of heads": 1 + SETS / 2,
    }
    assert forwards == pytest.approx(known_runs.get(job, forwards), abs=0.06)
    assert forwards > 0
    assert not out.exists()
