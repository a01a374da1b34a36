"""Methods look the same in every figure, and values draw themselves."""

from __future__ import annotations

from lens_heads import plots
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.scores import HeadScores
from lens_heads.plots.theme import looks_apart, looks_of
from lens_heads.ranking.one_pass.scorers import SCORERS
from tests.plots.drawn import make, trace


def test_a_method_has_one_colour_in_every_figure(curve: AblationCurve, scores: HeadScores) -> None:
    copy = make((-scores.values).tolist(), "copy")
    line = trace(plots.ablation_curves(curve, "contains"), "top k by copy")
    points = trace(plots.scatter(scores, copy, mark=2), "top 2 by copy only")
    colors = {line.line.color, plots.ranking_bars(copy).data[0].marker.color, points.marker.color}
    assert colors == {plots.LOOKS["copy"].color}
    assert line.marker.symbol == points.marker.symbol == plots.LOOKS["copy"].symbol


def test_looks_are_distinct_and_a_new_method_gets_a_lasting_one() -> None:
    used = list(plots.LOOKS.values())
    assert len({look.color for look in used}) == len({look.symbol for look in used}) == len(used)
    assert plots.look("my_method") == plots.look("my_method")
    assert plots.look("my_method").label == "my method"
    assert plots.look("my_method").color not in {look.color for look in used}
    assert plots.look("<b>x</b>").label == "&lt;b&gt;x&lt;/b&gt;"


def test_scores_and_curves_draw_themselves(scores: HeadScores, curve: AblationCurve) -> None:
    assert scores.plot(title="mine") == plots.head_map(scores, title="mine")
    assert curve.plot() == plots.ablation_curves(curve, "contains")
    assert curve.plot(task="parametric").layout.title.text == "Task: parametric"


def test_every_method_of_the_package_has_a_look_with_a_unit() -> None:
    assert set(plots.LOOKS) == set(SCORERS)
    assert all(look.unit for look in plots.LOOKS.values())


def test_series_of_one_figure_differ_and_leave_methods_their_own() -> None:
    names = ["first", "locos", "second", "random", "third"]
    looks = looks_of(names)
    assert list(looks) == names
    assert looks["locos"] == plots.LOOKS["locos"]
    assert looks["random"].color == plots.CONTROLS["random"][0]
    assert len({look.color for look in looks.values()}) == 5
    assert [looks[name].label for name in names] == ["first", "LOCOS", "second", "random", "third"]


def test_methods_of_one_figure_without_a_look_of_their_own_differ() -> None:
    names = ["locos", *"abcdef"]
    looks = looks_apart(names)
    assert len({plots.look(name).color for name in "abcde"}) < 5
    assert len({looks[name].color for name in "abcde"}) == 5
    assert looks["locos"] == plots.LOOKS["locos"]
    assert looks["f"] == plots.look("f")  # More methods than colours: its own, again.
    assert looks["a"] == plots.look("a")
