"""code_of: what a user's own function does and reads, so that run folders can tell one from another.

The identity covers the compiled code, defaults, closure, globals, helper functions, classes and bound objects, down to every
element of arrays and tensors. What installed packages hold counts by name. Nothing depends on addresses or on the order of
sets, so it is the same in every process with the same Python.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import hashlib
import inspect
import json
import random
import re
import sys
import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lens_heads.runs.digests import tensor_digest
from lens_heads.runs.reads import UnknownError, closure, global_values, is_library

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis), type(NotImplemented))
_GENERATORS = (random._inst, np.random.mtrand._rand, torch.default_generator)  # type: ignore[attr-defined]
"""The generators of the process, which functions of these modules use: known by name, because every use changes them."""


def _is_tokenizer(value: Any) -> bool:
    """Without importing transformers, which takes seconds: where nobody has, there is no tokenizer."""
    transformers = sys.modules.get("transformers")
    return transformers is not None and isinstance(value, transformers.PreTrainedTokenizerFast)


def code_of(function: Any) -> str:
    """A hash that changes with what a function does or reads, and is the same in every process.

    Raises ValueError, naming it, for something that it reads and that cannot be identified: an open file, a lock, a generator,
    a call of `open` or `eval`.
    """
    name = _name(function) or type(function).__name__
    try:
        return _Reader().digest(function).hex()[:32]
    except RecursionError:
        raise ValueError(_refusal(name, "something nested too deeply")) from None
    except UnknownError as unknown:
        raise ValueError(_refusal(name, str(unknown))) from None
    except Exception as error:  # An object's own code runs when it is read.
        raise ValueError(_refusal(name, f"something that raises {type(error).__name__} when it is read")) from error


def labelled(name: str, function: Any, stored: bool) -> str:
    """The name with the identity of the code, as settings hold it. What is not `stored` may be unidentified."""
    try:
        return f"{name} ({code_of(function)[:16]})"
    except ValueError:
        if stored:
            raise
        return f"{name} (unidentified)"


def _refusal(name: str, what: str) -> str:
    return (
        f"{name} reads {what}, which a run folder cannot identify: omit out=, or pass what it needs as numbers, text, arrays "
        "or tensors, e.g. by functools.partial"
    )


class _Reader:
    """Hashes values by content. `path` holds the objects being read, so that circles end; `named` says where the reader is."""

    def __init__(self) -> None:
        self.path: list[int] = []
        self.known: dict[int, bytes] = {}
        self.kept: list[Any] = []  # An id is only good while its object lives.
        self.named = ""

    def digest(self, value: Any) -> bytes:
        if type(value) in _PLAIN:
            return _hash(type(value).__name__, repr(value))
        if id(value) in self.path:
            return _hash("circle", len(self.path) - self.path.index(id(value)))
        if id(value) not in self.known:
            self.kept.append(value)
            self.path.append(id(value))
            try:
                self.known[id(value)] = _hash(*self._parts(value))
            finally:
                self.path.pop()
        return self.known[id(value)]

    def _parts(self, value: Any) -> Iterable[Any]:
        if isinstance(value, np.ndarray | np.generic | Tensor):
            return self._array(value)
        if isinstance(value, types.CodeType):
            return self._code(value)
        if isinstance(value, types.ModuleType):
            return ["module", value.__name__]
        if type(value) in (list, tuple):
            return [type(value).__name__, *map(self.digest, value)]
        if type(value) in (set, frozenset):
            return ["set", *sorted(map(self.digest, value))]
        if type(value) in (dict, types.MappingProxyType):
            return ["dict", *self._items(value)]
        if isinstance(value, enum.Enum):
            return ["enum", type(value).__qualname__, value.name, self.digest(value.value)]
        if is_library(value):
            return ["name", value.__module__, value.__qualname__]
        if isinstance(value, type):
            return self._class(value)
        return self._function(value) if callable(value) else self._object(value)

    def _items(self, value: Any) -> Iterator[bytes]:
        keys = {self.digest(key): key for key in value}
        for key in sorted(keys):
            yield key
            yield self.digest(value[keys[key]])

    def _attributes(self, values: Iterable[tuple[str, Any]]) -> Iterator[Any]:
        """Names and values, noting each name for an error message."""
        before = self.named
        for name, value in sorted(values, key=lambda item: item[0]):
            self.named = name
            yield from (name, self.digest(value))
        self.named = before

    def _function(self, value: Any) -> Iterable[Any]:
        """A function, method, or anything else that can be called."""
        if isinstance(value, types.MethodType):
            return ["method", self.digest(value.__func__), self.digest(value.__self__)]
        if isinstance(value, functools._lru_cache_wrapper):
            return ["cached", self.digest(value.__wrapped__)]
        if isinstance(value, types.BuiltinFunctionType):
            return ["builtin", value.__name__, self.digest(value.__self__)]
        if not isinstance(value, types.FunctionType):
            return self._object(value)
        if "_torchdynamo_orig_callable" in vars(value):
            return ["compiled", self.digest(vars(value)["_torchdynamo_orig_callable"])]
        return [
            "function",
            self.digest(value.__code__),
            self.digest([value.__defaults__, value.__kwdefaults__]),
            *self._attributes(closure(value)),
            *self._attributes(global_values(value)),
            *self._attributes((name, own) for name, own in vars(value).items() if name != "__wrapped__"),
        ]

    def _code(self, code: types.CodeType) -> Iterable[Any]:
        about = (
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_flags,
            code.co_exceptiontable,
        )
        names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return ["code", code.co_code, repr(about), repr(names), *map(self.digest, code.co_consts)]

    def _class(self, value: type) -> Iterable[Any]:
        held = [(name, own) for name, own in vars(value).items() if _matters(name, own)]
        return ["class", value.__qualname__, *map(self.digest, value.__bases__), *self._attributes(held)]

    def _object(self, value: Any) -> Iterable[Any]:
        """Anything else, as it would be copied: its class and its state."""
        if isinstance(value, property):
            return ["property", *map(self.digest, (value.fget, value.fset, value.fdel))]
        if isinstance(value, classmethod | staticmethod):
            return [type(value).__name__, self.digest(value.__func__)]
        if isinstance(value, functools.cached_property):
            return ["cached property", self.digest(value.func)]
        if any(value is generator for generator in _GENERATORS):
            return ["generator", type(value).__name__]
        if _is_tokenizer(value):
            return self._tokenizer(value)
        if isinstance(value, torch.nn.Module) and is_library(type(value)):
            return self._network(value)
        registered = copyreg.dispatch_table.get(type(value))
        try:
            made: Any = value.__reduce_ex__(4) if registered is None else registered(value)
        except Exception:
            raise UnknownError(self._where(value)) from None
        if isinstance(made, str):
            return ["named", made]
        make, args, state, *items = (*made, None, None, None)[:5]
        listed = [None if some is None else list(some) for some in items]
        plain = state if not isinstance(state, dict) else {k: v for k, v in state.items() if not _is_cache(value, k)}
        return [
            "object",
            self.digest(type(value)),
            self.digest(make),
            self.digest(args),
            *map(self.digest, (plain or None, listed)),
        ]

    def _network(self, value: torch.nn.Module) -> Iterable[Any]:
        """A network of a library's class: its tensors, what it prints, and the parts of it that are the user's own."""
        wrapped = getattr(value, "original_model", value)
        tensors = [*wrapped.named_parameters(), *wrapped.named_buffers()]
        own = [(name, part) for name, part in wrapped.named_modules() if not is_library(type(part))]
        return [
            type(value).__name__,
            *self._attributes(tensors),
            *self._attributes(own),
            re.sub(" at 0x[0-9a-f]+", "", repr(value)),
        ]

    def _tokenizer(self, value: PreTrainedTokenizerFast) -> Iterable[Any]:
        """What a tokenizer does, without the folder it came from and the padding that its last call asked for."""
        held = json.loads(value.backend_tokenizer.to_str()) | {"padding": None, "truncation": None}
        names = ("padding_side", "truncation_side", "model_max_length", "chat_template", "special_tokens_map")
        return [type(value).__name__, json.dumps(held), *(f"{name} {getattr(value, name)}" for name in names)]

    def _array(self, value: Any) -> Iterable[Any]:
        try:
            if isinstance(value, Tensor):
                return ["tensor", tensor_digest(value)]
            array = np.asarray(value)
            data = self.digest(array.tolist()) if array.dtype.hasobject else array.tobytes()
            return ["array", repr(array.dtype), repr(array.shape), data]
        except (RuntimeError, NotImplementedError, TypeError):
            raise UnknownError(self._where(value)) from None

    def _where(self, value: Any) -> str:
        kind = f"a value of type {type(value).__name__}"
        return f"{self.named} ({kind})" if self.named else kind


def _hash(*parts: Any) -> bytes:
    seen = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        seen.update(len(data).to_bytes(8, "big") + data)
    return seen.digest()


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", ""))


def _matters(name: str, value: Any) -> bool:
    """Whether a class's attribute is part of what it does."""
    if name.startswith("__") and name.endswith("__"):
        return isinstance(value, types.FunctionType | classmethod | staticmethod | property) and name != "__repr__"
    described = inspect.ismemberdescriptor(value) or inspect.isgetsetdescriptor(value)
    return name != "_abc_impl" and not described


def _is_cache(value: Any, name: str) -> bool:
    """Whether an entry of an object's state is a `cached_property`, filled or not as it happens."""
    return isinstance(inspect.getattr_static(type(value), str(name), None), functools.cached_property)
