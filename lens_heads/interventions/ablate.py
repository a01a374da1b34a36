"""ablate: change the activations of heads in every forward, including cached ones, and restore the model afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any, Unpack

import torch
from jaxtyping import Bool
from torch import Tensor

from lens_heads.heads.head import AnyHeads
from lens_heads.heads.made_on import MadeOn, shared
from lens_heads.heads.sets import by_layer
from lens_heads.interventions.checked_kind import Ablation, Reference
from lens_heads.interventions.kinds import KINDS, NEEDS, Effect, Setting
from lens_heads.interventions.options import KindOptions, taken
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.hooks import HookFunction, hooked
from lens_heads.model.passes import following
from lens_heads.model.support import require
from lens_heads.runs.blocks import block
from lens_heads.runs.typed import LISTED, typed
from lens_heads.runs.warned import users_line


@typed
@block
def ablate(
    model: Model,
    heads: AnyHeads,
    *,
    kind: str | Ablation = "mean",
    reference: Annotated[Reference | None, LISTED] = None,
    **options: Unpack[KindOptions],
) -> Iterator[None]:
    """Inside the block, the heads are ablated in every forward of the model, cached or not, including generation.

    Args:
        heads: `Head`s, "L12H1" strings or pairs; an empty list is allowed and changes nothing. They are places and
            know no model: those found in another checkpoint are ablated here too, which is how a transfer is tested.
        kind: at `hook_z`: "zero", "mean" (default; mean over calibration trials and positions), "resample" (same
            position of another trial), "patch" (the same, but only at the positions of that run; see `patch`), "interchange"
            (at the last row of each prompt, that of the trial's own donor),
            "scale" (`factor`), "add" (`factor`=1 times a vector), "mix" (z to (1 - `a`) z + `a` times a vector, `a`=1 and times
            the vectors' gates). At the query before QK-norm and rotation: "query_mean" (as in the LOCOS authors' code; not
            uniform attention), "query_zero". At the pattern: "uniform", "streaming" (`sink`=4, `recent`=64), "identity"
            (`u`=1), "emphasise" (attention to a `span` times `factor`=100, renormalized), "chunks" (each head and row reads
            its own `n_chunks` chunks of `chunk_size`=256 keys: the first, its own, the one before, and the best by q.k). Or an
            `Ablation`, which includes reference and options.
        reference: `mean_activations(...)` for the means, `trial_activations(...)` for "resample", `row_activations(...)` for
            "interchange", `HeadVectors` for "add" and "mix".

    A `span` is (start, end) in tokens from a prompt's first, or a list with one for each prompt of a batch; or, where trials
    run (`evaluate`, `ablation_curve`, `score_heads`), a list with one for each trial of the call, in the order in which they
    are given, "needle" (each trial's own) or "last" (the last row of each prompt). It says which keys "emphasise" is about,
    and which rows "zero", "mean", "resample", "add" and "mix" change (default: all). With "last", where trials run under many
    sets of heads, the prompt runs once for all of them: what heads write where the answer begins, at a fraction of the cost.

    Contexts can be nested; the innermost acts last. The hooks are removed when the block ends, even with an exception.

    Raises ValueError for a head that does not exist, an unknown kind or option, and a missing reference or one from another
    model.

    Cost: none of its own: it changes the forwards that run inside the block.

    Example:
        >>> with lh.ablate(model, heads, kind="zero"):
        ...     without = lh.evaluate(model, trials, generate=False)
        >>> without.metrics["greedy_match"].mean().item()
        0.0
    """
    ablation = Ablation.of(model, kind, reference=reference, options=taken(options))
    require(model, f"kind={ablation.kind!r}", *NEEDS[KINDS[ablation.kind].hook])
    before = _REFERENCES.get()
    leaks = ablation.reference is not None and ablation.kind != "patch"  # That is of the run itself on purpose.
    _REFERENCES.set((*before, ablation.reference) if leaks else before)  # type: ignore[arg-type]  # none is None
    try:
        with ablate_each(model, [heads], ablation):
            yield
    finally:
        _REFERENCES.set(before)


_REFERENCES: ContextVar[tuple[Reference, ...]] = ContextVar("references", default=())


def warn_of_leaks(evaluated: Sequence[MadeOn]) -> None:
    """A warning where the reference of a block that runs was made on some of these trials."""
    for reference in _REFERENCES.get():
        found = shared(evaluated, reference.made_on)
        if found:
            warnings.warn(
                f"the reference of the ablation was computed on {len(found)} of the trials that are evaluated under it "
                f"({found[0]!r}, ...), so that it knows them: compute it on others",
                stacklevel=users_line(),
            )


@contextmanager
def ablate_each(
    model: Model,
    sets: Sequence[AnyHeads],
    kind: str | Ablation = "mean",
    reference: Reference | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[None]:
    """Inside, variants of a batch run side by side, each with its own heads ablated.

    The cache of a forward says which variant a row is (`Cache.assign`). Layers may hold only the first of the variants
    (`model.joining`), so sets come in the order of their lowest layers. One set is ablated in every row. Otherwise as `ablate`.
    """
    shape, ablation = head_geometry(model), Ablation.of(model, kind, reference=reference, options=options)
    chosen = torch.zeros(shape.n_layers, len(sets), shape.n_heads, dtype=torch.bool)
    for variant, heads in enumerate(sets):
        for layer, indices in by_layer(shape.check_heads(heads)).items():
            chosen[layer, variant, indices] = True
    effect = Effect()
    with following(model) as running:
        hooks: list[tuple[str, HookFunction]] = []
        for layer in chosen.any(-1).any(-1).nonzero()[:, 0].tolist():
            heads = chosen[layer].any(0).nonzero()[:, 0].tolist()
            at = Setting(layer, heads, shape, running, ablation.reference, dict(ablation.options), effect)
            hook = _hook(ablation.kind, at, chosen[layer][:, heads])
            hooks.append((f"blocks.{layer}.attn.{KINDS[ablation.kind].hook}", hook))
        with hooked(model, hooks):
            yield
    for said in (effect.beyond, "" if effect.acted or not effect.idle else f"nothing was changed, since {effect.idle}"):
        if said:
            warnings.warn(f"kind={ablation.kind!r}: {said}", stacklevel=users_line())


def _hook(kind: str, at: Setting, chosen: Bool[Tensor, "variant head"]) -> HookFunction:
    """The hook function, which edits each variant's heads in a copy of the activation."""
    edit, on_pattern = KINDS[kind].edit, KINDS[kind].hook == "hook_pattern"
    heads = (slice(None), at.heads) if on_pattern else (slice(None), slice(None), at.heads)

    def apply(x: Tensor, hook: Any) -> Tensor:
        # In a fused projection the heads are side by side.
        split = x if on_pattern else at.shape.by_head(x, at.layer)
        changed, edited = split.clone(), edit(split[heads], at)
        if not chosen.all():
            assert at.now.variants is not None
            mine = chosen[at.now.variants[: len(x)]].to(x.device)
            mine = mine[:, :, None, None] if on_pattern else mine[:, None, :, None]
            edited = torch.where(mine, edited, split[heads])
        changed[heads] = edited
        return changed.reshape(x.shape)

    return apply
