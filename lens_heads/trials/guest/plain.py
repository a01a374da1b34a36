"""Plain values as JSON and back: all that crosses between a generated program and its tests.

Numbers, texts, containers, dates, iterators (as what they yield), and objects of the program's own classes (as their
attributes). Whatever a hostile program sends, reading it calls constructors of plain types and nothing else: a pickle could
rebind methods of the classes that it names.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

PROGRAM = "program"
"""The name of the module in which program and reference are executed."""


class NotPlainError(TypeError):
    """A value of a type that cannot cross."""


def _pairs(items: Any) -> list[list[Any]]:
    return [[key, value] for key, value in items]


_KINDS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "int": (int, hex, lambda text: int(text, 16)),  # Those that JSON's readers might round or refuse.
    "tuple": (tuple, list, tuple),
    "set": (set, list, set),
    "frozenset": (frozenset, list, frozenset),
    "deque": (deque, list, deque),
    "Counter": (Counter, lambda counts: _pairs(counts.items()), lambda pairs: Counter(dict(pairs))),
    "OrderedDict": (OrderedDict, lambda items: _pairs(items.items()), OrderedDict),
    "dict": (dict, lambda items: _pairs(items.items()), dict),
    "keys": (type({}.keys()), list, lambda keys: dict.fromkeys(keys).keys()),
    "values": (type({}.values()), list, lambda values: dict(enumerate(values)).values()),
    "items": (type({}.items()), _pairs, lambda pairs: dict(pairs).items()),
    "range": (range, lambda r: [r.start, r.stop, r.step], lambda ends: range(*ends)),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "bytearray": (bytearray, bytearray.hex, bytearray.fromhex),
    "complex": (complex, lambda z: [z.real, z.imag], lambda parts: complex(*parts)),
    "Fraction": (Fraction, lambda f: [f.numerator, f.denominator], lambda parts: Fraction(*parts)),
    "Decimal": (Decimal, str, Decimal),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "timedelta": (timedelta, lambda t: [t.days, t.seconds, t.microseconds], lambda parts: timedelta(*parts)),
}
_NAMES = {kind: name for name, (kind, _, _) in _KINDS.items()}


def dumps(value: Any) -> bytes:
    """A plain value as JSON. NotPlainError for anything else, RecursionError for a value that contains itself."""
    return json.dumps(_apart(value)).encode()


def loads(data: bytes | str, known: Mapping[str, Any]) -> Any:
    """The value, with objects of the classes in `known` that the program's module defines. TypeError for other objects."""
    return _together(json.loads(data), known)


def _apart(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (bool, str, float) or (kind is int and -(2**53) < value < 2**53):
        return value
    if kind is list:
        return [_apart(item) for item in value]
    if kind in _NAMES:
        return {_NAMES[kind]: _apart(_KINDS[_NAMES[kind]][1](value))}
    if isinstance(value, Iterator):
        return {"iterator": [_apart(item) for item in value]}
    plain = next((plain for plain in (*_NAMES, list, str, float) if issubclass(kind, plain)), None)
    if plain is not None:
        return {"object": [kind.__name__, _apart(plain(value)), None]}
    if kind.__module__ != PROGRAM:
        raise NotPlainError(f"{kind.__name__} is not a type of plain values")
    return {"object": [kind.__name__, None, _apart(_attributes(value))]}


def _attributes(value: Any) -> dict[str, Any]:
    slots = [slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ())]
    return {**{slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}, **getattr(value, "__dict__", {})}


def _together(value: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_together(item, known) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, parts),) = value.items()
    made = _together(parts, known)
    if kind == "iterator":
        return iter(made)
    return _object(known, *made) if kind == "object" else _KINDS[kind][2](made)


def _object(known: Mapping[str, Any], name: str, plain: Any, attributes: dict[str, Any] | None) -> Any:
    """An object of a known class; what stands for it where the class is unknown, as for a named tuple."""
    found = known.get(name)
    ours = found if isinstance(found, type) and found.__module__ == PROGRAM else None
    if ours is not None and issubclass(ours, tuple) and isinstance(plain, tuple):
        return tuple.__new__(ours, plain)
    if plain is not None:
        return plain
    if ours is None:
        raise TypeError(f"{name} is not a type of plain values")
    made = object.__new__(ours)
    for attribute, content in (attributes or {}).items():
        object.__setattr__(made, attribute, content)
    return made
