"""Prompts begin as the model's own tokenizer begins them, whatever TransformerLens makes of it, and everywhere alike."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import processors
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import lens_heads as lh
from lens_heads.model.copies import copied, packed, unpacked
from lens_heads.model.geometry import head_geometry
from lens_heads.ranking.gates.passkeys import passkeys
from lens_heads.sanity.planted_weights import byte_tokenizer
from lens_heads.trials.bos import as_own, begins
from lens_heads.trials.tokenizing import prompt_offsets
from tests import zoo
from tests.conftest import real_model

IDS = dict(vocab_size=zoo.VOCAB, bos_token_id=1, eos_token_id=2, pad_token_id=0)
SIZE = dict(
    num_hidden_layers=1,
    hidden_size=16,
    intermediate_size=16,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=512,
)
TEXT = "The capital of Norway is"
WITHOUT = ("gpt_neox", "bloom", "phi", "starcoder2", "smollm3", "qwen3", "granite")
"""Architectures whose prompts TransformerLens begins with no BOS by default."""


def saved(folder: Path, kind: str = "llama", adds: str = "") -> Path:
    """A tiny model's folder; `adds`: what its tokenizer puts before a text."""
    settings = dict(n_layer=1, hidden_size=16, n_head=2) if kind == "bloom" else SIZE
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings, **IDS))
    model.save_pretrained(folder)
    tokenizer = byte_tokenizer(str(folder))
    if adds:
        special = [(name, tokenizer.convert_tokens_to_ids(name)) for name in adds.split()]
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(f"{adds} $A", special_tokens=special)
        tokenizer.save_pretrained(folder)
    return folder


def written(model: Any, text: str = TEXT) -> dict[str, list[int]]:
    """The beginning of a prompt, by everyone who makes one."""
    tokenizer, shape = model.tokenizer, head_geometry(model)
    documents = lh.DocumentTrial("d", "Who?", ("One text.", "Another."), ("1",)).encode(tokenizer)
    (probed,) = lh.plain_texts(text).encode(tokenizer, shape)
    n, bare = len(begins(tokenizer)), tokenizer(text, add_special_tokens=False).input_ids
    (answered,) = lh.plain_texts((text, " Oslo")).encode(tokenizer, shape)
    return {
        "tokenizer": tokenizer(text).input_ids,
        "to_tokens": model.to_tokens(text)[0].tolist(),
        "trial": lh.Trial("t", text, "Oslo", template="{question}", chat=False).encode(tokenizer).tokens.tolist(),
        "haystack": lh.Trial("t", "", "Oslo", haystack=text, template="{haystack}{question}", chat=False)
        .encode(tokenizer)
        .tokens.tolist(),
        "prompt_trial": lh.prompt_trial(model, text, "Oslo").tokens.tolist(),
        "of its tokenizer": lh.prompt_trial(tokenizer, text, "Oslo").tokens.tolist(),
        "probe": probed.tokens.tolist(),
        "response": answered.tokens.tolist()[: answered.first],
        "offsets": prompt_offsets(tokenizer, text)[0],
        "documents": [*documents.tokens[:n].tolist(), *bare],
        "repeated": [*lh.repeated_blocks(model, block=4).tokens[:n].tolist(), *bare],
    }


@pytest.mark.parametrize("adds", ["", "<bos>", "<eos> <bos>"])
@pytest.mark.parametrize("kind", ["llama", *WITHOUT])
def test_everyone_begins_a_prompt_as_the_folders_tokenizer_does(tmp_path: Path, kind: str, adds: str) -> None:
    """Two tokens as GLM's; one where TransformerLens's default is none, as RecurrentGemma's."""
    folder = saved(tmp_path / "model", kind, adds)
    own = AutoTokenizer.from_pretrained(folder)(TEXT).input_ids
    assert len(own) == len(adds.split()) + len(TEXT)
    model = lh.load_model(folder)
    assert {name: ids for name, ids in written(model).items() if ids != own} == {}


def test_copies_in_this_and_other_processes_begin_alike(tmp_path: Path) -> None:
    """Also where the folder is gone, as on another machine."""
    folder = saved(tmp_path / "model")
    model = lh.load_model(folder)
    shutil.rmtree(folder)
    there = unpacked(pickle.loads(pickle.dumps(packed(model))), "cpu")
    for one in (copied(model, "copy"), there):
        assert written(one) == written(model)
        assert begins(copy.deepcopy(one.tokenizer)) == []


@pytest.mark.slow
def test_prepend_bos_decides_where_it_is_given(tmp_path: Path) -> None:
    for adds in ("", "<bos>"):
        folder = saved(tmp_path / f"model{adds[1:-1]}", adds=adds)
        bare = AutoTokenizer.from_pretrained(folder)(TEXT, add_special_tokens=False).input_ids
        for wanted, begin in ((True, [1]), (False, [])):
            model = lh.load_model(folder, prepend_bos=wanted)
            assert {tuple(ids) for ids in written(model).values()} == {(*begin, *bare)}
            assert written(copied(model, "copy")) == written(model)
            model.cfg.default_prepend_bos = not wanted
            with pytest.raises(ValueError, match=f"load the model with prepend_bos={not wanted}"):
                lh.look(model, lh.prompt_trial(model, TEXT, "Oslo"))
    with pytest.raises(TypeError, match="prepend_bos='yes': must be True or False or None"):
        lh.load_model(folder, prepend_bos="yes")  # type: ignore[arg-type]


def test_a_bridge_of_ones_own_begins_prompts_as_its_folder_does(tmp_path: Path) -> None:
    from transformer_lens.model_bridge import TransformerBridge

    for adds in ("", "<bos>"):
        folder = saved(tmp_path / f"model{adds[1:-1]}", adds=adds)
        own = AutoTokenizer.from_pretrained(folder)
        hf = AutoModelForCausalLM.from_pretrained(folder)
        model = TransformerBridge.boot_transformers("local/own", hf_model=hf, tokenizer=own, device="cpu")
        assert model.tokenizer(TEXT).input_ids[0] == 1, "TransformerLens loads it again, with a BOS"
        assert lh.prompt_trial(model, TEXT, "Oslo").tokens.tolist() == own(TEXT).input_ids
        as_own(model.tokenizer).save_pretrained(tmp_path / "saved")
        assert AutoTokenizer.from_pretrained(tmp_path / "saved")(TEXT).input_ids == own(TEXT).input_ids


def test_without_the_own_tokenizer_transformer_lenss_default_decides(tmp_path: Path, monkeypatch: Any) -> None:
    """Its folder holds code that nobody has allowed, for example."""
    monkeypatch.setattr("lens_heads.model.beginning.own_tokenizer", lambda *_, **__: None)
    monkeypatch.setattr("lens_heads.model.load.load_local", without_tokenizer)
    for kind, begin in (("llama", [1]), ("qwen3", [])):
        model = lh.load_model(saved(tmp_path / kind, kind))
        assert begins(model.tokenizer) == begin


def without_tokenizer(source: Path, *_: Any, **__: Any) -> dict[str, Any]:
    return {}


@pytest.mark.slow
def test_a_run_folder_says_what_its_prompts_begin_with(tmp_path: Path) -> None:
    folder, trial = saved(tmp_path / "model"), lh.Trial("t", TEXT, "Oslo", template="{question}")
    for name, wanted in (("no BOS", None), ("<bos>", True)):
        out = tmp_path / name
        lh.evaluate(lh.load_model(folder, prepend_bos=wanted), trial, generate=False, out=out, progress=False)
        assert json.loads((out / "run.json").read_text())["settings"]["begins"] == name
    with pytest.raises(ValueError, match="begins: no BOS in the folder, <bos> now"):
        lh.evaluate(
            lh.load_model(folder, prepend_bos=True), trial, generate=False, out=tmp_path / "no BOS", progress=False
        )


def test_passkeys_begin_so_too(tmp_path: Path) -> None:
    for adds in ("", "<bos>"):
        model = lh.load_model(saved(tmp_path / f"model{adds[1:-1]}", adds=adds))
        (trial,) = passkeys(model, n=1, lengths=(480, 480), keys=1, words=2)
        assert model.tokenizer.decode(trial.tokens[:20]).startswith(adds + "This is")


@pytest.mark.slow
@pytest.mark.real
def test_of_the_packaged_models_gemma_alone_begins_with_a_bos() -> None:
    smollm, gemma = real_model("smollm2-135m-instruct"), real_model("gemma-3-270m")
    assert begins(smollm.tokenizer) == []
    assert begins(gemma.tokenizer) == [gemma.tokenizer.bos_token_id]
    for model in (smollm, gemma):
        assert len({tuple(ids) for ids in written(model).values()}) == 1
