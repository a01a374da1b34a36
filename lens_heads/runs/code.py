"""code_of: what a user's own function does and reads, so that run folders can tell one from another.

The identity covers the compiled code, defaults, closure, globals, helper functions, classes and bound objects, down to every
element of arrays and tensors. What installed packages hold counts by name. Nothing depends on addresses or on the order of
sets, so it is the same in every process with the same Python and the same `datasets`.
"""

from __future__ import annotations

from typing import Any

from lens_heads.runs.references import UnknownError


def code_of(function: Any) -> str:
    """A hash that changes with what a function does or reads, and is the same in every process.

    Raises ValueError, naming it, for something that it reads and that cannot be identified: an open file, a lock, a generator,
    a call of `open` or `eval`.
    """
    from lens_heads.runs.contents import content_hash  # `datasets` takes a second, and most runs have no own function.

    try:
        return content_hash(function)
    except (UnknownError, RecursionError) as error:
        what = str(error) if isinstance(error, UnknownError) else "something nested too deeply"
        name = getattr(function, "__name__", type(function).__name__)
        raise ValueError(
            f"{name} reads {what}, which a run folder cannot identify: omit out=, or pass what it needs as numbers, text, "
            "arrays or tensors, e.g. by functools.partial"
        ) from error.__cause__


def labelled(name: str, function: Any, stored: bool) -> str:
    """The name with the identity of the code, as settings hold it. What is not `stored` may be unidentified."""
    try:
        return f"{name} ({code_of(function)[:16]})"
    except ValueError:
        if stored:
            raise
        return f"{name} (unidentified)"
