"""Models of either TransformerLens class: load them, check what formulas assume, read their parts, run them.

Knows nothing of methods: what it offers is measured of any model in the same way. Loaded when used, since transformers and the
hub take seconds.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"check": ["CheckReport"], "load": ["load_model"], "workers": ["worker_pool"]}
)
