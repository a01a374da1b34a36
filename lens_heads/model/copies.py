"""Copies of a model that share no weights with it: the same weights again, or freshly drawn ones."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.model.architectures import stored_output
from lens_heads.model.beginning import agree
from lens_heads.model.geometry import Model, head_geometry, is_bridge, output_weights, require_raw_weights
from lens_heads.model.hooks import has_hooks
from lens_heads.model.load import boot_bridge


def redrawn(model: Model, name: str, seed: int) -> Model:
    """A model of the same class, configuration, dtype and tokenizer, with weights drawn as before training, on one device.

    The weights come from the class's own initialization and depend only on the seed, also on a GPU: they are drawn on the
    CPU. Torch's own random state is left as it was. No hook of the model is copied. ValueError for processed weights.
    """
    parts = replace(_parts(model), name=name)
    with torch.random.fork_rng(devices=[]):  # Wrapping a model draws, too.
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reach the GPUs' generators.
        return _made(parts, model.W_U.device)


@dataclass(frozen=True, eq=False)
class Packed:
    """All of a model that another process needs to make a copy of it: its class, configuration, tokenizer and weights."""

    bridge: bool
    kind: type
    config: Any
    tokenizer: Any
    dtype: torch.dtype
    name: str
    weights: list[tuple[list[str], Tensor]]
    linear: bool
    """Whether linear heads are shown."""
    constants: list[tuple[str, Tensor]]
    """Buffers that no file holds, such as rotary frequencies: they stay float32 where a model is loaded in bfloat16."""


def packed(model: Model) -> Packed:
    """A model to send to another process. ValueError for processed weights and for a model with hooks."""
    if has_hooks(model):
        raise ValueError(
            f"{head_geometry(model).name} has hooks attached (an ablation?), which no copy has: remove them first"
        )
    held: dict[Any, list[str]] = {}  # A tensor that has several names is sent once.
    tensors = dict(_weights(model))
    for name, tensor in tensors.items():
        held.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), []).append(name)
    return replace(_parts(model), weights=[(names, tensors[names[0]].detach().cpu()) for names in held.values()])


SEVERAL = "several"
"""In place of a device: all GPUs that this process sees, as `device_map="auto"` fills them."""


@torch.no_grad()
def unpacked(parts: Packed, device: torch.device | str) -> Model:
    """The model again, on a device, or spread over `SEVERAL`."""
    fresh = _made(parts, device)
    _fill(fresh, [(name, tensor) for names, tensor in parts.weights for name in names], parts.name)
    return fresh


def _parts(model: Model) -> Packed:
    """What a model is made of, without weights."""
    require_raw_weights(model)
    bridge, shape = is_bridge(model), head_geometry(model)
    whole = model.original_model if bridge else model
    config = copy.deepcopy(whole.config if bridge else model.cfg)
    stored = whole.state_dict()
    buffers = whole.named_buffers(remove_duplicate=False)  # A bridge may hold a part in further places.
    constants = [(_plain(name), held.detach().cpu()) for name, held in buffers if name not in stored]
    return Packed(
        bridge, type(whole), config, model.tokenizer, model.cfg.dtype, shape.name, [], bool(shape.linear), constants
    )


def _made(parts: Packed, device: torch.device | str) -> Model:
    """A model with weights that the running generator draws."""
    with torch.device("cpu"):
        if parts.bridge:
            fresh = parts.kind(parts.config).to(parts.dtype).eval()
            inside = dict(fresh.named_modules())
            for name, held in parts.constants:
                owner, _, last = name.rpartition(".")
                if owner in inside:
                    inside[owner].register_buffer(last, held.clone(), persistent=False)
            fresh = _placed(fresh, device)
            options = {"hf_model": fresh, "tokenizer": parts.tokenizer, "dtype": parts.dtype}
            options |= {} if device == SEVERAL else {"device": device}
        else:
            parts.config.init_weights, parts.config.seed = True, None
            fresh = parts.kind(parts.config, tokenizer=parts.tokenizer).eval()
            options = {}
    if parts.bridge:
        fresh = boot_bridge(parts.name, None, options, parts.linear)
        agree(fresh)
    fresh.cfg.model_name = parts.name
    return fresh


def _placed(fresh: Any, device: torch.device | str) -> Any:
    """A Hugging Face model where it shall be."""
    if device != SEVERAL:
        return fresh.to(device)
    from accelerate import dispatch_model, infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    whole: dict[str, Any] = {"dtype": fresh.dtype, "no_split_module_classes": list(fresh._no_split_modules or ())}
    return dispatch_model(fresh, infer_auto_device_map(fresh, get_balanced_memory(fresh, **whole), **whole))


@torch.no_grad()
def copied(model: Model, name: str) -> Model:
    """A model with the same weights, of which it has its own copy, and without the hooks.

    ValueError for processed weights, and for a model with other parts than its configuration says.
    """
    fresh = redrawn(model, name, 0)
    _fill(fresh, _weights(model), head_geometry(model).name)
    return fresh


def _fill(fresh: Model, source: list[tuple[str, Tensor]], name: str) -> None:
    """Write the weights of the model called `name` into a fresh one. ValueError for other parts."""
    target, theirs = dict(_weights(fresh)), dict(source)
    for part in sorted({*theirs, *target}):
        if part not in theirs or part not in target or theirs[part].shape != target[part].shape:
            raise _not_copied(name, part)
    for part, tensor in source:
        target[part].copy_(tensor)
    for part, tensor in source:  # Parts that share memory in one model may have been taken apart in the other.
        if not torch.equal(target[part], tensor.to(target[part].device)):
            raise _not_copied(name, part)


def _weights(model: Model) -> list[tuple[str, Tensor]]:
    """Names and tensors. In a bridge a tensor has several names, and longer ones with every further bridge around it."""
    held = (model.original_model if is_bridge(model) else model).state_dict()
    return [(_plain(name), tensor) for name, tensor in held.items()]


def _plain(name: str) -> str:
    """A part's name without the bridges around it."""
    return name.replace("_original_component.", "")


def _not_copied(name: str, part: str) -> ValueError:
    why = f"its {part} is not what its configuration makes of it"
    return ValueError(f"{name} cannot be copied, because {why}: load it again")


@torch.no_grad()
def set_output_weights(model: Model, layer: int, W_O: Float[Tensor, "head d_head d_model"]) -> None:
    """Write W_O of a layer into the model's weights. ValueError if the model only shows a copy of them."""
    attention = model.blocks[layer].attn
    stored = stored_output(attention)
    weights = attention.W_O if stored is None else stored
    weights.data.copy_(W_O.reshape(weights.shape))
    if not torch.equal(output_weights(model, layer), W_O.float()):
        raise ValueError(f"{head_geometry(model).name}: the output weights of layer {layer} cannot be written")
