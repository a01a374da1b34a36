"""The same question with its context and without: what a head takes from the context, and not from memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import check_unique, encode_all
from lens_heads.trials.dependent import warn_of_repeats
from lens_heads.trials.encoded import EncodedTrial, token_ids
from lens_heads.trials.texts import check_ids
from lens_heads.trials.tokenizing import piece
from lens_heads.trials.trial import AnyTrial, Trial

Without = Literal["needle", "filler", "context"]
FILLER = "."


@dataclass(frozen=True, eq=False)
class ContextPair:
    """Your own pair: a prompt with context, one without, and the answer that both are forced through, as token ids.

    The prompts may differ in length: rows are aligned from the end. ValueError if one of the three has no tokens.

    `id`: its name in results. `group`: as in `Trial`.

    Example:
        >>> pair = lh.trials.ContextPair([1, 40, 41, 50], without=[1, 50], answer=[42], id="own")
        >>> len(pair.tokens), len(pair.without)
        (4, 2)
    """

    tokens: Int[Tensor, " position"]
    without: Int[Tensor, " position"]
    answer: Int[Tensor, " step"]
    id: str
    group: str | tuple[str, ...] = ""

    def __post_init__(self) -> None:
        for name in ("tokens", "without", "answer"):
            ids = token_ids(getattr(self, name), f"pair {self.id}", name)
            object.__setattr__(self, name, ids)
            if not len(ids):
                raise ValueError(f"pair {self.id}: {name} is empty: give at least one token")

    def __len__(self) -> int:
        return len(self.tokens) + len(self.answer)

    @property
    def settings(self) -> list[Any]:
        return [self.id, self.tokens.tolist(), self.without.tolist(), self.answer.tolist()]


AnyContext: TypeAlias = ContextPair | AnyTrial


@dataclass(frozen=True, eq=False)
class PairProbe:
    """Pairs for `score_heads`; see `context_pairs`."""

    pairs: tuple[AnyContext, ...]
    without: Without = "needle"

    def __repr__(self) -> str:
        return f"PairProbe({len(self.pairs)} pairs, without={self.without!r})"

    def encode(self, tokenizer: Any, shape: HeadGeometry) -> list[ContextPair]:
        """Every pair in tokens, checked."""
        check_unique(one.id for one in self.pairs)
        trials = [one for one in self.pairs if not isinstance(one, ContextPair)]
        encoded = iter(encode_all(trials, tokenizer, shape.n_ctx, d_vocab=shape.d_vocab) if trials else [])
        made = [one if isinstance(one, ContextPair) else self._of(one, next(encoded), tokenizer) for one in self.pairs]
        for one in made:
            for name, prompt in (("with context", one.tokens), ("without", one.without)):
                check_ids(f"pair {one.id}, {name}", torch.cat([prompt, one.answer]), shape)
        warn_of_repeats([one.id for one in made], [str(one.settings[1:]) for one in made])
        return made

    def _of(self, trial: AnyTrial, encoded: EncodedTrial, tokenizer: Any) -> ContextPair:
        without = self._bare(trial, tokenizer) if self.without == "context" else self._needleless(encoded, tokenizer)
        return ContextPair(encoded.tokens, without, encoded.answer_tokens, encoded.id, encoded.group)

    def _needleless(self, trial: EncodedTrial, tokenizer: Any) -> Int[Tensor, " position"]:
        """The prompt without its needle, or with filler in its place."""
        if trial.needle is None:
            raise ValueError(f"trial {trial.id} has no needle to leave out: use a ContextPair")
        start, end = trial.needle
        filler = [piece(tokenizer, FILLER)[0]] * (end - start if self.without == "filler" else 0)
        return torch.cat([trial.tokens[:start], torch.tensor(filler, dtype=torch.long), trial.tokens[end:]])

    def _bare(self, trial: AnyTrial, tokenizer: Any) -> Int[Tensor, " position"]:
        """The prompt of the same trial with nothing in the place of its haystack and needle."""
        if not isinstance(trial, Trial):
            raise ValueError(
                f"trial {trial.id} is in tokens, where its context begins is not known: use without='needle', or a ContextPair"
            )
        if not (trial.haystack or trial.needle):
            raise ValueError(f"trial {trial.id} has no haystack and no needle to leave out: use a ContextPair")
        return replace(trial, haystack="", needle="", needle_focus="", length=0).encode(tokenizer).tokens


@typed
def context_pairs(trials: Iterable[AnyContext] | AnyContext, *, without: Without = "needle") -> PairProbe:
    """A probe of runs with and without context.

    Args:
        trials: trials, or your own `ContextPair`s.
        without: what the second run of a trial lacks. "needle": the needle, so that the prompt is shorter. "filler": its needle
            is replaced by full stops, so that positions stay, the control for "needle". "context": haystack and needle, so that
            template, chat frame and question are left; for `Trial`s, whose parts are known.

    ValueError for no pairs, and for trials that have no such part.

    Example:
        >>> probe = lh.context_pairs(trials)
        >>> list(lh.score_heads(model, probe, "context_divergence"))
        ['context_divergence']
    """
    if without not in get_args(Without):
        raise ValueError(f"without={without!r}: use one of {', '.join(get_args(Without))}")
    listed = [trials] if isinstance(trials, ContextPair | Trial | EncodedTrial) else list(trials)
    if not listed:
        raise ValueError("there are no pairs: pass trials, or ContextPairs")
    return PairProbe(tuple(listed), without)
