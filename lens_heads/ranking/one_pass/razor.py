"""RazorAttention's choice of kv heads that keep the whole cache   (arXiv 2407.15891)"""

from __future__ import annotations

from lens_heads.heads.head import Head
from lens_heads.heads.one_model import check_one_model
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.units import to_kv_heads
from lens_heads.runs import checks
from lens_heads.runs.typed import typed


@typed
def razor_attention_heads(
    induction: HeadScores, echo: HeadScores, *, group: int, induction_share: float = 0.14, echo_share: float = 0.01
) -> list[Head]:
    """The best 14 % of kv heads by induction, joined by the best 1 % by echo, over all layers together.

    Args:
        induction, echo: from `score_heads(model, lh.repeated_blocks(model), ["induction", "echo"])`.
        group: query heads per kv head (`head_geometry(model).group`); a kv head takes the score of its best query head.

    Returns kv heads, at least one of each: "L3K1" is kv head 1 of layer 3. `ablate` takes `units.query_heads` of them.
    ValueError for scores of other methods or different models, and for shares outside 0 to 1.

    `induction_share`, `echo_share`: of the kv heads.

    Example:
        >>> found = lh.score_heads(model, lh.repeated_blocks(model, block=8), ["induction", "echo"])
        >>> kept = lh.razor_attention_heads(found["induction"], found["echo"], group=1)
        >>> kept[0].unit
        'kv_head'
    """
    for name, given in (("induction", induction), ("echo", echo)):
        if given.method != name:
            raise ValueError(
                f"{name} is a ranking of method {given.method!r}: pass score_heads(model, probe)[{name!r}]"
            )
    check_one_model(induction, echo)
    if induction.values.shape != echo.values.shape:
        raise ValueError("induction and echo are of models of different shapes: score one model on one probe")
    chosen: list[Head] = []
    for name, scores, share in (("induction_share", induction, induction_share), ("echo_share", echo, echo_share)):
        by_kv = to_kv_heads(scores, group) if scores.unit == "query_head" else scores
        chosen += by_kv.top(max(1, round(checks.share(name, share, "0.14") * len(by_kv.flat))))
    return list(dict.fromkeys(chosen))
