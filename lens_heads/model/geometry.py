"""A model's head geometry and output weights, read in the same way from either TransformerLens class."""

from __future__ import annotations

import weakref
from typing import Any, TypeAlias

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry, LayerGeometry
from lens_heads.model.architectures import check_parts, linear, mixer_of, output_projection, stored_output
from lens_heads.model.norms import is_rms, post_attention_norm

Model: TypeAlias = Any
"""A `transformer_lens` `TransformerBridge` or `HookedTransformer`."""


def is_bridge(model: Model) -> bool:
    """Whether the model is a TransformerBridge. TypeError for anything but a TransformerLens model."""
    if hasattr(model, "original_model") and hasattr(model, "adapter"):
        return True
    if type(model).__name__ == "HookedTransformer" or hasattr(model, "hook_dict"):
        return False
    raise TypeError(
        f"{type(model).__name__} is not a TransformerLens model: load it with lens_heads.load_model(name), "
        "or wrap it with TransformerBridge.boot_transformers(name, hf_model=model, tokenizer=tokenizer)"
    )


def head_geometry(model: Model) -> HeadGeometry:
    """The geometry of a loaded model. d_head is not always d_model / n_heads (Qwen3, Gemma 3).

    ValueError for a bridge of the caller's own that lacks what every function reads, as `load_model` refuses it.

    Example:
        >>> shape = lh.head_geometry(model)
        >>> shape.n_layers, shape.n_heads, shape.windows
        (2, 4, (None, None))
    """
    try:
        return _geometry(model)
    except AttributeError:
        if is_bridge(model):
            check_parts(str(getattr(model.cfg, "model_name", None) or "model"), model)
        raise


def _geometry(model: Model) -> HeadGeometry:
    bridge, cfg = is_bridge(model), model.cfg
    hf = getattr(model.original_model, "config", None) if bridge else None
    layers = tuple(_layer(model, layer, bridge) for layer in range(cfg.n_layers))
    first = next((at for at, layer in enumerate(layers) if layer.n_heads), None)
    if first is None:
        raise AttributeError("no layer has attention")
    return HeadGeometry(
        name=str(getattr(cfg, "model_name", None) or "model"),
        layers=layers,
        d_model=cfg.d_model,
        d_vocab=cfg.d_vocab,
        n_ctx=cfg.n_ctx,
        post_norm=post_attention_norm(model, first) is not None,
        qk_norm=any(getattr(model.blocks[first].attn, name, None) is not None for name in ("q_norm", "q_layernorm")),
        attn_softcap=_cap(getattr(hf, "attn_logit_softcapping", None) or getattr(cfg, "attn_scores_soft_cap", None)),
        logit_softcap=_cap(
            getattr(hf, "final_logit_softcapping", None) or getattr(cfg, "output_logits_soft_cap", None)
        ),
        final_norm="rms" if is_rms(model, model.ln_final) else "layer",
        model=weakref.ref(model),
    )


def _layer(model: Model, layer: int, bridge: bool) -> LayerGeometry:
    """What the heads of a layer are, read off its own attention where that says so, else off the configuration."""
    block, cfg = model.blocks[layer], model.cfg
    mixer = mixer_of(block)
    if getattr(block, "attn", None) is None:
        return LayerGeometry(0, 0, 0, mixer=mixer)
    if kind := linear(block.attn):
        return LayerGeometry(block.attn.n_heads, block.attn.n_heads, block.attn.d_head, linear=kind)
    inner = getattr(block.attn, "original_component", None)
    own = getattr(inner, "v_head_dim", None) or getattr(inner, "head_dim", None)
    group, stored = getattr(inner, "num_key_value_groups", None), stored_output(block.attn)
    d_head = own if isinstance(own, int) else cfg.d_head
    n_heads = cfg.n_heads if stored is None else len(stored) // d_head
    n_kv_heads = n_heads // group if isinstance(group, int) else getattr(cfg, "n_key_value_heads", None) or n_heads
    window, chunk = _reach(model, layer, bridge)
    latent = hasattr(inner, "kv_b_proj")
    return LayerGeometry(n_heads, n_heads if latent else n_kv_heads, d_head, window, chunk, mixer, latent)


def _cap(value: float | None) -> float | None:
    return float(value) if value is not None and value > 0 else None


def _reach(model: Model, layer: int, bridge: bool) -> tuple[int | None, int | None]:
    """A layer's sliding window and its chunk, each None without.

    The configuration's list of layer types decides where there is one: EXAONE 4 gives every layer's attention the window's
    size, which only some of them use.
    """
    if not bridge:
        local = model.cfg.use_local_attn and model.cfg.attn_types and model.cfg.attn_types[layer] == "local"
        return (model.cfg.window_size if local else None), None
    attention = model.blocks[layer].attn.original_component
    config = getattr(attention, "config", None) or model.original_model.config
    types = getattr(config, "layer_types", None)
    if types is not None and layer < len(types):
        kind = types[layer]
        window = config.sliding_window if kind == "sliding_attention" else None
        chunk = config.attention_chunk_size if kind == "chunked_attention" else None
        return window or None, chunk or None
    if getattr(attention, "attention_type", None) in ("global", "local"):  # GPT-Neo.
        return (int(config.window_size) if attention.attention_type == "local" else None), None
    own = attention if hasattr(attention, "sliding_window") else config  # Mistral's kind reads it in the forward.
    window = getattr(own, "sliding_window", None)
    return (int(window) if window else None), None


def require_raw_weights(model: Model) -> None:
    """ValueError if norms were folded or weights centered, which changes the meaning of head contributions."""
    head_geometry(model)  # A TypeError or ValueError for other models before an attribute is missing.
    require_weights(model)
    folded = getattr(model, "_weights_processed", False) or getattr(model.cfg, "layer_norm_folding", False)
    folded = folded or str(getattr(model.cfg, "normalization_type", "")).endswith("Pre")
    rows = {"W_U": model.W_U.detach(), "W_O": output_weights(model, head_geometry(model).attending[0]).flatten(0, 1)}
    centered = [name for name, weights in rows.items() if _centered(weights)]
    if folded or centered:
        why = "norms folded into weights" if folded else f"{' and '.join(centered)} centered"
        raise ValueError(
            f"{head_geometry(model).name} has processed weights ({why}), but scores are defined on the weights as stored: load "
            "it with lens_heads.load_model(name), HookedTransformer.from_pretrained_no_processing(name), or "
            "TransformerBridge.enable_compatibility_mode(no_processing=True)"
        )


def require_weights(model: Model) -> None:
    """ValueError for a model that has no weights, or has them where no gradient and no version is known."""
    first = next(model.parameters())
    if first.is_meta:
        raise ValueError("the model is on device 'meta', without its weights: load it again with lh.load_model")
    if first.is_inference():
        raise ValueError(
            "the model was made under torch.inference_mode, which fixes its weights for good: load it outside of that block"
        )


def require_merged(model: Model, what: str) -> None:
    """ValueError for a model with adapters beside its weights, for what reads the weights alone."""
    for name, module in getattr(model, "original_model", model).named_modules():
        if hasattr(module, "base_layer") and not getattr(module, "merged", False):
            raise ValueError(
                f"{what} reads weights, and {name} has an adapter beside its own, which is not read: merge it first "
                "(merge_and_unload of peft)"
            )


def output_weights(model: Model, layer: int) -> Float[Tensor, "head d_head d_model"]:
    """W_O of a layer in float32: the stored weights of a plain projection; of any other (an adapter beside the weights,
    quantized weights), what the projection makes of an identity."""
    attention, shape = model.blocks[layer].attn, _layer(model, layer, is_bridge(model))
    W_O, projection = stored_output(attention), output_projection(attention)
    if projection is None:
        W_O = attention.W_O
    elif W_O is None:
        W_O = _through(projection, shape.n_heads * shape.d_head, model.cfg.dtype)
    return W_O.detach().float().reshape(shape.n_heads, shape.d_head, -1)


@torch.no_grad()
def _through(projection: torch.nn.Module, width: int, dtype: torch.dtype) -> Float[Tensor, "width d_model"]:
    """The matrix by which a module multiplies what goes in, without its bias."""
    device = next(held.device for held in (*projection.parameters(), *projection.buffers()))
    identity = torch.eye(width, dtype=dtype, device=device)
    return projection(identity) - projection(torch.zeros_like(identity[:1]))


def attention_out(
    model: Model, layer: int, z: Float[Tensor, "row head d_head"], W_O: Float[Tensor, "head d_head d_model"]
) -> Float[Tensor, "row d_model"]:
    """Sum of the heads' writes z @ W_O and the output bias, before any post-attention norm."""
    out = einsum(z, W_O, "row head e, head e d -> row d")
    bias = getattr(model.blocks[layer].attn, "b_O", None)
    return out if bias is None else out + bias.detach().to(out)


def _centered(weights: Float[Tensor, "row column"]) -> bool:
    """Whether every row has mean zero. One by one: a float32 copy of an unembedding takes gigabytes, and the first row tells."""
    told = False
    for row in weights.split(1):
        part = row.float()
        spread = float(part.std())
        if float(part.mean().abs()) > 1e-6 * spread:
            return False
        told = told or spread > 0  # Rows of zeros, as of a pruned head, are no sign of either.
    return told
