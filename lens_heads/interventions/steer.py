"""steer: add vectors to what heads pass on. It is `ablate` of kind "add" under the name that is usual for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lens_heads.heads.head import AnyHeads
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.spans import Part, Span
from lens_heads.interventions.vectors import HeadVectors
from lens_heads.model.geometry import Model
from lens_heads.runs import checks
from lens_heads.runs.blocks import block
from lens_heads.runs.typed import typed


@typed
@block
def steer(
    model: Model,
    heads: AnyHeads,
    vectors: HeadVectors,
    *,
    factor: float = 1.0,
    span: Span | Sequence[Span] | Part | None = None,
) -> Iterator[None]:
    """Inside the block, `factor` times each head's vector is added to its z in every forward (activation addition; ITI).

    `span`: only in these rows of the prompt, as in `ablate`. Vectors come from `task_vectors`, a difference of two of them, or
    `ranking.lofit`. Raises as `ablate` does.

    `model`, `heads`: as in `ablate`. `vectors`: of `task_vectors`.

    Cost: none of its own: it changes the forwards that run inside the block.

    Example:
        >>> letter_a = lh.task_vectors(model, trials[:1])
        >>> with lh.steer(model, heads, letter_a, factor=4.0):
        ...     steered = lh.evaluate(model, trials[:2], max_new_tokens=1)
        >>> steered.texts
        ('A', 'A')
    """
    with ablate(model, heads, kind="add", reference=vectors, factor=checks.finite("factor", factor), span=span):
        yield
