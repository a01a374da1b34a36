"""Drawn: results that a notebook shows as their figures."""

from __future__ import annotations

from typing import Any


class Drawn:
    """What has a `plot`: a notebook shows that, and a place that cannot draw shows the table or the text."""

    def plot(self) -> Any:
        """The figure, with its defaults."""
        raise NotImplementedError

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        # Plotly's own choice for this place: {} where nothing draws, and then IPython asks for the other forms.
        return dict(self.plot()._repr_mimebundle_(include, exclude) or {})
