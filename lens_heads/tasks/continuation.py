"""Continuation: which of four endings does a situation of every day have? In the manner of HellaSwag, original and small."""

from __future__ import annotations

import random

from lens_heads.tasks.rows import Row, enough, packaged_rows
from lens_heads.tasks.sampling import check_split
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial


def continuation(
    n: int | None = None, split: str | None = None, seed: int = 0, chat: bool | None = False
) -> list[Trial]:
    """Trials with four endings as choices, one of which makes sense; by `choice` and `choice_logprob`, not by decoding.

    As in HellaSwag (Zellers et al., arXiv 1905.07830) the task is common sense, but the wrong endings were written for it,
    not generated and filtered by a model: they keep to the topic and the length of the right one and contradict the situation.
    Length does not tell them; how usual a sentence is does in part: `benchmarks/capabilities.py` asks after another context.

    Args:
        n: trials. None: all there are, 40 in each split.
        split: "select" to find heads, "test" to evaluate them: they share no situation; None takes both.
        seed: of the draw.
        chat: as in `Trial`. False by default, for chat models too: the beginning is a text to go on with.

    Returns:
        Trials without needle and haystack, with ids such as "continuation-select-07"; `meta` holds split and kind.

    Raises:
        ValueError: an unknown split, or an `n` above the number of situations.
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
