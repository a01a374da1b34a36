"""Signatures that hold: what a public function says it takes is checked before it does anything, in one place for all of them.

Kinds and names of arguments are checked here, by the annotations. How large a number may be, and which names there are, only the
function knows; it says so through `checks`.
"""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import functools
import inspect
import os
import re
import reprlib
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from lens_heads.runs import checks
from lens_heads.runs.places import LABELLED, check_places

Function = TypeVar("Function", bound=Callable[..., Any])
Owner = TypeVar("Owner", bound=type)
WORDS: dict[Any, str] = {str: "text", bool: "True or False", int: "a whole number", float: "a number", None: "None"}
WORDS |= {Path: "a path", type(None): "None", Tensor: "a dense tensor", np.ndarray: "an array", Any: "anything"}
UNCHANGED = ("True or False", "None", "anything")
LISTED = "listed"
"""Marks an annotation, as `Annotated[str | Preset, LISTED]`, of which the function lists what there is: all is let through."""


@dataclasses.dataclass(frozen=True)
class Default:
    """Marks an option of a TypedDict with what it is where it is not given: `Annotated[int, Default(1)]`."""

    value: Any


LISTS = (list, tuple, set, frozenset, abc.Sequence, abc.Iterable, abc.Collection, abc.Set)


@overload
def typed(function: Function, /) -> Function: ...
@overload
def typed(**defaults: Any) -> Callable[[Function], Function]: ...


def typed(function: Any = None, /, **defaults: Any) -> Any:
    """Hold a function to its signature, and show all of it.

    A generator given for a list becomes a list, so that it can be read twice and sent to workers. TypeError naming the argument,
    its value and what it must be, for anything that the annotation excludes, and for arguments that there are not. Options that a
    function takes as `**run: Unpack[...]` stand in its signature one by one; `defaults`: those that this function changes.
    """
    if function is None:
        return functools.partial(_typed, defaults=defaults)
    return _typed(function, defaults)


def _typed(function: Function, defaults: Mapping[str, Any]) -> Function:
    signature = inspect.signature(function)

    @functools.cache
    def hints() -> dict[str, Any]:
        return _hints(function, signature)

    open_ended = _open_ended(signature)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs = {**defaults, **kwargs}
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(_misfit(call.__name__, inspect.signature(call), kwargs, str(error))) from None
        for name, value in bound.arguments.items():
            if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                shown = inspect.signature(call)
                unknown = [each for each in value if each not in shown.parameters]
                if unknown and not _open_ended(shown):
                    raise TypeError(_misfit(call.__name__, shown, unknown, ""))
                bound.arguments[name] = {key: held(key, each, hints().get(key, Any)) for key, each in value.items()}
            elif signature.parameters[name].kind is not inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = held(name, value, hints().get(name, Any))
        if any(isinstance(value, LABELLED) for value in bound.arguments.values()):
            check_places({name: value for name, value in bound.arguments.items() if _by_place(hints().get(name, Any))})
        if any(each.kind is each.VAR_POSITIONAL for each in signature.parameters.values()):
            return function(*bound.args, **bound.kwargs)
        # As they were given: what was a keyword stays one, for those who add keywords of their own on the way.
        options = next((bound.arguments.get(name, {}) for name in open_ended), {})
        listed = [bound.arguments[name] for name in list(signature.parameters)[: len(args)]]
        named = {name: options[name] if name in options else bound.arguments[name] for name in kwargs}
        return function(*listed, **named)

    call.__signature__ = _in_plain_sight(signature, function, defaults)  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]  # the same function


def _in_plain_sight(signature: inspect.Signature, function: Any, given: Mapping[str, Any]) -> inspect.Signature:
    """The signature with every option of `**run: Unpack[...]` as a keyword with its default."""
    parameters = []
    for parameter in signature.parameters.values():
        options = _options(_hint(parameter.annotation, getattr(inspect.unwrap(function), "__globals__", {})))
        if parameter.kind is not parameter.VAR_KEYWORD or options is None:
            parameters.append(parameter)
            continue
        plain = typing.get_type_hints(options)
        for name, value in {**defaults_of(options), **given}.items():
            parameters.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=plain[name])
            )
    return signature.replace(parameters=parameters)


def _options(hint: Any) -> type | None:
    """The TypedDict of `Unpack[...]`."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Unpack else None


@functools.cache
def defaults_of(options: type) -> dict[str, Any]:
    """What every option of a TypedDict is where it is not given: its `Default`, or else None."""
    marked = {
        name: [each.value for each in getattr(hint, "__metadata__", ()) if isinstance(each, Default)]
        for name, hint in typing.get_type_hints(options, include_extras=True).items()
    }
    return {name: found[0] if found else None for name, found in marked.items()}


def typed_methods(owner: Owner) -> Owner:
    """Hold the public methods of a class of results to their signatures, as `typed` does functions."""
    for name, member in list(vars(owner).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, classmethod):
            setattr(owner, name, classmethod(typed(member.__func__)))
        elif inspect.isfunction(member) and len(inspect.signature(member).parameters) > 1:
            setattr(owner, name, typed(member))
    return owner


def typed_fields(owner: Any) -> None:
    """Hold a frozen dataclass's fields to their annotations, as `typed` does arguments. Called by its `__post_init__`."""
    for name, (hint, default) in _fields(type(owner)).items():
        value = getattr(owner, name)
        if value is None and default is None:  # A choice made inside.
            continue
        kept = held(name, value, hint)
        if kept is not value:
            object.__setattr__(owner, name, kept)


def held(name: str, value: Any, hint: Any) -> Any:
    """The value, a generator as a list. TypeError if it is not of the kind."""
    if isinstance(value, Iterator) and any(typing.get_origin(each) in LISTS for each in _members(hint)):
        value = list(value)
        if not value:
            raise ValueError(
                f"{name} is an iterator with nothing in it, or nothing left after another use: pass a list"
            )
    if isinstance(value, np.ndarray) and Tensor in map(_array, _members(hint)):
        value = checks.numbers(value)
    if LISTED not in getattr(hint, "__metadata__", ()) and not fits(value, hint):
        raise TypeError(f"{name}={reprlib.repr(value)}: must be {_said(hint)}{_remedy(value, hint)}")
    if isinstance(value, Tensor | np.ndarray):
        _check_dimensions(name, value, hint)
    return value


def _check_dimensions(name: str, value: Tensor | np.ndarray, hint: Any) -> None:
    """ValueError for an array of fewer or more dimensions than each jaxtyping annotation names."""
    shapes = [each for each in _members(hint) if hasattr(each, "dim_str")]
    named = [each.dim_str.split() for each in shapes]
    if not shapes or len(shapes) < len([each for each in _members(hint) if each not in (None, type(None))]):
        return
    any_more = [[one for one in dims if one == "..." or one[0] == "*"] for dims in named]
    if not any(
        value.ndim == len(dims) or (more and value.ndim >= len(dims) - 1)
        for dims, more in zip(named, any_more, strict=True)
    ):
        wanted = " or ".join(f"[{', '.join(dims)}]" for dims in named)
        raise ValueError(f"{name} of shape {list(value.shape)}: must be {wanted}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotation's kind. Numbers are left to the function, which knows their bounds."""
    members = _members(hint)
    if len(members) != 1:
        return any(fits(value, each) for each in members)
    hint = members[0]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, int, float) or isinstance(hint, TypeVar | str):
        return True
    if hint in (None, type(None)):
        return value is None
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if hint is Path:
        return isinstance(value, os.PathLike)
    if origin is Literal:
        return isinstance(value, str | int | float)  # The function lists the names that there are.
    if abc.Callable in (origin, hint):
        return callable(value)
    if origin in (dict, abc.Mapping):  # What a name may be, the function says.
        return isinstance(value, Mapping) and all(fits(each, inner[1]) for each in value.values())
    if origin in LISTS:
        return _fits_list(value, origin, inner)
    kind = _array(hint)
    if kind is np.ndarray:  # Whatever numpy makes one of.
        return isinstance(value, abc.Sequence | np.ndarray | Tensor) or hasattr(value, "__array__")
    if kind is Tensor and isinstance(value, Tensor):
        return value.layout is torch.strided and not value.is_meta
    if getattr(kind, "_is_runtime_protocol", False):
        return isinstance(value, kind)
    if getattr(kind, "_is_protocol", False) or typing.is_typeddict(kind) or not isinstance(kind, type):
        return not (value is None or isinstance(value, str | int | float | list | dict))
    return isinstance(value, kind)


def _fits_list(value: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    if isinstance(value, str | bytes) or not isinstance(value, abc.Iterable):
        return False
    if origin in (list, tuple, abc.Sequence) and isinstance(value, Mapping):  # Its keys alone would be read.
        return False
    if isinstance(value, Tensor | np.ndarray) and value.ndim == 0:
        return False
    listed = list(value) if not isinstance(value, Iterator) else []
    if origin is tuple and Ellipsis not in inner:
        return len(listed) == len(inner) and all(map(fits, listed, inner))
    return all(fits(each, inner[0]) for each in listed)


def _by_place(hint: Any) -> bool:
    """Whether an argument is a list or an array, of which only the order is read."""
    kinds = [typing.get_origin(each) or _array(each) for each in _members(hint)]
    return any(each in LISTS or each in (np.ndarray, Tensor) for each in kinds) and not any(
        each in (abc.Mapping, dict, *LABELLED) for each in kinds
    )


def _array(hint: Any) -> Any:
    """The kind of array of a jaxtyping annotation, and any other annotation's class."""
    return getattr(hint, "array_type", typing.get_origin(hint) or hint)


def _members(hint: Any) -> tuple[Any, ...]:
    """The kinds of a union, or the one that there is."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(member for each in typing.get_args(hint) for member in _members(each))
    if typing.get_origin(hint) is typing.Annotated:
        return _members(typing.get_args(hint)[0])
    return (hint,)


def _said(hint: Any) -> str:
    """An annotation in words."""
    parts = list(dict.fromkeys(_word(each) for each in _members(hint)))
    parts = ["a name" if each == "text" and "a function" in parts else each for each in parts]
    parts = [each for each in parts if each != "text" or "a path" not in parts]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def _remedy(value: Any, hint: Any) -> str:
    """How to make what is wanted of a path, which is to be read, of scores, which rank heads, and of texts, which make trials."""
    kinds = {_named(each): _array(each) for each in _members(hint)}
    readable = [name for name, kind in kinds.items() if hasattr(kind, "load")]
    if readable and isinstance(value, str | os.PathLike):
        return f": read it with {readable[0]}.load"
    if hasattr(value, "ranking") and "Head" in kinds:
        return ": select the best with .top(k)"
    if callable(value) and "Scorer" in _said(hint):
        return ': make a Scorer of it, lh.Scorer("a name of your own", function)'
    texts = isinstance(value, str | tuple | list) and "EncodedTrial" in kinds
    return ": make trials of texts with lh.prompt_trial, or with lh.pair of two" if texts else ""


def _word(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in WORDS:
        return WORDS[hint]
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if abc.Callable in (origin, hint):
        return "a function"
    if origin in (dict, abc.Mapping):
        return f"a dictionary of {' or '.join(_several(each) for each in _members(inner[1]))} by name"
    if origin is tuple and Ellipsis not in inner:
        return f"a tuple of {len(inner)}"
    if origin in LISTS:
        return f"a list of {' or '.join(_several(each) for each in _members(inner[0]))}"
    kind = _array(hint)
    name = _named(hint)
    return WORDS.get(kind) or f"{'an' if name[:1] in 'AEIOU' else 'a'} {name}"


def _named(hint: Any) -> str:
    """The name of an annotation's class; of a protocol, that of the class of another floor for which it stands."""
    return getattr(_array(hint), "__name__", str(hint)).removesuffix("Like")


def _several(hint: Any) -> str:
    word = re.sub("^an? ", "", _word(hint))
    first, of, rest = word.partition(" of ")
    return word if word in UNCHANGED or first.endswith("s") else f"{first}s{of}{rest}"


@functools.cache
def _fields(owner: type) -> dict[str, tuple[Any, Any]]:
    spaces = vars(sys.modules[owner.__module__])
    return {field.name: (_hint(field.type, spaces), field.default) for field in dataclasses.fields(owner)}


def _hints(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    """What each argument is annotated with; keywords in a TypedDict too. Nothing for what is imported for type checkers only."""
    spaces = getattr(inspect.unwrap(function), "__globals__", {})
    found: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        hint = _hint(parameter.annotation, spaces)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            options = _options(hint)
            found |= {} if options is None else typing.get_type_hints(options, include_extras=True)
        else:
            found[name] = hint
            if parameter.default is None and LISTED not in getattr(hint, "__metadata__", ()):
                found[name] = hint | None  # A default that stands for a choice made inside.
    return found


def _hint(annotation: Any, spaces: dict[str, Any]) -> Any:
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, spaces)  # The package's own annotations, which are text in its files.
    except (NameError, TypeError, AttributeError):
        return Any


def _open_ended(signature: inspect.Signature) -> list[str]:
    """The `**name` of a function that takes keywords of any name."""
    return [name for name, each in signature.parameters.items() if each.kind is each.VAR_KEYWORD]


_EXAMPLES = {
    "kind": "kind='zero', 'mean' (with reference=) or 'uniform'",
    "positions": "positions='answer' or 'all'",
    "metric": "metric='logprob' of trials, 'first_token_prob' of pairs",
}
"""What may be given for arguments that have no default on purpose."""


def _misfit(name: str, signature: inspect.Signature, given: Iterable[str], error: str) -> str:
    """What is wrong with a call that does not fit, and what was meant."""
    parts = {each: one.kind for each, one in signature.parameters.items() if each not in ("self", "cls")}
    kinds = inspect.Parameter
    by_keyword = [each for each, kind in parts.items() if kind is kinds.KEYWORD_ONLY]
    open_ended = [f"**{each}" for each in _open_ended(signature)]
    known = [each for each, kind in parts.items() if kind is not kinds.VAR_KEYWORD]
    unknown = None if open_ended else next((each for each in given if each not in known), None)
    by_place, named = [each for each in known if each not in by_keyword], ", ".join([*by_keyword, *open_ended])
    takes = f"{name} takes " + ", and ".join(
        [*([", ".join(by_place)] if by_place else []), *([f"by keyword {named}"] if named else [])]
    )
    if unknown is None:
        example = next(
            (f", e.g. {text}" for each, text in _EXAMPLES.items() if error.endswith(f"argument: '{each}'")), ""
        )
        return f"{name}: {error}{example}: {takes}"
    close = get_close_matches(unknown, known, 1)
    return f"{name}: unexpected keyword argument {unknown!r}{f': did you mean {close[0]}?' if close else ''} ({takes})"
