"""What stands in files that may be damaged or foreign: fields of JSON objects, columns of tables, checked by name.

Every error names the file, the field, its value and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lens_heads.runs import checks


def wrong(file: Path | str, field: str, value: Any, wanted: str, remedy: str = "correct it or omit it") -> ValueError:
    """The error for a field that has another value than the wanted."""
    shown = value.item() if isinstance(value, np.generic) else value
    return ValueError(f"{file}: {field} is {shown!r:.300}: expected {wanted}; {remedy}")


@dataclass(frozen=True)
class Fields:
    """The fields of a JSON object in a file. Every method gives the value of one, or raises a ValueError."""

    file: Path
    found: Any
    remedy: str
    within: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.found, dict):
            raise wrong(self.file, self.within or "the content", self.found, "an object", self.remedy)

    def named(self, name: str) -> str:
        """The field's full name."""
        return f"{self.within}.{name}" if self.within else name

    def any(self, name: str, wanted: str) -> Any:
        """The value, whatever it is."""
        if name not in self.found:
            raise ValueError(f"{self.file}: {self.named(name)} is missing: expected {wanted}; {self.remedy}")
        return self.found[name]

    def text(self, name: str) -> str:
        """A string that is not empty."""
        value = self.any(name, "a text")
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(name, value, "a text")
        return value

    def whole(self, name: str, least: int = 0) -> int:
        """A whole number of at least `least`."""
        wanted = f"a whole number of at least {least}"
        value = self.any(name, wanted)
        number = checks.whole(value)
        if number is None or number < least:
            raise self.wrong(name, value, wanted)
        return number

    def number(self, name: str, most: float = np.inf, gap: bool = False) -> float:
        """A finite number from 0 to `most`; with `gap`, null is NaN."""
        wanted = f"a number from 0 to {most:g}" if most < np.inf else "a finite number of at least 0"
        value = self.any(name, wanted)
        if value is None and gap:
            return np.nan
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= min(most, _LARGEST):
            raise self.wrong(name, value, wanted)
        return float(value)

    def listed(self, name: str, wanted: str) -> list[Any]:
        """A list with at least one item."""
        value = self.any(name, wanted)
        if not isinstance(value, list) or not value:
            raise self.wrong(name, value, wanted)
        return value

    def inside(self, name: str) -> Fields:
        """The fields of an object inside this one."""
        return Fields(self.file, self.any(name, "an object"), self.remedy, self.named(name))

    def each(self, name: str) -> list[Fields]:
        """The fields of every object of a list."""
        listed = self.listed(name, "a list of objects")
        return [Fields(self.file, one, self.remedy, f"{self.named(name)}[{i}]") for i, one in enumerate(listed)]

    def wrong(self, name: str, value: Any, wanted: str) -> ValueError:
        """The error for a field that has another value than the wanted."""
        return wrong(self.file, self.named(name), value, wanted, self.remedy)


_LARGEST = float(np.finfo(float).max)


def check_columns(
    file: Path,
    table: pd.DataFrame,
    texts: Iterable[str] = (),
    wholes: Iterable[str] = (),
    numbers: Iterable[str] = (),
    gaps: Iterable[str] = (),
    key: Iterable[str] = (),
    remedy: str = "save it again",
) -> None:
    """ValueError for a column that is missing or holds anything else, naming the first row that does.

    `texts` hold strings, `wholes` whole numbers from 0 on, `numbers` finite ones, `gaps` these or NaN. No two rows agree in
    all of `key`.
    """
    texts, wholes, numbers, gaps, key = map(list, (texts, wholes, numbers, gaps, key))
    for name in (*texts, *wholes, *numbers, *gaps):
        if name not in table:
            raise ValueError(f"{file}: no column {name!r}; {remedy}")
    sound = [(name, "a text", _text(table[name])) for name in texts]
    sound += [(name, "a whole number from 0 on", _whole(table[name])) for name in wholes]
    sound += [(name, "a finite number", _finite(table[name])) for name in numbers]
    sound += [(name, "a finite number, or none", _finite(table[name]) | table[name].isna()) for name in gaps]
    for name, wanted, fine in sound:
        if not fine.all():
            row = int(np.flatnonzero(~fine.to_numpy(bool))[0])
            raise wrong(file, f"{name} in row {row}", table[name].iloc[row], wanted, remedy)
    twice = table.duplicated(key) if key else pd.Series([False])
    if twice.any():
        row = int(np.flatnonzero(twice)[0])
        what = ", ".join(f"{name} {table[name].iloc[row]!s}" for name in key)
        raise ValueError(f"{file}: row {row} is there twice ({what}): expected one row; {remedy}")


def _text(column: pd.Series) -> pd.Series:
    if isinstance(column.dtype, pd.StringDtype):
        return column.notna()
    return column.map(lambda one: isinstance(one, str)).astype(bool)


def _whole(column: pd.Series) -> pd.Series:
    return column >= 0 if column.dtype.kind in "iu" else pd.Series(False, column.index)


def _finite(column: pd.Series) -> pd.Series:
    """Numbers only, and no booleans."""
    numeric = column.dtype.kind in "iuf"
    return pd.Series(np.isfinite(column.to_numpy(float)) if numeric else False, column.index)
