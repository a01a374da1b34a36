"""Numbers where they enter: one check for whole numbers, one for finite numbers, each naming argument, value and remedy."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Real
from typing import Any

import numpy as np
import torch

LARGEST_SEED = 2**63 - 1
"""The largest seed that every generator in use accepts."""
LARGEST = 2**31 - 1
"""No number of anything is larger. Beyond, indices overflow inside torch."""
MANY = 1_000_000
"""More draws, resamples, steps or trials than anyone means to wait for: a slip, refused at once instead of by lack of memory."""


def whole(value: Any) -> int | None:
    """The value as an int, numpy integers included; None for anything else, such as a float or a bool."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except (TypeError, ValueError):
        return None


def whole_number(name: str, value: Any, least: int | None = 1, most: int | None = LARGEST, remedy: str = "") -> int:
    """The value as an int from `least` to `most` (None: no bound).

    ValueError with the argument's name, its value and, at the end, the `remedy`, for anything else: a float, a bool, text, None.
    """
    number = whole(value)
    if most == LARGEST and (number is None or number <= LARGEST):
        most = None  # Not worth a word where it is not the reason.
    if number is None or (least is not None and number < least) or (most is not None and number > most):
        raise ValueError(f"{name}={value!r}: must be {_wanted(least, most)}{remedy}")
    return number


def _wanted(least: int | None, most: int | None) -> str:
    if least is None:
        return "an integer" if most is None else f"an integer of at most {most}"
    if most is not None:
        return f"an integer from {least} to {most}"
    return {0: "a non-negative integer", 1: "a positive integer"}.get(least, f"an integer of at least {least}")


def count(name: str, value: Any, least: int = 1, most: int = MANY, remedy: str = "") -> int:
    """How often something is done, as an int. ValueError outside `least` to `most`, so that nothing begins that never ends."""
    known = whole(value)
    return whole_number(name, value, least, most if known is not None and known > most else LARGEST, remedy)


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    """The value, one of the known names. ValueError listing them, and the nearest, for another."""
    listed = list(known)
    if value in listed:
        return value
    close = get_close_matches(value, listed, 1) if isinstance(value, str) else []
    raise ValueError(
        f"{name}={value!r:.60}: {f'did you mean {close[0]!r}? ' if close else ''}use {', '.join(map(repr, listed))}"
    )


def whole_numbers(name: str, values: Any, least: int = 1, remedy: str = "") -> list[int]:
    """One whole number or several as a list. ValueError for none, and for anything but numbers from `least` on."""
    if whole(values) is not None:
        values = [values]
    listed = list(values) if isinstance(values, Iterable) and not isinstance(values, str | bytes) else []
    if not listed or any(whole(value) is None or not least <= int(value) <= LARGEST for value in listed):
        wanted = {0: "non-negative integers", 1: "positive integers"}.get(least, f"integers of at least {least}")
        raise ValueError(f"{name}={values!r}: must be {wanted}{remedy}")
    return [int(value) for value in listed]


def seed(value: Any, name: str = "seed") -> int:
    """A seed for any random generator. ValueError for anything but an integer from 0 to 2**63 - 1."""
    return whole_number(name, whole_number(name, value, 0, None), 0, LARGEST_SEED)


def finite(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """The value as a finite float from `least` to `most`. ValueError for anything else: NaN, a bool, text, None."""
    number = _number(value)
    if not (math.isfinite(number) and least <= number <= most):
        above = "" if least == -math.inf else f" of at least {least:g}"
        bounds = f" from {least:g} to {most:g}" if most < math.inf else above
        raise ValueError(f"{name}={value!r}: must be a finite number{bounds}")
    return number


def _number(value: Any) -> float:
    """The value as a float, NaN for what is no number, and for integers beyond all floats."""
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool | np.bool_) else math.nan
    except OverflowError:
        return math.nan


def finite_values(name: str, values: Any) -> np.ndarray:
    """Numbers as an array of floats. ValueError with the place of the first that is not finite."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise ValueError(f"{name}={reprlib.repr(values)}: must be numbers, in rows of one length") from None
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        raise ValueError(
            f"{name} is {array[tuple(bad[0])]} at {bad[0].tolist()}: must be finite. Drop it, or measure it again."
        )
    return array


def share(name: str, value: Any, example: str = "0.95") -> float:
    """The value as a float. ValueError unless it is a number strictly between 0 and 1."""
    number = _number(value)
    if not 0 < number < 1:
        raise ValueError(f"{name}={value!r}: must lie strictly between 0 and 1, e.g. {example}")
    return number


def level(value: Any) -> float:
    """A level of confidence. ValueError unless it is a number of at least .5 and below 1: .05 is an alpha."""
    number = share("level", value)
    if number < 0.5:
        raise ValueError(f"level={value!r}: is the share of intervals that hold, e.g. 0.95, not the share that fails")
    return number


def numbers(value: Any) -> Any:
    """An array of numbers as a tensor, with the same values; anything else as it is."""
    return torch.tensor(value) if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" else value


def whole_fields(owner: object, **least: int) -> None:
    """ValueError for the first named attribute that is no whole number from its least value on."""
    for name, lowest in least.items():
        whole_number(name, getattr(owner, name), lowest)
