"""Gates between full and streaming attention: the two ends, HardKuma's distribution, and a planted head that looks far."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.heads.sets import every_head
from lens_heads.model.forward import uncached
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import hooked
from lens_heads.ranking.gates.duo import Duo
from lens_heads.ranking.gates.gate import GateBatch
from lens_heads.ranking.gates.hardkuma import HardKuma, closed, stretched
from lens_heads.ranking.gates.training import objective
from tests import planted
from tests.conftest import random_trial
from tests.rounding import same

QUIET: dict[str, Any] = {"progress": False}


def batch_of(model: Any) -> GateBatch:
    return GateBatch.of(model, [random_trial(seed, 12 + 5 * seed) for seed in range(3)])


def logits(model: Any, batch: GateBatch) -> Any:
    with torch.no_grad():
        return batch.answers(uncached(model, batch.tokens, batch.pads, batch.longest))


@pytest.mark.parametrize("full", ["mixed", "teacher"])
def test_open_gates_are_the_model_itself(model: Any, full: Any) -> None:
    gate, batch = Duo(1, 4, full, 0.05), batch_of(model)
    ones = gate.start(batch.shape, 0)
    expected = logits(model, batch)
    batch = GateBatch(batch.trials, batch.tokens, batch.pads, batch.shape, teacher=gate.teacher(model, batch))
    with hooked(model, gate.hooks(ones, batch)):
        got = logits(model, batch)
    for one, other in zip(got, expected, strict=True):
        same(one, other)
    assert objective(model, gate, ones, 0.0, batch) == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize("full", ["mixed", "teacher"])
def test_closed_gates_are_kind_streaming(model: Any, full: Any) -> None:
    gate, batch = Duo(1, 4, full, 0.05), batch_of(model)
    batch = GateBatch(batch.trials, batch.tokens, batch.pads, batch.shape, teacher=gate.teacher(model, batch))
    with hooked(model, gate.hooks(torch.zeros(batch.shape.n_layers, batch.shape.n_kv_heads), batch)):
        got = logits(model, batch)
    everyone = every_head(batch.shape.n_layers, batch.shape.n_heads)
    for row, trial in zip(got, batch.trials, strict=True):
        alone = GateBatch.of(model, [trial])
        with lh.ablate(model, everyone, kind="streaming", sink=1, recent=4):
            (expected,) = logits(model, alone)
        torch.testing.assert_close(row, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("full", ["mixed", "teacher"])
def test_a_gate_between_mixes_the_heads_of_its_group(gqa: Any, full: Any) -> None:
    """One kv head half open in the top layer, where both readings agree: z is the mean of both branches' z."""
    gate, batch, shape = Duo(1, 4, full, 0.05), batch_of(gqa), head_geometry(gqa)
    batch = GateBatch.of(gqa, batch.trials[:1])
    teacher = gate.teacher(gqa, batch)
    batch = GateBatch(batch.trials, batch.tokens, batch.pads, shape, teacher=teacher)
    alphas = torch.ones(shape.n_layers, shape.n_kv_heads)
    alphas[-1, 0] = 0.5
    seen: list[Any] = []
    top = f"blocks.{shape.n_layers - 1}.hook_attn_out"
    with hooked(gqa, [*gate.hooks(alphas, batch), (top, lambda x, hook: seen.append(x))]):
        logits(gqa, batch)
    with hooked(gqa, [(top, lambda x, hook: seen.append(x))]):
        logits(gqa, batch)
        with lh.ablate(gqa, [(shape.n_layers - 1, h) for h in range(shape.group)], kind="streaming", sink=1, recent=4):
            logits(gqa, batch)
    mixed, whole, stream = seen
    torch.testing.assert_close(mixed, (whole + stream) / 2, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(whole, stream, atol=1e-3)


def test_hardkuma_at_one_and_one() -> None:
    torch.testing.assert_close(closed(torch.zeros(3, 2)), torch.full((3,), 1 / 12))
    gate = HardKuma(1, 4, "mixed", 0.0, 0.25, 0.001)
    torch.testing.assert_close(gate.read(torch.zeros(2, 1, 2)), torch.full((2, 1), 0.5))


def test_hardkuma_draws_what_its_formulas_say(gqa: Any) -> None:
    """Shares of draws that are 0, and their mean before stretching, against the closed forms."""
    gate, parameter = HardKuma(1, 4, "mixed", 0.0, 0.25, 0.001), torch.tensor([0.4, -0.3]).expand(100, 200, 2)
    a, b = parameter[0, 0].exp().double()
    u = torch.rand(200_000, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    x = (1 - (1 - u) ** (1 / b)) ** (1 / a)
    assert float((stretched(x) == 0).double().mean()) == pytest.approx(float(closed(parameter)[0, 0]), abs=0.003)
    assert float(x.mean()) == pytest.approx(float(gate.read(parameter)[0, 0]), abs=0.003)
    batch = GateBatch.of(gqa, [random_trial(0, 12)], step=3, seed=1)
    drawn = gate.alphas(parameter, batch)
    assert torch.equal(drawn, gate.alphas(parameter, batch))
    assert float((drawn == 0).float().mean()) == pytest.approx(float(closed(parameter)[0, 0]), abs=0.01)
    other = GateBatch.of(gqa, [random_trial(0, 12)], step=4, seed=1)
    assert not torch.equal(drawn, gate.alphas(parameter, other))


def test_the_budget_weighs_more_while_it_is_exceeded() -> None:
    gate, parameter = HardKuma(1, 4, "mixed", 0.0, 0.25, 0.1), torch.zeros(2, 2, 2)
    excess = 1 - 1 / 12 - 0.25
    assert float(gate.penalty(parameter, 2.0)) == pytest.approx(2 * excess, rel=1e-5)
    assert gate.after(parameter, 2.0) == pytest.approx(2 * torch.tensor(0.1 * excess).exp().item(), rel=1e-5)


def _kv(head: lh.Head) -> lh.Head:
    """The kv head that a query head alone reads."""
    return replace(head, unit="kv_head")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["duo", "duo teacher", "hardkuma"])
def test_a_planted_head_that_looks_far_keeps_its_gate(method: str) -> None:
    model, far = planted.model(), [_kv(planted.COPIER), _kv(planted.WRITER)]
    how: dict[str, Any] = {"sink": 1, "recent": 6, "steps": 60, "lr": 0.05, "batch_size": 4, **QUIET}
    trials = planted.trials(16)
    if method == "hardkuma":
        found = lh.ranking.hardkuma(model, trials, density=0.3, **{**how, "steps": 200})
    else:
        found = lh.ranking.duo(model, trials, full="teacher" if "teacher" in method else "mixed", **how)
    assert set(far) <= set(found.scores.top(3))
    everyone = map(_kv, every_head(planted.LAYERS, planted.HEADS))
    others = [head for head in everyone if head not in (*far, _kv(planted.SUPPRESSOR))]
    # Both write the answer, so how much of it either keeps depends on the trials.
    assert max(found.scores[head] for head in far) > 0.5
    assert min(found.scores[head] for head in far) > 0.2 > max(found.scores[head] for head in others)


def test_gates_are_written_and_read_in_the_published_form(gqa: Any, tmp_path: Path) -> None:
    trials = [random_trial(seed, 30) for seed in range(3)]
    scores = lh.ranking.duo(gqa, trials, sink=1, recent=4, steps=4, **QUIET).scores
    file = lh.write_gates(scores, tmp_path / "full_attention_heads.tsv")
    assert torch.equal(lh.read_gates(file).values, scores.values)
    with pytest.raises(ValueError, match="these are of query_heads"):
        lh.write_gates(lh.units.to_query_heads(scores, head_geometry(gqa).group), tmp_path / "gates.tsv")


def test_passkeys_hold_what_they_ask_for(gqa: Any) -> None:
    made = lh.ranking.passkeys(gqa, n=3, lengths=(700, 900), keys=2, words=4)
    assert [len(one) + len(one.answer_tokens) for one in made] == [700, 800, 900]
    for one in made:
        text, asked = (gqa.tokenizer.decode(ids) for ids in (one.tokens, one.answer_tokens))
        for passkey in one.answer.split(", "):
            assert text.count(passkey) == 1
            assert f"Passkey: {passkey}\n" in asked
    assert len({one.answer for one in made}) == 3
    with pytest.raises(ValueError, match="leave no room for prose around 2 passkeys of 40 words"):
        lh.ranking.passkeys(gqa, n=1, lengths=(300, 300), keys=2, words=40)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"sink": -1}, "sink=-1"),
        ({"recent": 0}, "recent=0"),
        ({"full": "both"}, "full='both': use 'mixed'"),
        ({"weight": 0.0}, "weight=0: no gate would have a reason to close"),
    ],
)
def test_bad_input(gqa: Any, how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lh.ranking.duo(gqa, [random_trial()], **how, **QUIET)
