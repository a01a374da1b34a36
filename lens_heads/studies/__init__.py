"""Studies: a paper's whole experiment, end to end, from the parts of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lens_heads.studies.locos_paper.study import locos as locos

__all__ = ["locos"]


def __getattr__(name: str) -> Any:
    if name == "locos":
        from lens_heads.studies.locos_paper.study import locos

        return locos
    raise AttributeError(f"module 'lens_heads.studies' has no attribute {name!r}; it has {', '.join(__all__)}, demo")
