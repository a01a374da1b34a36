"""Tiny random models of other families than the zoo's, as folders that `load_model` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForSeq2SeqLM

from lens_heads.sanity.planted_weights import byte_tokenizer
from tests.scripts import script

_TOKENS: dict[str, Any] = dict(vocab_size=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
_HEADS: dict[str, Any] = dict(
    _TOKENS, num_hidden_layers=2, hidden_size=48, intermediate_size=48, num_attention_heads=12
)
_HEADS |= dict(num_key_value_heads=4, max_position_embeddings=512)
_SEEN: dict[str, Any] = dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8)
_SEEING: dict[str, Any] = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
_SEEING |= dict(image_size=28, patch_size=14)
_OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3-seeing": (
        "gemma3",
        dict(
            text_config={**_HEADS, **_SEEN, "query_pre_attn_scalar": 8},
            vision_config=_SEEING,
            mm_tokens_per_image=4,
        ),
    ),
    "llama": ("llama", _HEADS),
    "llama-biased": ("llama", dict(_HEADS, attention_bias=True)),
    "llava": (
        "llava",
        dict(
            text_config=dict(_HEADS, model_type="llama"),
            vision_config=dict(_SEEING, model_type="clip_vision_model", projection_dim=32),
        ),
    ),
    "mamba": ("mamba", dict(_TOKENS, num_hidden_layers=2, hidden_size=32, state_size=8)),
}
"""Configurations that the table of families has no row for."""
_ROWS = {
    "bart": "BART",
    "bert": "BERT",
    "bitnet": "BitNet",
    "deepseek-v3": "DeepSeek V3, R1; Kimi K2",
    "falcon-40b": "Falcon 40B",
    "falcon-alibi": "Falcon, ALiBi",
    "falcon-h1": "Falcon-H1",
    "gemma4": "Gemma 4",
    "gpt-oss": "gpt-oss",
    "helium": "Helium",
    "jetmoe": "JetMoE",
    "laguna": "Laguna",
    "lfm2": "LFM2",
    "nanochat": "nanochat",
    "olmo": "OLMo 1",
    "olmoe": "OLMoE",
    "opt-350m": "OPT 350M",
    "phi3": "Phi 3, 4",
    "qwen2": "Qwen 2, 2.5",
    "qwen3-next": "Qwen3-Next",
    "stablelm": "StableLM",
    "t5": "T5",
    "vaultgemma": "VaultGemma",
}


def row(name: str) -> tuple[str, dict[str, Any]]:
    """The kind and the settings of a row of the table of families."""
    one = script("families").FAMILIES[name]
    return one["kind"], one["settings"]


def family(name: str) -> Any:
    """A random Hugging Face model whose every weight matters: norms' gains and sinks differ from one head to the next."""
    kind, settings = _OWN[name] if name in _OWN else row(_ROWS[name])
    torch.manual_seed(0)
    others: dict[str, Any] = {
        "t5": AutoModelForSeq2SeqLM,
        "bart": AutoModelForSeq2SeqLM,
        "llava": AutoModelForImageTextToText,
    }
    maker = others.get(kind, AutoModelForCausalLM)
    model = maker.from_config(AutoConfig.for_model(kind, **settings), attn_implementation="eager").eval()
    with torch.no_grad():
        for part, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim > 1 and "conv" not in part:
                parameter.copy_(noise * 0.25)
            elif "norm" in part or "sinks" in part or part.endswith("bias"):
                parameter.add_(0.3 * noise)
    return model


def family_folder(name: str, folder: Path) -> Path:
    """The model of `family` with a tokenizer of bytes, as `save_pretrained` writes them."""
    byte_tokenizer(str(folder))
    family(name).save_pretrained(folder)
    return folder
