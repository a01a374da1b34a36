"""What a notebook shows of a result: figures of curves, the prompt of a trial with its needle, a table of rankings."""

from __future__ import annotations

import inspect
import re
import sys
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, DocTestRunner
from typing import Any

import pandas as pd
import plotly.io as pio
import pytest
from IPython.core.formatters import DisplayFormatter

import lens_heads as lh
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.runs.drawn import Drawn, Tabled
from tests import planted
from tests.test_examples import examples, names, public

__all__ = ["names"]
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


OTHERWISE = {
    "Explorer": "draws itself",
    "Trial": "its prompt, below",
    "EncodedTrial": "tokens",
    "DocumentTrial": "a prompt",
    "Interval": "three numbers and their level",
    "Head": "a place",
    "HeadGeometry": "a shape",
    "HeadVectors": "tensors",
    "MeanActivations": "tensors",
    "RowActivations": "tensors",
    "TrialActivations": "tensors",
    "Masks": "tensors",
    "Figure": "a part of a page",
    "Style": "a part of a figure",
    "StreamingCache": "a block's",
    **dict.fromkeys(("TextProbe", "RepeatedProbe", "PairProbe", "WeightsProbe"), "what `rank` takes"),
    **dict.fromkeys(
        ("LocosFinding", "FragileFinding", "CapabilityFinding", "ChoosingFinding", "Pair"), "a study's page"
    ),
}
"""What public functions return that is no table, and why."""


def results() -> dict[str, type]:
    """The classes of the package that public functions return, by name, and the public ones that are drawn."""
    returned = [str(inspect.signature(one).return_annotation) for one in public().values() if inspect.isfunction(one)]
    named = {name for words in returned for name in re.findall(r"\w+", words)}
    modules = [module for name, module in sys.modules.items() if name.startswith("lens_heads")]
    found = {name: one for module in modules for name, one in vars(module).items() if name in named}
    ours = {
        name: one for name, one in found.items() if inspect.isclass(one) and one.__module__.startswith("lens_heads")
    }
    return {name: one for name, one in ours.items() if name not in OTHERWISE}


def test_the_results_are_found() -> None:
    assert {"AblationCurve", "Recovery", "TransferMatrix", "HeadScores", "Rankings", "Overlap", "Lofit"} <= {*results()}
    assert not [name for name in OTHERWISE if hasattr(results().get(name), "frame")]


@pytest.mark.parametrize("name", sorted(results()))
def test_every_result_has_a_frame_and_shows_it_and_draws_what_can_be_drawn(name: str) -> None:
    one = results()[name]
    assert "frame" in vars(one) or any(
        "frame" in {**vars(base), **getattr(base, "__annotations__", {})} for base in one.__mro__
    )
    assert hasattr(one, "_repr_html_")
    takes = inspect.signature(one.plot).parameters.values() if hasattr(one, "plot") else None
    if takes is not None:
        assert issubclass(one, Drawn)
        assert one.plot is not Drawn.plot
        assert all(each.default is not each.empty for each in takes if each.name != "self"), (
            "a notebook gives no arguments"
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(name for name, one in results().items() if one in public().values()))
def test_what_the_example_makes_is_shown(name: str, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    test = examples(results()[name], names)
    DocTestRunner(verbose=False, optionflags=NORMALIZE_WHITESPACE | ELLIPSIS).run(
        test, out=lambda _: None, clear_globs=False
    )
    made = [one for one in test.globs.values() if isinstance(one, results()[name])]
    for one in made[-1:]:
        html = shown(one, monkeypatch, "")["text/html"]
        plain = type(one)._repr_html_ is Tabled._repr_html_
        assert all(f"<th>{column}</th>" in html for column in list(one.frame.columns)[: int(plain)])
        assert "<table" in html
        assert isinstance(one.frame, pd.DataFrame)
        if isinstance(one, Drawn) and len(one.frame):
            assert shown(one, monkeypatch)[FIGURE]["data"]


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
