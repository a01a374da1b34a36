"""Continuation: which of four endings fits an everyday situation? Like HellaSwag, but original and small."""

from __future__ import annotations

import random

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.rows import packaged_rows
from lens_heads.tasks.sampling import check_split, drawn
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial


@typed
def continuation(
    *, n: int | None = None, split: str | None = None, seed: int = 0, chat: bool | None = False
) -> list[Trial]:
    """Trials with four endings as choices, one of which makes sense; for `choice` and `choice_logprob`, not for decoding.

    As in HellaSwag (Zellers et al., arXiv 1905.07830) the task is common sense, but the wrong endings were written for it,
    not generated and filtered by a model: they match the right one in topic and length and contradict the situation. Length
    does not give the answer away; plausibility alone does in part (see the swapped contexts in `benchmarks/capabilities.py`).

    `n` is at most 40 in each split; the two share no situation. Trials have ids such as "continuation-select-07"; `meta`
    holds split and kind. Other arguments as in `lens_heads.tasks`.

    Example:
        >>> trial = lh.tasks.continuation(n=1, split="select")[0]
        >>> trial.id, len(trial.choices)
        ('continuation-select-25', 4)
    """
    check_split(split)
    rows = [row for row in packaged_rows("continuation") if split in (None, row.text("split"))]
    shots = template("continuation")
    return [
        Trial(
            id=f"continuation-{row.text('id')}",
            question=row.text("context"),
            answer=row.fields["endings"][row.fields["label"]],
            template=shots["template"],
            chat=chat,
            meta={"split": row.text("split"), "kind": "continuation"},
            judge=judge(shots),
            choices=tuple(row.fields["endings"]),
        )
        for row in drawn(rows, n, "situations", random.Random(checks.seed(seed)))
    ]
