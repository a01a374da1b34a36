"""code_of: functions that differ have different texts, in every process the same."""

from __future__ import annotations

from functools import partial
from typing import Any

from lens_heads.runs.code import code_of


def test_code_of_tells_functions_and_their_bound_arguments_apart() -> None:
    def one(x: int, y: int = 0) -> int:
        return x + y

    def other(x: int, y: int = 0) -> int:
        return x - y

    parts = [one, other, partial(one, y=1), partial(one, y=2), partial(other, y=1), len]
    assert len({code_of(part) for part in parts}) == len(parts)
    assert code_of(partial(one, y=1)) == code_of(partial(one, y=1))
    assert "0x" not in code_of(partial(one, y=1))  # An address would make every process another one.


def test_code_of_knows_what_a_function_closes_over() -> None:
    def make(token: int) -> Any:
        return lambda logits: logits[token]

    class Measure:
        def __init__(self, token: int) -> None:
            self.token = token

        def __call__(self, logits: Any) -> Any:
            return logits[self.token]

    assert code_of(make(5)) != code_of(make(90))
    assert code_of(make(5)) == code_of(make(5))
    assert code_of(Measure(5)) != code_of(Measure(90))
    assert code_of(Measure(5)) == code_of(Measure(5))
    assert "0x" not in code_of(Measure(5))
