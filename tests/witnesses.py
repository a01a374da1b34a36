"""Tiny random models of families whose attention differs from the usual, and plain transformers as a witness of what heads do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from tests import zoo

LAYERS, HEADS, D_HEAD, WIDTH = 2, 4, 8, 32
_TOKENS: dict[str, Any] = dict(vocab_size=256, pad_token_id=0, bos_token_id=1, eos_token_id=2)
_LLAMA: dict[str, Any] = dict(
    _TOKENS,
    num_hidden_layers=LAYERS,
    hidden_size=WIDTH,
    intermediate_size=48,
    num_attention_heads=HEADS,
    num_key_value_heads=2,
    max_position_embeddings=512,
)
_GPT: dict[str, Any] = dict(_TOKENS, n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, n_positions=512)
_EXPERTS: dict[str, Any] = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
_TYPES = ["sliding_attention", "full_attention"]


@dataclass(frozen=True)
class Family:
    """A configuration, and where its modules are: the attention in a block, and in that its value and output projections."""

    kind: str
    settings: dict[str, Any]
    blocks: str = "model.layers"
    attention: str = "self_attn"
    v: str = "v_proj"
    o: str = "o_proj"


FAMILIES = {
    "opt": Family(
        "opt",
        dict(
            _TOKENS,
            num_hidden_layers=LAYERS,
            hidden_size=WIDTH,
            ffn_dim=48,
            num_attention_heads=HEADS,
            word_embed_proj_dim=WIDTH,
            max_position_embeddings=512,
        ),
        "model.decoder.layers",
        o="out_proj",
    ),
    "gptj": Family("gptj", dict(_GPT, rotary_dim=4), "transformer.h", "attn", o="out_proj"),
    "gpt_neo": Family(
        "gpt_neo",
        dict(
            _TOKENS,
            num_layers=LAYERS,
            num_heads=HEADS,
            hidden_size=WIDTH,
            attention_types=[[["global", "local"], 1]],
            window_size=6,
            max_position_embeddings=512,
        ),
        "transformer.h",
        "attn.attention",
        o="out_proj",
    ),
    "xglm": Family(
        "xglm",
        dict(_TOKENS, num_layers=LAYERS, attention_heads=HEADS, d_model=WIDTH, ffn_dim=48, max_position_embeddings=512),
        o="out_proj",
    ),
    "llama4": Family(
        "llama4_text",
        dict(
            _LLAMA,
            head_dim=D_HEAD,
            num_local_experts=2,
            num_experts_per_tok=1,
            intermediate_size_mlp=48,
            attention_chunk_size=6,
            layer_types=["chunked_attention", "full_attention"],
            no_rope_layers=[1, 0],
            moe_layers=[1],
        ),
    ),
    "afmoe": Family(
        "afmoe",
        dict(
            _LLAMA,
            **_EXPERTS,
            head_dim=D_HEAD,
            layer_types=_TYPES,
            sliding_window=6,
            num_dense_layers=1,
            num_shared_experts=1,
            global_attn_every_n_layers=2,
        ),
    ),
    "laguna": Family(
        "laguna",
        dict(
            _LLAMA,
            **_EXPERTS,
            head_dim=D_HEAD,
            shared_expert_intermediate_size=16,
            layer_types=_TYPES,
            sliding_window=6,
            num_attention_heads_per_layer=[HEADS] * LAYERS,
        ),
    ),
    "bitnet": Family("bitnet", _LLAMA),
    "granite": Family(
        "granite",
        dict(
            _LLAMA,
            residual_multiplier=0.22,
            embedding_multiplier=3.0,
            logits_scaling=2.0,
            attention_multiplier=0.3,
        ),
    ),
    "cohere": Family("cohere", dict(_LLAMA, logit_scale=0.0625)),
    "cohere2": Family("cohere2", dict(_LLAMA, layer_types=_TYPES, sliding_window=6, logit_scale=0.25)),
    "exaone4": Family("exaone4", dict(_LLAMA, layer_types=_TYPES, sliding_window=6)),
    "gpt_oss": Family(
        "gpt_oss",
        dict(_LLAMA, head_dim=D_HEAD, num_local_experts=4, num_experts_per_tok=2, layer_types=_TYPES, sliding_window=6),
    ),
    "mpt": Family(
        "mpt",
        dict(_TOKENS, n_layers=LAYERS, n_heads=HEADS, d_model=WIDTH, max_seq_len=512, expansion_ratio=2),
        "transformer.blocks",
        "attn",
        v="",
        o="out_proj",
    ),
    "stablelm": Family("stablelm", dict(_LLAMA, use_parallel_residual=True, qk_layernorm=True)),
    "gpt_bigcode": Family("gpt_bigcode", dict(_GPT, multi_query=True), "transformer.h", "attn", v="", o="c_proj"),
}
_LINEAR = ["linear_attention", "full_attention"]
_DELTA: dict[str, Any] = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8)
_DELTA |= dict(linear_value_head_dim=8, linear_conv_kernel_dim=4, layer_types=_LINEAR)
_MAMBA: dict[str, Any] = dict(mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1)
_GROUPED: dict[str, Any] = dict(_LLAMA, head_dim=D_HEAD)
HYBRIDS = {
    "lfm2": Family(
        "lfm2", dict(_LLAMA, layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False), o="out_proj"
    ),
    "qwen3_next": Family("qwen3_next", dict(_GROUPED, **_EXPERTS, **_DELTA, shared_expert_intermediate_size=16)),
    "qwen3_5": Family("qwen3_5_text", dict(_GROUPED, **_DELTA)),
    "olmo_hybrid": Family("olmo_hybrid", dict(_LLAMA, **_DELTA)),
    "jamba": Family(
        "jamba",
        dict(
            _LLAMA,
            attn_layer_period=2,
            attn_layer_offset=1,
            num_experts=2,
            num_experts_per_tok=1,
            mamba_d_state=8,
            mamba_dt_rank=4,
            use_mamba_kernels=False,
        ),
    ),
    "granite4": Family(
        "granitemoehybrid",
        dict(
            _LLAMA,
            **_MAMBA,
            layer_types=["mamba", "attention"],
            num_local_experts=0,
            num_experts_per_tok=0,
            shared_intermediate_size=32,
            mamba_expand=2,
            residual_multiplier=0.22,
            logits_scaling=2.0,
        ),
    ),
    "falcon_h1": Family("falcon_h1", dict(_GROUPED, **_MAMBA, mamba_d_ssm=64, attention_out_multiplier=0.5)),
}
"""Models of which some layers mix tokens by something else; their first layer has no heads, or both (Falcon-H1)."""
UNLIKE = {
    "gemma4": Family(
        "gemma4_text",
        dict(
            _GROUPED,
            layer_types=_TYPES,
            sliding_window=6,
            global_head_dim=2 * D_HEAD,
            num_global_key_value_heads=1,
            attention_k_eq_v=True,
            num_kv_shared_layers=0,
            hidden_size_per_layer_input=0,
            enable_moe_block=False,
        ),
    ),
}
_LATENT: dict[str, Any] = dict(_LLAMA, num_key_value_heads=HEADS, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8)
_LATENT |= dict(qk_rope_head_dim=4, v_head_dim=D_HEAD, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2)
_LATENT |= dict(moe_intermediate_size=16, first_k_dense_replace=1)
UNLIKE |= {
    "deepseek_v2": Family("deepseek_v2", _LATENT, v=""),
    "deepseek_v3": Family("deepseek_v3", dict(_LATENT, n_group=1, topk_group=1), v=""),
}
"""Models whose heads differ between layers, or whose values are of another width than their keys."""
FAMILIES |= HYBRIDS | UNLIKE
_BERT: dict[str, Any] = {name: value for name, value in _LLAMA.items() if name != "num_key_value_heads"}
PARTLY = {
    "modernbert": Family(
        "modernbert-decoder",
        dict(_BERT, layer_types=_TYPES, local_attention=6, cls_token_id=1, sep_token_id=2),
        attention="attn",
        v="",
        o="Wo",
    ),
    "bert": Family("bert", dict(_BERT, is_decoder=True), "bert.encoder.layer", "attention", v="", o="output.dense"),
}
"""Those on which something is refused: what is read through the unembedding of ModernBERT, which has a layer before it, and what
is read off the residual stream of a BERT decoder, which has its norms in it."""
KNOWN = FAMILIES | PARTLY
GATES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "afmoe": lambda attention, x: torch.sigmoid(attention.gate_proj(x)).reshape(*x.shape[:2], HEADS, -1),
    "laguna": lambda attention, x: torch.nn.functional.softplus(attention.g_proj(x)).reshape(*x.shape[:2], HEADS, -1),
} | dict.fromkeys(
    ("qwen3_next", "qwen3_5"),
    lambda attention, x: torch.sigmoid(attention.q_proj(x).reshape(*x.shape[:2], HEADS, 2, -1)[..., 1, :]),
)
"""What multiplies A v, from what the attention is given."""


@cache
def plain(name: str) -> Any:
    """The Hugging Face model, with eager attention."""
    family = KNOWN[name]
    torch.manual_seed(0)
    config = AutoConfig.for_model(family.kind, **family.settings)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for part, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim > 1:
                parameter.copy_(noise * (0.6 if max(parameter.shape) > 100 else 0.25))
            elif "sinks" in part:
                parameter.copy_(noise)
            else:
                parameter.add_(0.1 * noise)
    model.config.architectures = [type(model).__name__]
    return model.eval()


@cache
def bridged(name: str) -> Any:
    """The same weights as a TransformerBridge."""
    import copy

    return zoo.bridge(name, hf=copy.deepcopy(plain(name)))


def reached(model: Any, path: str) -> Any:
    """A part of a model by its path."""
    for step in path.split("."):
        model = getattr(model, step)
    return model


def attention(name: str, layer: int) -> Any:
    family = KNOWN[name]
    return reached(reached(plain(name), family.blocks)[layer], family.attention)


@contextmanager
def before_projection(name: str, layer: int, edit: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Inside, the output projection of a layer of the plain model is given `edit(z)`, z [batch, row, head, d_head]."""

    def hook(module: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        z = args[0]
        return (edit(z.reshape(*z.shape[:-1], HEADS, -1)).reshape(z.shape), *args[1:])

    handle = reached(attention(name, layer), KNOWN[name].o).register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def logits(name: str, tokens: Tensor) -> Tensor:
    """Of one forward of the plain model without a cache."""
    return plain(name)(tokens[None], use_cache=False).logits[0]
