"""Forward hooks by name, attached for the duration of a `with` block, on either TransformerLens class."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor

from lens_heads.model.changes import changing, replacing
from lens_heads.model.delegated import pattern_first
from lens_heads.model.geometry import Model, head_geometry

HookFunction: TypeAlias = Callable[..., Tensor | None]


@contextmanager
def hooked(model: Model, hooks: Iterable[tuple[str, HookFunction]]) -> Iterator[None]:
    """Attach forward hooks `fn(tensor, hook) -> tensor | None` by name, and remove exactly these afterwards.

    Unlike `model.hooks`, a hook reached under an alias fires once, and other hooks are never touched.
    """
    points, listed = model.hook_dict, list(hooks)
    patterns = [int(found[1]) for name, _ in listed if (found := _PATTERN.fullmatch(name))]
    with running(model, pattern_first(model, patterns)), changing(model) as change:
        for name, function in listed:
            if name not in points:
                close = difflib.get_close_matches(name, points, n=1)
                raise ValueError(
                    f"{head_geometry(model).name} has no hook {name!r}"
                    + (f"; the nearest is {close[0]!r}" if close else "")
                    + ": a bridge needs enable_compatibility_mode(no_processing=True)"
                )
            attach(change, points[name], partial(_add, points[name], function))
        yield


_PATTERN = re.compile(r"blocks\.(\d+)\.attn\.hook_pattern")


def attach(change: changing, module: Any, register: Callable[[], Any]) -> None:
    """Add a forward hook or pre-hook by `register`, which returns torch's handle, until the change ends."""
    hook = _Hook(module)
    change.note(hook.remove)
    hook.id = register().id


class _Hook:
    """A hook that is about to be added: the one with this `id`, or, before that is known, whatever is new."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.id: int | None = None
        self.before = {key for hooks in self._tables() for key in hooks}

    def remove(self) -> None:
        """Remove the hook, if it is there; once is as good as twice."""
        for hooks in self._tables():
            for key in [key for key in hooks if self._is(key)]:
                hooks.pop(key, None)
        visible = getattr(self.module, "fwd_hooks", [])
        visible[:] = [handle for handle in visible if not self._is(handle.hook.id)]

    def _is(self, key: int) -> bool:
        return key not in self.before if self.id is None else key == self.id

    def _tables(self) -> list[Any]:
        return [getattr(self.module, f"_forward_{name}") for name in _TABLES]


_TABLES = ("hooks", "hooks_with_kwargs", "hooks_always_called", "pre_hooks", "pre_hooks_with_kwargs")


def _add(point: Any, function: HookFunction) -> Any:
    point.add_hook(function)
    return point.fwd_hooks[-1].hook


@contextmanager
def recording(
    model: Model, names: Iterable[str], keep: Callable[[Tensor], Tensor] = Tensor.detach
) -> Iterator[dict[str, list[Tensor]]]:
    """Inside, every forward pass appends `keep(activation)` to the list of each of these hooks."""
    seen: dict[str, list[Tensor]] = {name: [] for name in names}
    with hooked(model, [(name, lambda x, hook, at=at: at.append(keep(x.detach()))) for name, at in seen.items()]):
        yield seen


def running(model: Model, forwards: Iterable[tuple[Any, Callable[..., Any]]]) -> AbstractContextManager[None]:
    """Inside, each module runs the given function as its `forward`; afterwards its previous one is restored."""
    return replacing(model, [(module, "forward", forward) for module, forward in forwards])


def attached(model: Model) -> frozenset[tuple[str, int]]:
    """Which forward hooks are attached, by their points and torch's numbers, which never come again."""
    points = model.hook_dict.items()
    return frozenset((name, handle.hook.id) for name, point in points for handle in point.fwd_hooks)


def has_hooks(model: Model) -> bool:
    """Whether the model has any hooks attached, but for those that TransformerLens itself attaches on loading (OPT, XGLM)."""
    with changing(model):
        return any(
            not _comes_along(point, handle)
            for point in model.hook_dict.values()
            for handle in (*point.fwd_hooks, *point.bwd_hooks)
        )


def hook_tables(module: Any) -> Iterator[tuple[Any, Callable[[Any], bool]]]:
    """Every table of hooks that a module holds, and whether an entry of it comes with the model's code."""
    point = hasattr(module, "fwd_hooks")
    handles = [*module.fwd_hooks, *module.bwd_hooks] if point else []
    kept = {handle.hook.id for handle in handles if _comes_along(module, handle)}
    for name in (*(f"_forward_{table}" for table in _TABLES), "_backward_hooks", "_backward_pre_hooks"):
        table = getattr(module, name, None)
        if table:
            library = kept if point else {key for key, hook in table.items() if is_the_librarys(hook)}
            yield table, library.__contains__
    for table in (module.fwd_hooks, module.bwd_hooks) if point else ():
        if table:
            yield table, lambda handle: handle.hook.id in kept


def is_the_librarys(function: Any) -> bool:
    """Whether a function comes with the model's code: TransformerLens attaches some of its own in the first forward pass."""
    return (getattr(function, "__module__", None) or "").split(".")[0] in LIBRARIES


LIBRARIES = frozenset({"accelerate", "torch", "transformer_lens", "transformers"})
"""Packages whose own hooks come with a model's code."""


def _comes_along(point: Any, handle: Any) -> bool:
    """Whether a hook is permanent and a function of TransformerLens's, which it wraps in one more of its own."""
    tables = (point._forward_hooks, point._backward_hooks)
    wrapper = next((table[handle.hook.id] for table in tables if handle.hook.id in table), None)
    known = inspect.getclosurevars(wrapper).nonlocals if inspect.isfunction(wrapper) else {}
    module = getattr(known.get("hook"), "__module__", None) or ""
    return bool(handle.is_permanent) and module.split(".")[0] == "transformer_lens"
