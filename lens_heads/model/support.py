"""What a model is known to fulfil of what scores, ablations and patches assume, measured once before the first of them.

An architecture whose formulas are not the assumed ones gives numbers, too. So the identities of `formula_checks.py` are run on a
few tokens of text, without any hooks, and `require` refuses what rests on one that fails. What was found is remembered by the
hash of the weights, so that loading a model again measures nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model import formula_checks, probe_run
from lens_heads.model.attending import check_free
from lens_heads.model.beginning import check_beginning
from lens_heads.model.changes import changing
from lens_heads.model.forward import avoid
from lens_heads.model.geometry import Model, head_geometry, is_bridge, require_weights
from lens_heads.model.hooks import hook_tables
from lens_heads.model.identity import fingerprint, inner_module, replaced_forwards, scales
from lens_heads.model.modes import evaluating
from lens_heads.model.probe_run import Check, ProbeRun
from lens_heads.runs.digests import digest
from lens_heads.trials.bos import begins

TEXT = (
    "The ferry left the stone quay a little after dawn, and nobody on deck spoke until the bell rang twice. "
    "Behind the harbour office a clerk was counting crates, writing each number down with great care. "
)
LENGTH = 32
"""Tokens of the prompt that identities are measured on."""

Need: TypeAlias = Literal[
    "causal",
    "cached",
    "pattern",
    "weights",
    "values",
    "writes",
    "unembedding",
    "closing",
    "edits",
    "queries",
    "gradients",
    "joined",
]
"""What a request may rest on; see `_MEASURED`."""

_MEASURED: dict[str, tuple[Callable[[ProbeRun], Check | list[Check]], str]] = {
    "causal": (formula_checks.causal, "load a causal language model"),
    "cached": (formula_checks.chunked, "use another model, or another version of transformers"),
    "pattern": (formula_checks.patterns, "use methods that read no attention pattern, such as dla and patching"),
    "weights": (formula_checks.weights, "use methods that read z alone: dla, patching, ablation"),
    "values": (formula_checks.values, "use methods that read z alone: dla, patching, ablation"),
    "writes": (formula_checks.stream, "use attention scores, which read patterns alone"),
    "unembedding": (formula_checks.unembedding, "use attention scores, ablation or patching"),
    "closing": (formula_checks.closing, 'use direction="raw", and methods without "exact" in their names'),
    "edits": (formula_checks.edits, "use a kind of ablation that edits z: zero, mean or resample"),
    "queries": (formula_checks.queries, "use a kind of ablation that edits z: zero, mean or resample"),
    "gradients": (formula_checks.gradients, "load the model in float32, or patch exactly"),
    "joined": (formula_checks.joined, "run one head at a time"),
}
"""How each identity is measured, and what is left to do where it fails."""
FIRST = ("causal", "cached", "pattern", "weights", "values", "writes", "unembedding", "closing")
"""What is measured when a model is first used; the others when something first needs them."""


@dataclass
class Support:
    """What has been measured of one model: the checks by what needs them, and the layers in which something gates z."""

    checks: dict[str, list[Check]] = field(default_factory=dict)
    gated: tuple[int, ...] = ()
    avoided: tuple[str, ...] = ()

    def failed(self, need: str) -> Check | None:
        """The first check that does not hold, or None. Numbers that are not finite tell nothing of the architecture, and are
        refused where they arise, with the trial's name."""
        return next((check for check in self.checks[need] if not check.passed and check.error == check.error), None)


_KNOWN: weakref.WeakKeyDictionary[Any, tuple[Any, Support]] = weakref.WeakKeyDictionary()
_BY_WEIGHTS: dict[str, Support] = {}


def support(model: Model, *needs: Need) -> Support:
    """What is known of the model, with these identities measured.

    Cost: about six forwards of 32 tokens the first time; where rotations depend on the length of a text, also two of a text of
    the length where they change.
    """
    # Before anything is measured: inside a streaming cache nothing would hold, and that would be kept.
    if is_bridge(model):
        check_free(model.original_model.config)
    wrapped = inner_module(model)
    stamp, known = _KNOWN.get(wrapped, (None, Support()))
    now = _stamp(wrapped)
    if stamp != now:
        known = _BY_WEIGHTS.setdefault(_key(model, wrapped), Support())
        _KNOWN[wrapped] = now, known
        avoid(model, *known.avoided)
    missing = [need for need in (*FIRST, *needs) if need not in known.checks]
    if missing:
        _measure(model, known, missing)
    return known


def require(model: Model, what: str, *needs: Need) -> HeadGeometry:
    """The model's geometry. ValueError, naming architecture, identity and remedy, if `what` rests on one that does not hold.

    Everything needs that no token sees the future, and that a forward over a cache is a forward.
    """
    require_weights(model)
    shape = head_geometry(model)
    check_beginning(model)
    known = support(model, *needs)
    within = ("weights",) if "pattern" in needs else ()
    for need in ("causal", "cached", *within, *needs):
        check = known.failed(need)
        if check is not None:
            note = f"; {check.note}" if check.note else ""
            remedy = _MEASURED[need][1]
            if model.cfg.dtype == torch.float16:
                remedy += ", or load it in float32: float16 holds no number above 65,504"
            raise ValueError(
                f"{shape.name} ({architecture(model)}): {what} rests on this: {check.name}, which does not hold here "
                f"(error {check.error:.2g} against {check.tolerance:g}{note}): {remedy}"
            )
    return shape


def joins(model: Model) -> bool:
    """Whether variants of a prompt can join one forward (`joining`); not on a HookedTransformer."""
    return is_bridge(model) and support(model, "joined").failed("joined") is None


def architecture(model: Model) -> str:
    """The architecture's name, as in a Hugging Face configuration."""
    wrapped = getattr(model, "original_model", None)
    named = getattr(model.cfg, "original_architecture", None) or getattr(model.cfg, "architecture", None)
    return type(wrapped).__name__ if wrapped is not None else str(named or type(model).__name__)


def prompt(model: Model, length: int = LENGTH) -> Int[Tensor, " position"]:
    """So many tokens of text, begun as the model's prompts are; of numbers, if the model has no tokenizer that fits it."""
    shape = head_geometry(model)
    length = min(length, shape.n_ctx)
    if model.tokenizer is not None:
        text = TEXT * (1 + length // 30)
        ids = [*begins(model.tokenizer), *model.tokenizer(text, add_special_tokens=False).input_ids][:length]
        if len(ids) == length and max(ids) < shape.d_vocab:
            return torch.tensor(ids)
    return torch.arange(length) % shape.d_vocab


@torch.no_grad()
def measured(
    model: Model, ids: Int[Tensor, " position"], tolerance: float, needs: Sequence[str]
) -> tuple[dict[str, list[Check]], ProbeRun | Exception]:
    """The checks of these identities on a prompt, and the run behind them. One that cannot be computed has failed."""
    one = _attempt(lambda: probe_run.run(model, ids, tolerance))
    found = {}
    for need in needs:
        run = one
        got = run if isinstance(run, Exception) else _attempt(lambda need=need: _MEASURED[need][0](one))
        if isinstance(got, Exception):
            why = f"{type(got).__name__}: {' '.join(str(got).split())[:120]}"
            got = Check(f"{need} can be measured", float("inf"), tolerance, why)
        found[need] = got if isinstance(got, list) else [got]
    return found, one


def tolerance_of(model: Model) -> float:
    """The relative error that rounding explains: bfloat16 activations carry 8 bits."""
    return 1e-3 if model.cfg.dtype in (torch.float32, torch.float64) else 5e-2


def _attempt(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        return error


@torch.no_grad()
def _measure(model: Model, known: Support, needs: Sequence[str]) -> None:
    tolerance = tolerance_of(model)
    with evaluating(model), unhooked(model):
        found, one = measured(model, prompt(model), tolerance, needs)
        if isinstance(one, ProbeRun) and "values" in found:
            known.gated = tuple(formula_checks.gates(one))
            # A shortcut that does not give the model's numbers is not taken, which costs time alone.
            taken = _attempt(lambda: formula_checks.shortcuts(one))
            failed = isinstance(taken, Exception)
            known.avoided = ("fast",) if failed else tuple(name for name, check in taken.items() if not check.passed)
            # What sdpa makes of ALiBi differs by less than half precision shows.
            if (
                "fast" not in known.avoided
                and getattr(getattr(inner_module(model), "config", None), "alibi", False) is True
            ):
                known.avoided += ("fast",)
            avoid(model, *known.avoided)
    known.checks |= found


@contextmanager
def unhooked(model: Model) -> Iterator[None]:
    """Inside, the model runs without the hooks of users, which are back afterwards."""
    with changing(model) as change:
        parts = {id(module): module for part in (model, inner_module(model)) for module in part.modules()}
        for table, keep in [pair for module in parts.values() for pair in hook_tables(module)]:
            before = table.copy()
            change.note(partial(_put_back, table, before))
            kept = [entry for entry in table if keep(entry)]
            if isinstance(table, list):
                table[:] = kept
            else:
                for key in [key for key in table if key not in kept]:
                    del table[key]
        yield


def _put_back(table: Any, before: Any) -> None:
    table.clear()
    (table.extend if isinstance(table, list) else table.update)(before)


def _key(model: Model, wrapped: Any) -> str:
    """What the measurements depend on: weights, configuration, every number that scales or masks, and the classes; a model whose
    code was replaced is measured by itself."""
    config = wrapped.config.to_dict() if is_bridge(model) else vars(model.cfg)
    kinds = [
        type(model).__name__,
        type(wrapped).__name__,
        str(wrapped.cfg.dtype if not is_bridge(model) else wrapped.dtype),
    ]
    kinds += [str(id(wrapped))] * bool(replaced_forwards(model))
    return digest([fingerprint(model), kinds, scales(model), {name: str(value) for name, value in config.items()}])


def _stamp(wrapped: Any) -> tuple[Any, ...]:
    """Changes when parameters are replaced or written to; reads no number of them."""
    return tuple((parameter.data_ptr(), parameter._version, parameter.dtype) for parameter in wrapped.parameters())
