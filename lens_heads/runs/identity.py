"""ModelIdentity: which model, with which weights, a result belongs to."""

from __future__ import annotations

from dataclasses import asdict, dataclass

FORMAT = 2
"""Raised whenever run folders of before cannot be continued: their settings then differ in it, and say so."""


@dataclass(frozen=True)
class ModelIdentity:
    """A model by name, a hash of all its weights, and the dtype they are in. Empty where a file does not say it."""

    name: str
    weights: str = ""
    dtype: str = ""

    def __str__(self) -> str:
        return self.name or "an unnamed model"

    @property
    def settings(self) -> dict[str, object]:
        """As a run folder keeps it."""
        found = asdict(self)
        return {"format": FORMAT, "model": found.pop("name"), **found}
