"""Memory that runs out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from lens_heads.runs.memory import in_parts, out_of_memory


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), True),
        (RuntimeError("MPS backend out of memory"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), True),
        (MemoryError(), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_counts_as_memory(error: Exception, expected: bool) -> None:
    assert out_of_memory(error) == expected


def test_parts_are_halved_where_memory_runs_out() -> None:
    sizes: list[int] = []

    def work(part: Sequence[int]) -> list[int]:
        sizes.append(len(part))
        if len(part) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return [2 * item for item in part]

    found = list(in_parts(work, range(10), 8))
    assert [done for _, part in found for done in part] == [2 * item for item in range(10)]
    assert [list(part) for part, _ in found] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert sizes == [8, 4, 2, 2, 2, 2, 2]


def test_one_item_that_is_too_large_and_other_errors_are_raised() -> None:
    def work(part: Sequence[int]) -> None:
        raise torch.OutOfMemoryError("out of memory") if 0 in part else RuntimeError("other")

    with pytest.raises(torch.OutOfMemoryError):
        list(in_parts(work, range(2), 2))
    with pytest.raises(RuntimeError, match="other"):
        list(in_parts(work, range(1, 4), 3))
