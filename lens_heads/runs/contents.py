"""content_hash: the hash that `datasets` gives to functions, by content alone.

`datasets.fingerprint.Hasher` pickles a value with dill and hashes the bytes. Here, what is the user's own is written by content
wherever it was defined (dill only names what is in a module), and what differs between processes, or by use, is left out.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import io
import json
import random
import re
import sys
import threading
import types
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from datasets.fingerprint import Hasher
from datasets.utils._dill import Pickler

from lens_heads.runs.digests import tensor_digest
from lens_heads.runs.references import UnknownError, closure, global_values, is_library

_GENERATORS = (random._inst, np.random.mtrand._rand, torch.default_generator)  # type: ignore[attr-defined]
"""The generators of the process, which functions of these modules use: known by name, because every use changes them."""
_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_UNKNOWN = (*_FILES, type(threading.Lock()), type(threading.RLock()), weakref.ReferenceType)
"""These dill would write, though no other process has the same."""


def content_hash(value: Any) -> str:
    """Hash of everything that a value holds. Raises UnknownError for what cannot be identified."""
    written = io.BytesIO()
    contents = _Contents(written, recurse=True)
    contents.states = [value]
    try:
        for state in contents.states:  # It grows on the way.
            contents.dump(state)
    except (UnknownError, RecursionError):
        raise
    except Exception as error:  # An object's own code runs when it is read.
        kind = f"a value of type {type(contents.at).__name__}"
        raise UnknownError(f"{contents.named} ({kind})" if contents.named else kind) from error
    return Hasher.hash_bytes(written.getvalue())


def _stands_for(*parts: Any) -> None:
    """What is written in place of a value. Never called: what is written is hashed, not read."""


class _Contents(Pickler):
    """`states`: what functions and classes hold, which is written one after another, since each leads to more of them.

    `at` and `named`: the value that is being written, and its variable, key or attribute, for an error message.
    """

    states: list[Any]
    at: Any = None
    named = ""

    def memoize(self, obj: Any) -> None:
        if type(obj) not in (bytes, tuple):  # Equal ones may be one object or two, as the compiler likes.
            super().memoize(obj)

    def _batch_setitems(self, items: Iterable[tuple[Any, Any]], *more: Any) -> None:
        held = {key if type(key) is str else content_hash(key): (key, value) for key, value in items}
        before = self.named
        for name, item in sorted(held.items()):
            self.named = name if type(item[0]) is str else before
            super()._batch_setitems([item], *more)
        self.named = before

    def reducer_override(self, value: Any) -> Any:
        """How a value is written: by the name of a global, or by what stands for it; otherwise as dill does."""
        self.at, kind = value, type(value)
        if kind in (str, int, float, bool, type(None), list, dict, tuple):
            return NotImplemented
        if isinstance(value, _UNKNOWN):
            raise TypeError(kind)
        if is_library(value):
            return value.__qualname__
        if isinstance(value, types.ModuleType):
            return _stands_for, ("module", value.__name__)
        if isinstance(value, types.CodeType):
            counts = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
            names = (value.co_name, value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
            return _stands_for, (value.co_code, value.co_exceptiontable, counts, names, value.co_consts)
        if isinstance(value, types.FunctionType):
            own = {name: held for name, held in vars(value).items() if name != "__wrapped__"}
            given = {"defaults": value.__defaults__, "keyword defaults": value.__kwdefaults__, "attributes": own}
            self.states.append(given | dict(closure(value)) | dict(global_values(value)))
            return _stands_for, ("function", value.__code__)
        if isinstance(value, functools.cached_property):
            return _stands_for, ("cached property", value.func)
        if isinstance(value, type):
            held = {name: own for name, own in vars(value).items() if _matters(name, own)}
            self.states.append(held | {"bases": value.__bases__})
            return _stands_for, ("class", value.__qualname__)
        if kind in (set, frozenset):
            return _stands_for, ("set", *sorted(map(content_hash, value)))
        if isinstance(value, torch.Tensor):
            return _stands_for, ("tensor", tensor_digest(value))
        if any(value is generator for generator in _GENERATORS):
            return _stands_for, ("generator", kind.__name__)
        if "transformers" in sys.modules and isinstance(value, sys.modules["transformers"].PreTrainedTokenizerFast):
            return _stands_for, _tokenizer(value)
        if isinstance(value, torch.nn.Module) and is_library(kind):
            return _stands_for, _network(value)
        return NotImplemented if kind in self.dispatch else _as_copied(value)


def _as_copied(value: Any) -> Any:
    """What makes a copy of an object, without what a `cached_property` of it has filled in or not, as it happens."""
    registered = copyreg.dispatch_table.get(type(value))
    made: Any = value.__reduce_ex__(4) if registered is None else registered(value)
    if isinstance(made, str) or len(made) < 3 or not isinstance(made[2], dict):
        return made
    of_class = {name: inspect.getattr_static(type(value), str(name), None) for name in made[2]}
    kept = {name: own for name, own in made[2].items() if not isinstance(of_class[name], functools.cached_property)}
    return *made[:2], kept or None, *made[3:]


def _matters(name: str, value: Any) -> bool:
    """Whether a class's attribute is part of what it does."""
    if name.startswith("__") and name.endswith("__"):
        return isinstance(value, types.FunctionType | classmethod | staticmethod | property) and name != "__repr__"
    described = inspect.ismemberdescriptor(value) or inspect.isgetsetdescriptor(value)
    return name != "_abc_impl" and not described


def _network(value: torch.nn.Module) -> tuple[Any, ...]:
    """A network of a library's class: its tensors, what it prints, and the parts of it that are the user's own."""
    wrapped: Any = getattr(value, "original_model", value)
    tensors = dict([*wrapped.named_parameters(), *wrapped.named_buffers()])
    own = {name: part for name, part in wrapped.named_modules() if not is_library(type(part))}
    return type(value).__name__, tensors, own, re.sub(" at 0x[0-9a-f]+", "", repr(value))


def _tokenizer(value: Any) -> tuple[Any, ...]:
    """What a tokenizer does, without the folder it came from and the padding that its last call asked for."""
    held = json.loads(value.backend_tokenizer.to_str()) | {"padding": None, "truncation": None}
    names = ("padding_side", "truncation_side", "model_max_length", "chat_template", "special_tokens_map")
    return type(value).__name__, json.dumps(held), *(str(getattr(value, name)) for name in names)
