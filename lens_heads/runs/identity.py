"""ModelIdentity: which model, with which weights, a result belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

FORMAT = 3
"""Increased whenever older run folders can no longer be continued: their settings then differ in `format`."""


@dataclass(frozen=True)
class ModelIdentity:
    """A model's name, a hash of all its weights, and their dtype. Fields that a file does not record are empty.

    `wrapper`: the class that holds the weights, under names of its own: hashes of two classes cannot be compared. `changed`: what
    was attached to the model, in words (an ablation, hooks of the user's own), which no hash knows. `begins`: what its prompts
    began with, in words.
    """

    name: str
    weights: str = ""
    dtype: str = ""
    wrapper: str = field(default="", compare=False, repr=False)
    changed: str = field(default="", compare=False, repr=False)
    begins: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return (self.name or "an unnamed model") + (f" with {self.changed}" if self.changed else "")

    @property
    def record(self) -> dict[str, str]:
        """A JSON object without the fields that are not known."""
        found = {name: getattr(self, name) for name in RECORDED}
        return {name: value for name, value in found.items() if value}

    @classmethod
    def read(cls, record: Any) -> ModelIdentity:
        """Read a JSON object; an older file's None is a model of which nothing is known."""
        known = dict(record or {})
        return cls(*(str(known.get(name, "")) for name in RECORDED))

    @classmethod
    def stored(cls, meta: Mapping[str, Any]) -> ModelIdentity:
        """Read the `meta` of a stored result, among whose settings the name is called "model"."""
        return cls.read({**meta, "name": meta.get("model", "")})

    @property
    def settings(self) -> dict[str, object]:
        """The form stored in run folders."""
        return {"format": FORMAT, "model": self.name, "weights": self.weights, "dtype": self.dtype}


RECORDED = tuple(one.name for one in fields(ModelIdentity))
