"""Texts that every model can be read on, so that heads of different models are compared on the same words."""

from __future__ import annotations

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.prose import haystack


@typed
def common_texts(*, n: int = 16, seed: int = 0) -> list[str]:
    """n paragraphs of the packaged prose (`tasks.prose`) on different scenes, about 100 words each.

    `seed`: of the choice.

    Example:
        >>> first, second = lh.ranking.common_texts(n=2)
        >>> first != second
        True
    """
    checks.count("n", n)
    return haystack(200 * n, checks.seed(seed)).split("\n\n")[:n]
