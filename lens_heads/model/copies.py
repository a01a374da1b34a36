"""Copies of a model that share no weights with it: the same weights again, or freshly drawn ones."""

from __future__ import annotations

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.model.geometry import Model, geometry, is_bridge, output_weights, require_raw_weights
from lens_heads.model.load import boot_bridge


def redrawn(model: Model, name: str, seed: int) -> Model:
    """A model of the same class, configuration, dtype and tokenizer, with weights drawn as before training, on one device.

    The weights come from the class's own initialization and depend only on the seed, also on a GPU: they are drawn on the
    CPU. Torch's own random state is left as it was. No hook of the model is copied. ValueError for processed weights.
    """
    require_raw_weights(model)
    config = copy.deepcopy(model.original_model.config if is_bridge(model) else model.cfg)
    with torch.random.fork_rng(devices=[]):  # Wrapping a model draws, too.
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reach the GPUs' generators.
        with torch.device("cpu"):
            fresh = type(model.original_model)(config) if is_bridge(model) else _hooked(model, config)
        if is_bridge(model):
            options = {"tokenizer": model.tokenizer, "device": model.W_U.device, "dtype": model.cfg.dtype}
            fresh = fresh.to(options["device"], options["dtype"]).eval()
            fresh = boot_bridge(name, None, {"hf_model": fresh, **options})
    fresh.cfg.model_name = name
    return fresh


def _hooked(model: Model, config: Any) -> Model:
    """A HookedTransformer whose weights the running generator draws."""
    config.init_weights, config.seed = True, None
    return type(model)(config, tokenizer=model.tokenizer).eval()


@torch.no_grad()
def copied(model: Model, name: str) -> Model:
    """A model with the same weights, of which it has its own copy, and without the hooks.

    ValueError for processed weights, and for a model with other parts than its configuration says.
    """
    fresh = redrawn(model, name, 0)
    source, target = _weights(model), dict(_weights(fresh))
    theirs = dict(source)
    for part in sorted({*theirs, *target}):
        if part not in theirs or part not in target or theirs[part].shape != target[part].shape:
            raise _not_copied(model, part)
    for part, tensor in source:
        target[part].copy_(tensor)
    for part, tensor in source:  # Parts that share memory in one model may have been taken apart in the other.
        if not torch.equal(target[part], tensor.to(target[part].device)):
            raise _not_copied(model, part)
    return fresh


def _weights(model: Model) -> list[tuple[str, Tensor]]:
    """Names and tensors. In a bridge a tensor has several names, and longer ones with every further bridge around it."""
    held = (model.original_model if is_bridge(model) else model).state_dict()
    return [(name.replace("_original_component.", ""), tensor) for name, tensor in held.items()]


def _not_copied(model: Model, part: str) -> ValueError:
    why = f"its {part} is not what its configuration makes of it"
    return ValueError(f"{geometry(model).name} cannot be copied, because {why}: load it again")


@torch.no_grad()
def set_output_weights(model: Model, layer: int, W_O: Float[Tensor, "head d_head d_model"]) -> None:
    """Write W_O of a layer into the model's weights. ValueError if the model only shows a copy of them."""
    weights = model.blocks[layer].attn.W_O
    weights.data.copy_(W_O.reshape(weights.shape))
    if not torch.equal(output_weights(model, layer), W_O.float()):
        raise ValueError(f"{geometry(model).name}: the output weights of layer {layer} cannot be written")
