"""The registry of methods: every one that ranks all heads by itself, and how your own enters.

What takes more than trials, documents or probes is a plain function and no method: `probe_heads` (a label for each trial),
`path_patch` into heads of your choice, `search` and `fit` (a metric of masks), `razor_attention_heads` (two rankings). Nor are
`trace_circuit`, which gives a circuit, and `passkeys`, which makes trials.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd

from lens_heads.heads.geometry import HeadGeometry, LayerGeometry
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.styles import add_style
from lens_heads.model.geometry import head_geometry
from lens_heads.ranking import baselines, from_scorers
from lens_heads.ranking.causal import ablated, attribution, function_vectors, knockout, patching, paths, queries
from lens_heads.ranking.from_scorers import by_scorer
from lens_heads.ranking.gates import duo, hardkuma, head_gating, lofit, soft_injection
from lens_heads.ranking.masks import localize
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method, Rank
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.runs.code import labelled
from lens_heads.runs.drawn import Tabled

FILES: tuple[tuple[Method, ...], ...] = (
    from_scorers.METHODS,
    ablated.METHODS,
    attribution.METHODS,
    queries.METHODS,
    patching.METHODS,
    paths.METHODS,
    knockout.METHODS,
    localize.METHODS,
    *(file.METHODS for file in (duo, hardkuma, lofit, head_gating, soft_injection)),
    function_vectors.METHODS,
    baselines.METHODS,
)
"""The methods of each file, in the order in which they are shown."""

_EXAMPLE = HeadGeometry(
    "12 layers of 12 heads",
    (LayerGeometry(12, 12, 64),) * 12,
    768,
    50257,
    1024,
    False,
    False,
    None,
    None,
    "layer",
)


class Methods(Tabled, Mapping[str, Method]):
    """The methods by name, as a table in a notebook.

    Example:
        >>> lh.methods["locos"].needs, lh.methods["greedy"].family
        ('needle', 'search')
    """

    def __init__(self, files: Iterable[Iterable[Method]]) -> None:
        self._held = {method.name: method for file in files for method in file}

    def __getitem__(self, name: str) -> Method:
        if name not in self._held:
            called = {one.label.replace(" ", "_").lower(): one.name for one in self._held.values()}
            called |= {name: name for name in self._held}
            close = [one for one in called if one.startswith(f"{name}_")] or difflib.get_close_matches(
                str(name), called, 1
            )
            near = dict.fromkeys(repr(called[one]) for one in close)
            meant = f"did you mean {' or '.join(near)}? " if close else ""
            if "," in str(name):
                meant = "several methods are a list, ['locos', 'dla']; "
            raise KeyError(f"unknown method {name!r}: {meant}the methods are {', '.join(self._held)}")
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def frame(self) -> pd.DataFrame:
        """A row per method: its facts (see `lh.Method`).

        `passes` is that of 12 layers of 12 heads, 100 masks, and a search for 5 heads.
        """
        columns = ("label", "unit", "signed", "family", "needs", "only_named", "paper", "fails")
        found = pd.DataFrame([[getattr(one, each) for each in ("name", *columns)] for one in self._held.values()])
        found.columns = ["method", *columns]
        passes = [one.passes(_EXAMPLE, 100, 5) for one in self._held.values()]
        found.insert(list(found).index("needs") + 1, "passes", passes)
        return found

    def __repr__(self) -> str:
        return f"Methods({', '.join(self._held)})"


methods = Methods(FILES)
for _method in methods.values():
    add_style(_method.name, _method.label, _method.unit, _method.marker)


def identity(method: Method) -> str:
    """The name; for a method of your own, with a hash of its code."""
    return method.name if methods.get(method.name) is method else labelled(method.name, method.rank, True)


def resolve(given: Any) -> list[Method]:
    """Methods by name, `Scorer`s, `Method`s, finished `HeadScores`, or functions from Material to HeadScores.

    None: all that rank by trials, but for those that run only if they are named.
    ValueError for an unknown name and for two of one name; TypeError for anything else.
    """
    if given is None:
        return [one for one in methods.values() if one.takes_trials and not one.only_named]
    if isinstance(given, Mapping):
        raise TypeError("methods is a mapping: pass a list, e.g. [Method(name, 'own', function)]")
    single = isinstance(given, str | Scorer | Method | HeadScores) or not isinstance(given, Iterable)
    found = [_as_method(one) for one in cast(Iterable[Any], (given,) if single else given)]
    names = [method.name for method in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two methods are called {twice!r}: give one of them another name")
    for one in found:
        add_style(one.name, one.label, one.unit, one.marker)
    if not found:
        raise ValueError(f"there are no methods: choose from {', '.join(methods)}, or None for all")
    return found


def _as_method(given: Any) -> Method:
    if isinstance(given, Method):
        return given
    if isinstance(given, str):
        try:
            return methods[given]
        except KeyError as error:
            raise ValueError(error.args[0]) from None
    if isinstance(given, Scorer):
        return by_scorer(given, "own")
    if isinstance(given, HeadScores):
        return Method(given.method, "own", _Finished(given), passes=lambda shape, masks, k: 0.0)
    if callable(given):
        return Method(getattr(given, "__name__", type(given).__name__), "own", cast(Rank, given))
    raise TypeError(
        f"methods holds {given!r:.60}: use a name, a Scorer, a Method, HeadScores, or a function of Material"
    )


@dataclass(frozen=True)
class _Finished:
    """Scores that exist already, whatever the material."""

    scores: HeadScores

    def __call__(self, material: Material) -> HeadScores:
        shape = head_geometry(material.model)
        shape.check_scores(self.scores, f"method {self.scores.method!r}")
        return self.scores
