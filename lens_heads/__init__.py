"""lens_heads: which attention heads do this, how do we know, and do other models have them too?

The names are listed in `__init__.pyi` and loaded when first used, so that `import lens_heads` costs nothing.

Examples in docstrings run as they stand, with `lh`, `np`, `pd`, `torch`, `Path`, and a model whose heads are known:

    planted = lh.planted_model(layers=2, backups=0, chains=0)
    model, heads = planted.model, [*planted.of("copier"), *planted.of("writer")]
    trials, others = planted.trials(8), planted.trials(8, seed=1)
    scores = lh.rank(model, trials, "locos")["locos"]

`pairs` are the other trials with a `corrupt` prompt, `curve` is an ablation curve of `scores`, `untrained` another model.
"""

import difflib
import importlib
from typing import Any

import lazy_loader

__version__ = "0.1.0"

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "plots":  # Methods tell the figures how they are called and drawn when they are loaded.
        importlib.import_module("lens_heads.ranking")
    if name in __all__:
        return _load(name)
    close = difflib.get_close_matches(name, __all__, 1)
    meant = f": did you mean {close[0]}?" if close else f"; it has {', '.join(__all__)}"
    raise AttributeError(f"module 'lens_heads' has no attribute {name!r}{meant}")
