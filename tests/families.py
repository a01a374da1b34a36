"""Tiny random models of other families than the zoo's, as folders that `load_model` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForSeq2SeqLM

from lens_heads.sanity.planted_weights import byte_tokenizer

_TOKENS: dict[str, Any] = dict(vocab_size=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
_HEADS: dict[str, Any] = dict(_TOKENS, num_hidden_layers=2, hidden_size=32, intermediate_size=48, num_attention_heads=4)
_HEADS |= dict(max_position_embeddings=512)
_GROUPED: dict[str, Any] = dict(_HEADS, num_key_value_heads=2)
_EXPERTS: dict[str, Any] = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
_DELTA: dict[str, Any] = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8)
_DELTA |= dict(linear_value_head_dim=8, linear_conv_kernel_dim=4)
_LATENT: dict[str, Any] = dict(_HEADS, num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8)
_LATENT |= dict(qk_rope_head_dim=4, v_head_dim=8, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2)
_LATENT |= dict(moe_intermediate_size=16, n_group=1, topk_group=1, first_k_dense_replace=1)
_SEEING: dict[str, Any] = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
_SEEING |= dict(image_size=28, patch_size=14)
_HALF = ["linear_attention", "full_attention"]
_MAMBA: dict[str, Any] = dict(mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1)

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": (
        "bart",
        dict(
            _TOKENS,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            decoder_ffn_dim=48,
        ),
    ),
    "bert": ("bert", _HEADS),
    "bitnet": ("bitnet", _GROUPED),
    "deepseek-v3": ("deepseek_v3", _LATENT),
    "falcon-40b": (
        "falcon",
        dict(
            _TOKENS,
            num_hidden_layers=2,
            hidden_size=32,
            num_attention_heads=4,
            new_decoder_architecture=True,
            num_kv_heads=2,
        ),
    ),
    "falcon-alibi": (
        "falcon",
        dict(
            _TOKENS,
            num_hidden_layers=2,
            hidden_size=32,
            num_attention_heads=4,
            alibi=True,
            multi_query=False,
            parallel_attn=False,
        ),
    ),
    "falcon-h1": ("falcon_h1", dict(_GROUPED, head_dim=8, mamba_d_ssm=64, **_MAMBA)),
    "gemma3-seeing": (
        "gemma3",
        dict(
            text_config=dict(_GROUPED, head_dim=8, query_pre_attn_scalar=8),
            vision_config=_SEEING,
            mm_tokens_per_image=4,
        ),
    ),
    "gemma4": (
        "gemma4_text",
        dict(
            _GROUPED,
            head_dim=8,
            layer_types=["sliding_attention", "full_attention"],
            sliding_window=6,
            global_head_dim=16,
            num_global_key_value_heads=1,
            num_kv_shared_layers=0,
            hidden_size_per_layer_input=0,
            enable_moe_block=False,
        ),
    ),
    "gpt-oss": ("gpt_oss", dict(_GROUPED, head_dim=8, **_EXPERTS)),
    "helium": ("helium", dict(_GROUPED, head_dim=8)),
    "jetmoe": (
        "jetmoe",
        dict(
            _TOKENS,
            num_hidden_layers=2,
            hidden_size=32,
            num_key_value_heads=2,
            kv_channels=8,
            intermediate_size=48,
            num_local_experts=4,
            num_experts_per_tok=2,
            max_position_embeddings=512,
        ),
    ),
    "laguna": (
        "laguna",
        dict(
            _GROUPED,
            head_dim=8,
            **_EXPERTS,
            shared_expert_intermediate_size=16,
            layer_types=["sliding_attention", "full_attention"],
            sliding_window=6,
            num_attention_heads_per_layer=[4, 4],
        ),
    ),
    "llama": ("llama", dict(_HEADS, hidden_size=48, num_attention_heads=12, num_key_value_heads=4)),
    "llama-biased": (
        "llama",
        dict(_HEADS, hidden_size=48, num_attention_heads=12, num_key_value_heads=4, attention_bias=True),
    ),
    "lfm2": ("lfm2", dict(_GROUPED, layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False)),
    "llava": (
        "llava",
        dict(
            text_config=dict(_GROUPED, model_type="llama"),
            vision_config=dict(_SEEING, model_type="clip_vision_model", projection_dim=32),
        ),
    ),
    "mamba": ("mamba", dict(_TOKENS, num_hidden_layers=2, hidden_size=32, state_size=8)),
    "nanochat": ("nanochat", _GROUPED),
    "olmo": ("olmo", _GROUPED),
    "olmoe": ("olmoe", dict(_GROUPED, num_experts=4, num_experts_per_tok=2)),
    "opt-350m": (
        "opt",
        dict(
            _TOKENS,
            num_hidden_layers=2,
            hidden_size=32,
            ffn_dim=48,
            num_attention_heads=4,
            word_embed_proj_dim=16,
            do_layer_norm_before=False,
            max_position_embeddings=512,
        ),
    ),
    "phi3": ("phi3", dict(_GROUPED, sliding_window=None)),
    "qwen2": ("qwen2", _GROUPED),
    "qwen3-next": (
        "qwen3_next",
        dict(_GROUPED, head_dim=8, **_EXPERTS, **_DELTA, layer_types=_HALF, shared_expert_intermediate_size=16),
    ),
    "stablelm": ("stablelm", _GROUPED),
    "t5": ("t5", dict(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=256)),
    "vaultgemma": ("vaultgemma", dict(_GROUPED, head_dim=8, query_pre_attn_scalar=8)),
}


def family(name: str) -> Any:
    """A random Hugging Face model whose every weight matters: norms' gains and sinks differ from one head to the next."""
    kind, settings = FAMILIES[name]
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
