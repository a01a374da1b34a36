"""Run folders, the loop over units, workers and shards; reading and checking what users give.

Imports nothing of the package: it knows units of work and files, no model. Loaded when used, since the command line starts here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"options": ["LoopOptions", "RunOptions"], "parts": ["sharding"]}
)
