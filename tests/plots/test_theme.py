"""Methods look the same in every figure, and values draw themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lens_heads as lh
from lens_heads import plots
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.scores import HeadScores
from lens_heads.plots.theme import series_styles, styles_apart
from lens_heads.ranking.one_pass.scorers import SCORERS
from lens_heads.ranking.registry import resolve
from tests.plots.drawn import make, trace


def test_a_method_has_one_colour_in_every_figure(curve: AblationCurve, scores: HeadScores) -> None:
    copy = make((-scores.values).tolist(), "copy")
    line = trace(plots.ablation_curves(curve, "contains"), "top k by copy")
    points = trace(plots.scatter(scores, copy, mark=2), "top 2 by copy only")
    colors = {line.line.color, plots.ranking_bars(copy).data[0].marker.color, points.marker.color}
    assert colors == {plots.STYLES["copy"].color}
    assert line.marker.symbol == points.marker.symbol == plots.STYLES["copy"].symbol


def test_looks_are_distinct_and_a_new_method_gets_a_lasting_one() -> None:
    used = list(plots.STYLES.values())
    assert len({look.color for look in used}) == len({look.symbol for look in used}) == len(used)
    assert plots.method_style("my_method") == plots.method_style("my_method")
    assert plots.method_style("my_method").label == "my method"
    assert plots.method_style("my_method").color not in {look.color for look in used}
    assert plots.method_style("<b>x</b>").label == "&lt;b&gt;x&lt;/b&gt;"


def test_scores_and_curves_draw_themselves(scores: HeadScores, curve: AblationCurve) -> None:
    assert scores.plot(title="mine") == plots.head_map(scores, title="mine")
    assert curve.plot() == plots.ablation_curves(curve, "contains")
    assert curve.plot(task="parametric").layout.title.text == "Task: parametric"


def test_every_method_of_the_package_has_a_look_with_a_unit() -> None:
    assert set(plots.STYLES) >= set(SCORERS)
    assert all(plots.STYLES[name].unit == one.unit != "" for name, one in SCORERS.items())


@pytest.mark.slow
def test_figures_know_the_methods_before_anything_is_ranked() -> None:
    code = "from lens_heads import plots; print(plots.method_style('dla').axis, plots.method_style('dla').color)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[0] == "DLA score (logits) #CC79A7"


def test_a_method_of_your_own_is_drawn_as_it_says_and_takes_no_name_of_others() -> None:
    mine = lh.Method(
        "mine_as_it_says", "own", lambda material: material, label="Mine", unit="ells", marker=("#123456", "star")
    )
    other = lh.Method("dla", "own", lambda material: material, label="not DLA", marker=("#654321", "star"))
    resolve([mine, other])
    assert plots.method_style("mine_as_it_says") == plots.Style("#123456", "star", "Mine", "ells")
    assert plots.method_style("dla").label == "DLA"


def test_series_of_one_figure_differ_and_leave_methods_their_own() -> None:
    names = ["first", "locos", "second", "random", "third"]
    styles = series_styles(names)
    assert list(styles) == names
    assert styles["locos"] == plots.STYLES["locos"]
    assert styles["random"].color == plots.CONTROL_STYLES["random"][0]
    assert len({look.color for look in styles.values()}) == 5
    assert [styles[name].label for name in names] == ["first", "LOCOS", "second", "random", "third"]


def test_methods_of_one_figure_without_a_look_of_their_own_differ() -> None:
    names = ["locos", *"abcdef"]
    styles = styles_apart(names)
    assert len({plots.method_style(name).color for name in "abcde"}) < 5
    assert len({styles[name].color for name in "abcde"}) == 5
    assert styles["locos"] == plots.STYLES["locos"]
    assert styles["f"] == plots.method_style("f")  # More methods than colours: its own, again.
    assert styles["a"] == plots.method_style("a")


def test_what_a_method_says_of_itself_is_held_to_its_kind() -> None:
    for field, wrong in (("marker", "red"), ("label", 3), ("unit", None)):
        with pytest.raises(TypeError, match=f"{field}="):
            lh.Method("mine", "own", lambda material: material, **{field: wrong})  # type: ignore[arg-type]
