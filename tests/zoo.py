"""Tiny random models of every attention variant, with a real (tiny, byte-level) tokenizer. Seeded, CPU, milliseconds."""

from __future__ import annotations

import atexit
import copy
import shutil
import tempfile
from functools import cache
from typing import Any

import torch
from tokenizers import processors
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from lens_heads.model.adapters import mend
from lens_heads.sanity.planted_weights import byte_tokenizer

LAYERS, D_MODEL, VOCAB, WINDOW = 3, 32, 256, 6

_COMMON: dict[str, Any] = dict(
    num_hidden_layers=LAYERS,
    hidden_size=D_MODEL,
    intermediate_size=48,
    vocab_size=VOCAB,
    max_position_embeddings=512,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
_GEMMA: dict[str, Any] = dict(
    _COMMON, num_attention_heads=4, head_dim=16, sliding_window=WINDOW, tie_word_embeddings=True
)
_SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": (
        "gpt2",
        dict(
            n_layer=LAYERS,
            n_head=4,
            n_embd=D_MODEL,
            vocab_size=VOCAB,
            n_positions=512,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    "llama-gqa": ("llama", dict(_COMMON, num_attention_heads=4, num_key_value_heads=2)),
    "llama-mqa": ("llama", dict(_COMMON, num_attention_heads=4, num_key_value_heads=1)),
    "qwen3": ("qwen3", dict(_COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12)),
    "gemma2": (
        "gemma2",
        dict(
            _GEMMA,
            num_key_value_heads=2,
            layer_types=_SLIDING,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=5.0,
            query_pre_attn_scalar=16,
        ),
    ),
    "gemma3": ("gemma3_text", dict(_GEMMA, num_key_value_heads=1, layer_types=_SLIDING, query_pre_attn_scalar=16)),
    "olmo2": ("olmo2", dict(_COMMON, num_attention_heads=4, num_key_value_heads=2)),
    "olmo3": (
        "olmo3",
        dict(_COMMON, num_attention_heads=4, num_key_value_heads=2, layer_types=_SLIDING, sliding_window=WINDOW),
    ),
}
ARCHITECTURES = tuple(CONFIGS)


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte: real enough for every composition rule, small enough for a vocabulary of 256.

    By itself it adds no BOS. A model made with it has the one of its folder, which TransformerLens reads: that puts a BOS before
    texts, as the tokenizers of Llama and Gemma do.
    """
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    alone = byte_tokenizer(folder)
    with_bos(alone).save_pretrained(folder)
    return alone


def with_bos(tokenizer: Any) -> Any:
    """A copy of a tokenizer that puts its BOS before a text by itself."""
    made = copy.deepcopy(tokenizer)
    bos = (made.bos_token, made.bos_token_id)
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(f"{bos[0]} $A", special_tokens=[bos])
    return made


def hf_model(name: str, seed: int = 0, n_ctx: int = 512, **changes: Any) -> Any:
    """A random Hugging Face model with weights large enough for attention and norms to matter."""
    kind, settings = CONFIGS[name]
    settings = {**settings, "n_positions" if name == "gpt2" else "max_position_embeddings": n_ctx, **changes}
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings), attn_implementation="eager")
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if "norm" in parameter_name or "ln_" in parameter_name:
                parameter.add_(0.3 * noise)
            elif parameter.ndim == 1:
                parameter.copy_(0.1 * noise)
            else:
                parameter.copy_(noise * (0.6 if parameter.shape[-1] > 100 or parameter.shape[0] > 100 else 0.25))
    model.config.architectures = [type(model).__name__]
    return model.eval()


def bridge(name: str, seed: int = 0, dtype: torch.dtype = torch.float32, n_ctx: int = 512, hf: Any = None) -> Any:
    """The same model (or `hf`) as a TransformerBridge with HookedTransformer hook names and raw weights."""
    from transformer_lens.model_bridge import TransformerBridge

    hf = hf_model(name, seed, n_ctx) if hf is None else hf
    model = TransformerBridge.boot_transformers(
        name, hf_model=hf.to(dtype), tokenizer=tokenizer(), device="cpu", dtype=dtype
    )
    mend(model)
    model.enable_compatibility_mode(no_processing=True, disable_warnings=True)
    return model.eval()
