"""What a notebook shows of a result: figures of curves, the prompt of a trial with its needle, a table of rankings."""

from __future__ import annotations

from typing import Any

import plotly.io as pio
import pytest
from IPython.core.formatters import DisplayFormatter

import lens_heads as lh
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.runs.drawn import Drawn
from tests import planted

FIGURE = "application/vnd.plotly.v1+json"


@pytest.fixture
def curve() -> AblationCurve:
    model = planted.model()
    scores = lh.score_heads(model, planted.trials(2), "locos", teacher_forced=True, progress=False)
    return lh.ablation_curve(model, planted.trials(4)[2:], scores, ks=1, generate=False, progress=False)


def shown(value: Any, monkeypatch: pytest.MonkeyPatch, renderer: str = "plotly_mimetype") -> dict[str, Any]:
    monkeypatch.setattr(pio.renderers, "default", renderer)
    formatter = DisplayFormatter()
    formatter.active_types = formatter.format_types
    return formatter.format(value)[0]


def test_a_curve_shows_its_figure_and_its_table_where_nothing_draws(
    curve: AblationCurve, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = shown(curve, monkeypatch)
    assert [trace["name"] for trace in drawn[FIGURE]["data"]] == [trace.name for trace in curve.plot().data]
    assert drawn["text/plain"] == repr(curve)
    plain = shown(curve, monkeypatch, "")
    assert FIGURE not in plain
    assert "logprob" in plain["text/html"]


def test_all_results_with_a_figure_of_their_own_show_it() -> None:
    by_figure = {one.__name__ for one in Drawn.__subclasses__()}
    assert {
        "AblationCurve",
        "FaithfulnessCurve",
        "Recovery",
        "TransferMatrix",
        "StreamingTable",
        "Generality",
    } <= by_figure
    assert all(one.plot is not Drawn.plot for one in Drawn.__subclasses__())


def test_a_trial_shows_its_needle_marked_and_nothing_of_it_is_read_as_markup() -> None:
    trial = lh.Trial("a<b", "Who?", "Ann & Bob", "first. " * 90 + "last.", "Ann <3 Bob.", depth=0.9)
    html = trial._repr_html_()
    assert "<mark>Ann &lt;3 Bob.</mark>" in html
    assert "a&lt;b" in html
    assert "Ann &amp; Bob" in html
    assert html.index("<pre") < html.index("…") < html.index("<mark>") < html.index("last.") < html.index("Who?")
    assert "<mark>" not in lh.Trial("b", "2 + 2 =", "4", template="{question}")._repr_html_()


def test_rankings_show_the_best_heads_of_each() -> None:
    found = lh.rank(planted.model(), planted.trials(2), ["locos", "dla"], progress=False)
    assert found == dict(found)
    assert found.frame["ranking"].tolist() == ["locos", "dla"]
    assert found.frame["best"].str.split(", ").str[0].tolist() == [str(found[name].top(1)[0]) for name in found]
    assert found.frame["unit"].tolist() == ["logits", "logits"]
    assert "locos" in found._repr_html_()
