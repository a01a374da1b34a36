"""Studies: complete experiments from papers, built from the parts of this package.

Knows how they are run and what is claimed; nothing below imports it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lens_heads.studies.capability_paper.study import capability as capability
    from lens_heads.studies.fragile_paper.study import fragile_tasks as fragile_tasks
    from lens_heads.studies.locos_paper.study import locos as locos
    from lens_heads.studies.ranking_methods.study import bench as bench
    from lens_heads.studies.two_needles.study import choosing as choosing

__all__ = ["bench", "capability", "choosing", "fragile_tasks", "locos"]
__dir__ = __all__.copy

_MODULES = {
    "bench": "ranking_methods",
    "capability": "capability_paper",
    "choosing": "two_needles",
    "fragile_tasks": "fragile_paper",
    "locos": "locos_paper",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"lens_heads.studies.{_MODULES[name]}.study"), name)
    raise AttributeError(f"module 'lens_heads.studies' has no attribute {name!r}; it has {', '.join(__all__)}")
