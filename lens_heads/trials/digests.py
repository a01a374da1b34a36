"""What identifies trials: hashes of their tokens, needles and prompts."""

from __future__ import annotations

from dataclasses import asdict

from lens_heads.runs.store import digest
from lens_heads.trials.encoded import EncodedTrial


def trials_digest(trials: list[EncodedTrial]) -> str:
    """Hash of ids, tokens, needles, answers, judges and choices of all trials."""
    return digest(
        [
            [
                *(t.id, t.tokens.tolist(), t.needle, t.answer, t.answer_tokens.tolist(), t.aliases, asdict(t.judge)),
                *(t.choices, [ids.tolist() for ids in t.choice_tokens]),
            ]
            for t in trials
        ]
    )


def needle_digest(trial: EncodedTrial) -> str | None:
    """Hash of the needle's tokens: trials with the same needle are not independent, whatever their ids."""
    return digest(trial.tokens[slice(*trial.needle)].tolist()) if trial.needle is not None else None


def prompt_digest(trial: EncodedTrial) -> str:
    """Hash of the prompt's tokens: the same question under another id is no other trial."""
    return digest(trial.tokens.tolist())
