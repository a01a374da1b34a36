"""Forward hooks by name, attached for the duration of a `with` block, on either TransformerLens class."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from torch import Tensor

from lens_heads.model.geometry import Model, geometry

HookFunction: TypeAlias = Callable[..., Tensor | None]


@contextmanager
def hooked(model: Model, hooks: Iterable[tuple[str, HookFunction]]) -> Iterator[None]:
    """Attach forward hooks `fn(tensor, hook) -> tensor | None` by name, and remove exactly these afterwards.

    Unlike `model.hooks`, a hook reached under an alias fires once, and other hooks are never touched.
    """
    added: list[tuple[Any, Any]] = []
    points = model.hook_dict
    try:
        for name, function in hooks:
            if name not in points:
                close = difflib.get_close_matches(name, points, n=1)
                raise ValueError(
                    f"{geometry(model).name} has no hook {name!r}"
                    + (f"; the nearest is {close[0]!r}" if close else "")
                    + ": a bridge needs enable_compatibility_mode(no_processing=True)"
                )
            points[name].add_hook(function)
            added.append((points[name], points[name].fwd_hooks[-1]))
        yield
    finally:
        for point, handle in reversed(added):
            handle.hook.remove()
            if handle in point.fwd_hooks:
                point.fwd_hooks.remove(handle)


@contextmanager
def recording(
    model: Model, names: Iterable[str], keep: Callable[[Tensor], Tensor] = Tensor.detach
) -> Iterator[dict[str, list[Tensor]]]:
    """Inside, every forward pass appends `keep(activation)` to the list of each of these hooks."""
    seen: dict[str, list[Tensor]] = {name: [] for name in names}
    with hooked(model, [(name, lambda x, hook, at=at: at.append(keep(x.detach()))) for name, at in seen.items()]):
        yield seen


@contextmanager
def running(forwards: Iterable[tuple[Any, Callable[..., Any]]]) -> Iterator[None]:
    """Inside, each module runs the given function as its `forward`; afterwards its previous one is restored."""
    before: list[tuple[Any, Any]] = []
    try:
        for module, forward in forwards:
            before.append((module, vars(module).get("forward")))
            vars(module)["forward"] = forward
        yield
    finally:
        for module, forward in reversed(before):
            del vars(module)["forward"]
            if forward is not None:
                vars(module)["forward"] = forward


def has_hooks(model: Model) -> bool:
    """Whether the model has any hooks attached."""
    return any(point.fwd_hooks or point.bwd_hooks for point in model.hook_dict.values())
