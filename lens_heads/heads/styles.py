"""How methods are called and drawn: each says so in its own file, and figures learn it from here."""

from lens_heads.plots.theme import Marker, add_style

__all__ = ["Marker", "add_style"]
