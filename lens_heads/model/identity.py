"""What identifies a model in a run folder: its name, all its weights, what scales its attention, and the absence of hooks."""

from __future__ import annotations

import hashlib
import re
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import replace
from numbers import Real
from typing import Any

import torch
import xxhash
from torch.nn.modules import module as torch_hooks

from lens_heads.model.geometry import Model, head_geometry, is_bridge
from lens_heads.model.hooks import has_hooks, hook_tables, is_the_librarys
from lens_heads.runs.digests import digest, hashed
from lens_heads.runs.identity import ModelIdentity
from lens_heads.runs.warned import users_line
from lens_heads.trials.bos import beginning

_SCALES = re.compile("scal|cap|eps|window|causal|sliding|theta|multiplier|factor")
_ACTIVATIONS = re.compile("act|gelu")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


_KNOWN: weakref.WeakKeyDictionary[Any, tuple[Any, str]] = weakref.WeakKeyDictionary()
"""The hash of models seen before, with the places and versions of their tensors then."""


def identify(model: Model, again: bool = True) -> ModelIdentity:
    """Name, hash of the weights, and dtype. Reads every byte, at about 10 GB/s, from a GPU at 6.

    `again=False` takes the hash of an earlier call where no tensor has moved or been written to since, as torch counts it. What
    is written through `.data` escapes that, so results are stored under a new hash, and only contexts that are entered
    thousands of times rely on an old one, to tell another model.
    """
    state = None if again else _state(model)
    held, found = _KNOWN.get(model, (None, ""))
    if state is None or held != state:
        found = fingerprint(model)
        if (state := _state(model)) is not None:
            _KNOWN[model] = state, found
    begins = beginning(model.tokenizer) if model.tokenizer is not None else ""
    return ModelIdentity(head_geometry(model).name, found, str(model.cfg.dtype), type(model).__name__, begins=begins)


def identified(model: Model, what: str) -> ModelIdentity:
    """`identify`, for results that are kept and used later: warns as `warn_of_change` does."""
    return replace(identify(model), changed=warn_of_change(model, what))


def warn_of_change(model: Model, what: str) -> str:
    """What is attached to the model, in words, empty for nothing: a warning if `what` is made while something is."""
    changed = changed_by(model)
    if changed is not None:
        warnings.warn(
            f"{head_geometry(model).name} has {changed}: {what} will be those of the changed model. Leave the block, or "
            "remove the hooks, if that is not meant",
            stacklevel=users_line(),
        )
    return changed or ""


def _state(model: Model) -> Any:
    """Where every tensor is, and how often it has been written to; None where torch does not count."""
    wrapped = inner_module(model)
    try:
        tensors = [(tensor.data_ptr(), tensor._version) for tensor in (*wrapped.parameters(), *wrapped.buffers())]
        return tensors, switches(wrapped)
    except (RuntimeError, NotImplementedError):  # Tensors of an inference mode, or of no storage of their own.
        return None


def fingerprint(model: Model) -> str:
    """Hash of every parameter and buffer: names, shapes, and all bytes (XXH3, 128 bits: no proof against forgery).

    In this thread alone: Ctrl-C while threads are started may leave their locks held, or end in another error.
    """
    wrapped, seen = inner_module(model), hashlib.sha256()
    for name, tensor in [*wrapped.named_parameters(), *wrapped.named_buffers()]:
        found = hashed(tensor, xxhash.xxh3_128())
        seen.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {found}\n".encode())
    for name, state in switches(wrapped):
        seen.update(f"{name} {state}\n".encode())
    return seen.hexdigest()[:16]


def switches(module: Any) -> list[tuple[str, str]]:
    """What modules of other libraries (adapters) have beside their tensors: whether they are on, and which of several is."""
    found = []
    for name, part in module.named_modules():
        if type(part).__module__.partition(".")[0] not in _PLAIN:
            held = {
                key: value
                for key, value in vars(part).items()
                if isinstance(value, bool | str | list) and key != "training"
            }
            found.append((name, repr(sorted(held.items()))))
    return found


_PLAIN = ("torch", "transformers", "transformers_modules", "transformer_lens")
"""Whose modules are what their tensors and configuration say."""


def inner_module(model: Model) -> Any:
    """The module that computes: the Hugging Face model inside a bridge."""
    return model.original_model if is_bridge(model) else model


def _modules(model: Model) -> Iterator[tuple[str, Any]]:
    """(name, module) of every part of the model, those of a bridge around it included."""
    parts = [*inner_module(model).named_modules(), *model.named_modules()]
    yield from {id(module): (name, module) for name, module in reversed(parts)}.values()


def scales(model: Model) -> dict[str, Any]:
    """Every number outside the weights that scales, caps or masks, by name: its value, or a hash where modules differ.

    And the names of the activation functions, and the dtype that an open `torch.autocast` computes in.
    """
    found: dict[str, list[tuple[str, Any]]] = {}
    configs = [("cfg", model.cfg), ("config", getattr(inner_module(model), "config", None))]
    for place, holder in [*configs, *sorted(_modules(model), key=lambda named: named[0])]:
        held = vars(holder) if holder is not None else {}
        for name, value in {**held, **held.get("_modules", {})}.items():
            if _ACTIVATIONS.match(name) and callable(value):
                found.setdefault(name, []).append((place, getattr(value, "__qualname__", type(value).__qualname__)))
            elif _SCALES.search(name) and isinstance(value, Real | None) and not name.startswith("_"):
                found.setdefault(name, []).append((place, float(value) if isinstance(value, Real) else None))
    device = model.W_U.device.type
    if torch.is_autocast_enabled(device):
        found["autocast"] = [("torch", str(torch.get_autocast_dtype(device)))]
    return {
        name: places[0][1] if len({repr(value) for _, value in places}) == 1 else digest(places)
        for name, places in sorted(found.items())
    }


def changed_by(model: Model) -> str | None:
    """What was attached to the model that no identity can hold, in words; None for a model as it was loaded."""
    if has_hooks(model):
        return "hooks attached (an ablation?)"
    if any(getattr(torch_hooks, f"_global{kind}", None) for kind in _HOOKS):
        return "hooks attached (torch's, on all modules)"
    for name, module in _modules(model):
        if any(not comes_along(entry) for table, comes_along in hook_tables(module) for entry in table):
            return f"hooks attached (torch's, on {name or 'the whole model'})"
    replaced = replaced_forwards(model)
    return f"a replaced forward (of {replaced[0] or 'the whole model'})" if replaced else None


def replaced_forwards(model: Model) -> list[str]:
    """The names of the model's parts whose forward was replaced by code that does not come with it."""
    return [
        name
        for name, module in _modules(model)
        if "forward" in vars(module) and not is_the_librarys(vars(module)["forward"])
    ]
