"""What a notebook shows of a result: its figure, and its table where there is none or nothing draws."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 60


def as_html(shown: Any) -> str:
    """What a result says of itself, above its `frame`."""
    table = shown.frame.to_html(index=False, float_format=lambda x: f"{x:.4g}", na_rep="–", max_rows=MOST_ROWS)
    return f"<p>{escape(str(shown))}</p>{table}"


class Tabled:
    """What has a `frame`, which a notebook shows."""

    def _repr_html_(self) -> str:
        return as_html(self)


class OneRow(Tabled):
    """What is a few numbers."""

    @property
    def frame(self) -> pd.DataFrame:
        """One row: every field."""
        import pandas as pd

        return pd.DataFrame([vars(self)])


class Drawn(Tabled):
    """What has a `plot` as well: a notebook shows that, and a place that cannot draw shows the table or the text."""

    def plot(self) -> Any:
        """The figure, with its defaults."""
        raise NotImplementedError

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        # Plotly's own choice for this place: {} where nothing draws, and then IPython asks for the other forms.
        return dict(self.plot()._repr_mimebundle_(include, exclude) or {})
