"""Ablation: a kind of ablation with its reference and options, checked before anything runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from lens_heads.heads.head import Head
from lens_heads.heads.sets import by_lowest_layer
from lens_heads.interventions.activations import MeanActivations, TrialActivations
from lens_heads.interventions.kinds import KINDS, REQUIRED
from lens_heads.interventions.row_activations import RowActivations
from lens_heads.interventions.spans import LAST, NEEDLE, check_number, check_within, ends_of, spans_of
from lens_heads.interventions.vectors import HeadVectors
from lens_heads.model.belonging import check_owner
from lens_heads.model.geometry import Model, head_geometry, is_bridge
from lens_heads.runs import checks
from lens_heads.runs.digests import digest, tensor_digest
from lens_heads.runs.warned import users_line
from lens_heads.trials.digests import Encoded

Reference = MeanActivations | TrialActivations | RowActivations | HeadVectors

_MAKE = {
    MeanActivations: "lh.mean_activations(model, calibration_trials)",
    TrialActivations: "lh.trial_activations(model, other_trial)",
    RowActivations: "lh.row_activations(model, other_prompts)",
    HeadVectors: "lh.task_vectors(model, trials), or lh.HeadVectors(z)",
}

BOUNDS: dict[str, tuple[float, ...]] = {"u": (0, 1), "a": (0, 1)}
"""The least and the largest value of options; all must be finite."""
WHOLE = {"sink": 0, "recent": 0, "n_chunks": 3, "chunk_size": 1}
"""Options that are whole numbers, with the least of each. Three chunks are always read: the first, the last, the one before."""


@dataclass(frozen=True, eq=False)
class Ablation:
    """How heads are ablated: `kind`, `reference` and `options` as in `ablate`.

    Example:
        >>> lh.Ablation("streaming", options={"sink": 4, "recent": 64}).kind
        'streaming'
    """

    kind: str = "mean"
    reference: Reference | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: Model,
        kind: str | Ablation = "mean",
        *,
        reference: Reference | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Ablation:
        """A checked ablation of this model, with all options set. Raises ValueError and TypeError as `ablate` does."""
        is_bridge(model)  # TypeError for anything but a TransformerLens model.
        given = kind if isinstance(kind, Ablation) else cls(kind, reference, options or {})
        if given is kind and (reference is not None or options):
            raise ValueError(
                "kind is an Ablation, which has its own reference and options: omit reference= and options"
            )
        settings, needed = check_options(given.kind, given.options), KINDS[given.kind].reference
        if needed is not None and not isinstance(given.reference, needed):
            got = "none was given" if given.reference is None else f"got {type(given.reference).__name__}"
            raise ValueError(f"kind={given.kind!r} needs a reference, {got}: pass reference={_MAKE[needed]}")
        if given.reference is not None:
            if needed is None:
                got = type(given.reference).__name__
                raise ValueError(f"kind={given.kind!r} takes no reference, got {got}: leave reference= out")
            check_belongs(model, given.reference, again=False)  # Contexts are entered thousands of times.
        _check_size(given.kind, settings, given.reference, model.W_U.dtype)
        return cls(given.kind, given.reference, settings)

    @property
    def spans(self) -> int:
        """How many spans or donors it has, one for each trial of a call; 0 if it has one span for all, a named part, or none."""
        if isinstance(self.reference, RowActivations):
            return len(self.reference.z)
        given = self.options.get("span")
        return len(given) if isinstance(given, tuple) and len(given) > 1 else 0

    @property
    def of_trials(self) -> bool:
        """Whether what it does belongs to each trial's own prompt: its span or donor, or its needle."""
        return self.spans > 0 or self.options.get("span") == NEEDLE

    @property
    def late(self) -> bool:
        """Whether it changes nothing before the last row of a prompt, so that one prefill serves all sets of heads."""
        return self.options.get("span") == LAST or isinstance(self.reference, RowActivations)

    def ordered(self, sets: Sequence[Sequence[Head]], n_layers: int) -> tuple[list[int], list[int]]:
        """The order in which sets of heads join a forward, and the layers from which their runs differ (`by_lowest_layer`)."""
        order, begins = by_lowest_layer(sets, n_layers)
        return order, [n_layers] * len(sets) if self.late else begins

    def check_spans(self, trials: Sequence[Encoded], *, room: int = 0, what: str = "trials") -> None:
        """ValueError if it has one span for each of another number of trials, or one that begins behind all that is run of its
        trial: `room` tokens may be generated."""
        given = self.options.get("span")
        if isinstance(self.reference, RowActivations):
            self.reference.check_trials(trials, what=what)
        if isinstance(given, tuple):
            check_number(len(given), len(trials), what)
            check_within(torch.tensor(given), ends_of(trials, room))

    @property
    def settings(self) -> dict[str, Any]:
        """The form stored in run folders."""
        return {"kind": self.kind, "options": dict(self.options), "reference": reference_digest(self.reference)}


def check_options(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a kind of ablation, the given ones checked. ValueError for what this kind does not take, or lacks."""
    if kind not in KINDS:
        raise ValueError(f"unknown kind of ablation {kind!r}: the kinds are {', '.join(KINDS)}")
    known = KINDS[kind].options
    unknown = sorted(options.keys() - known.keys())
    if unknown:
        raise ValueError(f"kind={kind!r} has no option {unknown[0]!r}: its options are {', '.join(known) or 'none'}")
    settings: dict[str, Any] = {}
    for name, value in {**known, **options}.items():
        if value is REQUIRED or (value is None and known[name] is REQUIRED):
            raise ValueError(
                f"kind={kind!r} needs {name}=..., e.g. ablate(model, heads, kind={kind!r}, {name}={_EXAMPLE[name]})"
            )
        what = f"kind={kind!r}, {name}"
        if name == "span":
            settings[name] = None if value is None else spans_of(what, value)
        elif name in WHOLE:
            settings[name] = checks.whole_number(what, value, WHOLE[name])
        else:
            settings[name] = checks.finite(what, value, *BOUNDS.get(name, ()))
    for name, value in _NEUTRAL.get(kind, {}).items():
        if settings[name] == value:
            warnings.warn(f"kind={kind!r}, {name}={value:g} leaves every head as it is", stacklevel=users_line())
    if kind == "emphasise":  # Attention times a negative number is none.
        checks.finite("kind='emphasise', factor", settings["factor"], 0)
    return settings


_NEUTRAL: dict[str, dict[str, float]] = {
    "scale": {"factor": 1},
    "emphasise": {"factor": 1},
    "add": {"factor": 0},
    "mix": {"a": 0},
    "identity": {"u": 0},
}
"""Options by which a kind changes nothing."""

LARGEST_CHANGE = 1e12
"""The largest factor, and the largest entry of a vector times its factor. Norms square the residual stream in float32: some
orders of magnitude beyond, the square is infinite and every later layer reads zeros."""


def _check_size(kind: str, options: Mapping[str, Any], reference: Any, dtype: torch.dtype) -> None:
    """ValueError for a factor by which numbers leave the model's dtype, so that what follows is NaN or all zeros."""
    if "factor" not in options:
        return
    vectors = isinstance(reference, HeadVectors)
    size = abs(options["factor"]) * (float(reference.z.abs().max()) if vectors else 1.0)
    # Sixteen keys or entries may add up.
    most = min(LARGEST_CHANGE, torch.finfo(dtype).max / 16)
    if size > most:
        what = f", times vectors of up to {float(reference.z.abs().max()):g}" if vectors else ""
        raise ValueError(
            f"kind={kind!r}, factor={options['factor']!r}{what}: must stay within {most:g}, or numbers overflow in {dtype}"
        )


_EXAMPLE = {"factor": "0.5", "span": "trial.needle", "n_chunks": "8"}


def check_belongs(model: Model, reference: Reference, again: bool = True) -> None:
    """ValueError unless means, vectors or a run are of this model's shape and weights, and finite. `again`: see `identify`."""
    reference.check(head_geometry(model))
    for name in ("z", "q", "gates"):
        values = getattr(reference, name, None)
        if values is not None and not values.isfinite().all():
            raise ValueError(f"{name} of the reference holds values that are not finite by now: make it again")
    what = "the vectors were" if isinstance(reference, HeadVectors) else "the reference was"
    check_owner(model, what, reference.model, f"make it with {_MAKE[type(reference)]}", again)


def reference_digest(reference: Reference | None) -> str:
    """Hash of a reference's trials and of all its values, in order; "none" without a reference."""
    if reference is None:
        return "none"
    if isinstance(reference, HeadVectors):
        return reference.digest
    if isinstance(reference, RowActivations):
        return digest([list(reference.trial_ids), tensor_digest(reference.z)])
    if isinstance(reference, MeanActivations):
        return digest([list(reference.trial_ids), tensor_digest(reference.z), tensor_digest(reference.q)])
    return digest([reference.id, reference.first, tensor_digest(reference.z)])
