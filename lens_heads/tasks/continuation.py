"""Continuation: which of four endings fits an everyday situation? Like HellaSwag, but original and small."""

from __future__ import annotations

import random

from lens_heads.tasks.rows import Row, packaged_rows
from lens_heads.tasks.sampling import check_split, enough
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial


def continuation(
    n: int | None = None, split: str | None = None, seed: int = 0, chat: bool | None = False
) -> list[Trial]:
    """Trials with four endings as choices, one of which makes sense; for `choice` and `choice_logprob`, not for decoding.

    As in HellaSwag (Zellers et al., arXiv 1905.07830) the task is common sense, but the wrong endings were written for it,
    not generated and filtered by a model: they match the right one in topic and length and contradict the situation. Length
    does not give the answer away; plausibility alone does in part (see the swapped contexts in `benchmarks/capabilities.py`).

    Args:
        n: number of trials; None for all, 40 in each split.
        split: "select" for finding heads, "test" for evaluating them; the two share no situation. None takes both.
        seed: random seed for the draw.
        chat: see `Trial`. False by default even for chat models, since the situation is text to continue.

    Returns:
        Trials without needle and haystack, with ids such as "continuation-select-07"; `meta` holds split and kind.

    Raises:
        ValueError: unknown split, or `n` above the number of situations.
    """
    check_split(split)
    rows = [row for row in packaged_rows("continuation") if split in (None, row.text("split"))]
    drawn = random.Random(seed).sample(rows, enough(n, len(rows), "situations"))
    return [_trial(row, chat) for row in drawn]


def _trial(row: Row, chat: bool | None) -> Trial:
    shots = template("continuation")
    endings = tuple(row.fields["endings"])
    return Trial(
        id=f"continuation-{row.text('id')}",
        question=row.text("context"),
        answer=endings[row.fields["label"]],
        template=shots["template"],
        chat=chat,
        meta={"split": row.text("split"), "kind": "continuation"},
        judge=judge(shots),
        choices=endings,
    )
