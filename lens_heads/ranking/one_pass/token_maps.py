"""Maps of tokens to tokens, by which heads are scored from weights alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from jaxtyping import Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.scores import HeadScores
from lens_heads.ranking.one_pass.repeated import ordinary_tokens
from lens_heads.runs import checks
from lens_heads.runs.typed import LISTED, typed
from lens_heads.tasks.succession import successor_pairs
from lens_heads.trials.tokenizing import piece

Pairs = Iterable[tuple[str | int, str | int]]
COPIED = 300
"""How many ordinary tokens the packaged maps of copying have."""


@dataclass(frozen=True)
class TokenMap:
    """Pairs (t, f(t)) of words or token ids. `lowest`: a map of suppression, where f(t) should get the smallest logit.

    `pairs`: what is mapped to what.

    Example:
        >>> uppercase = lh.ranking.TokenMap([("a", "A"), ("b", "B")])
        >>> uppercase.lowest
        False
    """

    pairs: tuple[tuple[str | int, str | int], ...]
    lowest: bool = False


@dataclass(frozen=True, eq=False)
class EncodedMap:
    """A map in tokens: `tokens` are all that occur in it, `sources` and `targets` indices into them, pair by pair."""

    id: str
    tokens: Int[Tensor, " token"]
    sources: Int[Tensor, " pair"]
    targets: Int[Tensor, " pair"]
    lowest: bool = False
    group: str = ""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def settings(self) -> list[Any]:
        return [self.id, self.tokens.tolist(), self.sources.tolist(), self.targets.tolist(), self.lowest]


@dataclass(frozen=True, eq=False)
class WeightsProbe:
    """Maps by name for `score_heads`; see `token_maps`."""

    maps: Mapping[str, TokenMap] | None

    def encode(self, tokenizer: Any, shape: HeadGeometry) -> list[EncodedMap]:
        """Every map in tokens, without pairs whose words are several tokens. ValueError for a map with fewer than two left."""
        maps = packaged_maps(tokenizer, shape.d_vocab) if self.maps is None else self.maps
        return [_encode(name, one, tokenizer, shape) for name, one in maps.items()]


def packaged_maps(tokenizer: Any, d_vocab: int) -> dict[str, TokenMap]:
    """successor (numbers, words for them, ordinals, days, months, letters), copying and copy_suppression (random tokens)."""
    known = ordinary_tokens(tokenizer, d_vocab)
    some = known[torch.randperm(len(known), generator=torch.Generator().manual_seed(0))[:COPIED]].tolist()
    same = tuple((token, token) for token in some)
    return {
        "successor": TokenMap(tuple(successor_pairs())),
        "copying": TokenMap(same),
        "copy_suppression": TokenMap(same, lowest=True),
    }


def _encode(name: str, one: TokenMap, tokenizer: Any, shape: HeadGeometry) -> EncodedMap:
    found = [(_token(a, tokenizer, shape, name), _token(b, tokenizer, shape, name)) for a, b in one.pairs]
    pairs = list(dict.fromkeys((a, b) for a, b in found if a is not None and b is not None))
    tokens = torch.tensor(sorted({token for pair in pairs for token in pair}), dtype=torch.long)
    if len(pairs) < 2 or len(tokens) < 2:
        raise ValueError(
            f"map {name!r}: {len(pairs)} of {len(one.pairs)} pairs are single tokens of {shape.name} (words with the space "
            "before them): give at least two"
        )
    places = {int(token): i for i, token in enumerate(tokens)}
    sources, targets = (torch.tensor([places[token] for token in column]) for column in zip(*pairs, strict=True))
    return EncodedMap(name, tokens, sources, targets, one.lowest)


def _token(word: str | int, tokenizer: Any, shape: HeadGeometry, name: str) -> int | None:
    """A word's single token with the space before it, or an id as it is; None for several tokens."""
    number = checks.whole(word)
    if number is None:
        ids = piece(tokenizer, " " + str(word).removeprefix(" "))
        return ids[0] if len(ids) == 1 else None
    if not 0 <= number < shape.d_vocab:
        raise ValueError(f"map {name!r}: token id {number}, but {shape.name} has 0 to {shape.d_vocab - 1}")
    return number


@typed
def token_maps(maps: Annotated[Mapping[str, Pairs | TokenMap] | None, LISTED] = None) -> WeightsProbe:
    """A probe of the weights alone.

    Args:
        maps: by name, pairs (t, f(t)) of words or token ids, a mapping of t to f(t), or a `TokenMap`. Words are read with one
            space before them, written or not; pairs that are not single tokens are left out. None: successor, copying and
            copy_suppression.

    Each map is a trial of the result: one map gives its own ranking; `by_map` takes several apart, whose mean ranks nothing.
    ValueError for no maps.

    Example:
        >>> maps = lh.token_maps({"upper": [(73, 41), (74, 42)]})
        >>> list(lh.score_heads(untrained, maps))
        ['token_map']
    """
    if maps is not None and not isinstance(maps, Mapping):
        raise ValueError(f"maps must be a mapping {{'name': [(token, its image), ...]}}, not a {type(maps).__name__}")
    if maps is not None and not maps:
        raise ValueError(
            "there are no maps: pass maps={'name': [(token, its image), ...]}, or None for the packaged ones"
        )
    if maps is None:
        return WeightsProbe(None)
    return WeightsProbe(
        {name: one if isinstance(one, TokenMap) else TokenMap(_pairs(name, one)) for name, one in maps.items()}
    )


@typed
def by_map(scores: HeadScores) -> dict[str, HeadScores]:
    """Scores over several maps as one ranking a map, by the map's name, which is also its method.

    `scores`: a trial a map.

    Example:
        >>> maps = lh.token_maps({"upper": [(73, 41), (74, 42)], "lower": [(41, 73), (42, 74)]})
        >>> list(lh.ranking.by_map(lh.score_heads(untrained, maps, "token_map")["token_map"]))
        ['upper', 'lower']
    """
    return {
        name: replace(scores, method=name, values=values, per_trial=values[None], trial_ids=(name,))
        for name, values in zip(scores.trial_ids, scores.per_trial, strict=True)
    }


def _pairs(name: str, given: Any) -> tuple[tuple[str | int, str | int], ...]:
    """A map's pairs, given as such or as a mapping. ValueError naming the first that is none."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(
            f"map {name!r}: {given!r:.60} must be pairs (token, its image), or a mapping of tokens to images"
        )
    listed = list(given.items()) if isinstance(given, Mapping) else list(given)
    for one in listed:
        if isinstance(one, str) or not isinstance(one, Sequence) or len(one) != 2:
            raise ValueError(f"map {name!r}: {one!r:.60} is not a pair (token, its image)")
    return tuple((a, b) for a, b in listed)
