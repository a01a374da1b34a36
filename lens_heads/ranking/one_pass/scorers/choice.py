"""The choice: what a head writes for the right answer rather than the wrong one, in the row where they part"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import PHI, Reading, Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView
from lens_heads.ranking.one_pass.scorers.dla import dla


def locos_choice(view: LayerView) -> Float[Tensor, "*span head"]:
    """Sum over needle and distractors of A[h, t, j] * v[h, j] @ W_O[h] @ (u_right - u_wrong), at the answer's first token.

    Units: logits.

    A head that writes any name raises the right one from the needle and the wrong one from the distractor, which cancels if it
    looks at both alike. What is left is the choice. With several distractors, u_wrong is that of the trial's `wrong`.
    """
    beside = sum(view.at(span).needle_sum(view.phi) for span in view.distractors)
    return (view.needle_sum(view.phi) + beside).mean(-1)


def _scorer(name: str, score: Callable[[LayerView], Tensor], direction: Reading, paper: str, label: str) -> Scorer:
    needs, reads = ({"wrong", "distractors"}, PHI) if score is locos_choice else ({"wrong"}, ("writes", "unembedding"))
    return Scorer(
        name,
        score,
        "choice",
        paper=paper,
        direction=direction,
        reads_needle=score is locos_choice,
        only_named=True,
        needs=frozenset(needs),
        reads=frozenset(reads),
        fails="credits what moves the two answers apart; heads that read the question, and let others write, write neither",
        label=label,
        unit="logits",
    )


OF_LOCOS, OF_DLA = "LOCOS of right minus wrong, from both needles", "logit difference; Wang et al., arXiv 2211.00593"
SCORERS = (
    _scorer("locos_choice", locos_choice, "run", OF_LOCOS, "LOCOS of the choice"),
    _scorer("locos_choice_exact", locos_choice, "exact", OF_LOCOS, "LOCOS of the choice, exact"),
    _scorer("dla_choice", dla, "run", OF_DLA, "DLA of the choice"),
    _scorer("dla_choice_exact", dla, "exact", OF_DLA, "DLA of the choice, exact"),
)
