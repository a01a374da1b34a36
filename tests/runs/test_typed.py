"""Signatures hold: kinds of arguments, generators, names of arguments, fields of data classes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Unpack

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import lens_heads as lh
from lens_heads.heads.head import AnyHeads, Head, parse_heads
from lens_heads.runs.typed import LISTED, Default, defaults_of, typed, typed_fields
from tests.attack.held import refused


class Options(TypedDict, total=False):
    progress: bool
    out: str | Path | None


@typed
def function(
    names: Sequence[str] = (),
    by_name: Mapping[str, Path] | None = None,
    pair: tuple[int, int] = (0, 1),
    tensor: Float[Tensor, " n"] | None = None,
    which: Literal["a", "b"] = "a",
    measure: str | Callable[..., float] = "mean",
    flag: bool = True,
    numbers: Iterable[float] | float = 0.0,
    hidden: int = None,  # type: ignore[assignment]  # noqa: RUF013  # chosen inside
    **options: Unpack[Options],
) -> Any:
    return {**locals(), "twice": [list(names), list(names)]}


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("text for a list", dict(names="ab"), "names='ab': must be a list of texts"),
    ("a number among texts", dict(names=["a", 1]), "names=['a', 1]: must be a list of texts"),
    ("a dictionary for a list", dict(names={"a": 1}), "must be a list of texts"),
    ("none for a list", dict(names=None), "names=None: must be a list of texts"),
    ("a list for a dictionary", dict(by_name=[Path()]), "must be a dictionary of paths by name or None"),
    ("another value", dict(by_name={"a": "b"}), "by_name={'a': 'b'}: must be"),
    ("three for two", dict(pair=(1, 2, 3)), "pair=(1, 2, 3): must be a tuple of 2"),
    ("a number for two", dict(pair=400), "pair=400: must be a tuple of 2"),
    ("a list for a tensor", dict(tensor=[1.0]), "tensor=[1.0]: must be a dense tensor or None"),
    ("a sparse tensor", dict(tensor=torch.ones(2).to_sparse()), "must be a dense tensor"),
    ("a tensor without values", dict(tensor=torch.ones(2, device="meta")), "must be a dense tensor"),
    ("an array of objects", dict(tensor=np.array(["a"], dtype=object)), "must be a dense tensor"),
    ("a list for a name", dict(which=["a"]), "which=['a']: must be 'a' or 'b'"),
    ("a number for a function", dict(measure=5), "measure=5: must be a name or a function"),
    ("one for true", dict(flag=1), "flag=1: must be True or False"),
    ("text for true", dict(flag="no"), "flag='no': must be True or False"),
    ("an option", dict(progress="no"), "progress='no': must be True or False"),
    ("a path", dict(out=5), "out=5: must be a path or None"),
    ("another option", dict(progres=True), "unexpected keyword argument 'progres': did you mean progress?"),
    ("another name", dict(nanes=["a"]), "function: unexpected keyword argument 'nanes': did you mean names?"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "says"), [line[1:] for line in WRONG], ids=[line[0] for line in WRONG])
def test_another_kind_is_refused_by_name_and_value(given: dict[str, Any], says: str) -> None:
    refused(lambda: function(**given), says)


def test_too_many_arguments_and_a_missing_one() -> None:
    @typed
    def needs(one: int) -> int:
        return one

    refused(lambda: needs(1, 2), "needs: too many positional arguments: needs takes one")  # type: ignore[call-arg]
    refused(lambda: needs(), "needs: missing a required argument: 'one'")  # type: ignore[call-arg]
    refused(lambda: needs(two=2), "unexpected keyword argument 'two'")  # type: ignore[call-arg]


def test_a_generator_is_read_once_and_used_twice() -> None:
    assert function(names=(name for name in "ab"))["twice"] == [["a", "b"], ["a", "b"]]
    refused(lambda: function(names=(each for each in (1, 2))), "names=[1, 2]: must be a list of texts")


def test_what_fits_arrives_as_it_is() -> None:
    tensor, names = torch.ones(2), ("a", "b")
    found = function(names, {"a": Path("b")}, [1, 2], tensor, measure=len, flag=np.True_, numbers=np.ones(2), out="x")  # type: ignore[arg-type]
    assert found["tensor"] is tensor
    assert found["names"] is names
    assert found["options"] == {"out": "x"}
    assert function(tensor=np.ones(2))["tensor"].equal(torch.ones(2, dtype=torch.float64))  # type: ignore[arg-type]
    assert function()["hidden"] is None


def test_numbers_are_left_to_the_function() -> None:
    assert function(numbers="x", pair=(True, None))["pair"] == (True, None)  # type: ignore[arg-type]


def test_a_path_of_what_is_wanted_is_told_what_reads_it() -> None:
    @typed
    def reads(scores: lh.HeadScores | Sequence[lh.HeadScores], count: int = 1) -> None: ...

    for given in ("a.safetensors", Path("a")):
        refused(
            lambda given=given: reads(given),  # type: ignore[arg-type]
            f"scores={given!r}: must be a HeadScores or a list of HeadScores: read it with HeadScores.load",
        )
    with pytest.raises(TypeError, match=r"a list of HeadScores$"):
        reads(5)  # type: ignore[arg-type]


def test_a_bare_pair_is_one_head_and_scores_are_none() -> None:
    @typed
    def takes(heads: AnyHeads) -> list[Head]:
        return parse_heads(heads)

    assert takes((1, 2)) == takes("L1H2") == takes([Head(1, 2)]) == [Head(1, 2)]
    refused(lambda: takes(torch.ones(2)), "cannot read tensor(1.) as a head: write L12H1")  # type: ignore[arg-type]
    scores = lh.HeadScores.from_trials("mine", torch.ones(1, 2, 4), ["a"])
    refused(lambda: takes(scores), "a Head, text or a tuple of 2: select the best with .top(k)")  # type: ignore[arg-type]


def test_what_a_function_lists_is_left_to_it() -> None:
    @typed
    def lists(which: Annotated[str | Path, LISTED] = "a", other: Annotated[str | Path, "a note"] = "b") -> Any:
        return which

    assert lists(5) == 5  # type: ignore[arg-type]
    refused(lambda: lists(other=5), "other=5: must be a path")  # type: ignore[arg-type]


def test_fields_of_a_data_class() -> None:
    @dataclass(frozen=True)
    class Held:
        names: tuple[str, ...]
        tensor: Float[Tensor, " n"] = None  # type: ignore[assignment]  # made inside

        def __post_init__(self) -> None:
            typed_fields(self)

    assert Held(name for name in "ab").names == ["a", "b"]  # type: ignore[arg-type,comparison-overlap]
    assert Held(("a",)).tensor is None
    refused(lambda: Held("ab"), "names='ab': must be a list of texts")  # type: ignore[arg-type]
    refused(lambda: Held(("a",), [1]), "tensor=[1]: must be a dense tensor")  # type: ignore[arg-type]


def public_functions() -> list[tuple[str, Any]]:
    """The functions that the floors show, but those of plots and report, which draw what they are given."""
    found = {name: getattr(lh, name) for name in lh.__all__}
    for name, floor in list(found.items()):
        if inspect.ismodule(floor) and name not in ("plots", "report"):
            shown = floor.__all__
            found |= {f"{name}.{each}": getattr(floor, each) for each in shown}
    return [(name, one) for name, one in found.items() if inspect.isfunction(one)]


FREE = {"head_geometry", "sharding", "pair"}
"""`head_geometry` is called in every loop; `sharding` says itself what it takes; the other passes on what it is given."""


def test_every_public_function_is_held_to_its_signature() -> None:
    loose = {name for name, one in public_functions() if one.__code__.co_filename != typed.__code__.co_filename}
    assert {name.rpartition(".")[2] for name in loose} <= FREE
    assert len(public_functions()) > 100


OPEN = {"load"}
"""What it passes on are tasks, which say what they take."""


def test_every_option_of_a_public_function_stands_in_its_signature() -> None:
    for name, one in public_functions():
        parameters = inspect.signature(one).parameters.values()
        hidden = [each.name for each in parameters if each.kind is each.VAR_KEYWORD]
        assert not hidden or name.rpartition(".")[2] in OPEN, (name, hidden)
        assert inspect.getdoc(one), name


class Few(TypedDict, total=False):
    one: Annotated[int, Default(1)]
    two: int | None


def test_the_defaults_that_are_shown_are_those_that_are_taken() -> None:
    shown = {name: one.default for name, one in inspect.signature(lh.localize_heads).parameters.items()}
    assert {name: shown[name] for name in ("out", "progress", "workers", "batch_size", "max_new_tokens")} == {
        "out": None, "progress": True, "workers": None, "batch_size": 8, "max_new_tokens": 50,
    }  # fmt: skip
    taken: list[dict[str, Any]] = []

    @typed(one=3)
    def function(**options: Unpack[Few]) -> None:
        taken.append(dict(options))

    assert str(inspect.signature(function)) == "(*, one: int = 3, two: int | None = None) -> 'None'"
    function()
    function(one=4)
    assert taken == [{"one": 3}, {"one": 4}]
    assert defaults_of(Few) == {"one": 1, "two": None}


def test_a_call_with_open_options_is_told_what_does_not_fit() -> None:
    with pytest.raises(
        TypeError, match=r"ablate: too many positional arguments: ablate takes model, heads, and by keyword "
    ):
        lh.ablate(None, ["L0H0"], "scale", factor=0.5)  # type: ignore[misc]
