"""Which models can be looked into, as far as configuration and modules tell, and the sentence for those that cannot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.runs.reading import reason

DECODERS = "choose a decoder-only model with attention heads"
OTHERS = "update TransformerLens, or choose another model"


class UnsuitedError(ValueError):
    """A model that nothing here applies to."""


def unsuited(name: str, architecture: str, why: str, remedy: str) -> UnsuitedError:
    """The sentence for a model that nothing here applies to: its architecture, what is missing, the versions, the remedy."""
    versions = f"transformers {version('transformers')}, TransformerLens {version('transformer-lens')}"
    return UnsuitedError(f"{name}: {architecture} {why} ({versions}): {remedy}")


def architecture_of(config: Any) -> str:
    """The class that a configuration names, such as LlamaForCausalLM, or else its model type."""
    named = getattr(config, "architectures", None)
    return str(named[0]) if named else str(getattr(config, "model_type", None) or type(config).__name__)


def check_configuration(name: str, config: Any) -> None:
    """ValueError for what a configuration already shows not to be a causal language model with attention heads."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

    architecture, text = architecture_of(config), config.get_text_config(decoder=True)
    if getattr(config, "is_encoder_decoder", False):
        raise unsuited(name, architecture, "reads its prompt with an encoder", DECODERS)
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        raise unsuited(name, architecture, "is an encoder: its earlier rows see later tokens", DECODERS)
    if not getattr(text, "num_attention_heads", None):
        raise unsuited(name, architecture, "has no attention heads", DECODERS)
    if not attending_layers(text):
        first = _layer_kinds(text)[0]
        raise unsuited(name, architecture, f"has no layer of softmax attention (layer 0: {first})", DECODERS)


def drop_unread(config: Any) -> None:
    """Take a number of kv heads out of a configuration whose architecture reads none (GPT-NeoX, Bloom), since TransformerLens
    reads it all the same."""
    declared = getattr(type(config), "__dataclass_fields__", {})
    if "num_attention_heads" in declared and "num_key_value_heads" not in declared:
        vars(config).pop("num_key_value_heads", None)


def check_causal(name: str, config: Any) -> None:
    """ValueError for a configuration that `AutoModelForCausalLM` does not know, as of models that also see or hear."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    own = getattr(config, "auto_map", None) or {}
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and "AutoModelForCausalLM" not in own:
        raise unsuited(name, architecture_of(config), "is no causal language model (AutoModelForCausalLM)", DECODERS)


def attending_layers(text: Any) -> int:
    """How many layers have softmax attention, as far as a configuration says so: alone, or beside something else ("hybrid")."""
    kinds = _layer_kinds(text)
    having = [kind for kind in kinds if kind == "hybrid" or ("attention" in kind and kind != "linear_attention")]
    return len(having) if kinds else int(text.num_hidden_layers)


def _layer_kinds(text: Any) -> list[str]:
    """What each layer mixes tokens with, where a configuration says so."""
    for key in ("layers_block_type", "layer_types"):
        kinds = getattr(text, key, None)
        if isinstance(kinds, list | tuple) and len(kinds) == getattr(text, "num_hidden_layers", None):
            return [str(kind) for kind in kinds]
    return []


@contextmanager
def quantized(name: str, config: Any) -> Iterator[None]:
    """Inside weights are read: errors of quantized ones, which need packages and devices of their own, become the sentence."""
    stored = getattr(config, "quantization_config", None)
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if not stored:
            raise
        method = stored.get("quant_method") if isinstance(stored, dict) else getattr(stored, "quant_method", None)
        why = f"has weights quantized by {method}, which cannot be read here ({type(error).__name__}: {reason(error)})"
        remedy = "install the package that its method needs, or load the model without quantization"
        raise unsuited(name, architecture_of(config), why, remedy) from error


@contextmanager
def adapting(name: str, config: Any) -> Iterator[None]:
    """Inside TransformerLens wraps and runs a model of this configuration: its errors become the sentence. Those of memory and
    files stay."""
    from transformer_lens.factories.architecture_adapter_factory import SUPPORTED_ARCHITECTURES

    architecture = architecture_of(config)
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, OSError, UnsuitedError):
        raise
    except ImportError as error:
        why = f"needs a package that is not installed ({reason(error)})"
        raise unsuited(name, architecture, why, "install it") from error
    except Exception as error:
        why = f"is not what its adapter in TransformerLens expects ({type(error).__name__}: {reason(error)})"
        if architecture not in SUPPORTED_ARCHITECTURES and "architecture" in str(error):
            why = "has no adapter in TransformerLens"
        raise unsuited(name, architecture, why, OTHERS) from error


def check_parts(name: str, model: Any) -> None:
    """ValueError for a bridge without what every function reads: an unembedding, a final norm, and attention in some layer, whose
    z and W_O are there by head wherever there is attention."""
    architecture, points = architecture_of(model.original_model.config), model.hook_dict
    for part, said in (("unembed", "unembedding"), ("ln_final", "norm before the unembedding"), ("blocks", "layers")):
        if getattr(model, part, None) is None:
            raise unsuited(name, architecture, f"has no {said}", OTHERS)
    if not attentions(model):
        raise unsuited(name, architecture, "has no attention in any layer", DECODERS)
    for layer in attentions(model):
        for hook in ("hook_z", "hook_pattern"):
            if f"blocks.{layer}.attn.{hook}" not in points:
                raise unsuited(name, architecture, f"shows no attn.{hook} in layer {layer}", OTHERS)


MIXERS = {
    "linear_attn": "linear attention",
    "conv": "a convolution",
    **dict.fromkeys(("mamba", "ssm", "mixer"), "Mamba"),
}
"""What else mixes tokens in a layer, by the name that TransformerLens gives it."""


def mixer_of(block: Any) -> str:
    """What mixes tokens in a block beside its attention or in its place; "" for nothing."""
    return next((said for part, said in MIXERS.items() if hasattr(block, part)), "")


def attentions(model: Any) -> dict[int, Any]:
    """The attention of every layer that has one, by layer."""
    found = {layer: getattr(block, "attn", None) for layer, block in enumerate(model.blocks)}
    return {layer: attention for layer, attention in found.items() if attention is not None}


def linear(attention: Any) -> str:
    """What the heads of a `LinearHeads` are; "" for attention."""
    found = getattr(attention, "linear", "")
    return found if isinstance(found, str) else ""


def output_projection(attention: Any) -> Any | None:
    """The module of a bridge that heads write through; None for a HookedTransformer."""
    return getattr(getattr(attention, "o", None), "original_component", None)


def stored_output(attention: Any) -> Float[Tensor, "width d_model"] | None:
    """The weights that all heads of a layer write through, as a view; None where they are not stored as such (a
    HookedTransformer, an adapter beside the weights, quantized weights)."""
    projection: Any = output_projection(attention)
    kind, weight = type(projection).__name__, getattr(projection, "weight", None)
    if kind not in ("Linear", "Conv1D") or not isinstance(weight, Tensor):
        return None
    return weight.mT if kind == "Linear" else weight
