"""lens_heads: which attention heads do this, how do we know, and do other models have them too?

The names are listed in `__init__.pyi` and loaded when first used, so that `import lens_heads` costs nothing.
"""

import difflib
from typing import Any

import lazy_loader

__version__ = "0.1.0"

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _load(name)
    close = difflib.get_close_matches(name, __all__, 1)
    meant = f": did you mean {close[0]}?" if close else f"; it has {', '.join(__all__)}"
    raise AttributeError(f"module 'lens_heads' has no attribute {name!r}{meant}")
