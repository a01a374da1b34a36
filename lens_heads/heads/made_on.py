"""MadeOn: which trials a ranking was made on, so that it is never evaluated on the same trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from typing import Any


@dataclass(frozen=True)
class MadeOn:
    """The fields by which two trials are dependent if they share one. An empty field is unknown and matches nothing.

    `id` is the trial's own. Trials of one `group` (a company, a needle, a name) share what the answer depends on; a trial may
    have several.
    `needle` and `prompt` are hashes of the tokens: the same text under another id is not a new trial.
    `trial` is the trial itself, so that means can be made on it; it is kept in memory alone and written nowhere.
    """

    id: str
    group: str | tuple[str, ...] = ""
    needle: str = ""
    prompt: str = ""
    trial: Any = field(default=None, compare=False, repr=False)

    @property
    def record(self) -> dict[str, Any]:
        """A JSON object without the empty fields."""
        return {name: value for name in STORED if (value := getattr(self, name))}

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> MadeOn:
        """Read a JSON object, including those of older files, which have a company's `cik` in place of a group."""
        known = {name: record.get(name) for name in STORED}
        known["group"] = known["group"] or record.get("cik")
        texts: dict[str, Any] = {name: str(value or "") for name, value in known.items()}
        if isinstance(known["group"], list):
            texts["group"] = tuple(map(str, known["group"]))
        return cls(**texts)


STORED = tuple(one.name for one in fields(MadeOn) if one.compare)


def records(ids: Iterable[str], prompts: Iterable[str]) -> tuple[MadeOn, ...]:
    """Records of trials of which the ids are known, and the prompts' hashes or none of these."""
    return tuple(MadeOn(id, prompt=prompt) for id, prompt in zip_longest(ids, prompts, fillvalue="") if id)


def shared(made_on: Iterable[MadeOn], others: Iterable[MadeOn]) -> list[str]:
    """Ids of the trials that share an id, group, needle or prompt with one of the others, sorted."""
    seen = {known for other in others for known in _known(other)}
    return sorted({one.id for one in made_on if not seen.isdisjoint(_known(one))})


def _known(one: MadeOn) -> set[tuple[str, str]]:
    """The names and values of the known fields, every group on its own."""
    groups = (one.group,) if isinstance(one.group, str) else one.group
    named = [
        *((name, getattr(one, name)) for name in ("id", "needle", "prompt")),
        *(("group", each) for each in groups),
    ]
    return {(name, value) for name, value in named if value}
