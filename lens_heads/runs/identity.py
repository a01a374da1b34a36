"""ModelIdentity: which model, with which weights, a result belongs to."""

from __future__ import annotations

from dataclasses import dataclass

FORMAT = 3
"""Increased whenever older run folders can no longer be continued: their settings then differ in `format`."""


@dataclass(frozen=True)
class ModelIdentity:
    """A model's name, a hash of all its weights, and their dtype. Fields that a file does not record are empty."""

    name: str
    weights: str = ""
    dtype: str = ""

    def __str__(self) -> str:
        return self.name or "an unnamed model"

    @property
    def settings(self) -> dict[str, object]:
        """The form stored in run folders."""
        return {"format": FORMAT, "model": self.name, "weights": self.weights, "dtype": self.dtype}
