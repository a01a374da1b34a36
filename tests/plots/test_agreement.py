"""Agreement of methods: correlations, shared heads, and chance beside them."""

from __future__ import annotations

import numpy as np
import pytest

from lens_heads import compare, plots
from lens_heads.heads.scores import HeadScores
from tests.plots.drawn import make, trace


def test_agreement_is_spearman_and_hover_counts_shared_heads() -> None:
    a = make([[1.0, 2.0, 3.0, 4.0]], "locos")
    b = make([[10.0, 20.0, 30.0, 40.0]], "copy")
    c = make([[4.0, 3.0, 2.0, 1.0]], "dla")
    d = make([[2.0, 1.0, 4.0, 3.0]], "headkv")  # Two swaps: 1 - 6 * 4 / (4 * 15) = 0.6.
    flat = make([[1.0, 1.0, 1.0, 1.0]], "contrastive")
    drawn = plots.method_agreement({s.method: s for s in (a, b, c, d, flat)}).data[0]
    expected = [[1, 1, -1, 0.6], [1, 1, -1, 0.6], [-1, -1, 1, -0.6], [0.6, 0.6, -0.6, 1]]
    np.testing.assert_allclose(np.array(drawn.z)[:4, :4], expected, atol=1e-12)
    assert drawn.text[0][2] == "−1.00"
    assert drawn.text[3][0] == "0.60"
    assert drawn.text[4][0] == "–", "a constant ranking agrees with nothing"
    assert list(drawn.x) == list(drawn.y) == ["LOCOS", "copy", "DLA", "HeadKV", "contrastive"]
    assert (drawn.zmin, drawn.zmax) == (-1, 1)


def test_agreement_counts_the_shared_top_ten() -> None:
    up = make([[float(i) for i in range(16)]], "locos")
    down = make([[float(-i) for i in range(16)]], "copy")
    drawn = plots.method_agreement({"locos": up, "copy": down}).data[0]
    assert np.array(drawn.customdata).tolist() == [[10, 4], [4, 10]]


def test_agreement_of_no_methods_is_refused() -> None:
    with pytest.raises(ValueError, match="method_agreement: there are no scores to draw"):
        plots.method_agreement({})


@pytest.fixture
def pair() -> tuple[HeadScores, HeadScores]:
    a = make([[float(4 * layer + head) for head in range(4)] for layer in range(5)], "locos")
    return a, make([[float(layer + 5 * head) for head in range(4)] for layer in range(5)], "copy")


def test_jaccard_curves_are_the_table_with_chance_and_its_band(pair: tuple[HeadScores, HeadScores]) -> None:
    a, b = pair
    tables = {"copy": compare.jaccard_curve(a, b), "dla": compare.jaccard_curve(b, a)}
    figure = plots.jaccard_curves(
        {name: table[::-1] for name, table in tables.items()}
    )  # The order of rows is no matter.
    for name, label in (("copy", "copy"), ("dla", "DLA")):
        line, matched, table = trace(figure, label), trace(figure, f"{label}, layer-matched chance"), tables[name]
        np.testing.assert_array_equal(line.x, table["k"])
        np.testing.assert_array_equal(line.y, table["jaccard"])
        np.testing.assert_array_equal(line.customdata, table["overlap"])
        np.testing.assert_array_equal(matched.y, table["layer_matched_chance"])
        assert line.line.color == matched.line.color == plots.STYLES[name].color
        assert (line.line.dash, matched.line.dash) == (None, "dot")
    chance, band = trace(figure, "chance, with 95 % band"), trace(figure, "band, chance, with 95 % band")
    np.testing.assert_array_equal(chance.y, tables["copy"]["chance"])
    assert chance.line.dash == "dash"
    n = len(tables["copy"])
    np.testing.assert_array_equal(band.y[:n], tables["copy"]["chance_high"])
    np.testing.assert_array_equal(band.y[n:][::-1], tables["copy"]["chance_low"])
    np.testing.assert_array_equal(band.x[n:][::-1], tables["copy"]["k"])


def test_jaccard_curves_have_k_on_a_logarithmic_axis(pair: tuple[HeadScores, HeadScores]) -> None:
    figure = plots.jaccard_curves({"copy": compare.jaccard_curve(*pair, ks=[1, 4, 20])})
    axis = figure.layout.xaxis
    assert axis.type == "log"
    assert list(axis.tickvals) == [1, 4, 20]
    assert 10 ** axis.range[0] < 1 < 20 < 10 ** axis.range[1]


def test_curves_of_different_models_have_each_their_own_chance(pair: tuple[HeadScores, HeadScores]) -> None:
    smaller = [HeadScores(s.method, s.values[:3], s.per_trial[:, :3], s.trial_ids) for s in pair]
    tables = {"one <b>": compare.jaccard_curve(*pair), "two": compare.jaccard_curve(*smaller)}
    figure = plots.jaccard_curves(tables)
    colors = set()
    for name, label in (("one <b>", "one &lt;b&gt;"), ("two", "two")):
        chance, line = trace(figure, f"{label}, chance"), trace(figure, label)
        np.testing.assert_array_equal(chance.y, tables[name]["chance"])
        assert chance.line.color == line.line.color == trace(figure, f"band, {label}, chance").fillcolor
        assert chance.legendgroup == line.legendgroup
        colors.add(line.line.color)
    assert len(colors) == 2
    shown = [t.name for t in figure.data if t.showlegend is not False]
    assert shown == ["one &lt;b&gt;", "two", "chance, with 95 % band", "layer-matched chance"]


def test_no_curves_and_other_tables_are_refused(pair: tuple[HeadScores, HeadScores]) -> None:
    with pytest.raises(ValueError, match=r"there are no curves to draw. Pass \{name: compare"):
        plots.jaccard_curves({})
    with pytest.raises(KeyError, match="chance_low"):
        plots.jaccard_curves({"copy": compare.jaccard_curve(*pair).drop(columns="chance_low")})
    with pytest.raises(ValueError, match="jaccard_curves, 'copy': the frame has no rows"):
        plots.jaccard_curves({"copy": compare.jaccard_curve(*pair).head(0)})
