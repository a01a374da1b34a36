"""A dot per head where its two scores put it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lens_heads import compare, plots
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from tests.plots.drawn import make


def test_scatter_places_and_names_heads_by_both_scores() -> None:
    a = make([[5.0, 4.0, 0.0], [0.1, 0.2, 0.3]], "locos")
    b = make([[3.0, 0.0, 2.0], [0.3, 0.1, 0.2]], "copy")
    figure = plots.scatter(a, b, mark=2)
    points = {t.name: sorted(zip(t.text, t.x, t.y, strict=True)) for t in figure.data}
    assert [(name, x, y) for name, x, y in points["top 2 of both"]] == [("L0H0", 5.0, 3.0)]
    assert points["top 2 by LOCOS only"] == [("L0H1", 4.0, 0.0)]
    assert points["top 2 by copy only"] == [("L0H2", 0.0, 2.0)]
    assert [name for name, _, _ in points["other heads"]] == ["L1H0", "L1H1", "L1H2"]
    assert "1 of the top 2 shared" in figure.layout.title.subtitle.text


def test_rankings_of_different_models_are_refused() -> None:
    a, b = make([[1.0, 2.0]]), make([[1.0], [2.0]], "copy")
    with pytest.raises(ValueError, match=r"locos \(1, 2\), copy \(2, 1\)"):
        plots.scatter(a, b)
    with pytest.raises(ValueError, match="Pass scores of one model"):
        plots.method_agreement({"locos": a, "copy": b})


def drawn(a: HeadScores, b: HeadScores, **options: int) -> Any:
    return plots.score_scatter(a, b, compare.by_layer_third(a, b), **options)


@pytest.fixture
def pair() -> tuple[HeadScores, HeadScores]:
    """Seven layers: the early third has three of them. Depth alone makes both grow."""
    generator = torch.Generator().manual_seed(0)
    depth = torch.arange(7.0)[:, None]
    a, b = (depth + torch.randn(7, 4, generator=generator) for _ in range(2))
    return make(a.tolist(), "locos"), make(b.tolist(), "copy")


def test_score_scatter_has_every_head_once_in_the_colour_of_its_third(pair: tuple[HeadScores, HeadScores]) -> None:
    a, b = pair
    figure = drawn(a, b)
    layers = {"early": range(3), "middle": range(3, 5), "late": range(5, 7)}
    for (third, expected), points in zip(layers.items(), figure.data, strict=True):
        assert points.name == f"{third} third (layers {expected[0]} to {expected[-1]})"
        heads = [Head(layer, head) for layer in expected for head in range(4)]
        assert list(points.text) == [str(head) for head in heads]
        np.testing.assert_array_equal(points.x, [a[head] for head in heads])
        np.testing.assert_array_equal(points.y, [b[head] for head in heads])
    assert len({(points.marker.color, points.marker.symbol) for points in figure.data}) == 3
    assert not {points.marker.color for points in figure.data} & {look.color for look in plots.STYLES.values()}


def test_score_scatter_names_the_best_of_each_where_they_are(pair: tuple[HeadScores, HeadScores]) -> None:
    a, b = pair
    notes = drawn(a, b, mark=3).layout.annotations
    assert {note.text for note in notes} == {str(head) for head in [*a.top(3), *b.top(3)]}
    for note in notes:
        assert (note.x, note.y) == (a[note.text], b[note.text])


def test_score_scatter_says_spearman_over_all_heads_and_by_third(pair: tuple[HeadScores, HeadScores]) -> None:
    a, b = pair
    text = drawn(a, b).layout.title.subtitle.text
    rho, thirds = compare.rank_correlation(a, b), compare.by_layer_third(a, b)
    assert f"ρ = {rho:.2f} over 28 heads" in text
    for row in thirds.to_dict("records"):
        numbers = f"{row['spearman']:.2f} [{row['low']:.2f}, {row['high']:.2f}]".replace("-", "−")
        assert f"{row['third']} {numbers}" in text


def test_names_of_heads_that_lie_on_one_spot_do_not_cover_each_other() -> None:
    values = torch.zeros(6, 4)
    values[5] = torch.tensor([5.0, 5.01, 5.02, 5.03])
    values[4] = torch.tensor([4.99, 5.0, 5.01, 5.02])
    figure = drawn(make(values.tolist()), make(values.tolist(), "copy"), mark=8)
    (x0, x1), (y0, y1) = figure.layout.xaxis.range, figure.layout.yaxis.range
    margin = figure.layout.margin
    width, height = figure.layout.width - margin.l - margin.r, figure.layout.height - margin.t - margin.b
    at = [
        ((note.x - x0) / (x1 - x0) * width + note.ax, (note.y - y0) / (y1 - y0) * height - note.ay)
        for note in figure.layout.annotations
    ]
    assert len(at) == 8
    for i, (x, y) in enumerate(at):
        assert all(abs(x - u) > 24 or abs(y - v) > 11 for u, v in at[:i]), (
            "the letters of L5H0 take some 26 by 11 pixels"
        )


def test_score_scatter_refuses_scores_of_different_models(pair: tuple[HeadScores, HeadScores]) -> None:
    a, b = pair
    thirds = compare.by_layer_third(a, b)
    with pytest.raises(ValueError, match=r"score_scatter: .*locos \(7, 4\), copy \(3, 1\). Pass scores of one model"):
        plots.score_scatter(a, make([[1.0], [2.0], [3.0]], "copy"), thirds)
    with pytest.raises(ValueError, match=r"locos \(7, 4\), locos \(7, 3\)"):
        plots.score_scatter(a, make([[1.0, 2.0, 3.0]] * 7), thirds)


BROKEN: dict[str, Any] = {
    "no rows": lambda t: t.head(0),
    "a third is missing": lambda t: t.head(2),
    "thirds of several methods": lambda t: pd.concat([t, t]),
    "thirds in another order": lambda t: t.assign(third=["late", "middle", "early"]),
    "another model": lambda t: t.assign(last_layer=[2, 4, 5]),
    "a layer twice": lambda t: t.assign(first_layer=[0, 2, 5]),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_score_scatter_refuses_another_table(pair: tuple[HeadScores, HeadScores], broken: str) -> None:
    message = r"thirds must split the layers 0 to 6 into early, middle, late. Pass the table of compare.by_layer_third"
    with pytest.raises(ValueError, match=message):
        plots.score_scatter(*pair, BROKEN[broken](compare.by_layer_third(*pair)))
