"""Pretended devices: a mode in which tensors of the CPU say that they are elsewhere, and mixing devices fails as on a GPU.

A tensor's device is what was asked for when it was made or moved; results are where their operands are. Tensors made outside
the mode, and those for which nothing was asked, are on the CPU. All numbers are computed on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import BackwardHook

from tests import zoo

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")

_get: dict[str, Any] = {name: getattr(Tensor, name).__get__ for name in ("device", "is_cuda", "is_cpu", "grad", "data")}
_set_data = Tensor.data.__set__  # type: ignore[attr-defined]

_COPIES = (Tensor.copy_, _set_data)
"""What takes tensors of several devices."""
_SHAPES = (
    Tensor.expand_as,
    Tensor.view_as,
    Tensor.reshape_as,
    torch.broadcast_tensors,
    torch.result_type,
    torch._has_compatible_shallow_copy_type,  # pyright: ignore[reportPrivateImportUsage]
)
"""What reads no values of its other tensors."""
_STRICT = (torch.cat, torch.concat, torch.stack, torch.hstack, torch.vstack, torch.equal, torch.isin, torch.gather)
"""What makes no exception for single numbers of the CPU, as arithmetic does."""
_NUMPY = (Tensor.numpy, Tensor.__array__)
_FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray)
_HOOKS: tuple[Any, ...] = (Tensor.register_hook, Tensor.register_post_accumulate_grad_hook)


def device_of(tensor: Tensor) -> torch.device:
    """Where a tensor pretends to be."""
    return getattr(tensor, "_elsewhere", None) or _get["device"](tensor)


class Elsewhere(TorchFunctionMode):
    """Inside, tensors are where they were put, and RuntimeError or TypeError is raised where torch would raise it on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Elsewhere:
        patch = pytest.MonkeyPatch()
        self._undo.append(patch.undo)
        make, apply = Parameter.__new__, BackwardHook._apply_on_tensors

        def parameter(cls: type, data: Tensor, *rest: Any, **named: Any) -> Tensor:
            return _placed(make(cls, data, *rest, **named), device_of(data))

        def hooked(hooks: Any, fn: Callable[[Any], None], args: Any) -> Any:
            places = [device_of(one) for one in args if isinstance(one, Tensor)]
            found, index = apply(hooks, lambda node: fn(_Node(node, partial(self._within, places))), args)
            for tensor, place in zip(_tensors(found), places, strict=True):
                _placed(tensor, place)
            return found, index

        # What torch hides from a mode: parameters are made, and modules with backward hooks pass their tensors on.
        patch.setattr(Parameter, "__new__", parameter)
        patch.setattr(BackwardHook, "_apply_on_tensors", hooked)
        return super().__enter__()

    def __exit__(self, *failed: Any) -> None:
        self._undo.pop()()
        super().__exit__(*failed)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == _get["device"]:
            return device_of(args[0])
        if func in (_get["is_cuda"], _get["is_cpu"]):
            return device_of(args[0]).type == ("cuda" if func == _get["is_cuda"] else "cpu")
        if func is Tensor.get_device:
            return -1 if device_of(args[0]) == CPU else device_of(args[0]).index
        if func is torch.device and type(args[0]) is int:
            return _named(args[0])
        if func in (Tensor.to, Tensor.cpu, Tensor.cuda, Tensor.type_as):
            return _moved(func, args, kwargs)
        if func in _HOOKS:
            return func(args[0], self._within([device_of(args[0])], args[1]))  # type: ignore[arg-type]
        if func is torch.autograd.grad or func == _get["grad"]:
            owner = args[0] if func == _get["grad"] else kwargs.get("inputs", args[1] if len(args) > 1 else None)
            return _placed_as(func(*args, **kwargs), owner)
        if func in _NUMPY and device_of(args[0]) != CPU:
            raise TypeError(f"can't convert {device_of(args[0])} device type tensor to numpy. Use Tensor.cpu() first.")
        return _run(func, args, kwargs)

    def _within(self, places: list[torch.device], hook: Callable[..., Any]) -> Callable[..., Any]:
        """A hook on gradients, which autograd calls outside the mode."""

        def call(*gradients: Any) -> Any:
            for listed in gradients:
                for gradient, place in zip(_listed(listed), places, strict=False):
                    _placed(gradient, place)
            with self:
                return hook(*gradients)

        return call


class _Node:
    """A node of the graph whose hooks run within the mode."""

    def __init__(self, node: Any, within: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self.node, self.within = node, within

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        return self.node.register_hook(self.within(hook))


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Any other function: checked, run, and its results placed."""
    asked = kwargs.pop("device", None)
    generator = kwargs.get("generator")
    if func in _FROM_DATA:
        source = args[0] if args else kwargs["data"]
        device = device_of(source) if isinstance(source, Tensor) else CPU
    elif func is Tensor.__setitem__ or func is Tensor.__getitem__:
        device = _indexed(func, *args)
    elif func in _COPIES or func in _SHAPES:
        device = device_of(args[1] if func == _set_data else next(_tensors(args)))
    else:
        device = _common(func, [*_tensors(args), *_tensors(kwargs)])
    target = device if asked is None else _named(asked)
    if generator is not None and generator.device.type != target.type:
        raise RuntimeError(f"Expected a {target.type!r} device type for generator but found {generator.device.type!r}")
    if asked is not None and func in (torch.as_tensor, torch.asarray) and target != device:
        kwargs["copy"] = True
        func = torch.asarray
    found = func(*args, **kwargs)
    if func == _set_data:
        _placed(args[0], target)
    return _placed(found, target)


def _moved(func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """`to`, `cpu`, `cuda` or `type_as`: a copy, unless the tensor is there already."""
    tensor, *rest = args
    other = next((one for one in [*rest, *kwargs.values()] if isinstance(one, Tensor)), None)
    dtype: torch.dtype | None = None
    if func is Tensor.cpu:
        target = CPU
    elif func is Tensor.cuda:
        target = _named(next(iter([*rest, *kwargs.values()]), "cuda"))
    elif other is not None:
        target, dtype = device_of(other), other.dtype
    else:
        copy = kwargs.pop("copy", False)
        rest[:1] = [_named(one) if type(one) is int else one for one in rest[:1]]
        asked, dtype, _, _ = torch._C._nn._parse_to(*rest, **kwargs)  # type: ignore[attr-defined]
        target = device_of(tensor) if asked is None else _named(asked)
        tensor = tensor.clone() if copy else tensor
    found = tensor if dtype is None else tensor.to(dtype)
    return _placed(found.clone() if found is tensor is args[0] and target != device_of(tensor) else found, target)


def _indexed(func: Any, tensor: Tensor, index: Any, *value: Any) -> torch.device:
    """The device of an indexed tensor: an index may be on the CPU instead; a value too, if nothing is looked up."""
    device = device_of(tensor)
    lookups = [one for one in _tensors(index) if one.ndim > 0]
    for one in lookups:
        if device_of(one) not in (device, CPU):
            raise RuntimeError(
                f"indices should be either on cpu or on the same device as the indexed tensor ({device}), "
                f"not on {device_of(one)}"
            )
    looks_up = bool(lookups) or any(isinstance(one, list) for one in (index if isinstance(index, tuple) else [index]))
    if looks_up:
        _common(func, [tensor, *_tensors(value)])
    return device


def _common(func: Any, tensors: list[Tensor]) -> torch.device:
    """The device of all operands. RuntimeError if there is none; single numbers of the CPU go with any in arithmetic."""
    devices = list(dict.fromkeys(map(device_of, tensors)))
    if len(devices) > 1 and func not in _STRICT and any(device_of(one) == CPU and one.ndim == 0 for one in tensors):
        devices = list(dict.fromkeys(device_of(one) for one in tensors if device_of(one) != CPU or one.ndim > 0))
    if len(devices) > 1:
        name = getattr(func, "__name__", func)
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, "
            f"{' and '.join(map(str, devices))}, in {name}"
        )
    return devices[0] if devices else CPU


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _named(device: Any) -> torch.device:
    found = torch.device("cuda", device) if type(device) is int else torch.device(device)
    return torch.device(found.type, 0) if found.type == "cuda" and found.index is None else found


def _placed(value: Any, device: torch.device) -> Any:
    """Say of all tensors in a result where they are."""
    for tensor in _tensors(value):
        tensor._elsewhere = device  # type: ignore[attr-defined]
    return value


def _placed_as(found: Any, owners: Any) -> Any:
    """Gradients are where that is of which they are gradients."""
    for gradient, owner in zip(_listed(found), _listed(owners), strict=True):
        if gradient is not None:
            _placed(gradient, device_of(owner))
    return found


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def on_one(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A tiny model on one device that is not the CPU."""
    return _wrapped(name, zoo.hf_model(name).to(FIRST, dtype), device=FIRST, dtype=dtype)


def spread(name: str) -> Any:
    """A tiny model by `accelerate`, as for a `device_map`: its embedding and first layer, the other layers, the final norm.

    An unembedding is with the final norm, or, if it is the embedding, with that. TransformerLens computes GPT-2's final norm
    itself and expects it with the last layer.
    """
    from accelerate import dispatch_model

    hf = zoo.hf_model(name)
    hf.tie_weights()
    gpt2 = {"wte": 0, "wpe": 0, "drop": 0, "h.0": 0, "h.1": 1, "h.2": 1, "ln_f": 1}
    other = {"embed_tokens": 0, "rotary_emb": 0, "layers.0": 0, "layers.1": 1, "layers.2": 1, "norm": 2}
    inner, parts = ("transformer", gpt2) if name == "gpt2" else ("model", other)
    places: dict[str, Any] = {f"{inner}.{part}": place for part, place in parts.items()}
    places["lm_head"] = 0 if hf.config.tie_word_embeddings else 2
    return _wrapped(name, dispatch_model(hf, places))


def _wrapped(name: str, hf: Any, **options: Any) -> Any:
    from transformer_lens.model_bridge import TransformerBridge

    model = TransformerBridge.boot_transformers(name, hf_model=hf, tokenizer=zoo.tokenizer(), **options)
    model.enable_compatibility_mode(no_processing=True, disable_warnings=True)
    return model.eval()
