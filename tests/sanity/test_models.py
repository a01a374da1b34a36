"""Models as controls: nothing learned, or every head's output weights another head's; the original stays what it was."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

import lens_heads as lh
from lens_heads.model import copies
from lens_heads.model.geometry import head_geometry, output_weights
from lens_heads.model.hooks import has_hooks, hooked
from lens_heads.model.identity import fingerprint, identify
from lens_heads.sanity.models import _derangement
from tests import planted, zoo
from tests.conftest import random_trial, real_model, tiny
from tests.families import family_folder
from tests.test_real import PACKAGES

CONTROLS = (lh.sanity.random_initialised, lh.sanity.shuffled_outputs)
TOKENS = random_trial().tokens[None]


def weights(model: Any) -> dict[str, Tensor]:
    return dict(model.original_model.named_parameters())


@torch.no_grad()
def logits(model: Any) -> Tensor:
    return model(TOKENS)[0]


def attention(model: Any, layer: int) -> dict[str, Tensor]:
    names = [f"blocks.{layer}.attn.hook_{part}" for part in ("pattern", "v", "z")]
    with torch.no_grad():
        _, seen = model.run_with_cache(TOKENS, names_filter=names)
    return {name: seen[name][0] for name in names}


@pytest.mark.parametrize("control", CONTROLS)
def test_the_original_and_the_random_state_stay(model: Any, control: Any) -> None:
    before, was, state = identify(model), logits(model), torch.get_rng_state()
    made = control(model, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert identify(model) == before
    storages = {parameter.data_ptr() for parameter in weights(model).values()}
    assert not storages & {parameter.data_ptr() for parameter in weights(made).values()}
    with torch.no_grad():
        for parameter in weights(made).values():
            parameter.add_(1)
    assert torch.equal(logits(model), was)


@pytest.mark.parametrize("control", CONTROLS)
def test_shape_tokenizer_and_name(model: Any, control: Any) -> None:
    made = control(model, seed=7)
    name = {"random_initialised": "random-initialised", "shuffled_outputs": "shuffled outputs"}[control.__name__]
    assert replace(head_geometry(made), name="") == replace(head_geometry(model), name="")
    assert head_geometry(made).name == f"{head_geometry(model).name} {name} seed 7"
    assert type(made) is type(model)
    assert type(made.original_model) is type(model.original_model)
    assert made.original_model.config.to_dict() == model.original_model.config.to_dict()
    assert made.tokenizer is model.tokenizer
    assert not made.training
    assert made.cfg.dtype == model.cfg.dtype


@pytest.mark.slow
@pytest.mark.parametrize("control", CONTROLS)
def test_a_seed_repeats_itself_and_no_other(gqa: Any, control: Any) -> None:
    torch.manual_seed(99)
    one, again, other = (identify(control(gqa, seed=seed)) for seed in (3, np.int64(3), 4))
    assert one == again
    assert one.weights != other.weights
    assert one.name != other.name
    assert len({one.weights, other.weights, identify(gqa).weights}) == 3


@pytest.mark.slow
def test_random_weights_are_those_of_the_classs_own_initialisation(arch: str) -> None:
    model = zoo.bridge(arch)
    made = lh.sanity.random_initialised(model, seed=5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        plain = AutoModelForCausalLM.from_config(model.original_model.config).eval()
    with torch.no_grad():
        expected = plain(TOKENS).logits[0]
    torch.testing.assert_close(logits(made), expected, rtol=1e-5, atol=1e-5)


def test_every_check_holds_for_controls(model: Any) -> None:
    for control in CONTROLS:
        report = lh.check_model(control(model))
        assert report.passed, report.frame.to_string()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays(dtype: torch.dtype) -> None:
    model = tiny("gemma3", dtype)
    for control in CONTROLS:
        made = control(model)
        assert {parameter.dtype for parameter in weights(made).values()} == {dtype}
        assert torch.isfinite(logits(made)).all()


@pytest.mark.slow
def test_outputs_are_the_originals_in_another_order(model: Any) -> None:
    made, shape = lh.sanity.shuffled_outputs(model, seed=2), head_geometry(model)
    orders = []
    for layer in range(shape.n_layers):
        old, new = output_weights(model, layer), output_weights(made, layer)
        order = [[torch.equal(mine, one) for one in old].index(True) for mine in new]
        assert sorted(order) == list(range(shape.n_heads))
        assert all(head != other for head, other in enumerate(order))
        orders.append(order)
    same = {name for name, parameter in weights(made).items() if torch.equal(parameter, weights(model)[name])}
    changed = {name for name in weights(made) if name not in same}
    assert len(changed) == shape.n_layers, changed
    seen, was = attention(made, 0), attention(model, 0)
    assert all(torch.equal(seen[name], was[name]) for name in was)
    swapped = copies.copied(model, "by hand")
    with torch.no_grad():
        for layer, order in enumerate(orders):
            swapped.blocks[layer].attn.W_O.data.copy_(output_weights(model, layer)[order])
    assert torch.equal(logits(made), logits(swapped))
    assert not torch.allclose(logits(made), logits(model), atol=0.1)


@pytest.mark.slow
def test_a_planted_writer_writes_no_more() -> None:
    """LOCOS finds the head that writes the answer; after the exchange its place gives the answer nothing."""
    model, trials = planted.model(), planted.trials()
    options: dict[str, Any] = {"teacher_forced": True, "progress": False}
    scores = lh.score_heads(model, trials, ["locos", "attention_mass"], **options)
    made = lh.score_heads(lh.sanity.shuffled_outputs(model), trials, ["locos", "attention_mass"], **options)
    assert scores["locos"][planted.COPIER] > 0.9 * planted.STRENGTH[planted.COPIER]
    assert abs(made["locos"][planted.COPIER]) < 0.1
    looks = planted.COPIER.layer, planted.COPIER.head
    torch.testing.assert_close(made["attention_mass"].values[looks], scores["attention_mass"].values[looks])
    untrained = lh.score_heads(lh.sanity.random_initialised(model), trials, ["locos"], **options)["locos"]
    assert untrained.values.abs().max() < 0.1


@pytest.mark.parametrize("n", [2, 3, 4])
def test_every_derangement_is_equally_likely(n: int) -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = [tuple(_derangement(n, generator)) for _ in range(1800)]
    kinds = {2: 1, 3: 2, 4: 9}[n]
    counts = [drawn.count(one) for one in set(drawn)]
    assert len(counts) == kinds
    expected = len(drawn) / kinds
    assert sum((count - expected) ** 2 for count in counts) / expected < 26.1  # 99.9 % of chi-square with 8 degrees


@pytest.mark.slow
def test_a_copy_has_the_weights_but_neither_hooks_nor_later_changes() -> None:
    model = zoo.bridge("qwen3")
    with torch.no_grad():
        model.blocks[1].attn.W_O.data.mul_(2)
    with hooked(model, [("blocks.0.attn.hook_z", lambda z, hook: z * 0)]):
        made = copies.copied(model, "copy")
    assert not has_hooks(made)
    assert fingerprint(made) == fingerprint(model)
    assert torch.equal(logits(made), logits(model))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2", "gemma4", "phi3", "qwen3-next", "gpt-oss"])
def test_a_copy_in_half_precision_keeps_its_rotary_frequencies(name: str, tmp_path: Path) -> None:
    """A model that is cast as a whole has them rounded to three digits; a loaded one has not."""
    model = lh.load_model(family_folder(name, tmp_path), dtype="bfloat16")
    assert torch.float32 in {held.dtype for held in model.original_model.buffers()}
    made = copies.unpacked(copies.packed(model), "cpu")
    assert fingerprint(made) == fingerprint(model)
    assert torch.equal(logits(made), logits(model))
    redrawn = dict(copies.redrawn(model, "untrained", 0).original_model.named_buffers())
    for buffer, held in model.original_model.named_buffers():
        assert redrawn[buffer].dtype == held.dtype
        assert torch.equal(redrawn[buffer], held)


def test_a_rebuilt_model_cannot_be_copied() -> None:
    model = zoo.bridge("llama-gqa")
    model.original_model.model.layers.append(torch.nn.Linear(2, 2))
    with pytest.raises(
        ValueError, match=r"llama-gqa cannot be copied, because its model\.layers\.3\.bias is not what its"
    ):
        lh.sanity.shuffled_outputs(model)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gpt2", "llama-gqa"])
def test_a_model_inside_several_bridges_can_be_copied(arch: str) -> None:
    hf = zoo.hf_model(arch)
    bridges = [zoo.bridge(arch, hf=hf) for _ in range(3)]
    expected = logits(zoo.bridge(arch))
    for model in bridges:
        assert torch.equal(logits(copies.copied(model, "copy")), expected)


@pytest.mark.slow
def test_a_model_taken_apart_cannot_be_copied() -> None:
    """GPT-2's queries are a part of a fused projection, and no copy can have both."""
    model = zoo.bridge("gpt2")
    queries = model.blocks[0].attn.q.original_component
    with torch.no_grad():
        queries.weight.add_(1)
    assert torch.equal(logits(copies.copied(model, "copy")), logits(model))
    queries.weight = torch.nn.Parameter(queries.weight + 1)
    with pytest.raises(
        ValueError, match=r"gpt2 cannot be copied, because its transformer\.h\.0\.attn\..* load it again"
    ):
        copies.copied(model, "copy")


def test_weights_that_cannot_be_written_are_an_error() -> None:
    model = zoo.bridge("llama-gqa")
    kind = type(model.blocks[0].attn)
    shown = property(lambda attention: kind.W_O.fget(attention).clone())  # type: ignore[attr-defined]
    model.blocks[0].attn.__class__ = type("Copying", (kind,), {"W_O": shown})
    projection = model.blocks[0].attn.o.original_component
    projection.__class__ = type("Own", (type(projection),), {})
    with pytest.raises(ValueError, match="llama-gqa: the output weights of layer 0 cannot be written"):
        copies.set_output_weights(model, 0, output_weights(model, 0).flip(0))


def test_bad_input() -> None:
    model = tiny("llama-gqa")
    for control in CONTROLS:
        for seed in (-1, 1.5, "1", True, None):
            with pytest.raises(ValueError, match="seed="):
                control(model, seed=seed)
        with pytest.raises(TypeError, match="Linear is not a TransformerLens model: load it with"):
            control(torch.nn.Linear(2, 2))
    single = zoo.bridge("one", hf=zoo.hf_model("gpt2", n_head=1))
    with pytest.raises(ValueError, match="one has one head per layer, which has no other to exchange W_O with"):
        lh.sanity.shuffled_outputs(single)
    assert identify(lh.sanity.random_initialised(single)) != identify(single)


def test_processed_weights_are_refused() -> None:
    from transformer_lens.model_bridge import TransformerBridge

    hf = zoo.hf_model("gpt2")
    model = TransformerBridge.boot_transformers("gpt2", hf_model=hf, tokenizer=zoo.tokenizer(), device="cpu")
    model.enable_compatibility_mode(disable_warnings=True)
    for control in CONTROLS:
        with pytest.raises(ValueError, match="processed weights"):
            control(model)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("name", PACKAGES)
def test_a_real_model_without_training(name: str) -> None:
    if importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip("the packaged models are not installed: make test installs them")
    model = real_model(name)
    made = lh.sanity.random_initialised(model)
    text = "The ferry left the stone quay a little after dawn."
    assert made.tokenizer(text).input_ids == model.tokenizer(text).input_ids
    tokens = torch.tensor([model.tokenizer(text).input_ids])
    with torch.no_grad():
        trained, untrained = (one(tokens)[0].float().log_softmax(-1) for one in (model, made))
    assert torch.isfinite(untrained).all()
    losses = [-scores[:-1].gather(-1, tokens[0, 1:, None]).mean() for scores in (trained, untrained)]
    chance = float(torch.tensor(model.cfg.d_vocab).log())
    assert losses[0] < 0.6 * chance
    assert losses[1] > 0.9 * chance
    assert identify(made).weights != identify(model).weights
    assert head_geometry(made).name == f"{name} random-initialised seed 0"
    assert torch.isfinite(lh.evaluate(made, lh.tasks.arithmetic(n=2, digits=1), max_new_tokens=2, progress=False)
                          .metrics["logprob"]).all()  # fmt: skip
