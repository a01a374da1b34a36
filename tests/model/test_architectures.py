"""Every model that transformers can load is right, or refused in one sentence: architecture, what is missing, remedy."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.model import load as loader
from lens_heads.model.planning import shape_of
from tests import zoo
from tests.conftest import random_trial
from tests.families import family, family_folder

REFUSED = {
    "t5": r"T5ForConditionalGeneration reads its prompt with an encoder .*: choose a decoder-only model",
    "bart": r"BartForConditionalGeneration reads its prompt with an encoder",
    "bert": r"BertLMHeadModel is an encoder: its earlier rows see later tokens",
    "mamba": r"MambaForCausalLM has no attention heads",
    "helium": r"HeliumForCausalLM has no adapter in TransformerLens .*: update TransformerLens, or choose another model",
    "falcon-40b": r"FalconForCausalLM is not what its adapter in TransformerLens expects \(RuntimeError: split_with_sizes",
    "opt-350m": r"OPTForCausalLM has no norm before the unembedding",
    "llava": r"LlavaForConditionalGeneration is no causal language model",
    "jetmoe": r"JetMoeForCausalLM shows no attn\.hook_z in layer 0",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_lacks_what_every_function_reads_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    folder = family_folder(name, tmp_path / "model")
    with pytest.raises(ValueError, match=REFUSED[name]) as error:
        lh.load_model(folder, device="cpu")
    said = str(error.value)
    assert said.startswith(f"{folder}: ")
    assert f"(transformers {version('transformers')}, TransformerLens {version('transformer-lens')}): " in said
    assert "\n" not in said


SPECIAL = {
    "olmo": "a norm without weights",
    "nanochat": "a norm without weights",
    "vaultgemma": "processed weights that are none",
    "qwen3-next": "linear attention in every other layer",
    "lfm2": "convolutions in every other layer",
    "falcon-h1": "Mamba beside every layer's heads",
    "deepseek-v3": "values of another width than keys",
    "gemma4": "wider heads in global layers",
}


@pytest.mark.parametrize("name", SPECIAL)
def test_a_family_with_something_of_its_own_is_right(name: str, tmp_path: Path) -> None:
    """The contributions of all parts close on the logit, which is transformers' own."""
    model = lh.load_model(family_folder(name, tmp_path / "model"), device="cpu")
    report = lh.check_model(model)
    assert report.passed, report.frame.to_string()
    tokens = random_trial(n=20).tokens[None]
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), family(name)(tokens).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "message"), [("mamba", "has no attention in any layer"), ("opt-350m", "has no norm before")]
)
def test_a_bridge_of_one_s_own_is_refused_at_its_first_use(name: str, message: str) -> None:
    model = zoo.bridge(name, hf=family(name))
    with pytest.raises(ValueError, match=message):
        lh.check_model(model)
    with pytest.raises(ValueError, match=message):
        lh.score_heads(model, [random_trial()], "locos", teacher_forced=True, progress=False)


@pytest.mark.slow
def test_a_forward_that_breaks_does_so_at_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = family_folder("qwen2", tmp_path / "model")
    lh.load_model(folder, device="cpu")

    def broken(*given: Any) -> None:
        raise RuntimeError("size mismatch")

    monkeypatch.setattr(loader, "advance", broken)
    with pytest.raises(ValueError, match=r"Qwen2ForCausalLM is not what .* expects \(RuntimeError: size mismatch\)"):
        lh.load_model(folder, device="cpu")
    with monkeypatch.context() as patch:
        patch.setattr(loader, "advance", lambda *given: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(MemoryError):
            lh.load_model(folder, device="cpu")


@pytest.mark.parametrize(
    ("method", "message"), [("gptq", r"quantized by gptq"), ("bitsandbytes", r"quantized by bitsandbytes")]
)
def test_quantized_weights_whose_package_is_missing_name_it(method: str, message: str, tmp_path: Path) -> None:
    folder = family_folder("qwen2", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    stored = {"quant_method": method, "bits": 4, "load_in_4bit": True, "dataset": "c4", "group_size": 128}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": stored}))
    with pytest.raises(
        ValueError, match=f"Qwen2ForCausalLM has weights {message}, which cannot be read here .*: install"
    ):
        lh.load_model(folder, device="cpu")


def test_configurations_are_refused_before_anything_is_planned() -> None:
    for text, message in (
        ('{"model_type": "t5"}', "reads its prompt with an encoder"),
        ('{"model_type": "mamba"}', "has no attention heads"),
        ('{"model_type": "bert"}', "is an encoder"),
        ('{"model_type": "llama", "num_hidden_layers": 2, "num_hidden_layers": 3}', "occurs twice"),
    ):
        with pytest.raises(ValueError, match=f"the configuration: .*{message}"):
            shape_of(text)


# Adapters


ADAPTER = {"base_model_name_or_path": "org/base", "peft_type": "LORA", "r": 4, "target_modules": ["q_proj"]}


@pytest.mark.parametrize("peft", [False, True])
def test_a_folder_of_an_adapter_names_the_way_to_a_model(
    peft: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers ignores an adapter, or loads the base model it names, by whether the package peft is there."""
    if peft:
        monkeypatch.setitem(sys.modules, "peft", SimpleNamespace(__version__="1.0"))
        monkeypatch.setattr("transformers.utils.is_peft_available", lambda: True)
        monkeypatch.setattr("transformers.models.auto.auto_factory.is_peft_available", lambda: True, raising=False)
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(ADAPTER))
    (folder / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"holds an adapter .*from_pretrained\('org/base'\).*merge_and_unload\(\)"
    ) as error:
        lh.load_model(folder, device="cpu")
    assert "save_pretrained" in str(error.value)
    assert "merged already" not in str(error.value)
    whole = family_folder("qwen2", tmp_path / "whole")
    shutil.copy(folder / "adapter_config.json", whole)
    with pytest.raises(ValueError, match=r"or remove adapter_config\.json if the weights beside it are merged already"):
        lh.load_model(whole, device="cpu")
    (whole / "adapter_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"from_pretrained\('BASE'\)"):
        lh.load_model(whole, device="cpu")
