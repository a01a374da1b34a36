"""Ablation: one way to switch heads off (a kind, its reference and its options), checked before anything is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lens_heads.interventions.activations import MeanActivations, TrialActivations
from lens_heads.interventions.kinds import KINDS
from lens_heads.model.geometry import HeadGeometry, Model, geometry
from lens_heads.runs.store import digest

Reference = MeanActivations | TrialActivations

_MAKE = {
    MeanActivations: "mean_activations(model, calibration_trials)",
    TrialActivations: "lens_heads.interventions.activations.trial_activations(model, other_trial)",
}


@dataclass(frozen=True, eq=False)
class Ablation:
    """What ablating a head means: `kind` and `options` as in `ablate`, and the activations it refers to."""

    kind: str = "mean"
    reference: Reference | None = None
    options: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: Model,
        kind: str | Ablation = "mean",
        reference: Reference | None = None,
        options: Mapping[str, float] | None = None,
    ) -> Ablation:
        """An ablation of this model, its options complete.

        ValueError for an unknown kind or option, and a missing or foreign reference.
        """
        given = kind if isinstance(kind, Ablation) else cls(kind, reference, options or {})
        if given is kind and (reference is not None or options):
            raise ValueError("kind is an Ablation, which has a reference and options of its own: give no others")
        settings = _settings(given.kind, given.options)
        _check_reference(given.kind, given.reference, geometry(model))
        return cls(given.kind, given.reference, settings)

    @property
    def settings(self) -> dict[str, Any]:
        """As a run folder keeps it."""
        return {"kind": self.kind, "options": dict(self.options), "reference": reference_digest(self.reference)}


def _settings(kind: str, options: Mapping[str, float]) -> dict[str, float]:
    if kind not in KINDS:
        raise ValueError(f"unknown kind of ablation {kind!r}: the kinds are {', '.join(KINDS)}")
    known = KINDS[kind].options
    unknown = sorted(options.keys() - known.keys())
    if unknown:
        raise ValueError(f"kind={kind!r} has no option {unknown[0]!r}: it takes {', '.join(known) or 'none'}")
    settings = {**known, **options}
    missing = [name for name, value in settings.items() if value is None]
    if missing:
        raise ValueError(f"kind={kind!r} needs {missing[0]}=..., e.g. ablate(model, heads, {kind!r}, {missing[0]}=0.5)")
    return {name: float(value) for name, value in settings.items() if value is not None}


def _check_reference(kind: str, reference: Any, shape: HeadGeometry) -> None:
    needed = KINDS[kind].reference
    if needed is None:
        return
    if not isinstance(reference, needed):
        got = "none was given" if reference is None else f"got {type(reference).__name__}"
        raise ValueError(f"kind={kind!r} needs a reference, {got}: pass reference={_MAKE[needed]}")
    if isinstance(reference, MeanActivations):
        reference.check(shape)
    elif (reference.z.shape[0], *reference.z.shape[2:]) != (shape.n_layers, shape.n_heads, shape.d_head):
        raise ValueError(f"the reference of trial {reference.id} is another model's: make it with {_MAKE[needed]}")


def reference_digest(reference: Reference | None) -> str:
    """Hash of the trials a reference was computed on and of a sample of its values; "none" without one."""
    if reference is None:
        return "none"
    # Spread over all of z: the first positions of two trials may well be the same text.
    means = reference.z.double().mean(-1).flatten()
    spread = means[:: max(1, len(means) // 4096)]
    ids = reference.trial_ids if isinstance(reference, MeanActivations) else [reference.id]
    return digest([list(ids), [round(float(x), 5) for x in spread]])
