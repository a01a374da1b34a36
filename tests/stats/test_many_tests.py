"""Family-wise p values, by counting."""

from __future__ import annotations

import pytest
import torch

from lens_heads.stats.many_tests import family_wise_p


def test_by_hand() -> None:
    null = torch.tensor([[1.0, 3.0], [2.0, 0.0], [5.0, 4.0]])  # The largest are 3, 2 and 5.
    assert family_wise_p(torch.tensor([2.5, 6.0]), null).tolist() == [3 / 4, 1 / 4]
    assert family_wise_p(torch.tensor([5.0, 2.0]), null).tolist() == [2 / 4, 1.0], "a draw that is equal counts"


def test_it_is_a_plain_count() -> None:
    generator = torch.Generator().manual_seed(0)
    values, null = torch.randn(4, 5, generator=generator) + 1.5, torch.randn(60, 4, 5, generator=generator)
    p = family_wise_p(values, null)
    for row in range(4):
        for column in range(5):
            reached = sum(float(draw.max()) >= float(values[row, column]) for draw in null)
            assert float(p[row, column]) == (1 + reached) / 61
    assert 0 < p.min() < 0.1 < p.max() <= 1


@pytest.mark.parametrize("shape", [(0, 2, 3), (4, 3, 2), (4, 6)])
def test_a_null_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"must be \[draw, \*\[2, 3\]\], with at least one draw"):
        family_wise_p(torch.zeros(2, 3), torch.zeros(shape))
