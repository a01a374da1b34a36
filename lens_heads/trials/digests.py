"""Hashes that identify trials by their tokens, needles and prompts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Protocol

from jaxtyping import Int
from torch import Tensor

from lens_heads.heads.made_on import MadeOn
from lens_heads.runs.digests import digest
from lens_heads.trials.encoded import EncodedTrial


def trials_digest(trials: list[EncodedTrial]) -> str:
    """Hash of ids, tokens, needles, answers, judges and choices of all trials."""
    rows: list[list[Any]] = []
    for t in trials:
        answer = [t.answer, t.answer_tokens.tolist(), t.aliases, t.judge.rule, asdict(t.judge)]
        rows.append([t.id, t.tokens.tolist(), t.needle, *answer, t.choices, [ids.tolist() for ids in t.choice_tokens]])
    return digest(rows)


def needle_digest(trial: EncodedTrial) -> str | None:
    """Hash of the needle's tokens: trials with the same needle are not independent, whatever their ids."""
    return digest(trial.tokens[slice(*trial.needle)].tolist()) if trial.needle is not None else None


def prompt_digest(trial: Encoded) -> str:
    """Hash of a prompt's tokens: the same text under another id is not a new trial."""
    return digest(trial.tokens.tolist())


class Encoded(Protocol):
    """Anything in tokens that results are stored under."""

    @property
    def id(self) -> str: ...
    @property
    def tokens(self) -> Int[Tensor, " position"]: ...
    @property
    def group(self) -> str | tuple[str, ...]: ...


def made_on(trials: Iterable[Encoded]) -> tuple[MadeOn, ...]:
    """The record by which `shared` decides whether a ranking made on these trials may be evaluated on others."""
    return tuple(
        MadeOn(
            id=trial.id,
            group=trial.group,
            needle=(needle_digest(trial) or "") if isinstance(trial, EncodedTrial) else "",
            prompt=prompt_digest(trial),
            trial=trial if isinstance(trial, EncodedTrial) else None,
        )
        for trial in trials
    )
