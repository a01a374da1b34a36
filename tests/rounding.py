"""How far results may lie apart that are the same sums in another order: the bounds of float32.

A sum is rounded at the size of its largest parts, whatever is left of it in the end, and another processor adds them in
another order. So a bound follows the largest number that is compared, not each number, and for differences and ratios the
numbers that they are made of.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

STEPS = 64
"""Roundings between two ways through a few layers: a tiny model's logits differ by up to 15 from one processor to another."""


def rounding(size: float, steps: float = STEPS, dtype: torch.dtype = torch.float32) -> float:
    """The error that so many roundings of numbers of a size can add up to."""
    return steps * torch.finfo(dtype).eps * size


def same(found: Tensor, expected: Tensor, size: float | None = None, **options: Any) -> None:
    """Equal but for rounding at the size of the largest expected number, or at `size`, where larger ones led to them."""
    largest = float(expected.detach().abs().max()) if size is None else size
    torch.testing.assert_close(found, expected, atol=rounding(largest, dtype=expected.dtype), rtol=0, **options)
