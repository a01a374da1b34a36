"""A look is what a plain forward with hooks sees: attention, contributions, writes, and what they promote."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import lens_heads as lh
from lens_heads.inspection.look_results import TENSORS
from lens_heads.model.forward import Cache, advance
from lens_heads.model.geometry import head_geometry, output_weights
from lens_heads.model.hooks import has_hooks, recording
from tests import zoo
from tests.conftest import random_trial


def test_it_is_what_a_plain_forward_sees(arch: str, model: Any, trial: lh.EncodedTrial) -> None:
    """A full forward of the prompt and the fed steps; phi from the definition, position by position."""
    found = lh.look(model, trial, direction="raw")
    whole = torch.cat([trial.tokens, trial.answer_tokens[:-1]])
    names = [f"blocks.{layer}.attn.hook_{what}" for layer in range(zoo.LAYERS) for what in ("pattern", "z")]
    cache = Cache(model, 1)
    with torch.no_grad(), recording(model, names) as seen:
        logits = advance(model, whole[None], cache, logits=len(whole))[0]
    shape, rows = head_geometry(model), list(found.rows)
    assert rows == [len(trial) - 1 + step for step in range(len(trial.answer_tokens))]
    expected = logits.log_softmax(-1)[rows].gather(-1, trial.answer_tokens[:, None])[:, 0]
    torch.testing.assert_close(found.logprobs, expected, atol=1e-4, rtol=1e-4)
    for place, head in enumerate(found.heads):
        (pattern,), (z,) = (seen[f"blocks.{head.layer}.attn.hook_{what}"] for what in ("pattern", "z"))
        W_O = output_weights(model, head.layer)[head.head]
        values = cache.values(head.layer)[0][head.head // shape.group]
        z = z[0].reshape(len(whole), shape.n_heads, -1)[:, head.head]
        for step, row in enumerate(rows):
            u = model.W_U[:, trial.answer_tokens[step]]
            phi = torch.stack([pattern[0, head.head, row, at] * (values[at] @ W_O @ u) for at in range(len(whole))])
            torch.testing.assert_close(found.phi[place, step].float(), phi, atol=2e-3, rtol=2e-3)
            attention = found.attention[place, step].float()
            torch.testing.assert_close(attention, pattern[0, head.head, row], atol=1e-3, rtol=1e-3)
            torch.testing.assert_close(found.z[place, step].float(), z[row], atol=2e-3, rtol=2e-3)
            torch.testing.assert_close(found.writes[place, step].float(), z[row] @ W_O, atol=2e-3, rtol=2e-3)
    assert not has_hooks(model)


def test_exact_contributions_sum_to_exact_dla(arch: str, model: Any, trial: lh.EncodedTrial) -> None:
    found = lh.look(model, trial)
    dla = lh.score_heads(model, trial, "dla_exact", teacher_forced=True, progress=False)["dla_exact"]
    sums = found.phi.float().sum(-1).mean(1)
    torch.testing.assert_close(sums, dla.values.flatten(), atol=5e-3, rtol=5e-3)


def test_promoted_tokens_are_those_of_a_plain_readout(arch: str, model: Any, trial: lh.EncodedTrial) -> None:
    found, hf = lh.look(model, trial, ["L0H0", "L2H3"], steps=0, k=3), model.original_model
    inner = hf.transformer if arch == "gpt2" else hf.model
    for place, head in enumerate(found.heads):
        x = found.writes[place, 0].float()[None, None]
        with torch.no_grad():
            if arch in ("gemma2", "gemma3", "olmo2", "olmo3"):
                x = inner.layers[head.layer].post_attention_layernorm(x)
            norm = inner.ln_f if arch == "gpt2" else inner.norm
            logits = (hf.lm_head(norm(x)) - hf.lm_head(norm(torch.zeros_like(x))))[0, 0]
        for side, sign in ((0, 1), (1, -1)):
            expected = (sign * logits).topk(3).values * sign
            torch.testing.assert_close(logits[found.top_ids[place, 0, side].long()], expected, atol=5e-3, rtol=5e-3)
        decode = model.tokenizer.decode
        assert found.top_words(head, step=0, side=1) == [
            decode([token]) for token in found.top_ids[place, 0, 1].tolist()
        ]


def test_heads_and_steps_are_as_asked(gqa: Any) -> None:
    trial = replace(random_trial(), answer_tokens=torch.tensor([3, 9, 14, 7]))
    whole, few = lh.look(gqa, trial), lh.look(gqa, trial, ["L2H1", "L0H3", "L2H0"], steps=[3, 1])
    assert [str(head) for head in few.heads] == ["L2H1", "L0H3", "L2H0"]
    places = whole.places(few.heads)
    for name in ("attention", "phi", "z", "writes", "top_logits"):
        assert torch.equal(getattr(few, name), getattr(whole, name)[places][:, [3, 1]]), name
    assert few.rows == (len(trial) + 2, len(trial))
    assert few.produced.tolist() == [7, 9]
    assert torch.equal(few.logprobs, whole.logprobs[[3, 1]])
    one = lh.look(gqa, trial, steps=[2, 2])
    assert torch.equal(one.phi, whole.phi[:, 2:3])


def test_frames_add_up(gqa: Any) -> None:
    trial = replace(random_trial(), question=(20, 23))
    found = lh.look(gqa, trial)
    heads = ["L1H0", "L2H2"]
    frame, places = found.by_token(heads), found.places(heads)
    assert frame["phi"].sum() == pytest.approx(float(found.phi[places, 0].float().sum()), abs=1e-3)
    assert frame["share"].sum() == pytest.approx(1)
    assert frame["attention"].sum() == pytest.approx(1, abs=2e-3)
    assert "".join(frame["token"]) == "".join(gqa.tokenizer.decode([token]) for token in trial.tokens.tolist())
    assert [frame["part"][at] for at in (6, 7, 10, 11, 20, 22, 23)] == ["", *["needle"] * 2, "", *["question"] * 2, ""]
    rows = found.by_head.query("step == 0").set_index("head")
    assert rows.loc["L1H0", "needle"] == pytest.approx(float(found.phi[places[0], 0, 7:11].float().sum()), abs=1e-6)
    assert rows.loc["L1H0", "attention_first"] == pytest.approx(float(found.attention[places[0], 0, 0]), abs=1e-6)
    without = lh.look(gqa, replace(trial, needle=None))
    assert without.needle is None
    assert math.isnan(without.by_head["needle"].iloc[0])
    assert torch.equal(without.phi, found.phi)


def test_it_looks_at_the_models_own_answer(gqa: Any, trial: lh.EncodedTrial) -> None:
    found = lh.look(gqa, trial, generated=True, max_new_tokens=5)
    tokens = trial.tokens
    for step in found.produced.tolist():
        with torch.no_grad():
            logits = gqa(tokens[None])[0, -1]
        assert int(logits.argmax()) == step
        tokens = torch.cat([tokens, torch.tensor([step])])
    assert found.answer == trial.answer
    assert len(found.words) == len(trial) + len(found.produced) - 1


def test_it_is_small_and_can_be_saved(gqa: Any, trial: lh.EncodedTrial, tmp_path: Path) -> None:
    found = lh.look(gqa, trial)
    assert found.attention.dtype == found.phi.dtype == found.z.dtype == torch.float16
    again = lh.Look.load(found.save(tmp_path / "look.safetensors"))
    for name in TENSORS:
        assert torch.equal(getattr(again, name), getattr(found, name)), name
    assert again.heads == found.heads
    assert (again.words, again.needle, again.question) == (found.words, found.needle, found.question)
    assert again.by_head.equals(found.by_head)
    assert repr(again) == repr(found)
    (tmp_path / "broken").write_bytes((tmp_path / "look.safetensors").read_bytes()[:-9])
    with pytest.raises(ValueError, match="broken: not a saved look"):
        lh.Look.load(tmp_path / "broken")
    save_file({"z": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(ValueError, match="other: not a saved look"):
        lh.Look.load(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="save a look there first"):
        lh.Look.load(tmp_path / "nothing")


def test_numbers_beyond_half_precision_are_kept(trial: lh.EncodedTrial) -> None:
    model = zoo.bridge("llama-gqa")
    with torch.no_grad():
        for block in model.original_model.model.layers:
            block.self_attn.o_proj.weight *= 1e6
    found = lh.look(model, trial)
    assert found.writes.dtype == torch.float32
    assert bool(found.writes.isfinite().all())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"heads": "L9H0"}, "head L9H0 does not exist"),
        ({"heads": []}, "heads is empty"),
        ({"steps": 3}, "steps=3: must be an integer from 0 to 2: the answer has 3 tokens"),
        ({"steps": []}, "steps is empty"),
        ({"steps": [-1]}, "steps=-1"),
        ({"k": 0}, "k=0"),
        ({"k": 257}, "k=257: must be an integer from 1 to 256, the size of the vocabulary"),
        ({"direction": "exakt"}, "direction 'exakt'"),
        ({"generated": True, "max_new_tokens": 0}, "max_new_tokens=0"),
    ],
)
def test_what_does_not_fit_is_named(gqa: Any, trial: lh.EncodedTrial, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lh.look(gqa, trial, **given)
    assert not has_hooks(gqa)


def test_one_trial_is_looked_at(gqa: Any, trial: lh.EncodedTrial) -> None:
    with pytest.raises(TypeError, match="look takes one trial, got list: call it once for each"):
        lh.look(gqa, [trial])  # type: ignore[arg-type]  # on purpose
    found = lh.look(gqa, trial, heads="L0H1")
    with pytest.raises(ValueError, match="head L1H1 was not looked at: there is L0H1"):
        found.by_token("L1H1")
    with pytest.raises(ValueError, match="heads is empty"):
        found.by_token([])
    with pytest.raises(ValueError, match="side=2: use 0 for raised tokens"):
        found.top_words("L0H1", step=0, side=2)
    with pytest.raises(TypeError, match="direction=3: must be a path"):
        lh.look(gqa, trial, direction=3)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="step=3: the look has 3 steps"):
        found.by_token("L0H1", step=3)
