"""What does the model answer, under whatever is switched on? Metrics of trials and of pairs of runs.

Knows no ranking: it never chooses heads.
"""

from lens_heads.answering.ability import Ability, ability
from lens_heads.answering.answerable import Answerable, answerable
from lens_heads.answering.evaluation import Evaluation, evaluate
from lens_heads.answering.question_need import QuestionNeed, question_need

__all__ = [
    "Ability", "Answerable", "Evaluation", "QuestionNeed", "ability", "answerable", "evaluate", "question_need",
]  # fmt: skip
__dir__ = __all__.copy
